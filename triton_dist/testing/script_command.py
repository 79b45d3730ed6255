"""What commands that run a user's script on PEs of the CPU world share: the script, its arguments and ``--pes``."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

from _triton_dist_info import escape_output

__all__ = ["parse_command", "script_parser", "seconds"]


def script_parser(prog: str, description: str) -> argparse.ArgumentParser:
    """The parser of such a command, to which it adds its own options."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog="Arguments that are not listed here are the script's; those behind -- are, in any case.",
        allow_abbrev=False,
    )
    parser.add_argument("script", help="the Python program")
    parser.add_argument("--pes", type=int, default=4, help="how many PEs (default: 4)")
    return parser


def seconds(text: str) -> float:
    """The argument of an option: a time. argparse says of what is none which option it is."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds")
    return value


def parse_command(parser: argparse.ArgumentParser, arguments: list[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the arguments of the script. A mistake ends the process, with a line that says which."""
    escape_output()
    options, rest = parser.parse_known_args(arguments)
    if options.pes < 1:
        parser.error(f"--pes {options.pes}: at least one is needed")
    if not os.path.isfile(options.script):
        what = "is a folder, not a program" if Path(options.script).is_dir() else "no such file"
        parser.error(f"{options.script}: {what}")
    return options, [argument for i, argument in enumerate(rest) if argument != "--" or "--" in rest[:i]]
