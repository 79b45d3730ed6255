"""What the documentation of every fused norm says, once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["fused_norm"]

_F = TypeVar("_F", bound=Callable[..., Any])

_SHARED = """
``x`` is float16, bfloat16 or float32, contiguous, with 1 to 65536 columns; ``residual`` is like it, or None. ``weight``
(the norm's), ``bias`` (added to the sum) and ``norm_bias`` (added to the norm) have H elements of any of these types,
or are None; they are the same on every PE. ``norm`` is ``rms`` or ``layer``. With ``quantize="token"`` the output is
float8_e4m3fn with a float32 scale for each row, with ``"block"`` one for each 128 columns of a row. None need be
symmetric.

The residual that is returned is rounded once, and it is what is normalised, in float32. ``auto`` takes what is fastest
by measured tables or a model, and times nothing; in the CPU world it is the first algorithm.

*Collective*, on the current stream. When a call has ended on a PE, as far as that PE's stream is concerned, its results
are complete there and its input may be overwritten. A call may be captured in a CUDA graph after it has run once.

Returns:
    a :class:`Normed`: output, residual and scales, in new tensors.

Raises:
    TypeError, ValueError: an argument is not as described; the message says which and how.
"""


def fused_norm(function: _F) -> _F:
    """Append to a fused norm's documentation what holds for all of them."""
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n{_SHARED}"
    return function
