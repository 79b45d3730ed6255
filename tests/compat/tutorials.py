"""What Triton-distributed's first tutorials do, with its host helpers; every rank runs this."""

from __future__ import annotations

import kernels
import torch
import torch.distributed

import triton_dist
from triton_dist.profiler_utils import perf_func
from triton_dist.utils import (
    NVSHMEM_SIGNAL_DTYPE,
    assert_allclose,
    dist_print,
    finalize_distributed,
    generate_data,
    initialize_distributed,
    nvshmem_barrier_all_on_stream,
    nvshmem_create_tensor,
    nvshmem_create_tensors,
    nvshmem_free_tensor_sync,
)

DEVICE = "cuda" if triton_dist.kind() == "gpu" else "cpu"


def check_queue(group: torch.distributed.ProcessGroup) -> None:
    rank, num_ranks = group.rank(), group.size()
    slots, block, items = 3, 16, 20
    queue = nvshmem_create_tensor((slots * block,), torch.float32)
    turns = nvshmem_create_tensor((slots,), NVSHMEM_SIGNAL_DTYPE)
    for _ in range(2):
        turns.fill_(0)
        nvshmem_barrier_all_on_stream()
        sent = torch.randn(items * block)
        received = torch.empty_like(sent)
        kernels.pass_through_queue[(5,)](
            rank, num_ranks, sent, received, items, queue, turns, slots, block, 3, 2, num_warps=4
        )
        everything = [torch.empty_like(sent) for _ in range(num_ranks)]
        torch.distributed.all_gather(everything, sent, group=group)
        assert torch.equal(received, everything[rank - 1])
        nvshmem_barrier_all_on_stream()
    nvshmem_free_tensor_sync(queue)
    nvshmem_free_tensor_sync(turns)


def check_all_gather(group: torch.distributed.ProcessGroup) -> None:
    rank, num_ranks = group.rank(), group.size()
    rows, columns = 8, 24
    local = torch.randn(rows, columns)
    gathered = nvshmem_create_tensors((rows * num_ranks, columns), torch.float32, rank, num_ranks)
    ready = nvshmem_create_tensors((num_ranks,), NVSHMEM_SIGNAL_DTYPE, rank, num_ranks)
    mine = gathered[rank]
    expected = torch.empty_like(mine)
    torch.distributed.all_gather_into_tensor(expected, local, group=group)

    def start() -> None:
        mine.fill_(-1)
        mine[rank * rows : (rank + 1) * rows].copy_(local)
        ready[rank].fill_(0)
        nvshmem_barrier_all_on_stream()

    start()
    for peer in range(num_ranks):  # by the host, from the peers' tensors
        mine[peer * rows : (peer + 1) * rows].copy_(gathered[peer][peer * rows : (peer + 1) * rows])
    assert_allclose(mine, expected, rtol=0, atol=0, verbose=False)
    nvshmem_barrier_all_on_stream()

    start()
    kernels.push_segment[(num_ranks,)](mine, ready[rank], rows * columns, 4, 7, rank, num_ranks, num_ranks - 1)
    nvshmem_barrier_all_on_stream()
    assert_allclose(mine, expected, rtol=0, atol=0, verbose=False)
    assert ready[rank].tolist() == [0 if peer == rank else 7 for peer in range(num_ranks)]

    start()
    _, milliseconds = perf_func(
        lambda: kernels.gather_with_one_waiter[(num_ranks,)](mine, rows * columns * 4, ready[rank], num_ranks, rank, 9),
        iters=1,
        warmup_iters=0,
    )
    assert_allclose(mine, expected, rtol=0, atol=0, verbose=False)  # with no barrier: the kernel has waited
    assert milliseconds > 0
    nvshmem_free_tensor_sync(mine)
    nvshmem_free_tensor_sync(ready[rank])


def check_all_to_all(group: torch.distributed.ProcessGroup) -> None:
    rank, num_ranks = group.rank(), group.size()
    rows, width = 6, 8
    send, staged, recv = (nvshmem_create_tensor((num_ranks * rows, width), torch.float32) for _ in range(3))
    ready = nvshmem_create_tensor((num_ranks,), NVSHMEM_SIGNAL_DTYPE)
    source = next(generate_data([((num_ranks * rows, width), torch.float32, (1.0, rank), DEVICE)]))
    send.copy_(next(source))
    ready.fill_(0)
    nvshmem_barrier_all_on_stream()
    kernels.all_to_all[(num_ranks,)](send, staged, recv, ready, rows, 1, rank, N=width)
    expected = torch.empty(num_ranks * rows, width)
    torch.distributed.all_to_all_single(expected, send.clone(), group=group)
    assert torch.equal(recv, expected)


def check_local_flags(group: torch.distributed.ProcessGroup) -> None:
    chunks, block = 3, 16
    data, sums = torch.zeros(chunks * block), torch.zeros(block)  # no symmetric memory: it is this GPU's own affair
    flags = torch.zeros(chunks, dtype=torch.int64)
    kernels.chunks_arrive[(chunks + 1,)](data, flags, sums, chunks, block)
    assert torch.equal(sums, data.view(chunks, block).sum(0))
    assert sums[0] == 6


def check_words(group: torch.distributed.ProcessGroup) -> None:
    words = nvshmem_create_tensor((group.size(),), torch.int32)
    words.fill_(0)
    nvshmem_barrier_all_on_stream()
    kernels.meet_by_hand[(1,)](words, group.rank(), group.size())
    assert words.tolist() == [1] * group.size()
    total = torch.zeros(1, dtype=torch.int32)
    kernels.count_threads[(1,)](total, num_warps=4)
    threads = 4 * 32 if DEVICE == "cuda" else 1024  # the interpreter has no number of warps: as many as there can be
    assert total.item() == threads // 4 + 1


def check_warps(group: torch.distributed.ProcessGroup) -> None:
    rank, num_ranks = group.rank(), group.size()
    words = nvshmem_create_tensor((num_ranks,), torch.int32)
    counts = nvshmem_create_tensor((4,), NVSHMEM_SIGNAL_DTYPE)
    words.fill_(0)
    words[rank] = rank + 1
    counts.fill_(0)
    nvshmem_barrier_all_on_stream()
    kernels.send_by_warps[(1,)](words, counts, rank, num_ranks, num_warps=8)
    nvshmem_barrier_all_on_stream()
    assert words.tolist() == [peer + 1 for peer in range(num_ranks)]
    others = num_ranks - 1
    assert counts.tolist() == [others, 32 * others, 1, 3 * others], counts.tolist()


def main() -> None:
    group = initialize_distributed()
    torch.set_default_device(DEVICE)
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            check(group)
            dist_print("passed:", name.removeprefix("check_"), need_sync=True, allowed_ranks="all")
    finalize_distributed()


if __name__ == "__main__":
    main()
