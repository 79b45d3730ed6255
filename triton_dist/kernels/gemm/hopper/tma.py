"""Gluon's copies by TMA, whose names differ: those of Triton 3.7 were renamed in 3.8 and are refused by 3.9."""

from __future__ import annotations

from triton.experimental.gluon.language.nvidia.hopper import tma

__all__ = ["async_load", "async_store", "store_wait"]

_RENAMED = hasattr(tma, "async_load")

async_load = tma.async_load if _RENAMED else tma.async_copy_global_to_shared
async_store = tma.async_store if _RENAMED else tma.async_copy_shared_to_global
store_wait = tma.store_wait
