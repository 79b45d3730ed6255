"""What is of one process's world: worlds, teams, communicators."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

__all__ = ["NotCopied"]

_T = TypeVar("_T", bound="NotCopied")


class NotCopied:
    """PEs make it together, so a copy, as of a module that holds it, is the object itself. It cannot be pickled."""

    def __copy__(self: _T) -> _T:
        return self

    def __deepcopy__(self: _T, memo: dict[int, Any]) -> _T:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self} cannot be pickled, as it is of the world of this process: save the state_dict() of a module that"
            " holds it, and make it anew where that is loaded"
        )
