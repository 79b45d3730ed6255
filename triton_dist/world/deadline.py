"""A time limit on calls into libraries that have none: a socket of torch's store waits for an answer for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["within"]

Result = TypeVar("Result")


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """What ``call()`` returns or raises, if it does within ``seconds``. The caller stays open to a Ctrl-C meanwhile.

    Raises:
        TimeoutError: it does not. Its thread is left behind; nobody gets what it returns later.
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
