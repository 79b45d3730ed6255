"""Symbolic constants. Their numbers are the op table's; each transport's own are put in when a kernel is lowered."""

from __future__ import annotations

from triton.language import constexpr

from triton_dist._C.op_table import Cmp, SignalUpdate

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
]

# Triton lets a kernel refer to a global only when it is a constexpr.
SIGNAL_SET = constexpr(SignalUpdate.SET)
SIGNAL_ADD = constexpr(SignalUpdate.ADD)
CMP_EQ = constexpr(Cmp.EQ)
CMP_NE = constexpr(Cmp.NE)
CMP_GT = constexpr(Cmp.GT)
CMP_GE = constexpr(Cmp.GE)
CMP_LT = constexpr(Cmp.LT)
CMP_LE = constexpr(Cmp.LE)

# The team of all PEs, on every transport.
TEAM_WORLD = constexpr(0)
# The handle, on a PE, of a team that it is not a member of.
TEAM_INVALID = constexpr(-1)
