"""Symmetric tensors come and go: what is dropped, freed and reused, in any order, on two to four PEs."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from harness import by_load_and_store, main, raises, together
from hypothesis import given, settings
from hypothesis import strategies as st

import triton_dist
import triton_dist.language as dl


@triton.jit
def add_one(x, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) + 1, mask=offsets < n)


@triton.jit
def put(dst, src, nbytes, pe):
    dl.putmem(dst, src, nbytes, pe)


def offset_of(world: Any, tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr()) - int(world.heap.base(world.pe))


def check_any_order(world: Any) -> None:
    """Allocations, frees and drops at random, each PE dropping in an order of its own."""

    @settings(together, max_examples=10)
    @given(
        st.lists(
            st.tuples(st.sampled_from(("empty", "free", "drop", "view", "barrier")), st.integers(0, 1 << 19)),
            max_size=12,
        )
    )
    def example(calls: list[tuple[str, int]]) -> None:
        free_at_first = world.heap_free
        play(calls)
        triton_dist.collect()
        assert world.heap_free == free_at_first, "memory leaked"

    def play(calls: list[tuple[str, int]]) -> None:
        live: dict[int, torch.Tensor] = {}
        views: dict[int, torch.Tensor] = {}
        late: list[torch.Tensor] = []
        for number, (call, argument) in enumerate(calls):
            if call == "empty":
                live[number] = triton_dist.empty(argument + 1, dtype=torch.uint8)
                live[number].fill_((number + world.pe) % 251)
            elif call == "barrier":
                triton_dist.barrier_all()
            elif live:
                chosen = sorted(live)[argument % len(live)]
                tensor = live.pop(chosen)
                if call == "free":
                    triton_dist.free(tensor)
                elif call == "view":  # what keeps the memory: a view on one PE, nothing on the others
                    if world.pe == argument % world.n_pes:
                        views[chosen] = tensor[tensor.numel() // 2 :]
                elif world.pe % 2:
                    late.append(tensor)  # dropped, but not yet
                del tensor
            for made, tensor in (live | views).items():
                assert (tensor == (made + world.pe) % 251).all(), f"tensor {made} was overwritten"
        offsets = {made: offset_of(world, tensor) for made, tensor in live.items()}
        said = world.together(world.team_world, "offsets", str(offsets)[:200])
        assert len(set(said)) == 1, said

    example()


def check_dropped_when_all_have_dropped(world: Any) -> None:
    triton_dist.collect()
    free = world.heap_free
    tensor = triton_dist.zeros(1 << 20, dtype=torch.uint8)
    number = world.registry.find(offset_of(world, tensor)).number
    if world.pe == 0:
        kept = tensor[7:9].view(torch.int8).numpy()  # the last reference may be any view, of any library
    del tensor
    assert triton_dist.collect() == 0
    assert world.heap_free == free - (1 << 20)
    if world.pe == 0:
        assert kept.sum() == 0
        del kept
    assert world.registry.dropped(100) == str(number)
    triton_dist.barrier_all()  # gives back, too
    assert world.heap_free == free


@by_load_and_store
def check_a_view_of_a_peer_keeps_it(world: Any) -> None:
    free = world.heap_free
    tensor = triton_dist.full(100, world.pe, dtype=torch.int32)
    theirs = triton_dist.peer(tensor, (world.pe + 1) % world.n_pes)[50:]
    del tensor
    triton_dist.collect()
    assert world.heap_free < free
    assert (theirs == (world.pe + 1) % world.n_pes).all()
    del theirs
    assert triton_dist.collect() == 1
    assert world.heap_free == free


def check_a_full_heap_collects_first(world: Any) -> None:
    many = [triton_dist.empty(1, dtype=torch.uint8) for _ in range(300)]
    for _ in range(4):
        big = triton_dist.empty(40 << 20, dtype=torch.uint8)
        cycle: list[Any] = [big]
        cycle.append(cycle)  # only the garbage collector finds it
        del big, cycle
    del many[::2]  # more than one announcement can list
    assert len(world.registry.dropped(480)) > 400
    kept = triton_dist.empty(60 << 20, dtype=torch.uint8)
    del many
    with raises(MemoryError, r"\b10485760 bytes\b", "TRITON_DIST_SYMMETRIC_SIZE"):
        triton_dist.empty(10 << 20, dtype=torch.uint8)
    del kept
    assert triton_dist.empty(60 << 20, dtype=torch.uint8).numel() == 60 << 20
    while triton_dist.collect():
        pass
    assert len(world.registry) == 0


@by_load_and_store
def check_autograd(world: Any) -> None:
    weight = triton_dist.full((4, 4), 2.0).requires_grad_()
    x = torch.arange(4.0)
    (weight[1:3] @ x).sum().backward()
    assert torch.equal(weight.grad, torch.cat([torch.zeros(1, 4), x.expand(2, 4), torch.zeros(1, 4)]))
    assert not triton_dist.peer(weight, 0).requires_grad
    with torch.no_grad():
        weight -= weight.grad
    assert weight[1].tolist() == [2.0, 1.0, 0.0, -1.0]
    other = torch.from_dlpack(weight.detach())
    other[0, 0] = 5
    assert weight[0, 0] == 5 and triton_dist.peer(other, world.pe)[0, 0] == 5, (
        "another library's tensor is symmetric, too"
    )


@by_load_and_store
def check_use_after_free(world: Any) -> None:
    a, b = triton_dist.zeros(16, dtype=torch.int32), triton_dist.zeros(16, dtype=torch.int32)
    view = triton_dist.peer(b, 0)
    triton_dist.free(a)
    triton_dist.free(b)
    with raises(ValueError, r"shape \(16,\).* was freed"):
        triton_dist.peer(a, 0)
    with raises(ValueError, "put: dst, of shape .* was freed"):
        triton_dist.put(a, torch.zeros(16, dtype=torch.int32), 0)
    for stale in (a, a[3:], view):
        with raises(ValueError, "argument x, of shape .* was freed"):
            add_one[(1,)](stale, 4, BLOCK=16)
    triton_dist.barrier_all()


def check_memory_that_is_not_ours_cannot_be_registered(world: Any) -> None:
    with raises(RuntimeError, "the CPU world cannot register memory.*from_tensor"):
        triton_dist.register_tensor(torch.zeros(4))
    with raises(TypeError, "got int"):
        triton_dist.register_tensor(4)


def check_kernels_on_other_libraries_views(world: Any) -> None:
    x = triton_dist.zeros(64, dtype=torch.int32)
    y = torch.from_numpy(x.numpy())[:32]
    del x
    add_one[(1,)](y, 32, BLOCK=32)
    sent = y + 1
    triton_dist.barrier_all()
    put[(1,)](y, sent, 32 * 4, (world.pe + 1) % world.n_pes)
    triton_dist.barrier_all()
    assert (y == 2).all()


if __name__ == "__main__":
    main(globals())
