"""Checks of arguments that are no tensors: one error each, which names the argument, its value and what is allowed."""

from __future__ import annotations

from collections.abc import Collection

import torch

__all__ = ["check_bool", "check_dtype", "check_int", "check_number", "check_one_of"]


def _is_int(value: object) -> bool:
    return isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool)


def _refuse(function: str, name: str, allowed: str, value: object) -> TypeError:
    shown = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
    return TypeError(f"{function}: {name} must be {allowed}, got {shown} of type {type(value).__name__}")


def check_int(function: str, name: str, value: object, least: int | None = None, below: int | None = None) -> None:
    """``value`` is an int, at least ``least`` and less than ``below``; a bool is none."""
    if not _is_int(value):
        raise _refuse(function, name, "an int", value)
    assert isinstance(value, (int, torch.SymInt))
    if below is not None and not (least or 0) <= value < below:
        raise ValueError(f"{function}: {name} must be in [{least or 0}, {below}), got {value}")
    if least is not None and not value >= least:
        raise ValueError(f"{function}: {name} must be at least {least}, got {value}")


def check_number(function: str, name: str, value: object, least: float | None = None) -> None:
    """``value`` is a finite int or float, at least ``least``."""
    if not _is_int(value) and not isinstance(value, (float, torch.SymFloat)):
        raise _refuse(function, name, "a number", value)
    # Not math.isfinite, which torch.compile does not trace with a float that varies: of nan and inf this is nan.
    if isinstance(value, (int, float)) and not (value - value == 0 and (least is None or value >= least)):
        allowed = "finite" if least is None else f"finite and at least {least}"
        raise ValueError(f"{function}: {name} must be {allowed}, got {value!r}")


def check_bool(function: str, name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise _refuse(function, name, "True or False", value)


def check_dtype(function: str, name: str, value: object) -> None:
    """``value`` is a dtype, or None."""
    if value is not None and not isinstance(value, torch.dtype):
        raise _refuse(function, name, "a torch.dtype or None", value)


def check_one_of(function: str, name: str, value: object, known: Collection[str | None]) -> None:
    """``value`` is one of these names, or None if that is one."""
    if not (value is None or isinstance(value, str)) or value not in known:
        *others, last = (str(item) for item in known)
        raise ValueError(f"{function}: {name} must be {', '.join(others)} or {last}, got {value!r}")
