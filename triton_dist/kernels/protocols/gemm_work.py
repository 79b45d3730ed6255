"""A local GEMM as work of prepared calls that C++ makes again by itself (``native_calls/Multiply.h``)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from triton_dist.native_calls import Guard

__all__ = ["GemmWork"]


class GemmWork(ABC):
    """c = a · b of matrices of one layout and dtype, called with these three.

    Attributes:
        flags: that PyTorch's flags are those under which C++ may make it.
    """

    flags: tuple[Guard, ...]

    @abstractmethod
    def is_direct(self) -> bool:
        """Whether C++ may make it now; else it is a call of Python."""

    @property
    @abstractmethod
    def data(self) -> bytes:
        """The GEMM for C++, which makes it where :attr:`flags` hold; this object keeps what it uses. It is direct."""

    @abstractmethod
    def __call__(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *no: None) -> None:
        """Make it, on the current stream."""
