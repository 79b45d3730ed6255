"""``triton-dist-model script.py --pes 4 --machine h200 [--trace FILE] [arguments of the script]``."""

from __future__ import annotations

import argparse
import sys

from _triton_dist_info import put
from triton_dist.model.machine import MACHINES, Machine, MachineError
from triton_dist.model.record import ScriptError, record
from triton_dist.testing.forks import Forker
from triton_dist.testing.script_command import parse_command, script_parser, seconds

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Entry point. 0: the report was printed; 1: there is none, and one line says why; 2: a mistake in the call."""
    parser = script_parser(
        "triton-dist-model",
        "Run a script in the CPU world, and say how long it would take on a described machine.",
    )
    known = ", ".join(sorted(file.stem for file in MACHINES.glob("*.toml")))
    parser.add_argument("--machine", required=True, help=f"a TOML file (docs/model.md), or one of: {known}")
    parser.add_argument("--phase", type=int, help="the phase to look at (default: the last one with a kernel)")
    parser.add_argument("--trace", metavar="FILE", help="where to write a trace for ui.perfetto.dev")
    parser.add_argument("--light", action="store_true", help="PEs are coroutines of one process, for hundreds")
    parser.add_argument("--timeout", type=seconds, default=600.0, help="seconds after which the script is ended (600)")
    options, script_arguments = parse_command(parser, arguments)
    try:
        return _model(options, [options.script, *script_arguments])
    except KeyboardInterrupt:
        return 130


def _model(options: argparse.Namespace, script: list[str]) -> int:
    try:
        from triton_dist.model.graph import Graph, UnknownCostError
        from triton_dist.model.replay import Replay, StuckError
        from triton_dist.model.report import chosen_phase, report
        from triton_dist.model.trace import write_trace
    except ModuleNotFoundError as error:
        if error.name != "simpy":
            raise
        print("triton-dist-model: needs simpy: pip install 'triton-dist[model]'", file=sys.stderr)
        return 1
    try:
        machine = Machine.load(options.machine)
        with Forker({"OMP_NUM_THREADS": "1"}) as forker:
            run = record(forker, script, options.pes, machine, timeout=options.timeout, light=options.light)
        replay = Replay(Graph(run), machine)
        replay.run()
        text = report(replay, chosen_phase(replay, options.phase))
        if options.trace:
            write_trace(replay, options.trace)
    except (MachineError, ScriptError, UnknownCostError, StuckError, ValueError, OSError) as error:
        print(f"triton-dist-model: {error}", file=sys.stderr)
        return 1
    return put("triton-dist-model", text.removesuffix("\n"))


if __name__ == "__main__":
    sys.exit(main())
