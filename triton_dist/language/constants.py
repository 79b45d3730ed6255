"""Symbolic constants. Their numbers are ours; each transport's own are put in when a kernel is lowered."""

from __future__ import annotations

import enum

from triton.language import constexpr

__all__ = ["CMP_EQ", "CMP_GE", "CMP_GT", "CMP_LE", "CMP_LT", "CMP_NE", "SIGNAL_ADD", "SIGNAL_SET", "Cmp", "SignalOp"]


class SignalOp(enum.IntEnum):
    """How a signal word is updated; the order is that of ``SignalUpdate`` in ShmemEnums.td."""

    SIGNAL_SET = 0
    SIGNAL_ADD = 1


class Cmp(enum.IntEnum):
    """What a wait compares for; the order is that of ``Cmp`` in ShmemEnums.td."""

    CMP_EQ = 0
    CMP_NE = 1
    CMP_GT = 2
    CMP_GE = 3
    CMP_LT = 4
    CMP_LE = 5


# Triton lets a kernel refer to a global only when it is a constexpr.
SIGNAL_SET = constexpr(SignalOp.SIGNAL_SET)
SIGNAL_ADD = constexpr(SignalOp.SIGNAL_ADD)
CMP_EQ = constexpr(Cmp.CMP_EQ)
CMP_NE = constexpr(Cmp.CMP_NE)
CMP_GT = constexpr(Cmp.CMP_GT)
CMP_GE = constexpr(Cmp.CMP_GE)
CMP_LT = constexpr(Cmp.CMP_LT)
CMP_LE = constexpr(Cmp.CMP_LE)
