"""PEs with shards that differ when something goes wrong: no PE waits for ever, and the error says what it was."""

from __future__ import annotations

import pytest
from forking import launch

ENVIRONMENT = {"TRITON_DIST_WORLD": "cpu", "TRITON_DIST_WAIT_TIMEOUT": "300", "TRITON_DIST_SYMMETRIC_SIZE": "32M"}

BEGIN = """
import os, torch, triton_dist
from triton_dist import kernels

def own(rows):
    each = -(-rows // world.n_pes)
    return slice(min(world.pe * each, rows), min((world.pe + 1) * each, rows))

def step(m):
    a, b = torch.ones(m, 4), torch.ones(4, 6)
    summed = kernels.gemm_reduce_scatter(a, b)
    assert (summed == 4 * world.n_pes).all() and len(summed) == len(a[own(m)])
    assert (kernels.all_gather_gemm(a[own(m)], b, rows=m) == 4).all()
    assert (kernels.reduce_scatter_norm(a).residual == world.n_pes).all()
    assert (kernels.norm_all_gather(a[own(m)], rows=m).output.sub(1).abs() < 1e-4).all()

with triton_dist.init() as world:
"""


@pytest.mark.parametrize(("rows", "victim"), [(1, 2), pytest.param(7, 0, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "function",
    [
        "gemm_reduce_scatter(torch.ones(m, 4), torch.ones(4, 6))",
        pytest.param("all_gather_gemm(part, torch.ones(4, 6), rows=m)", marks=pytest.mark.slow),
        pytest.param("reduce_scatter_norm(torch.ones(m, 4))", marks=pytest.mark.slow),
        pytest.param("norm_all_gather(part, rows=m)", marks=pytest.mark.slow),
    ],
)
def test_a_pe_that_dies_is_named(function: str, rows: int, victim: int) -> None:
    """Of 1 row only PE 0 has one; the others take part, and are missed."""
    program = f"""{BEGIN}
    m = {rows}
    step(m)
    part = torch.ones(m, 4)[own(m)]
    if world.pe == {victim}:
        os._exit(9)
    for _ in range(100):
        kernels.{function}
"""
    result = launch(["-c", program], 3, env=ENVIRONMENT, timeout=120)
    assert not result.timed_out and result[victim].returncode == 9, result.report
    for pe in result:
        assert pe.pe == victim or f"PE {victim} is lost" in pe.stderr, result.report


def test_threads_with_communicators_of_their_own() -> None:
    """Two threads of each PE, in turn, each with sizes of its own. (In the CPU world a PE runs one kernel.)"""
    program = f"""{BEGIN}
    import threading
    comms = [kernels.Communicator() for _ in range(2)]
    turns = [threading.Semaphore(1), threading.Semaphore(0)]
    failed = []

    def run(number, sizes):
        comm = comms[number]
        for m in sizes:
            turns[number].acquire()
            try:
                a, b = torch.ones(m, 4), torch.ones(4, 6)
                assert (kernels.gemm_reduce_scatter(a, b, group=comm) == 8).all()
                assert (kernels.all_gather_gemm(a[own(m)], b, rows=m, group=comm) == 4).all()
                assert (kernels.reduce_scatter_norm(a, group=comm).residual == 2).all()
                assert kernels.norm_all_gather(a[own(m)], rows=m, group=comm).output.shape == (m, 4)
            except BaseException as error:
                failed.append(error)
            turns[1 - number].release()

    threads = [threading.Thread(target=run, args=each) for each in enumerate(((1, 7, 12, 13), (33, 0, 2, 5)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    for comm in comms:
        comm.close()
    print("all is well")
"""
    result = launch(["-c", program], 2, env=ENVIRONMENT, timeout=120).check()
    assert all("all is well" in pe.stdout for pe in result), result.report
