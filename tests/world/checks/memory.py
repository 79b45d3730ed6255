"""Symmetric tensors: where they lie, what is refused, and that a refusal leaves a working world. For two PEs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from harness import by_load_and_store, main, raises

import triton_dist
import triton_dist.language as dl


@by_load_and_store
def check_tensors_are_aligned_and_symmetric(world: Any) -> None:
    for shape in ((), (0,), (3,), (5, 0, 2), (2, 3, 4)):
        for dtype in (torch.bool, torch.uint8, torch.bfloat16, torch.float32, torch.complex64):
            tensor = triton_dist.empty(shape, dtype=dtype)
            assert tensor.shape == shape and tensor.dtype == dtype and tensor.is_contiguous()
            assert tensor.untyped_storage().data_ptr() % 512 == 0
            offset = tensor.untyped_storage().data_ptr() - world.heap.base(world.pe)
            mirrored = triton_dist.peer(tensor, 1 - world.pe)
            assert mirrored.untyped_storage().data_ptr() - world.heap.base(1 - world.pe) == offset


@by_load_and_store
def check_peer_views(world: Any) -> None:
    tensor = triton_dist.full((6, 8), world.pe, dtype=torch.float32)
    triton_dist.peer(tensor[1:4, ::2].t(), 1 - world.pe).fill_(10 + world.pe)
    triton_dist.barrier_all()
    expected = torch.full((6, 8), float(world.pe))
    expected[1:4, ::2] = 10 + (1 - world.pe)
    assert torch.equal(tensor, expected)
    assert torch.equal(triton_dist.peer(tensor.view(torch.int32), world.pe), expected.view(torch.int32))
    assert triton_dist.peer(tensor[6:], 1 - world.pe).shape == (0, 8)
    with raises(ValueError, r"pe 2 is out of range \[0, 2\)"):
        triton_dist.peer(tensor, 2)
    with raises(ValueError, r"shape \(3,\).* not symmetric"):
        triton_dist.peer(torch.zeros(3), 0)
    with raises(ValueError, f"lies on PE {1 - world.pe}"):
        triton_dist.peer(triton_dist.peer(tensor, 1 - world.pe), 0)


def check_free_and_reuse(world: Any) -> None:
    a, b, c = (triton_dist.empty(1000, dtype=torch.float32) for _ in range(3))
    triton_dist.free(b)
    again = triton_dist.empty(900, dtype=torch.float32)
    assert again.data_ptr() == b.data_ptr()
    with raises(ValueError, "does not start an allocation"):
        triton_dist.free(a[1:])
    with raises(ValueError, "does not start an allocation"):
        triton_dist.free(torch.zeros(3))
    for tensor in (a, again, c):
        triton_dist.free(tensor)
    with raises(ValueError, "freed before"):
        triton_dist.free(c)
    triton_dist.collect()
    free = world.heap_free
    for _ in range(100):  # it can go on for ever
        triton_dist.free(triton_dist.empty(1 << 20, dtype=torch.uint8))
    assert world.heap_free == free


def check_full_heap(world: Any) -> None:
    half = triton_dist.empty(40 << 20, dtype=torch.uint8)
    triton_dist.collect()
    free = world.heap_free
    with raises(MemoryError, r"\b41943040 bytes\b", f"{free} are free", "TRITON_DIST_SYMMETRIC_SIZE"):
        triton_dist.empty(10 << 20, dtype=torch.float32)
    half.fill_(world.pe + 1)
    assert triton_dist.zeros(16).sum() == 0
    triton_dist.free(half)


def check_different_shapes(world: Any) -> None:
    triton_dist.collect()
    before = world.heap_free
    with raises(RuntimeError, r"PE 0: empty\(\(4, 1\), torch.float32\)", r"PE 1: empty\(\(4, 2\), torch.float32\)"):
        triton_dist.empty(4, world.pe + 1)
    with raises(RuntimeError, "torch.int32", "torch.int64"):
        triton_dist.empty(4, dtype=(torch.int32, torch.int64)[world.pe])
    assert world.heap_free == before
    assert triton_dist.full((4,), 3).sum() == 12


def check_different_collectives(world: Any) -> None:
    with raises(RuntimeError, r"PE 0: barrier_all\(\); PE 1: empty\(\(3,\), torch.float32\)"):
        triton_dist.barrier_all() if world.pe == 0 else triton_dist.empty(3)
    a, b = triton_dist.empty(3), triton_dist.empty(3)
    with raises(RuntimeError, "PE 0: free.*PE 1: free"):
        triton_dist.free((a, b)[world.pe])
    triton_dist.barrier_all()


@triton.jit
def put(dst, src, nbytes, pe):
    dl.putmem(dst, src, nbytes, pe)


@triton.jit
def get(dst, src, nbytes, pe):
    dl.getmem(dst, src, nbytes, pe)


@triton.jit
def put_as_program_2(dst, src, nbytes, pe):
    if tl.program_id(1) == 2:
        dl.putmem(dst, src, nbytes, pe)


@triton.jit
def signal(sig_addr, byte_offset, pe):
    shifted = (sig_addr.to(tl.int64) + byte_offset).to(tl.pointer_type(tl.int64))
    dl.signal_op(shifted, 1, dl.SIGNAL_ADD, pe)


@triton.jit
def store_at(dst, pe):
    tl.store(dl.symm_at(dst, pe), 1.0)


def line_of(kernel: Any, text: str) -> str:
    """A pattern for the place, in this file, where a kernel holds ``text``."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith(f"def {kernel.__name__}("))
    return rf"checks/memory\.py:{next(i for i in range(begin, len(lines)) if text in lines[i]) + 1}\b"


@by_load_and_store
def check_bad_copies(world: Any) -> None:
    other = 1 - world.pe
    mine, private = triton_dist.zeros(16, dtype=torch.float32), torch.zeros(16)
    beyond = world.heap.size - (mine.data_ptr() - world.heap.base(world.pe))
    here = line_of(put, "dl.putmem")
    with raises(RuntimeError, f"PE {world.pe}, kernel put", r"program \(0, 0, 0\)", here, "dst .* not in the symm"):
        put[(1,)](private, private, 4, other)
    with raises(RuntimeError, here, f"{beyond + 1} bytes at dst .*element 0 .*leave the symmetric heap"):
        put[(1,)](mine, private, beyond + 1, other)
    with raises(RuntimeError, here, "nbytes is -4"):
        put[(1,)](mine, private, -4, other)
    with raises(RuntimeError, here, r"pe 2 is out of range \[0, 2\)"):
        put[(1,)](mine, private, 4, 2)
    with raises(RuntimeError, here, f"is a place on PE {other}"):
        put[(1,)](triton_dist.peer(mine, other), private, 4, other)
    with raises(RuntimeError, line_of(get, "dl.getmem"), "src .* not in the symmetric heap"):
        get[(1,)](private, private, 4, other)
    with raises(RuntimeError, r"program \(0, 2, 0\)", line_of(put_as_program_2, "dl.putmem")):
        put_as_program_2[(1, 3)](private, private, 4, other)
    with raises(RuntimeError, line_of(store_at, "dl.symm_at"), "ptr .* not in the symmetric heap"):
        store_at[(1,)](private, other)
    assert not mine.any()


def check_unmapped_source(world: Any) -> None:
    """A copy from memory that is not there is an error, where a memcpy would end the process."""
    mine = triton_dist.zeros(16, dtype=torch.float32)
    nowhere = 4096
    with raises(RuntimeError, "cannot copy from address", "Bad address", line_of(put_from_address, "dl.putmem")):
        put_from_address[(1,)](mine, nowhere, 4, 1 - world.pe)


@triton.jit
def put_from_address(dst, address, nbytes, pe):
    dl.putmem(dst, address.to(tl.int64).to(tl.pointer_type(tl.float32)), nbytes, pe)


def check_bad_signals(world: Any) -> None:
    words = triton_dist.zeros(4, dtype=torch.int64)
    with raises(RuntimeError, r"element 0 \+ 4 bytes", "not aligned to 8"):
        signal[(1,)](words, 4, 0)
    with raises(RuntimeError, "sig_addr .* not in the symmetric heap"):
        signal[(1,)](torch.zeros(1, dtype=torch.int64), 0, 0)
    triton_dist.barrier_all()
    assert not words.any()


@triton.jit
def barrier_all():
    dl.barrier_all()


def check_two_programs_in_a_barrier(world: Any) -> None:
    if world.pe == 0:  # PE 1 is not in the barrier yet, so program 0 waits there when program 1 comes
        with raises(RuntimeError, r"program \(1, 0, 0\)", "one program of each PE at a time"):
            barrier_all[(2,)]()
    triton_dist.barrier_all()
    if world.pe == 1:  # PE 0's program 0 has been counted
        barrier_all[(1,)]()
    triton_dist.barrier_all()
    barrier_all[(1,)]()


@by_load_and_store
def check_nothing_after_finalize(world: Any) -> None:
    tensor = triton_dist.full((1000,), world.pe, dtype=torch.float32)
    mirrored = triton_dist.peer(tensor, 1 - world.pe)
    world.finalize()
    world.finalize()
    assert not triton_dist.is_initialized()
    assert tensor.sum() == 1000 * world.pe and mirrored.sum() == 1000 * (1 - world.pe)  # readable all the same
    with raises(RuntimeError, "call triton_dist.init"):
        triton_dist.empty(3)
    for use in (lambda: world.empty((3,), torch.float32), world.barrier_all, lambda: world.peer(tensor, 0)):
        with raises(RuntimeError, "is finalized"):
            use()
    with raises(RuntimeError, r"call triton_dist.init\(\) first", line_of(put, "dl.putmem")):
        put[(1,)](torch.zeros(4), torch.zeros(4), 4, 0)
    for stale in (tensor, mirrored[10:]):
        with raises(RuntimeError, "argument dst, of shape .* of a world that is finalized"):
            put[(1,)](stale, torch.zeros(4), 4, 0)
    again = triton_dist.init()
    with raises(RuntimeError, "the tensor, of shape .* of a world that is finalized"):
        triton_dist.peer(tensor, 0)
    assert again is not world and triton_dist.full((4,), 1.0).sum() == 4
    assert tensor.sum() == 1000 * world.pe and math.isfinite(mirrored.sum())


if __name__ == "__main__":
    main(globals())
