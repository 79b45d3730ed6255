"""The PTX instructions that a Gluon kernel may have inline here."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton.language as tl

from triton_dist.cpu.builder import fence_proxies
from triton_dist.cpu.gluon import tma
from triton_dist.cpu.gluon.partition import constant, partition, tensor
from triton_dist.cpu.gluon.shared_memory import fence_async_shared
from triton_dist.triton_api import interpreter

__all__ = ["inline_asm_elementwise"]


def _nothing(*_: tl.tensor) -> None:
    """Accesses to memory are in order here."""


def _release() -> None:
    partition().has_fenced = True


def _fence_all_proxies() -> None:
    fence_async_shared()
    fence_proxies()


def _of_all_lanes(value: tl.tensor) -> int:
    """The bits of all lanes' numbers, which are one number here."""
    if value.handle.data.size > 1:
        raise NotImplementedError("the CPU world does not know which lane has which element: reduce them by gl.sum")
    return int(value.handle.data.item())


_INSTRUCTIONS: dict[str, Callable[..., Any]] = {
    r"fence\.(?:acq_rel|sc)\.(?:gpu|sys)": _release,
    r"fence\.proxy\.async\.shared::\w+": fence_async_shared,
    r"fence\.proxy\.async": _fence_all_proxies,
    r"fence\.proxy\.async\.global": fence_proxies,
    r"griddepcontrol\.\w+": _nothing,
    r"cp\.async\.bulk\.prefetch\.\S+ .*": _nothing,
    r"cp\.async\.bulk\.commit_group": tma.commit,
    r"cp\.async\.bulk\.wait_group (\d+)": lambda number: tma.completed(int(number)),
    r"cp\.async\.bulk\.wait_group\.read (\d+)": lambda number: tma.store_wait(int(number)),
    r"redux\.sync\.or\.b32 \$0, \$1, 0xffffffff": _of_all_lanes,
    r"mov\.b32 \$0, (\d+)": int,
    r"mov\.u32 \$0, %clock": time.perf_counter_ns,
    r"mov\.u32 \$0, %globaltimer_lo": time.time_ns,
    r"mov\.u64 \$0, %globaltimer": time.time_ns,
}


def inline_asm_elementwise(
    asm: Any, constraints: Any, args: Sequence[Any], dtype: Any, is_pure: Any, pack: Any
) -> tl.tensor:
    """``gl.inline_asm_elementwise``, of instructions whose result is one number.

    Raises:
        NotImplementedError: it has other instructions.
    """
    value, kind = 0, constant(dtype)
    for instruction in filter(None, map(str.strip, constant(asm).strip("{} ").split(";"))):
        for pattern, act in _INSTRUCTIONS.items():
            if found := re.fullmatch(pattern, instruction):
                result = act(*found.groups(), *args)
                value = value if result is None else int(result)
                break
        else:
            raise NotImplementedError(f"the CPU world has no instruction {instruction!r} of PTX")
    numpy_type = interpreter.numpy_dtype(kind)
    word = np.array(value & 0xFFFFFFFFFFFFFFFF, np.uint64)
    return tensor(word.view(np.int64).astype(numpy_type), kind)
