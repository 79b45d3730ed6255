"""Which world this process belongs to: decided once, since ``triton.jit`` chooses compiler or interpreter early."""

from __future__ import annotations

import functools
import os

from triton_dist import environment

__all__ = ["interprets", "kind"]


@functools.cache
def kind() -> str:
    """``"gpu"`` or ``"cpu"``: what ``TRITON_DIST_WORLD`` says, else whether PyTorch sees a GPU."""
    asked = environment.get("TRITON_DIST_WORLD")
    if asked is not None:
        return str(asked)
    import torch

    return "gpu" if torch.cuda.is_available() else "cpu"


@functools.cache
def interprets() -> bool:
    """Whether kernels run under the interpreter. A ``TRITON_INTERPRET`` that the user set wins over the kind of world.

    (With ``TRITON_INTERPRET=0`` kernels can be compiled, though not run, on a machine without a GPU.)
    """
    asked = os.environ.get("TRITON_INTERPRET")
    if asked is not None:
        return asked.lower() in ("1", "true", "yes", "on", "y")  # as triton.knobs reads it
    return kind() == "cpu"
