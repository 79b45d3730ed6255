"""The heap, teams and the operations of hosts, between PEs: one PE's part. PE 0 prints one line per check.

    torchrun --nproc-per-node 2 tests/gpu/worker_heap.py [--only NAME] [--list]

Runs in both worlds; what needs streams is left out in the CPU world, and said so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
import triton
import triton.language as tl
from ops.harness import GPU, check, expect_equal, main, random_bytes

import triton_dist
import triton_dist.language as dl
from triton_dist import Team, World
from triton_dist.compiler import transport

REPLAYS = 100


@triton.jit
def ask(team, out):
    tl.store(out, dl.team_my_pe(team))
    tl.store(out + 1, dl.team_n_pes(team))
    tl.store(out + 2, dl.team_translate_pe(team, dl.team_n_pes(team) - 1, dl.TEAM_WORLD))
    tl.store(out + 3, dl.team_translate_pe(dl.TEAM_WORLD, dl.my_pe(), team))


@triton.jit(do_not_specialize=["n", "root", "turns"])
def exchange(team, everybody, gathered, spread, src, n, root, turns):
    for _ in range(turns):
        dl.sync(team)
        dl.broadcast(team, everybody, src, n, root)
        dl.fcollect(team, gathered, src, n)
        dl.alltoall(team, spread, src, n)
        dl.barrier(team)


@triton.jit(do_not_specialize=["n", "turns"])
def combine(team, total, src, n, turns):
    for _ in range(turns):
        dl.sum_reduce(team, total, src, n)


@triton.jit(do_not_specialize=["round_"])
def ring(dst, src, signal, counter, NBYTES: tl.constexpr):
    """The next turn's number goes around: each replay puts what it counts, and waits for its neighbour's."""
    turn = tl.load(counter) + 1
    tl.store(counter, turn)
    offsets = tl.arange(0, NBYTES // 8)
    tl.store(src + offsets, turn * 1000 + offsets)
    following = (dl.my_pe() + 1) % dl.n_pes()
    dl.barrier_all()  # nobody overwrites what its neighbour has not read
    dl.putmem_signal(dst, src, NBYTES, signal, 1, dl.SIGNAL_ADD, following)
    dl.signal_wait_until(signal, dl.CMP_GE, turn)


@triton.jit
def check_turn(dst, counter, wrong, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    wrong_here = tl.load(dst + offsets) != tl.load(counter) * 1000 + offsets
    tl.store(wrong, tl.load(wrong) + tl.sum(wrong_here.to(tl.int64)))


@triton.jit(do_not_specialize=["spins"])
def write_late(target, scratch, spins, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(scratch)
    for _ in range(spins):
        value = (value * 1103515245 + 12345) % 2147483647
    tl.store(scratch, value)
    tl.store(target + offsets, tl.full((BLOCK,), 7, tl.int32))


@contextmanager
def compiled_for(name: str) -> Iterator[None]:
    with transport.using(name) if GPU else nullcontext():
        yield


def some_teams(world: World) -> Iterator[Team | None]:
    """Rows, columns, every second PE, and a part of a part; each is destroyed when the next one is asked for."""
    everybody = world.team_world
    for xrange in {1, 2, world.n_pes}:
        for team in everybody.split_2d(xrange):
            yield team
            team.destroy()
    second = everybody.split_strided(world.n_pes - 1 - (world.n_pes - 1) // 2 * 2, 2, (world.n_pes + 1) // 2)
    yield second
    if second:
        last = second.split_strided(second.n_pes - 1, 1, 1)
        if last:
            last.destroy()
        second.destroy()


@check
def teams_on_the_device(world: World) -> None:
    n, turns = 1000, 3
    numbers = [
        torch.randint(-9, 9, (world.n_pes * n,), generator=torch.Generator().manual_seed(pe)).short()
        for pe in range(world.n_pes)
    ]
    src = triton_dist.from_tensor(numbers[world.pe])
    got = [triton_dist.zeros(world.n_pes * n, dtype=torch.int16) for _ in range(4)]
    answers = torch.zeros(4, dtype=torch.int32, device=world.device)
    for team in some_teams(world):
        for name in getattr(world, "transports", ("cpu",)):
            for tensor in got:
                tensor.zero_()
            world.barrier_all()
            if team:
                root = team.n_pes - 1
                with compiled_for(name):
                    ask[(1,)](team.handle, answers)
                    exchange[(1,)](team.handle, *got[:3], src, n, root, turns)
                    combine[(1,)](team.handle, got[3], src, n, turns)
                sources = [numbers[pe] for pe in team.pes]
                mine = slice(team.my_pe * n, (team.my_pe + 1) * n)
                what = f"of {team} by {name}"
                expect_equal(
                    answers, torch.tensor([team.my_pe, team.n_pes, team.pes[-1], team.my_pe]), f"numbers {what}"
                )
                exchanged = [
                    sources[root][:n],
                    torch.cat([s[:n] for s in sources]),
                    torch.cat([s[mine] for s in sources]),
                ]
                reduced = torch.stack([s[:n] for s in sources]).sum(0).short()
                for op, found, expected in zip(
                    ("broadcast", "fcollect", "alltoall", "sum_reduce"), got, [*exchanged, reduced], strict=True
                ):
                    expect_equal(found[: len(expected)], expected, f"{op} {what}")
                    assert not found[len(expected) :].any(), f"{op} {what}: too much was written"
            world.barrier_all()


def captured(run: Callable[[], None]) -> Callable[[], None]:
    """``run``, once as it is and from then on as a CUDA graph; as it is in the CPU world."""
    run()
    if not GPU:
        return run
    torch.cuda.synchronize()
    triton_dist.barrier_all()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


@check(gpu_only=True)
def put_get_and_barrier_on_a_stream(world: World) -> None:
    """Each replay passes on what the last one got, by way of a stream of our own."""
    following, before = (world.pe + 1) % world.n_pes, (world.pe - 1) % world.n_pes
    stream = torch.cuda.Stream()
    box = triton_dist.full((64, 1000), world.pe, dtype=torch.int64)
    out = torch.empty_like(box)
    seen = torch.empty_like(box)

    def turn() -> None:
        out.copy_(box)
        triton_dist.barrier()  # all have read theirs
        triton_dist.put(box[:, ::2], out[:, ::2], following)
        triton_dist.put(box[:, 1::2], out[:, 1::2], following)
        triton_dist.barrier()
        triton_dist.get(seen, box, before)

    with torch.cuda.stream(stream):
        turn()
    stream.synchronize()
    replay = captured(turn)
    for _ in range(REPLAYS):
        replay()
    torch.cuda.synchronize()
    turns = REPLAYS + 2
    expect_equal(box, torch.full_like(box, (world.pe - turns) % world.n_pes), "what came")
    expect_equal(seen, torch.full_like(box, (before - turns) % world.n_pes), "what was taken")
    other = torch.cuda.Stream()
    triton_dist.put(box, torch.full_like(box, 5 + world.pe), following, stream=other)
    triton_dist.barrier(stream=other)
    other.synchronize()
    expect_equal(box, torch.full_like(box, 5 + before), "put on a given stream")


@check
def kernels_in_graphs(world: World) -> None:
    nbytes = 8192
    for name in getattr(world, "transports", ("cpu",)):
        src, dst = (triton_dist.zeros(nbytes // 8, dtype=torch.int64) for _ in range(2))
        signal = triton_dist.zeros(1, dtype=torch.int64)
        counter, wrong = (torch.zeros(1, dtype=torch.int64, device=world.device) for _ in range(2))

        def turn(src=src, dst=dst, signal=signal, counter=counter, wrong=wrong) -> None:
            ring[(1,)](dst, src, signal, counter, NBYTES=nbytes)
            check_turn[(1,)](dst, counter, wrong, BLOCK=nbytes // 8)

        with compiled_for(name):
            replay = captured(turn)
            for _ in range(REPLAYS if GPU else 3):
                replay()
        expect_equal(wrong, torch.zeros(1, dtype=torch.int64), f"wrong elements, {name}")
        expect_equal(counter, torch.tensor([REPLAYS + 1 if GPU else 4]), f"turns, {name}")
        triton_dist.barrier_all()


@check
def dropped_memory_comes_back(world: World) -> None:
    while triton_dist.collect():
        pass
    free = world.heap_free
    for number in range(200):
        tensor = triton_dist.empty(free // 5, dtype=torch.uint8)
        tensor[:3].fill_(number % 251)
        theirs = triton_dist.peer(tensor, (world.pe + 1) % world.n_pes)[:3]
    triton_dist.barrier_all()
    assert (theirs == 199).all()
    del tensor
    triton_dist.collect()
    assert world.heap_free < free, "a view of a peer keeps the memory"
    del theirs
    triton_dist.collect()
    assert world.heap_free == free
    tensor = triton_dist.zeros(4)
    triton_dist.free(tensor)
    for use in (lambda: triton_dist.peer(tensor, 0), lambda: triton_dist.put(tensor, tensor, 0)):
        with pytest.raises(ValueError, match="freed"):
            use()


@check
def errors_about_temporary_tensors(world: World) -> None:
    """A tensor dies while the error that it caused propagates."""
    while triton_dist.collect():
        pass
    free = world.heap_free
    there = (world.pe + 1) % world.n_pes
    x = triton_dist.zeros(64)
    for wrong in (
        lambda x=x: triton_dist.peer(x, there).copy_(torch.zeros(3, device=world.device)),
        lambda x=x: triton_dist.peer(x, there) + torch.zeros(3, device=world.device),
        lambda: triton_dist.zeros(64).view(7),
    ):
        with pytest.raises(RuntimeError, match="size"):
            wrong()
    with pytest.raises(TypeError, match="unsupported operand"):
        triton_dist.zeros(4) + "a"
    with pytest.raises(IndexError, match="out of bounds"):
        triton_dist.peer(x, there)[70]
    del x, wrong
    triton_dist.collect()
    assert world.heap_free == free


@check(gpu_only=True)
def no_memory_goes_under_a_running_kernel(world: World) -> None:
    scratch = torch.ones(1, dtype=torch.int32, device=world.device)
    for how in ("free", "drop"):
        tensor = triton_dist.zeros(1024, dtype=torch.int32)
        address = tensor.data_ptr()
        write_late[(1,)](tensor, scratch, 1, BLOCK=1024)
        torch.cuda.synchronize()
        write_late[(1,)](tensor, scratch, 20_000_000, BLOCK=1024)  # some 0.1 s
        if how == "free":
            triton_dist.free(tensor)
        del tensor
        again = triton_dist.zeros(1024, dtype=torch.int32)
        assert again.data_ptr() == address, f"{how}: the memory was not used again, so nothing was shown"
        torch.cuda.synchronize()
        assert not again.any(), f"{how}: a kernel wrote into memory that was given back"
        del again
        triton_dist.collect()


def reduced(parts: list[torch.Tensor], op: str) -> torch.Tensor:
    stacked = torch.stack([part.double() if part.dtype.is_floating_point else part.long() for part in parts])
    return {"sum": stacked.sum(0), "min": stacked.amin(0), "max": stacked.amax(0)}[op].to(parts[0].dtype)


@check(gpu_only=True)
def allocations_while_streams_have_barriers_to_do(world: World) -> None:
    """NVSHMEM's malloc and free have barriers of all PEs, too, and two of one team must not overlap on a PE."""
    stream = torch.cuda.Stream()
    for i in range(200):
        with torch.cuda.stream(stream):
            if i % world.n_pes == world.pe:
                torch.cuda._sleep(200_000)
            for _ in range(3):
                triton_dist.barrier(stream=stream)
        tensor = triton_dist.full(16, i)
        assert bool((tensor == i).all())
        if i % 2:
            triton_dist.free(tensor)
    torch.cuda.synchronize()


