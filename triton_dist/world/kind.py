"""Which kind of world this process belongs to, and so whether its kernels are compiled or interpreted."""

from __future__ import annotations

import functools
import os

from triton_dist import environment
from triton_dist.process_state import of_process

__all__ = ["Choice", "interprets", "kind"]


def kind() -> str:
    """``"gpu"`` or ``"cpu"``: what ``TRITON_DIST_WORLD`` says, else whether PyTorch sees a GPU."""
    return of_process(Choice).kind


def interprets() -> bool:
    """Whether kernels run under the interpreter. A ``TRITON_INTERPRET`` that the user set wins over the kind of world.

    (With ``TRITON_INTERPRET=0`` kernels can be compiled, though not run, on a machine without a GPU.)
    """
    return of_process(Choice).interprets


class Choice:
    """The answers. One for each process: ``triton.jit`` chooses compiler or interpreter when it decorates a kernel."""

    @functools.cached_property
    def kind(self) -> str:
        asked = environment.get("TRITON_DIST_WORLD")
        if asked is not None:
            return str(asked)
        import torch

        return "gpu" if torch.cuda.is_available() else "cpu"

    @functools.cached_property
    def interprets(self) -> bool:
        asked = os.environ.get("TRITON_INTERPRET")
        if asked is not None:
            return asked.lower() in ("1", "true", "yes", "on", "y")  # as triton.knobs reads it
        return self.kind == "cpu"
