"""Calls that involve no other PE are prepared, too: grouped GEMMs by TMA descriptors."""

from __future__ import annotations

import pytest
import torch
from prepared_calls.world import RECORDER, WORLD, calls, is_prepared

from triton_dist.kernels import moe
from triton_dist.kernels.local_launches import LocalLaunches

COUNTS = torch.tensor([3, 0, 13, 1], dtype=torch.int32)
OFFSETS = torch.tensor([0, 3, 3, 16, 17], dtype=torch.int32)
ROWS = torch.zeros(17, 64).bfloat16()
COLUMNS, LINES = torch.zeros(4, 32, 64).bfloat16().transpose(1, 2), torch.zeros(4, 64, 32).bfloat16()
ROWS8, COLUMNS8 = ROWS.to(torch.float8_e4m3fn), COLUMNS.mT.to(torch.float8_e4m3fn).mT
BLOCKS = {"a_scales": torch.ones(17, 1), "b_scales": torch.ones(4, 1, 1)}
SCALES = {"a_scales": torch.ones(17, 1), "b_scales": torch.ones(4, 32)}


def grouped_gemms_are_launched_again() -> None:
    out, halves = ROWS.new_empty(17, 32), ROWS.new_empty(17, 16)
    for call in (
        lambda: moe.grouped_gemm(ROWS, COLUMNS, OFFSETS, COUNTS, out=out),
        lambda: moe.grouped_gemm(ROWS, LINES, OFFSETS, COUNTS, out=out),
        lambda: moe.grouped_gemm(ROWS, COLUMNS, OFFSETS, COUNTS, out=halves, swiglu=True),
        lambda: moe.grouped_gemm(ROWS8, COLUMNS8, OFFSETS, COUNTS, out=out, **SCALES),
        lambda: moe.grouped_gemm(ROWS8, COLUMNS8, OFFSETS, COUNTS, out=out, **BLOCKS),
    ):
        WORLD.own(LocalLaunches).close()
        call()
        ordinary = RECORDER.last
        assert is_prepared(call)
        assert RECORDER.last == ordinary


def grouped_gemms_of_other_tensors_are_of_these() -> None:
    first = moe.grouped_gemm(ROWS, COLUMNS, OFFSETS, COUNTS)
    rows = torch.zeros(17, 64).bfloat16()
    second = moe.grouped_gemm(rows, COLUMNS, OFFSETS, COUNTS)
    assert second.shape == first.shape and second.data_ptr() != first.data_ptr()
    again = RECORDER.last
    WORLD.own(LocalLaunches).close()
    moe.grouped_gemm(rows, COLUMNS, OFFSETS, COUNTS, out=second)
    assert RECORDER.last == again
    with pytest.raises(ValueError, match="matrices of b are"):
        moe.grouped_gemm(rows[:, :32].contiguous(), COLUMNS, OFFSETS, COUNTS)
    inside = rows.view(-1)[: second.numel()].view_as(second)
    with pytest.raises(ValueError, match="out and a overlap"):
        moe.grouped_gemm(rows, COLUMNS, OFFSETS, COUNTS, out=inside)


def tiles_are_those_for_expected_rows() -> None:
    out, fp8 = ROWS.new_empty(17, 32), torch.float8_e4m3fn
    for a, b, scales, few in (
        (ROWS, COLUMNS, {}, None),
        (ROWS.to(fp8), COLUMNS.transpose(1, 2).to(fp8).transpose(1, 2), _scales_of_blocks(), 40),
    ):
        for _ in range(2):  # calls that are made, and then repeated
            launches = []
            for expected in (None, 40, 41, 129):
                moe.grouped_gemm(a, b, OFFSETS, COUNTS, out=out, expected_rows=expected, **scales)
                launches.append(RECORDER.last)
            assert launches[0] == launches[1] and launches[2] == launches[3]
            assert (launches[1] == launches[2]) == (few is None)


def _scales_of_blocks() -> dict[str, torch.Tensor]:
    of_matrices = torch.ones(len(COLUMNS), -(-COLUMNS.shape[2] // 128), -(-COLUMNS.shape[1] // 128))
    return {"a_scales": torch.ones(len(ROWS), -(-ROWS.shape[1] // 128)), "b_scales": of_matrices}


def tokens_are_grouped_and_added_up_again() -> None:
    """By four launches and one, of the call's own tensors."""
    tokens, hidden, experts = 24, 64, 4
    x, weights = torch.zeros(tokens, hidden).bfloat16(), torch.ones(tokens, 2)
    ids = torch.zeros(tokens, 2, dtype=torch.int64)
    come = moe.dispatch_tokens(x, ids, weights, num_experts=2 * experts, max_tokens=tokens, num_sms=24)
    kept: list[moe.GroupedTokens] = []

    def group() -> None:
        kept.append(moe.group_by_expert(come))

    first = calls(group)
    assert first["JITFunction.run"] == 4 and not first.repeated, first
    again = calls(group)
    assert not again["JITFunction.run"] and again.repeated == 4, again
    RECORDER.all.clear()
    group()
    grouped = kept[-1]
    pack, count, place, copy = ([value[1] for value in launch[-1] if value[:1] == ("at",)] for launch in RECORDER.all)
    memory = grouped.routing.memory.data_ptr()
    assert place[1] == memory and copy[:2] == [grouped.x.data_ptr(), come.x.data_ptr()], (place, copy)
    assert pack[0] == count[1] == place[2] and count[0] == place[0], "what one launch leaves the next one finds"
    assert come.topk_ids is not None and pack[1] == come.topk_ids.data_ptr()

    y = torch.zeros_like(grouped.x)
    added = calls(lambda: moe.sum_over_experts(y, grouped))
    assert added["JITFunction.run"] == 1, added
    ordinary = RECORDER.pointers()
    added = calls(lambda: moe.sum_over_experts(y, grouped))
    assert not added["JITFunction.run"] and added.repeated == 1, added
    assert RECORDER.pointers()[1:] == ordinary[1:]  # the first is the result
    other = torch.zeros(len(y), hidden, dtype=torch.float16)
    assert calls(lambda: moe.sum_over_experts(other, grouped))["JITFunction.run"] == 1, "of another dtype"


def portable_grouped_gemms_take_the_ordinary_path() -> None:
    rows, matrices = ROWS.float(), COLUMNS.float()
    lines8 = COLUMNS8.contiguous()  # of K, which tensor cores do not take
    for call in (
        lambda: moe.grouped_gemm(rows, matrices, OFFSETS, COUNTS),
        lambda: moe.grouped_gemm(ROWS8, lines8, OFFSETS, COUNTS, **BLOCKS),
        lambda: moe.grouped_gemm(ROWS8, COLUMNS8, OFFSETS, COUNTS, swiglu=True, **BLOCKS),  # of 16 gates
        lambda: moe.grouped_gemm(ROWS8, COLUMNS8, OFFSETS, COUNTS, out_dtype=torch.float32, **BLOCKS),
    ):
        for _ in range(2):
            assert calls(call)["JITFunction.run"] == 1
