"""GEMMs of a group on two hosts, which are launches and functions one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from prepared_calls.calls import OF_ALL, OWN, WIDE, A, B, C, matrix
from prepared_calls.world import RECORDER, WORLD, calls, forget_plans, plans

from triton_dist import kernels
from triton_dist.kernels import Communicator
from triton_dist.kernels.gemm.operation import IN_SLICES
from triton_dist.world.hosts import Host, Hosts

CALLS: tuple[tuple[Any, torch.Tensor, int], ...] = (
    # What is called, its result, and how many rows a residual has; 0: it takes none.
    (kernels.all_gather_gemm, OF_ALL, 0),
    (kernels.gemm_reduce_scatter, OWN, 256),
    (kernels.gemm_all_reduce, C, 512),
    (kernels.gemm_all_scatter, WIDE, 0),
)


@contextmanager
def two_hosts() -> Iterator[Communicator]:
    """The communicator of PEs that are on a host each."""
    hosts = WORLD._hosts
    WORLD._hosts = Hosts(tuple(Host(f"host{pe}", (pe,)) for pe in range(2)), True)
    try:
        with Communicator() as comm:
            yield comm
    finally:
        WORLD._hosts = hosts


def gemms_between_hosts_are_prepared() -> None:
    """The same launches as of an ordinary call, with the call's own bias and residual."""
    every = [(*call, name) for call in CALLS for name in ("auto", "bulk_synchronous", "two_level")]
    with two_hosts() as comm:
        for function, out, rows, algorithm in every:
            if algorithm == "two_level" and function.__name__ not in IN_SLICES:
                continue
            for residual in (None, rows or None):
                options = {} if residual is None else {"residual": matrix(residual, 512)}
                how = {"group": comm, "algorithm": algorithm}
                call = partial(function, A, B, out, bias=torch.zeros(512), **how, **options)
                call()
                forget_plans(comm)
                call()
                assert plans(comm), function.__name__
                given = {name: tensor.clone() for name, tensor in options.items()} | {"bias": torch.zeros(512)}
                RECORDER.all.clear()
                found = calls(partial(call, **given))
                again = [*RECORDER.all]
                assert not found["JITFunction.run"] and not found["check_operands"], function.__name__
                assert len(again) == found.repeated > 1, function.__name__
                forget_plans(comm)
                RECORDER.all.clear()
                call(**given)
                assert again == RECORDER.all, function.__name__
                tensors = [x for one in again for x in one[-1]]
                assert {("at", tensor.data_ptr()) for tensor in given.values()} <= {*tensors}, function.__name__