@check
def host_ops_and_graphs(world: World) -> None:
    rows = world.team_world.split_2d(max(1, world.n_pes // 2))[0]
    for team in (world.team_world, rows):
        for dtype, n in (
            (torch.float32, 4096),
            (torch.bfloat16, 33),
            (torch.int64, 100_000 if GPU else 1000),
            (torch.uint8, 1),
        ):
            count = team.n_pes * n
            # Small whole numbers, of which sums are exact in every type.
            parts = [(random_bytes(count, pe) % 13).to(dtype) for pe in range(world.n_pes)]
            sources = [parts[pe] for pe in team.pes]
            mine = slice(team.my_pe * n, (team.my_pe + 1) * n)
            src, dst = triton_dist.from_tensor(parts[world.pe]), triton_dist.zeros(count, dtype=dtype)
            root = team.n_pes - 1
            cases = {
                "broadcast": ((dst, src, root), sources[root]),
                "fcollect": ((dst, src[:n]), torch.cat([s[:n] for s in sources])),
                "alltoall": ((dst, src), torch.cat([s[mine] for s in sources])),
                **{f"reduce {op}": ((dst, src, op), reduced(sources, op)) for op in ("sum", "min", "max")},
                "reducescatter sum": ((dst[:n], src, "sum"), reduced([s[mine] for s in sources], "sum")),
            }
            for name, (arguments, expected) in cases.items():
                function = getattr(triton_dist, name.split()[0])
                for again in (False, True):
                    dst.zero_()
                    triton_dist.barrier_all()
                    if again:
                        replay = captured(
                            lambda function=function, arguments=arguments, team=team: function(*arguments, team=team)
                        )
                        dst.zero_()
                        triton_dist.barrier_all()
                        for _ in range(3):
                            replay()
                    else:
                        function(*arguments, team=team)
                    if GPU:
                        torch.cuda.synchronize()
                    how = " from a graph" * again
                    expect_equal(arguments[0], expected, f"{name} of {n} {dtype} on {team}{how}")
                    triton_dist.barrier_all()
    rows.destroy()


if __name__ == "__main__":
    sys.exit(main())
