"""The books of a heap, against a plain reference, and torch tensors on memory of ours."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from limits import HANG_SECONDS

from triton_dist.world.allocations import AllocationRegistry
from triton_dist.world.raw_tensor import bytes_at, elsewhere, release_dropped, start_of, tensor_at

CPU = torch.device("cpu")


@given(st.lists(st.sets(st.integers(0, 30)), min_size=1, max_size=4), st.integers(0, 90))
def test_what_all_have_dropped_is_unused(drops: list[set[int]], room: int) -> None:
    registries, uses = [AllocationRegistry() for _ in drops], [{} for _ in drops]
    for registry, held in zip(registries, uses, strict=True):
        for number in range(31):
            allocation, held[number] = registry.enter(1000 - 10 * number, 10, (number,), torch.uint8)
            assert allocation.number == number and allocation.nbytes == number
    for held, dropped in zip(uses, drops, strict=True):
        for number in dropped:
            del held[number]
    for registry in registries:  # each finds the same, from what all have said
        unused = [allocation.number for allocation in registry.unused([other.dropped(400) for other in registries])]
        assert unused == sorted(set.intersection(*drops))
    short = registries[0].dropped(room)
    assert len(short) <= room
    told = {
        n for part in short.split(",") if part for n in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)
    }
    assert told == set(sorted(drops[0])[: len(told)]), "the oldest first"


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5)), max_size=20), st.data())
def test_places(pieces: list[tuple[int, int]], data: st.DataObject) -> None:
    registry, owner = AllocationRegistry(), {}
    live, uses = {}, []
    for begin, size in pieces:
        if not any(place in owner for place in range(begin, begin + size)):
            live[begin], use = registry.enter(begin, size, (size,), torch.uint8)
            uses.append(use)
            owner |= dict.fromkeys(range(begin, begin + size), begin)
    for begin in data.draw(st.sets(st.sampled_from(sorted(live)))) if live else ():
        registry.remove(live[begin])
        owner = {place: other for place, other in owner.items() if other != begin}
        assert registry.was_freed(begin)
        del live[begin]
    assert len(registry) == len(live)
    for place in range(-1, 50):
        found = registry.find(place)
        assert (None if found is None else found.begin) == owner.get(place)
    uses.clear()
    use = None
    assert not any(registry.was_freed(place) for place in range(50)), "nobody has a tensor there"


def test_memory_is_kept_until_the_last_tensor_is_gone() -> None:
    memory = (ctypes.c_char * 64)(*range(64))
    gone: list[str] = []

    class Use:
        def __del__(self) -> None:
            gone.append("gone")

    tensor = tensor_at(ctypes.addressof(memory) + 8, (2, 3), torch.int32, CPU, Use(), memory)
    assert tensor.data_ptr() == ctypes.addressof(memory) + 8 and tensor.is_contiguous()
    assert tensor.view(torch.uint8).flatten().tolist() == list(range(8, 32))
    tensor[1, 2] = 7
    assert memory[28] == b"\7"
    views = [tensor.t()[1:], tensor.numpy()[0], torch.utils.dlpack.to_dlpack(tensor), tensor.detach().requires_grad_]
    del tensor
    while views:
        release_dropped()
        assert not gone
        views.pop()
    release_dropped()
    assert gone == ["gone"]


def test_tensors_without_elements_have_a_place() -> None:
    memory = (ctypes.c_char * 64)()
    for shape in ((0,), (3, 0), (0, 4)):
        tensor = tensor_at(ctypes.addressof(memory), shape, torch.float64, CPU, memory)
        assert tensor.shape == shape and start_of(tensor) == ctypes.addressof(memory)
    with pytest.raises(AssertionError):
        bytes_at(ctypes.addressof(memory), 0, CPU)


def test_the_same_view_elsewhere() -> None:
    memory = (ctypes.c_char * 128)(*range(128))
    tensor = tensor_at(ctypes.addressof(memory), (4, 4), torch.int16, CPU, memory)
    view = tensor[1:, ::2].t()
    other = elsewhere(view, 32, CPU, memory)
    assert (other.shape, other.stride(), other.dtype) == (view.shape, view.stride(), view.dtype)
    assert start_of(other) == start_of(view) + 32
    assert torch.equal(other.view(torch.uint8) if other.is_contiguous() else other, view + 0x2020)


def test_tensors_may_go_in_any_thread() -> None:
    memory = (ctypes.c_char * 64)()
    registry = AllocationRegistry()
    _, use = registry.enter(0, 64, (64,), torch.uint8)
    tensors = [bytes_at(ctypes.addressof(memory), 64, CPU, use)]
    del use
    thread = threading.Thread(target=tensors.clear)
    thread.start()
    thread.join()
    assert registry.dropped(10) == "0"


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda x: x.view(7), RuntimeError),
        (lambda x: x + "a", TypeError),
        (lambda x: x[1000], IndexError),
        (lambda x: x.nope, AttributeError),
        (lambda x: len(x, 1), TypeError),
        (lambda x: [x, 1 // 0], ZeroDivisionError),
        (lambda x: (i for i in range(x.numel() * 0)).__next__(), StopIteration),
    ],
)
def test_an_error_survives_the_end_of_the_tensor_that_it_was_about(
    use: Callable[[torch.Tensor], object], error: type[Exception]
) -> None:
    memory = (ctypes.c_char * 64)()
    registry = AllocationRegistry()
    held = registry.enter(0, 64, (64,), torch.uint8)[1]
    with pytest.raises(error):
        use(bytes_at(ctypes.addressof(memory), 64, CPU, held))
    del held
    assert registry.dropped(10) == "0"


def test_the_garbage_collector_lets_go_too() -> None:
    memory, gone = (ctypes.c_char * 64)(), []

    class Use:
        def __del__(self) -> None:
            gone.append("gone")

    tensor = bytes_at(ctypes.addressof(memory), 64, CPU, Use())
    del tensor
    gc.collect()
    assert gone == ["gone"]


def test_many_threads_drop_while_others_ask() -> None:
    memory = (ctypes.c_char * 64)()
    registry, threads, each = AllocationRegistry(), 8, 500
    errors: list[BaseException] = []
    uses = [[registry.enter(0, 64, (64,), torch.uint8)[1] for _ in range(each)] for _ in range(threads)]

    def drop(mine: list[object]) -> None:
        try:
            for i in range(each):
                bytes_at(ctypes.addressof(memory), 64, CPU, mine.pop())
                if i % 7 == 0:
                    release_dropped()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=drop, args=(mine,)) for mine in uses]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors
    assert registry.dropped(20) == f"0-{threads * each - 1}"


def test_a_forked_child_drops_what_it_inherited() -> None:
    memory = (ctypes.c_char * 64)()
    registry = AllocationRegistry()
    tensors = []
    for _ in range(2):
        tensors.append(bytes_at(ctypes.addressof(memory), 64, CPU, registry.enter(0, 64, (64,), torch.uint8)[1]))
    tensors.pop(0)  # on the list when the child is made
    child = os.fork()
    if child == 0:
        tensors.clear()
        os._exit(0 if registry.dropped(10) == "0-1" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert registry.dropped(10) == "0", "the child's end of it is not the parent's"


OUTLIVES = """
import ctypes, sys, torch, triton_dist
from triton_dist.world.raw_tensor import bytes_at
memory = (ctypes.c_char * 64)()
kept = bytes_at(ctypes.addressof(memory), 64, torch.device("cpu"), memory)
sys.kept, torch.kept_by_another_module, ring = kept, kept.view(2, 32), [kept[1:]]
ring.append(ring)
class Late:
    def __del__(self, tensor=kept[2:], make=bytes_at, where=ctypes.addressof(memory), cpu=torch.device("cpu")):
        tensor = make(where, 64, cpu)
        print("late", flush=True)
sys.modules["late"] = Late()
ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept[3:]))
"""


def test_tensors_may_outlive_the_module() -> None:
    result = subprocess.run([sys.executable, "-c", OUTLIVES], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert result.returncode == 0 and not result.stderr, result.stderr
