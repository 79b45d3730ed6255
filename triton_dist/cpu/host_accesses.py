"""What host code does to symmetric memory with torch, for a checked run: every operator's arguments are looked at.

An operator that PyTorch declares to write an argument writes all of it, else it reads it; views and the like touch
nothing. What host code does in other ways (numpy on the same memory, say) is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from triton_dist.cpu.recorder import Recorder

__all__ = ["HostAccesses"]

_SHAPE_ONLY = ("empty", "new_", "_like", "detach", "alias", "is_", "sym_", "_unsafe_view", "_reshape_alias", "lift")
"""In the names of operators that look at an argument's shape only."""


class HostAccesses(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tells the recorder, from :meth:`start` to :meth:`stop`."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder
        self._runs = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # PyTorch would import its compiler, which takes seconds, only to keep it away from us

    def start(self) -> None:
        self.__enter__()  # type: ignore[no-untyped-call]
        self._runs = True

    def stop(self) -> None:
        if self._runs:
            self._runs = False
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._runs and not _only_looks_at_shapes(func):
            for tensor, writes in _tensors(func, args, kwargs):
                self._note(str(func.overloadpacket), tensor, writes)
        return func(*args, **kwargs)

    def _note(self, what: str, tensor: torch.Tensor, writes: bool) -> None:
        if tensor.device.type != "cpu" or tensor.layout != torch.strided or not tensor.numel():
            return
        begin, size = tensor.data_ptr(), tensor.itemsize
        if self._recorder.is_symmetric(begin):
            addresses = np.array([begin], np.int64)
            if tensor.is_contiguous():
                self._recorder.host_block(what, addresses, tensor.numel() * size, writes)
                return
            for extent, stride in zip(tensor.shape, tensor.stride(), strict=True):
                addresses = (addresses[:, None] + np.arange(extent, dtype=np.int64) * stride * size).reshape(-1)
            self._recorder.host_block(what, addresses, size, writes)


def _only_looks_at_shapes(func: Any) -> bool:
    name = func._schema.name.removeprefix("aten::")
    returns = func._schema.returns
    is_view = any(value.alias_info is not None and not value.alias_info.is_write for value in returns)
    return is_view or any(part in name for part in _SHAPE_ONLY)


def _tensors(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[tuple[torch.Tensor, bool]]:
    """The tensors among the arguments, and whether the operator writes them."""
    for i, declared in enumerate(func._schema.arguments):
        value = args[i] if i < len(args) else kwargs.get(declared.name)
        writes = declared.alias_info is not None and declared.alias_info.is_write
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor):
                yield tensor, writes
