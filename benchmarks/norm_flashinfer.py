"""FlashInfer's fused all-reduce + residual + RMSNorm (+ fp8), `trtllm_allreduce_fusion`, as contenders of norm.py.

FlashInfer chooses between one-shot and two-shot by a table that was measured on another GPU and prefers one-shot, so
two-shot is a contender of its own. Scales of blocks are powers of two, rounded up: FlashInfer's kernel has no others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from harness import Bench

if TYPE_CHECKING:
    from norm import Rows

__all__ = ["fused_by_flashinfer"]

PATTERNS = {
    None: "kARResidualRMSNorm",
    "token": "kARResidualRMSNormDynamicFP8Quant",
    "block": "kARResidualRMSNormPerTokenGroupFP8PackedQuant",
}
BLOCK = 128
"""Elements that share a scale."""

WORLDS = (2, 4, 8)
"""Numbers of PEs that FlashInfer's choice knows."""


@contextmanager
def fused_by_flashinfer(bench: Bench, rows: Rows, eps: float) -> Iterator[dict[str, Callable[[int], torch.Tensor]]]:
    """FlashInfer's contenders for ``rows``. Where they cannot run, they raise the reason. *Collective.*"""
    names: dict[str, bool | None] = {"FlashInfer fused": None}
    if rows.m > bench.world.n_pes:
        names["FlashInfer fused, two-shot"] = False
    fused: Fused | None = None
    # Every PE has the library and its compiled kernels before one of them waits for the others.
    error = agreed(bench, lambda: load(bench.world.n_pes))
    if error is None:

        def make() -> None:
            nonlocal fused
            fused = Fused(rows, eps)

        error = agreed(bench, make)

    def step(use_oneshot: bool | None, i: int) -> torch.Tensor:
        if error is not None:
            raise error
        assert fused is not None
        return fused.step(i, use_oneshot)

    yield {name: partial(step, use_oneshot) for name, use_oneshot in names.items()}
    if fused is not None:
        bench.settle()  # no PE writes to a workspace that another has let go
        fused.close()


def agreed(bench: Bench, action: Callable[[], None]) -> Exception | None:
    """Why ``action`` failed on this PE, or on another one."""
    mine: Exception | None = None
    try:
        action()
    except Exception as error:
        mine = error
    problem = bench.agree("" if mine is None else f"{type(mine).__name__}: {str(mine)[:160]}")
    return mine or (RuntimeError(problem) if problem else None)


def load(n_pes: int) -> None:
    """Import FlashInfer and load its kernels, which it may have to compile first: that takes minutes."""
    if n_pes not in WORLDS:
        raise ValueError(f"FlashInfer's choice of an algorithm takes {WORLDS} PEs, not {n_pes}")
    library = importlib.import_module("flashinfer.comm.trtllm_ar")
    missing = [name for name in PATTERNS.values() if not hasattr(library.AllReduceFusionPattern, name)]
    if missing:
        raise ImportError(f"this version of FlashInfer lacks {', '.join(missing)}")
    library.get_trtllm_comm_module()


class Fused:
    """FlashInfer's kernel on ``rows``, with a workspace in torch's symmetric memory. *Collective.*

    The workspace is of just these rows: the kernel's offsets in one for many more rows do not fit its 32 bits.
    """

    def __init__(self, rows: Rows, eps: float) -> None:
        self._rows, self._eps = rows, eps
        self._library = importlib.import_module("flashinfer.comm")
        world = rows.world
        self._handles, self._pointers, self._metadata = self._library.trtllm_create_ipc_workspace_for_all_reduce_fusion(
            tp_rank=world.pe,
            tp_size=world.n_pes,
            max_token_num=rows.m,
            hidden_dim=rows.h,
            create_metadata=True,
        )

    def step(self, i: int, use_oneshot: bool | None) -> torch.Tensor:
        """The normalised rows of set ``i``, in bfloat16 or fp8. FlashInfer chooses where ``use_oneshot`` is None."""
        rows, quantize = self._rows, self._rows.quantize
        x = rows.x[i]
        output = torch.empty_like(x, dtype=torch.bfloat16 if quantize is None else torch.float8_e4m3fn)
        self._library.trtllm_allreduce_fusion(
            allreduce_in=x,
            world_size=rows.world.n_pes,
            world_rank=rows.world.pe,
            token_num=rows.m,
            hidden_dim=rows.h,
            workspace_ptrs=self._pointers,
            launch_with_pdl=True,
            trigger_completion_at_end=True,
            fp32_acc=True,
            pattern_code=getattr(self._library.AllReduceFusionPattern, PATTERNS[quantize]),
            use_oneshot=use_oneshot,
            allreduce_out=None,
            residual_in=rows.residual[i],
            residual_out=torch.empty_like(x),
            norm_out=output if quantize is None else None,
            quant_out=None if quantize is None else output,
            rms_gamma=rows.weight,
            rms_eps=self._eps,
            scale_factor=None,
            layout_code=None,
            metadata=self._metadata,
            **self._scales(x.device),
        )
        return output

    def _scales(self, device: torch.device) -> dict[str, Any]:
        """Where the scales go: float32 per row; or exponents, four to a word, with rows padded to a multiple of 4."""
        m, h, quantize = self._rows.m, self._rows.h, self._rows.quantize
        if quantize is None:
            return {"scale_out": None}
        if quantize == "token":
            return {"scale_out": torch.empty(m, 1, dtype=torch.float32, device=device)}
        words, padded = -(-h // (4 * BLOCK)), -(-m // 4) * 4
        scales = torch.empty(words, padded, dtype=torch.int32, device=device)
        return {"scale_out": scales, "block_quant_group_size": BLOCK}

    def close(self) -> None:
        self._library.trtllm_destroy_ipc_workspace_for_all_reduce_fusion(self._handles)
