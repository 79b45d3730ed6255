"""``python -m triton_dist.cpu.light N script.py [arguments]``: a script on N PEs of one process, in a checked run.

Before N, ``--programs NUMBER,…`` lets the first and the last program of each launch run, and those with these numbers
(or none), and ``--alone PE`` that PE for all
(``alone.py``). The first PE that fails ends the run, with status 1 and its error. ``TRITON_DIST_CHECK`` must be set.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import traceback
from pathlib import Path
from types import CodeType
from typing import Any

from triton_dist import environment
from triton_dist.cpu.light.world import Shared
from triton_dist.process_state import of_process
from triton_dist.triton_api.language_patch import LanguagePatch
from triton_dist.world.current import find_world

__all__ = ["main"]


def main() -> None:
    arguments = sys.argv[1:]
    alone = None
    programs = None
    if arguments[0] == "--programs":
        programs = tuple(map(int, filter(None, arguments[1].split(","))))
        del arguments[:2]
    if arguments[0] == "--alone":
        alone = int(arguments[1])
        del arguments[:2]
    count, *sys.argv[:] = arguments
    if not environment.get("TRITON_DIST_CHECK") or environment.get("TRITON_DIST_SCHEDULE") != "round-robin":
        raise SystemExit("PEs in one process are for checked runs, round-robin")
    file = sys.argv[0]
    sys.path[:1] = [str(Path(file).resolve().parent)]
    code = compile(Path(file).read_bytes(), file, "exec")
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)  # the log is many objects, none of them garbage
    of_process(LanguagePatch).stays = True
    shared = Shared(int(count), alone=alone, programs=programs)
    shared.begin()
    shared.ring.run(functools.partial(_run, shared, code, file))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _run(shared: Shared, code: CodeType, file: str, pe: int) -> None:
    """What PE ``pe`` does. Does not return if it fails."""
    names: dict[str, Any] = {"__name__": "__main__", "__file__": file, "__builtins__": __builtins__}
    turns = shared.ring.turns[pe]
    try:
        try:
            exec(code, names)
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
        if (world := find_world()) is not None:
            world.finalize()
        turns.leave(waiting=False)
    except BaseException as error:
        if not isinstance(error, SystemExit):
            traceback.print_exc()
        print(f"PE {pe} of {file} failed: {error!r}", file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()
