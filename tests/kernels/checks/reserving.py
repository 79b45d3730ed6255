"""After kernels.reserve no call within its limits makes workspace, whatever its number of rows."""

from __future__ import annotations

import random

import torch
from harness import examples, raises
from harness import main as run

import triton_dist
from triton_dist import kernels
from triton_dist.kernels import functional, moe
from triton_dist.kernels.communicator import Communicator, communicator_of
from triton_dist.kernels.device import sms
from triton_dist.kernels.moe import reserving as moe_operations
from triton_dist.kernels.protocols.workspace import Workspace
from triton_dist.kernels.reserving import OPERATIONS

MOST, HIDDEN = 24, 32


def rows_of(world: triton_dist.World, count: int) -> list[int]:
    """The most rows, 1, and some between: the same on all PEs."""
    return [MOST, 1, *random.Random(7).choices(range(1, MOST), k=count)]


def check_nothing_is_made_after(world: triton_dist.World) -> None:
    n = world.n_pes
    most = -(-MOST // n)
    x = triton_dist.zeros(n * most, HIDDEN, dtype=torch.float32)
    y = triton_dist.zeros(n * most, HIDDEN, dtype=torch.float32)
    wide = triton_dist.zeros(MOST, n * HIDDEN, dtype=torch.float32)
    a, b = torch.zeros(n * most, HIDDEN), torch.zeros(HIDDEN, HIDDEN)
    with Communicator() as comm:
        made = kernels.reserve(max_tokens=MOST, hidden=HIDDEN, dtype=torch.float32, functional=True, group=comm)
        assert list(made) == [*OPERATIONS[: OPERATIONS.index("flash_decode")]]
        assert sum(made.values()) == comm.workspace_bytes > 0
        workspace = comm.own(Workspace)
        count, nbytes = workspace.made, comm.workspace_bytes
        for rows in rows_of(world, examples(1)):
            each = -(-rows // n)
            for algorithm in ("one_shot", "two_shot", "exchange", "two_exchanges", "push", "direct"):
                kernels.all_reduce(x[:rows], out=y[:rows], algorithm=algorithm, group=comm)
            for algorithm in ("low_latency", "exchange", "push"):
                kernels.reduce_scatter(y[:each], x[: n * each], algorithm=algorithm, group=comm)
            for algorithm in ("low_latency", "push"):
                kernels.all_gather(y[: n * each], x[:each], algorithm=algorithm, group=comm)
                kernels.all_to_all(y[: n * each], x[: n * each], algorithm=algorithm, group=comm)
                kernels.broadcast(x[:rows], algorithm=algorithm, group=comm)
            for algorithm in ("one_shot", "two_shot", "unfused"):
                kernels.all_reduce_norm(a[:rows], algorithm=algorithm, group=comm)
            for algorithm in ("fused", "unfused"):
                kernels.reduce_scatter_norm(a[: n * each], algorithm=algorithm, group=comm)
                kernels.norm_all_gather(a[:each], algorithm=algorithm, group=comm)
            for algorithm in ("bulk_synchronous", "fused"):
                kernels.gemm_all_reduce(a[:rows], b, y[:rows], algorithm=algorithm, group=comm)
                kernels.gemm_reduce_scatter(a[: n * each], b, algorithm=algorithm, group=comm)
                kernels.gemm_reduce_scatter(a[:rows], b, algorithm=algorithm, group=comm)
            for algorithm in ("bulk_synchronous", "producer_consumer", "fused_sequential", "fused_producer_consumer"):
                kernels.gemm_all_scatter(a[:rows], b, wide[:rows], algorithm=algorithm, group=comm)
            kernels.all_gather_gemm(a[:each], b, group=comm)
            mine = len(range(rows)[world.pe * each : (world.pe + 1) * each])
            kernels.all_gather_gemm(a[:mine], b, rows=rows, group=comm)
            functional.all_reduce(a[:rows], group=comm)
            functional.gemm_all_reduce(a[:rows], b, group=comm)
            functional.all_gather(a[:each], group=comm)
        assert (workspace.made, comm.workspace_bytes) == (count, nbytes), {*workspace.tensors}
        again = kernels.reserve(max_tokens=MOST // 2, hidden=HIDDEN, dtype=torch.float32, functional=True, group=comm)
        assert set(again.values()) == {0}


def check_only_what_is_named(world: triton_dist.World) -> None:
    with Communicator() as comm:
        made = kernels.reserve("all_gather", "gemm_all_reduce", max_tokens=8, hidden=16, group=comm)
        assert list(made) == ["all_gather", "gemm_all_reduce"] and min(made.values()) > 0
        assert not any("norm" in name for name in comm.own(Workspace).tensors)
    with Communicator() as comm:
        made = kernels.reserve("all_reduce", "all_gather", "all_reduce", max_tokens=8, hidden=16, group=comm)
        assert list(made) == ["all_reduce", "all_gather"] and sum(made.values()) == comm.workspace_bytes > 0
    assert not communicator_of().workspace_bytes or communicator_of() is not comm


def check_experts(world: triton_dist.World) -> None:
    """Any number of tokens up to ``max_tokens`` on each PE, in one kernel each way, of few and many tokens, in rounds,
    and with slices."""
    hidden, n_experts = 32, 2 * world.n_pes
    for num_sms, most in ((0, 6), (2, 6), (0, 16)):
        sizes = {"max_tokens": most, "num_experts": n_experts}
        with Communicator() as comm:
            made = kernels.reserve(
                "dispatch", "combine", "gather_routing", "all_gather_grouped_gemm", "grouped_gemm_reduce_scatter",
                **sizes, hidden=hidden, top_k=2, num_sms=num_sms, dtype=torch.float32, group=comm,
            )  # fmt: skip
            assert min(made.values()) > 0 and sum(made.values()) == comm.workspace_bytes
            count, nbytes = comm.own(Workspace).made, comm.workspace_bytes
            for tokens in (most, 0, 1 + world.pe % 3):
                x, ids = torch.zeros(tokens, hidden), torch.zeros(tokens, 2, dtype=torch.int64)
                received = moe.dispatch(x, ids, **sizes, num_sms=num_sms, group=comm)
                moe.combine(received.x, received)
                routed = moe.gather_routing(ids, **sizes, group=comm)
                up, down = torch.zeros(n_experts, hidden, 16), torch.zeros(n_experts, 16, hidden)
                rows = moe.all_gather_grouped_gemm(x, up, routed, num_sms=num_sms)
                moe.grouped_gemm_reduce_scatter(rows, down, routed, num_sms=num_sms)
            assert (comm.own(Workspace).made, comm.workspace_bytes) == (count, nbytes), {*comm.own(Workspace).tensors}


def check_flash_decode(world: triton_dist.World) -> None:
    """Any number of requests up to ``max_tokens``, of any lengths."""
    heads, dim, most = 4 * world.n_pes, 16, 5
    with Communicator() as comm:
        made = kernels.reserve("flash_decode", max_tokens=most, heads=heads, head_dim=dim, group=comm)
        assert made["flash_decode"] == comm.workspace_bytes > 0
        count, nbytes = comm.own(Workspace).made, comm.workspace_bytes
        for requests in (most, 1, 3):
            cache, lengths = torch.zeros(requests, 8, 2, dim), torch.arange(requests, dtype=torch.int32)
            for scatter in (False, True):
                q = torch.zeros(requests, heads, dim)
                kernels.flash_decode(q, cache, cache, lengths, scatter_heads=scatter, group=comm)
        assert (comm.own(Workspace).made, comm.workspace_bytes) == (count, nbytes)


def check_fp8(world: triton_dist.World) -> None:
    with Communicator() as comm:
        kernels.reserve(max_tokens=8, hidden=32, dtype=torch.float8_e4m3fn, group=comm)
        count = comm.own(Workspace).made
        a, b = (torch.zeros(shape).to(torch.float8_e4m3fn) for shape in ((8 * world.n_pes, 32), (32, 32)))
        kernels.gemm_reduce_scatter(a[: world.n_pes], b, group=comm)
        assert comm.own(Workspace).made == count


def check_wrong_arguments(world: triton_dist.World) -> None:
    for change, message in (
        ({"max_tokens": 0}, "max_tokens must be a positive int, got 0"),
        ({"hidden": 1.5}, "hidden must be a positive int, got 1.5"),
        ({"hidden": 0}, "give hidden="),
        ({"heads": -1}, "heads must be a positive int, got -1"),
        ({"num_experts": 7, "top_k": 2}, f"num_experts must be a multiple of the {world.n_pes} PEs, got 7"),
        ({"dtype": torch.int8}, "dtype must be"),
    ):
        with raises(ValueError, f"reserve: {message}"):
            kernels.reserve(**{"max_tokens": 1, "hidden": 1, **change})
    with raises(ValueError, "reserve: 'sort' is none of all_gather"):
        kernels.reserve("sort", max_tokens=1, hidden=1)
    with raises(ValueError, "reserve: dispatch needs num_experts= and top_k="):
        kernels.reserve("dispatch", max_tokens=1, hidden=1)
    with raises(ValueError, "reserve: flash_decode needs head_dim="):
        kernels.reserve("flash_decode", max_tokens=1, heads=1)
    sizes = {"max_tokens": 2, "hidden": 16, "num_experts": world.n_pes, "top_k": 1}
    for name in moe_operations.RESERVE:
        with raises(ValueError, f"reserve: top_k of {name} must be in .1, 64., got 65"):
            kernels.reserve(name, **sizes | {"top_k": 65})
        with raises(ValueError, f"reserve: num_sms of {name} must be in .0, {sms()}., got {sms() + 1}"):
            kernels.reserve(name, **sizes, num_sms=sms() + 1)
    with Communicator() as comm:
        for name in ("dispatch", "combine", "dispatch_tokens", "combine_tokens", "all_gather_grouped_gemm"):
            with raises(ValueError, f"row of {name} must be a multiple of 16 bytes, got hidden = 12 of torch.bfloat16"):
                kernels.reserve("all_reduce", name, **sizes | {"hidden": 12}, group=comm)
        assert comm.workspace_bytes == 0, "the checks come first"
        # The rows of a dispatch of fp8 are 8 bytes each, and those of its combine 16.
        eight = sizes | {"hidden": 8, "dtype": torch.float8_e4m3fn}
        with raises(
            ValueError, "row of dispatch must be a multiple of 16 bytes, got hidden = 8 of torch.float8_e4m3fn"
        ):
            kernels.reserve("dispatch", **eight, group=comm)
        kernels.reserve("combine", **eight, group=comm)
        kernels.reserve("all_gather", max_tokens=2, hidden=9, num_sms=sms() + 1, top_k=65, group=comm)
    with Communicator() as comm, raises(MemoryError):
        kernels.reserve("gemm_all_reduce", max_tokens=1 << 20, hidden=1 << 14, group=comm)


if __name__ == "__main__":
    run(globals())
