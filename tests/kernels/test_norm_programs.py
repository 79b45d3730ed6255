"""How many programs exchange rows, and what their slots take."""

from __future__ import annotations

import itertools

from triton_dist.kernels.collectives.exchanged_rows import HEADER
from triton_dist.kernels.norm.arguments import cut_for, programs_for
from triton_dist.kernels.protocols.sentinel import SLOTS


def slot_bytes(columns: int, size: int, messages: int) -> int:
    return 4 * (HEADER.value + messages * SLOTS.value * size * columns * 2 // 4)


def test_two_programs_share_an_sm_where_they_fit_and_slots_are_bounded() -> None:
    for columns, size, messages in itertools.product((256, 4096, 8192, 16384), (1, 2, 3, 4, 8, 72), (1, 2)):
        cut, nbytes = cut_for(columns, 2, size, gpu=True), slot_bytes(columns, size, messages)
        programs = programs_for(cut, nbytes)
        assert 64 <= programs <= (256 if cut.warps <= 8 else 128)
        assert programs == 64 or programs * nbytes <= 49 << 20
    assert programs_for(cut_for(8192, 2, 2, gpu=True), slot_bytes(8192, 2, 2)) == 256
    assert programs_for(cut_for(8192, 2, 8, gpu=True), slot_bytes(8192, 8, 2)) == 64
