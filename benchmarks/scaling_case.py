"""The call that scaling.py replays: one between two barriers, with the workspaces that it needs made before.

    scaling_case.py NAME ALGORITHM BYTES

The kernels' first call is as their later ones: workspaces are made in phases of their own, which barriers end.
"""

from __future__ import annotations

import sys

from model_cases import call_of

import triton_dist


def main() -> None:
    name, algorithm, nbytes = sys.argv[1:]
    with triton_dist.init():
        call, _tensors = call_of(name, algorithm, int(nbytes))
        triton_dist.barrier_all()
        call()
        triton_dist.barrier_all()


if __name__ == "__main__":
    main()
