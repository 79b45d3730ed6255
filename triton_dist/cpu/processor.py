"""What a kernel can ask the processor that it runs on: the time, and the processor's number.

Triton asks in assembly, of which these readings are all that means something without a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_dist.triton_api import interpreter

__all__ = ["ProcessorBuilder"]

_READINGS: dict[str, Callable[[], int]] = {"mov.u64 $0, %globaltimer;": time.time_ns, "mov.u32 $0, %smid;": lambda: 0}


@dataclass(frozen=True)
class _Reading:
    handle: Any

    def get_result(self, index: int) -> Any:
        return self.handle


class ProcessorBuilder(interpreter.Builder):  # type: ignore[misc]
    """Triton's interpreter with the readings of ``tl.extra.cuda``."""

    def create_inline_asm(
        self, asm: str, constraints: str, values: Sequence[Any], types: Sequence[Any], pure: bool, pack: int
    ) -> Any:
        if asm not in _READINGS:
            return super().create_inline_asm(asm, constraints, values, types, pure, pack)
        dtype = np.dtype(f"int{types[0].primitive_bitwidth}")
        return _Reading(interpreter.TensorHandle(np.array([_READINGS[asm]()], dtype), types[0]))
