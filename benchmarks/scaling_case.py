"""The call that scaling.py replays: one between two barriers, with the workspaces that it needs made before.

    scaling_case.py NAME ALGORITHM BYTES [--check]

Inputs are ones. ``--check`` compares the results, in a run of all PEs and programs.
The kernels' first call is as their later ones: workspaces are made in phases of their own, which barriers end.
"""

from __future__ import annotations

import sys

from model_cases import call_of

import triton_dist


def main() -> None:
    name, algorithm, nbytes, *check = sys.argv[1:]
    with triton_dist.init() as world:
        call, tensors = call_of(name, algorithm, int(nbytes))
        result = tensors[0]
        tensors[-1].fill_(1)
        if name == "broadcast" and world.pe:
            result.zero_()
        triton_dist.barrier_all()
        call()
        triton_dist.barrier_all()
        if check:
            assert (result == (world.n_pes if "reduce" in name else 1)).all(), f"{name}, {algorithm}: wrong"


if __name__ == "__main__":
    main()
