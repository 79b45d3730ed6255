"""Symbolic constants. Their numbers are ours; each transport's own are put in when a kernel is lowered."""

from __future__ import annotations

import enum

from triton.language import constexpr

__all__ = [
    "CMP_EQ",
    "CMP_GE",
    "CMP_GT",
    "CMP_LE",
    "CMP_LT",
    "CMP_NE",
    "SIGNAL_ADD",
    "SIGNAL_SET",
    "TEAM_INVALID",
    "TEAM_WORLD",
    "Cmp",
    "ElementType",
    "MemScope",
    "Reduction",
    "Sem",
    "SignalOp",
    "Symbol",
    "ThreadScope",
]


class Symbol(enum.IntEnum):
    """A symbolic constant. A kernel cannot use it as a number."""


class SignalOp(Symbol):
    """How a signal word is updated; the order is that of ``SignalUpdate`` in ShmemEnums.td."""

    SIGNAL_SET = 0
    SIGNAL_ADD = 1


class Cmp(Symbol):
    """What a wait compares for; the order is that of ``Cmp`` in ShmemEnums.td."""

    CMP_EQ = 0
    CMP_NE = 1
    CMP_GT = 2
    CMP_GE = 3
    CMP_LT = 4
    CMP_LE = 5


class ThreadScope(enum.IntEnum):
    """Which of the program's threads act; the order is that of ``ThreadScope`` in ShmemEnums.td."""

    THREAD = 0
    WARP = 1
    BLOCK = 2


class Sem(enum.IntEnum):
    """Memory ordering of an atomic; the order is that of ``Sem`` in ShmemEnums.td."""

    RELAXED = 0
    ACQUIRE = 1
    RELEASE = 2
    ACQ_REL = 3


class MemScope(enum.IntEnum):
    """Who observes the ordering of an atomic; the order is that of ``MemScope`` in ShmemEnums.td."""

    CTA = 0
    GPU = 1
    SYS = 2


class Reduction(enum.IntEnum):
    """Operator of a reduction; the order is that of ``Reduction`` in ShmemEnums.td."""

    SUM = 0
    PROD = 1
    MIN = 2
    MAX = 3
    AND = 4
    OR = 5
    XOR = 6


class ElementType(enum.IntEnum):
    """C element type of a routine; the order is that of ``ElementType`` in ShmemEnums.td."""

    I8 = 0
    U8 = 1
    I16 = 2
    U16 = 3
    I32 = 4
    U32 = 5
    I64 = 6
    U64 = 7
    F16 = 8
    BF16 = 9
    F32 = 10
    F64 = 11


# Triton lets a kernel refer to a global only when it is a constexpr.
SIGNAL_SET = constexpr(SignalOp.SIGNAL_SET)
SIGNAL_ADD = constexpr(SignalOp.SIGNAL_ADD)
CMP_EQ = constexpr(Cmp.CMP_EQ)
CMP_NE = constexpr(Cmp.CMP_NE)
CMP_GT = constexpr(Cmp.CMP_GT)
CMP_GE = constexpr(Cmp.CMP_GE)
CMP_LT = constexpr(Cmp.CMP_LT)
CMP_LE = constexpr(Cmp.CMP_LE)

# The team of all PEs, on every transport.
TEAM_WORLD = constexpr(0)
# The handle, on a PE, of a team that it is not a member of.
TEAM_INVALID = constexpr(-1)
