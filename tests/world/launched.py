"""A small world, however it was launched: one line that says who this PE is, after all have met and talked."""

from __future__ import annotations

import sys

import torch

import triton_dist

arguments = {}
if "comm" in sys.argv:
    from mpi4py import MPI

    arguments = {"comm": MPI.COMM_WORLD.Split(0, -MPI.COMM_WORLD.Get_rank())}  # the other way round
if "group" in sys.argv:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    arguments = {"group": dist.new_group([0, 2])}
    if dist.get_rank() == 1:
        try:
            triton_dist.init(**arguments)
        except RuntimeError as error:
            print(error)
        dist.barrier()  # a rank that ends early breaks those that are still connecting to it
        sys.exit()
for turn in range(2):
    with triton_dist.init(**arguments) as world:
        mine = triton_dist.full((1,), world.pe, dtype=torch.int64)
        there = [int(triton_dist.peer(mine, pe)) for pe in range(world.n_pes)]
        assert there == list(range(world.n_pes)), there
        triton_dist.barrier_all()
        launch = world._launch
        position = f"{launch.local_pe} of {launch.n_local_pes}"
    # In one piece, because PEs share a pipe.
    sys.stdout.write(f"turn {turn}: PE {world.pe} of {world.n_pes}, here {position}, by {launch.launcher}\n")
    sys.stdout.flush()
    if "comm" in sys.argv:
        arguments = {}
if "group" in sys.argv:
    dist.barrier()
