"""Scales of fp8 operands are those of each call, which is prepared as one without them is."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import fake_gpu
import pytest
import torch
from prepared_calls.calls import A8, B8, OF_ALL, OF_BLOCKS, ONE, OWN, WIDE, A, B, C
from prepared_calls.world import RECORDER, WORLD, Calls, calls, columns_of_scatter, forget_plans, is_prepared, plans

from triton_dist import kernels

TAKE_SCALES: dict[str, Callable[..., object]] = {
    "gemm_all_reduce, ring": partial(kernels.gemm_all_reduce, A8, B8, C, algorithm="ring"),
    "gemm_all_reduce, bulk": partial(kernels.gemm_all_reduce, A8, B8, C, algorithm="bulk_synchronous", sm_margin=1),
    "gemm_reduce_scatter, bulk, float32": partial(
        kernels.gemm_reduce_scatter, A8, B8, OWN.float(), algorithm="bulk_synchronous", sm_margin=1
    ),
    "all_gather_gemm, copies": partial(kernels.all_gather_gemm, A8, B8, OF_ALL, algorithm="copy_engine"),
    "all_gather_gemm, bulk": partial(
        kernels.all_gather_gemm, A8, B8, OF_ALL, algorithm="bulk_synchronous", sm_margin=1
    ),
    "all_gather_gemm, copies, ragged": partial(
        kernels.all_gather_gemm, A8[:200], B8, OF_ALL[:400], algorithm="copy_engine"
    ),
    "gemm_all_scatter, warps": partial(kernels.gemm_all_scatter, A8, B8, WIDE, algorithm="warp_specialized"),
    "gemm_all_scatter, sequential": partial(kernels.gemm_all_scatter, A8, B8, WIDE, algorithm="fused_sequential"),
    "gemm_all_scatter, copies": partial(kernels.gemm_all_scatter, A8, B8, WIDE, algorithm="copy_engine"),
    "gemm_all_scatter, two kernels": partial(kernels.gemm_all_scatter, A8, B8, WIDE, algorithm="producer_consumer"),
}


def options_of(call: Any) -> list[dict[str, torch.Tensor]]:
    """What the call takes of one tensor or two, and a bias; new tensors each time."""
    rows = call.args[0].shape[0]
    blocks = [{"scale_a": torch.ones(rows, 2), "scale_b": torch.ones(2, 4)} for _ in range(2)]
    of_rows = {"scale_a": torch.ones(rows, 1), "scale_b": torch.ones(1, 512)}
    return [{"scale_b": torch.ones(1)}, of_rows, blocks[0], {**blocks.pop(), "bias": torch.zeros(512)}]


def made(call: Callable[[], object]) -> tuple[list[Any], list[Any]]:
    """The launches of a call, and what streams were given beside them."""
    RECORDER.all.clear()
    fake_gpu.QUEUED.clear()
    call()
    return [*RECORDER.all], [*fake_gpu.QUEUED]


def calls_with_scales_are_prepared() -> None:
    _are_prepared("gemm_all_reduce, ring", "gemm_all_scatter, sequential")


def all_calls_with_scales_are_prepared() -> None:
    _are_prepared(*TAKE_SCALES)


def _are_prepared(*names: str) -> None:
    """As many launches and copies as an ordinary call makes, with the same arguments, which are the call's own tensors;
    none through Triton's binder, and nothing is checked again."""
    for name in names:
        call = TAKE_SCALES[name]
        for first, second in zip(options_of(call), options_of(call), strict=True):
            call(**first)
            before = len(plans())
            call(**first)
            assert len(plans()) == before, name
            counted: list[Calls] = []
            again = made(lambda call=call, second=second, to=counted: to.append(calls(partial(call, **second))))
            (found,) = counted
            unwanted = "JITFunction.run", "check_operands", "check_epilogue", "block_scales_of", "choose"
            assert not [what for what in unwanted if found.get(what)], name
            assert len(again[0]) == found.repeated > 0, name
            forget_plans()
            assert again == made(partial(call, **second)), name
            launched = [x for one in again[0] for part in one[-1] for x in _flat(part)]
            copied = [one[3] for one in again[1] if one[1] == "copy rows"]
            for key, tensor in second.items():
                known = tensor.data_ptr() in launched or tensor.data_ptr() in copied
                assert known, (name, key)


def _flat(argument: Any) -> list[Any]:
    """Addresses of tensors in a launch's argument, which may be a tuple."""
    if not isinstance(argument, tuple):
        return []
    return [argument[1]] if argument[:1] == ("at",) else [x for part in argument for x in _flat(part)]


