"""The recorder knows every op."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_DIST_WORLD", "cpu")

from triton_dist.cpu import effects
from triton_dist.cpu.ops import IMPLEMENTATIONS


def test_every_op_has_an_effect_or_is_known_to_have_none() -> None:
    known = effects.known()
    assert known | effects.NO_EFFECT == set(IMPLEMENTATIONS)
    assert not known & effects.NO_EFFECT
