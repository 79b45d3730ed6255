"""A time limit on library calls that have none: a socket of torch's store waits for an answer forever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["within"]

Result = TypeVar("Result")


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """Call ``call()`` in a thread and return its result, or raise its error. Ctrl-C interrupts the wait for it.

    Raises:
        TimeoutError: the call lasts longer than ``seconds``. Its thread goes on, and its result is dropped.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="triton_dist call with a limit", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"no answer within {seconds:g} s")
    if errors:
        raise errors[0]
    return results[0]
