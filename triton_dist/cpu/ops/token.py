"""What the language puts around waits for the sake of Triton's pipeliner, which an interpreter has not."""

from __future__ import annotations

__all__ = ["always", "token_zero"]


def token_zero(token: int) -> int:
    return 0


def always() -> int:
    return 1
