"""GEMMs by slices of hosts with two PEs, on GPUs that are not there (``fake_gpu.py``): ``slices_of_hosts.py FOLDER``.

A slice is a call in the group of a host. Prints for each check its name and ``ok``, or its traceback, as JSON.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import fake_gpu
import torch

import triton_dist
from triton_dist import kernels
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.protocols.host_exchange import PROGRAMS
from triton_dist.world.hosts import Host, Hosts

DRIVER = fake_gpu.load_driver(Path(sys.argv[1]))
fake_gpu.use_torch_without_a_gpu()
fake_gpu.use_a_driver_s_streams(DRIVER)
WORLD = fake_gpu.begin_world(4)
RECORDER = fake_gpu.Recorder(DRIVER)

CURRENT, SIDE, SMS = 7, 70, 132
ROWS, K, N = 1024, 256, 1024  # of a PE, and columns


def matrix(rows: int, columns: int) -> torch.Tensor:
    return torch.zeros(rows, columns).bfloat16()


def python_calls(call: Any) -> Counter[str]:
    """How often ``call`` calls which functions of Python, by name."""
    found: Counter[str] = Counter()

    def note(frame: Any, event: str, callee: Any) -> None:
        if event == "call":
            found[f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_name}"] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def functions() -> dict[str, Any]:
    a, b = matrix(4 * ROWS, K), matrix(K, N)
    whole = WORLD.empty((4 * ROWS, N), torch.bfloat16)
    return {
        "all_gather_gemm": partial(kernels.all_gather_gemm, a[:ROWS], b, matrix(4 * ROWS, N)),
        "gemm_reduce_scatter": partial(kernels.gemm_reduce_scatter, a, b, matrix(ROWS, N)),
        "gemm_all_reduce": partial(kernels.gemm_all_reduce, a, b, whole),
    }


def slices_are_hopper_kernels_of_a_host_beside_exchanges() -> None:
    """Each function has two slices, the kernel that overlaps inside a host, of which one is beside the exchange."""
    for name, call in functions().items():
        again = partial(call, algorithm="two_level", bias=torch.zeros(N))
        for kind in ("ordinary", "prepared"):
            RECORDER.all.clear()
            found = python_calls(again)
            launches = [(how[3], how[0]) for how in RECORDER.all]
            side = [programs for stream, programs in launches if stream == SIDE]
            assert side == [PROGRAMS], (name, kind, launches)
            slices = [programs for stream, programs in launches if stream == CURRENT and programs >= SMS - PROGRAMS]
            assert SMS - PROGRAMS in slices and len(slices) >= 2, (name, kind, launches)
            bound = found["triton.runtime.jit.run"]
            assert bool(bound) == (kind == "ordinary"), (name, bound)


def communicators_within_hosts_have_the_memory_of_all() -> None:
    """From the heap, as the world's own; counted in what the communicator has."""
    comm = communicator_of()
    before = comm.workspace_bytes
    functions()["gemm_reduce_scatter"](algorithm="two_level")
    within = comm.within_host
    assert within.n_pes == 2 and within.pes == range(2) and within is comm.within_host
    assert comm.workspace_bytes >= before and 0 < within.workspace_bytes < comm.workspace_bytes
    made = within.empty(3, dtype=torch.int32)
    assert WORLD._bindings.ptr(made.data_ptr(), 0), "it is in the heap"
    assert triton_dist.kind() == "gpu"


if __name__ == "__main__":
    WORLD._hosts = Hosts((Host("host0", (0, 1)), Host("host1", (2, 3))), True)
    fake_gpu.run_checks(
        (slices_are_hopper_kernels_of_a_host_beside_exchanges, communicators_within_hosts_have_the_memory_of_all)
    )
