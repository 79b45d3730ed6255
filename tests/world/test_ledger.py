"""The books of a heap, against a plain reference, and torch tensors on memory of ours."""

from __future__ import annotations

import ctypes
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triton_dist.world.ledger import Ledger
from triton_dist.world.raw_tensor import bytes_at, elsewhere, start_of, tensor_at

CPU = torch.device("cpu")


@given(st.lists(st.sets(st.integers(0, 30)), min_size=1, max_size=4), st.integers(0, 90))
def test_what_all_have_dropped_is_unused(drops: list[set[int]], room: int) -> None:
    ledgers, uses = [Ledger() for _ in drops], [{} for _ in drops]
    for ledger, held in zip(ledgers, uses, strict=True):
        for number in range(31):
            allocation, held[number] = ledger.enter(1000 - 10 * number, 10, (number,), torch.uint8)
            assert allocation.number == number and allocation.nbytes == number
    for held, dropped in zip(uses, drops, strict=True):
        for number in dropped:
            del held[number]
    for ledger in ledgers:  # each finds the same, from what all have said
        unused = [allocation.number for allocation in ledger.unused([other.dropped(400) for other in ledgers])]
        assert unused == sorted(set.intersection(*drops))
    short = ledgers[0].dropped(room)
    assert len(short) <= room
    told = {
        n for part in short.split(",") if part for n in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)
    }
    assert told == set(sorted(drops[0])[: len(told)]), "the oldest first"


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5)), max_size=20), st.data())
def test_places(pieces: list[tuple[int, int]], data: st.DataObject) -> None:
    ledger, owner = Ledger(), {}
    live, uses = {}, []
    for begin, size in pieces:
        if not any(place in owner for place in range(begin, begin + size)):
            live[begin], use = ledger.enter(begin, size, (size,), torch.uint8)
            uses.append(use)
            owner |= dict.fromkeys(range(begin, begin + size), begin)
    for begin in data.draw(st.sets(st.sampled_from(sorted(live)))) if live else ():
        ledger.remove(live[begin])
        owner = {place: other for place, other in owner.items() if other != begin}
        assert ledger.was_freed(begin)
        del live[begin]
    assert len(ledger) == len(live)
    for place in range(-1, 50):
        found = ledger.find(place)
        assert (None if found is None else found.begin) == owner.get(place)
    uses.clear()
    use = None
    assert not any(ledger.was_freed(place) for place in range(50)), "nobody has a tensor there"


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
        assert not gone
        views.pop()
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
    ledger = Ledger()
    _, use = ledger.enter(0, 64, (64,), torch.uint8)
    tensors = [bytes_at(ctypes.addressof(memory), 64, CPU, use)]
    del use
    thread = threading.Thread(target=tensors.clear)
    thread.start()
    thread.join()
    assert ledger.dropped(10) == "0"