def scales_of_both_operands_are_multiplied() -> None:
    """Two tensors, a tensor and a number, or two numbers: a new tensor, so that calls differ in this argument only."""
    call = TAKE_SCALES["gemm_all_reduce, ring"]
    options: tuple[dict[str, Any], ...] = (
        {"scale_a": ONE, "scale_b": torch.ones(())},
        {"scale_a": 2.0, "scale_b": torch.ones(1, 1)},
        {"scale_a": 2.0, "scale_b": 3},
        {"scale_a": 2.0},
        {"scale_a": torch.ones(3)[1:2]},  # which does not begin at a multiple of 16
    )
    call(scale_b=ONE)
    expected = RECORDER.last
    for given in options:
        assert is_prepared(partial(call, **given)), "any scales of whole operands have one plan"
        differing = [(x, y) for x, y in zip(expected[-1], RECORDER.last[-1], strict=True) if x != y]
        assert [x for x, _ in differing] == [("at", ONE.data_ptr())], given
        assert differing[0][1][1] % 16 == 0
    assert not is_prepared(call) or RECORDER.last[-1] != expected[-1], "without scales it is another call"


def scales_of_steps_are_the_call_s() -> None:
    """By cuBLAS, which is the CPU here: what it multiplies by is computed from the call's scales."""
    a = torch.randn(512, 256).to(torch.float8_e4m3fn)
    b = torch.randn(512, 256).to(torch.float8_e4m3fn).t()
    call = partial(kernels.gemm_all_scatter, a, b, WIDE, algorithm="bulk_synchronous")
    for i, factor in enumerate((1.0, 2.0, 0.5)):
        found = calls(partial(call, scale_a=torch.full((1,), 4.0), scale_b=torch.full((1,), factor)))
        assert (i == 0) == bool(found["check_operands"])
        torch.testing.assert_close(columns_of_scatter(512, 512), (4 * factor * a.float() @ b.float()).bfloat16())


def a_tensor_may_be_both_scales() -> None:
    """Such a call leaves no plan, in which it could not be told which one stands where."""
    out, scales = WORLD.empty((2, 512), torch.bfloat16), [torch.ones(2, 2) for _ in range(4)]
    call = partial(kernels.gemm_all_scatter, A8[:2], B8[:, :256], out, algorithm="fused_sequential")
    call(scale_a=scales[0], scale_b=scales[1])
    forget_plans()
    for _ in range(2):
        call(scale_a=scales[0], scale_b=scales[0])
        assert not plans()
    call(scale_a=scales[0], scale_b=scales[1])
    assert plans()
    launches, _ = made(partial(call, scale_a=scales[2], scale_b=scales[3]))
    found = [x for launch in launches for part in launch[-1] for x in _flat(part)]
    assert [x for x in found if x in [scale.data_ptr() for scale in scales]] == [
        scales[2].data_ptr(),
        scales[3].data_ptr(),
    ]


def wrong_scales_are_refused() -> None:
    """Also behind a prepared call, in the words of an ordinary one."""
    call = TAKE_SCALES["gemm_all_reduce, ring"]
    call(scale_b=ONE)
    call(**OF_BLOCKS)
    a, b = OF_BLOCKS["scale_a"], OF_BLOCKS["scale_b"]
    one = "must be one element of torch.float32 on cpu, for the whole matrix"
    blocks = "scales of blocks are scale_a of shape (512, 2) and scale_b of shape (2, 4)"
    wrong: tuple[tuple[type[Exception], str, dict[str, Any]], ...] = (
        (ValueError, f"scale_b {one}", {"scale_b": torch.ones(2)}),
        (ValueError, f"scale_b {one}", {"scale_b": ONE.double()}),
        (ValueError, f"scale_b {one}", {"scale_b": ONE.to("meta")}),
        (TypeError, "scale_b must be a torch.Tensor or a float, got str", {"scale_b": "1"}),
        (ValueError, f"scale_a {one}", {"scale_a": a}),
        (ValueError, blocks, {"scale_a": a, "scale_b": b[:, :3].contiguous()}),
        (ValueError, blocks, {"scale_a": a.bfloat16(), "scale_b": b}),
        (ValueError, "scale_a must be contiguous", {"scale_a": torch.ones(2, 512).t(), "scale_b": b}),
        (ValueError, "scale_b is on meta", {"scale_a": a, "scale_b": b.to("meta")}),
        (ValueError, "requires a gradient", {"scale_b": ONE.clone().requires_grad_()}),
    )
    for kind, text, given in wrong:
        for _ in range(2):
            with pytest.raises(kind, match=re.escape(text)):
                call(**given)
    for given in ({"scale_b": ONE}, OF_BLOCKS):
        with pytest.raises(ValueError, match=r"scales are for operands of fp8, got .*scale_b with torch\.bfloat16"):
            kernels.gemm_all_reduce(A, B, C, algorithm="ring", **given)


def plans_keep_no_scales() -> None:
    for name in ("gemm_all_reduce, ring", "gemm_all_scatter, sequential"):  # of which other checks compile all kernels
        call = TAKE_SCALES[name]
        for given in options_of(call):
            forget_plans()
            for _ in range(2):
                call(**given)
            gone = [weakref.ref(tensor) for tensor in given.values()]
            given.clear()
            gc.collect()
            assert [tensor() for tensor in gone] == [None] * len(gone), name
