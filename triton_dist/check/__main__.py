"""``triton-dist-check script.py --pes 4 [--schedule random:1] [arguments of the script]``."""

from __future__ import annotations

import argparse
import os
import sys

from triton_dist.testing.launch import run

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Entry point. 0: all PEs ended well and nothing was found; 1: something was, or a PE failed."""
    parser = argparse.ArgumentParser(
        prog="triton-dist-check",
        description="Run a script in the CPU world and report races, deadlocks and misuse of symmetric memory.",
        epilog="Arguments that are not listed here are the script's; those behind -- are, in any case.",
        allow_abbrev=False,
    )
    parser.add_argument("script", help="the Python program")
    parser.add_argument("--pes", type=int, default=4, help="how many PEs (default: 4)")
    parser.add_argument(
        "--schedule", default=None, help="round-robin, random:<seed> or adversarial (TRITON_DIST_SCHEDULE)"
    )
    parser.add_argument("--compile", action="store_true", help="also compile every kernel that is launched")
    parser.add_argument("--target", default="sm_90", help="for which GPU: sm_90 (the default), gfx942, …")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds after which everything is ended (600)")
    options, rest = parser.parse_known_args(arguments)
    if options.pes < 1:
        parser.error(f"--pes {options.pes}: at least one is needed")
    if not os.path.isfile(options.script):
        parser.error(f"{options.script}: no such file")
    env = {"TRITON_DIST_WORLD": "cpu", "TRITON_DIST_CHECK": "1"}
    if options.compile:
        env["TRITON_DIST_CHECK_COMPILE"] = options.target
    if options.schedule is not None:
        env["TRITON_DIST_SCHEDULE"] = options.schedule
    script_arguments = [argument for i, argument in enumerate(rest) if argument != "--" or "--" in rest[:i]]
    try:
        statuses = run([options.script, *script_arguments], options.pes, env=env, timeout=options.timeout)
    except KeyboardInterrupt:
        return 130
    if statuses is None:
        print(f"triton-dist-check: ended after {options.timeout:g} s (--timeout)", file=sys.stderr)
        return 1
    return 1 if any(statuses) else 0


if __name__ == "__main__":
    sys.exit(main())
