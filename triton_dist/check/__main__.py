"""``triton-dist-check script.py --pes 4 [--schedules random:1] [arguments of the script]``."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time

from triton_dist import environment
from triton_dist.testing.forks import Forker
from triton_dist.testing.script_command import parse_command, script_parser, seconds
from triton_dist.triton_api.launch_compiler import gpu_target

__all__ = ["main"]

_SCHEDULES = "round-robin,eager,adversarial,random:1,random:2,random:3"


def main(arguments: list[str] | None = None) -> int:
    """Entry point. 0: all PEs ended well and nothing was found; 1: something was, or a PE failed."""
    parser = script_parser(
        "triton-dist-check",
        "Run a script in the CPU world and report races, deadlocks and misuse of symmetric memory.",
    )
    parser.add_argument(
        *("--schedules", "--schedule"),
        default=None,
        metavar="LIST",
        help="schedules, which are run one after the other until a problem is found: round-robin, eager, "
        f"adversarial, random:<seed> (default: TRITON_DIST_SCHEDULE if it is set, else {_SCHEDULES})",
    )
    parser.add_argument(
        "--seconds", type=seconds, default=10.0, help="no further schedule starts after this time (default: 10)"
    )
    parser.add_argument("--compile", action="store_true", help="also compile every launched kernel")
    parser.add_argument("--target", help="the GPU of --compile: sm_90 (the default), gfx942, …")
    parser.add_argument("--timeout", type=seconds, default=600.0, help="seconds after which everything is ended (600)")
    options, script_arguments = parse_command(parser, arguments)
    if options.target is not None and not options.compile:
        parser.error("--target is the GPU of --compile, which is not given")
    options.target = "sm_90" if options.target is None else options.target
    if options.compile:
        try:
            gpu_target(options.target)
        except ValueError as error:
            parser.error(f"--target: {error}")
    chosen = options.schedules or os.environ.get("TRITON_DIST_SCHEDULE") or _SCHEDULES
    schedules = [schedule.strip().lower() for schedule in chosen.split(",")]
    for schedule in schedules:
        try:
            environment.VARIABLES["TRITON_DIST_SCHEDULE"].parse(schedule)
        except ValueError as error:
            parser.error(f"--schedules {schedule!r}: {error}")
    try:
        return _check(options, schedules, script_arguments)
    except KeyboardInterrupt:
        return 130


def _check(options: argparse.Namespace, schedules: list[str], arguments: list[str]) -> int:
    begin = time.monotonic()
    done: list[str] = []
    # The variable is read when triton_dist is imported, and the forks have imported it already.
    with Forker({"TRITON_DIST_CHECK_COMPILE": options.target} if options.compile else {}) as forker:
        for schedule in schedules:
            passed = time.monotonic() - begin
            if done and passed > options.seconds:
                break
            env = {"TRITON_DIST_CHECK": "1", "TRITON_DIST_SCHEDULE": schedule}
            # The program's output is the same for every schedule: later output is shown only with a problem.
            outcome = forker.launch_together(
                [options.script, *arguments],
                options.pes,
                env=env,
                timeout=options.timeout - passed,
                captures=bool(done),
            )
            if outcome.timed_out:
                how = f"schedule {schedule}; --timeout"
                print(f"triton-dist-check: ended after {options.timeout:g} s ({how})", file=sys.stderr)
                return 1
            if any(outcome.statuses):
                sys.stderr.write(outcome.output)
                if len(schedules) > 1:
                    print(
                        f"triton-dist-check: to repeat this run: {_again(options, schedule, arguments)}",
                        file=sys.stderr,
                    )
                return 1
            done.append(schedule)
    if len(schedules) > 1:
        left = schedules[len(done) :]
        more = f"; no time for {', '.join(left)} (--seconds {options.seconds:g})" if left else ""
        took = time.monotonic() - begin
        print(f"triton-dist-check: nothing found with {', '.join(done)}, in {took:.1f} s{more}", file=sys.stderr)
    return 0


def _again(options: argparse.Namespace, schedule: str, arguments: list[str]) -> str:
    """The command that runs this schedule only."""
    own = ["triton-dist-check", options.script, "--pes", str(options.pes), "--schedules", schedule]
    own += ["--compile", "--target", options.target] if options.compile else []
    return shlex.join([*own, *(["--", *arguments] if arguments else [])])


if __name__ == "__main__":
    sys.exit(main())
