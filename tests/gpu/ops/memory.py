"""Symmetric tensors from the host: allocation, views of peers, and what the errors say."""

from __future__ import annotations

import torch

import triton_dist
from ops.harness import check, expect_equal, random_floats
from triton_dist import World


def _error(kind: type[Exception], call: object, *arguments: object, **named: object) -> str:
    """The message of the error that a call must raise."""
    try:
        call(*arguments, **named)  # type: ignore[operator]
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__} from {call}{arguments}")


@check
def allocations(world: World) -> None:
    for shape in ((), (0,), (3,), (5, 0, 2), (7, 11), (1 << 16,)):
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64):
            tensor = triton_dist.zeros(shape, dtype=dtype)
            assert tensor.shape == shape, f"shape {tensor.shape}, asked for {shape}"
            assert tensor.dtype == dtype, f"dtype {tensor.dtype}, asked for {dtype}"
            assert tensor.device == world.device, f"device {tensor.device}, world's is {world.device}"
            assert tensor.is_contiguous(), "not contiguous"
            assert tensor.data_ptr() % 16 == 0, f"address {tensor.data_ptr():#x} is not aligned"
            assert not tensor.any(), "not zero"
            triton_dist.free(tensor)


@check
def allocations_do_not_overlap(world: World) -> None:
    tensors = [triton_dist.full(100 + i, i, dtype=torch.int32) for i in range(20)]
    for tensor in tensors[::2]:
        triton_dist.free(tensor)
    tensors[::2] = [triton_dist.full(90 + i, i, dtype=torch.int32) for i in range(0, 20, 2)]
    for i, tensor in enumerate(tensors):
        assert (tensor == i).all(), f"tensor {i} was overwritten"
        triton_dist.free(tensor)


@check(maps_all=True)
def views_of_peers(world: World) -> None:
    mine = triton_dist.from_tensor(random_floats(6, 8, seed=world.pe))
    for pe in range(world.n_pes):
        there = random_floats(6, 8, seed=pe)
        expect_equal(triton_dist.peer(mine, pe), there, f"PE {pe}'s tensor")
        expect_equal(triton_dist.peer(mine[2], pe), there[2], f"a row of PE {pe}'s")
        expect_equal(triton_dist.peer(mine[1:5:2, 3:], pe), there[1:5:2, 3:], f"a strided slice of PE {pe}'s")
        expect_equal(triton_dist.peer(mine.T, pe), there.T, f"PE {pe}'s, transposed")
        bits = triton_dist.peer(mine.view(torch.int32), pe)
        expect_equal(bits, there.view(torch.int32), f"PE {pe}'s bits")
    triton_dist.barrier_all()
    triton_dist.peer(mine, (world.pe + 1) % world.n_pes)[world.pe % 6].fill_(-1)
    triton_dist.barrier_all()
    expected = random_floats(6, 8, seed=world.pe)
    expected[(world.pe - 1) % world.n_pes % 6] = -1
    expect_equal(mine, expected, "what the previous PE's host wrote here")
    triton_dist.free(mine)


@check(maps_all=True)
def errors_name_what_is_wrong(world: World) -> None:
    tensor = triton_dist.zeros(8)
    plain = torch.zeros(8, device=world.device)
    assert "symmetric" in _error(ValueError, triton_dist.peer, plain, 0)
    assert f"pe {world.n_pes} is out of range [0, {world.n_pes})" in _error(
        ValueError, triton_dist.peer, tensor, world.n_pes
    )
    _error(ValueError, triton_dist.peer, tensor, -1)
    _error(ValueError, triton_dist.free, tensor[2:])
    _error(ValueError, triton_dist.free, plain)
    _error(RuntimeError, triton_dist.init)
    _error(ValueError, triton_dist.empty, -1)
    _error(TypeError, triton_dist.empty, 1.5)
    message = _error(MemoryError, triton_dist.empty, 1 << 50, dtype=torch.uint8)
    assert "TRITON_DIST_SYMMETRIC_SIZE" in message, message
    assert str(1 << 50) in message, message
    triton_dist.free(tensor)


@check
def different_shapes_are_an_error_on_every_pe(world: World) -> None:
    if world.n_pes > 1:
        message = _error(RuntimeError, triton_dist.empty, 4 + world.pe)
        assert "(4,)" in message, message
        assert "(5,)" in message, message
    tensor = triton_dist.zeros(4)  # and the world goes on
    triton_dist.free(tensor)
