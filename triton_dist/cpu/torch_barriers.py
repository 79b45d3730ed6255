"""Collectives of ``torch.distributed`` among all PEs, for a checked run: host code is ordered by them, too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from triton_dist.cpu.recorder import Recorder
from triton_dist.torch_api import replace_functions_of_distributed

__all__ = ["TorchBarriers"]

_NAMES = (
    *("barrier", "monitored_barrier", "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object"),
    *("all_to_all", "all_to_all_single", "reduce_scatter", "reduce_scatter_tensor"),
)
"""Those that no PE leaves before all have come."""


class TorchBarriers:
    """Tells the recorder of them, from :meth:`start` to :meth:`stop`."""

    def __init__(self, recorder: Recorder, n_pes: int) -> None:
        self._recorder = recorder
        self._pes = tuple(range(n_pes))
        self._undo: Callable[[], None] | None = None

    def start(self) -> None:
        self._undo = replace_functions_of_distributed(_NAMES, self._noted)

    def stop(self) -> None:
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def _noted(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("async_op") or not self._is_of_all(args, kwargs):
                return original(*args, **kwargs)
            self._recorder.host_arrives(f"torch.distributed.{name}()", self._pes)
            result = original(*args, **kwargs)
            self._recorder.host_leaves(self._pes)
            return result

        return call

    def _is_of_all(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        groups = [value for value in (*args, *kwargs.values()) if isinstance(value, dist.ProcessGroup)]
        return dist.is_initialized() and dist.get_world_size(*groups) == len(self._pes)
