"""Starts PEs as forks of a process that has imported everything that tests need, pytest and hypothesis too."""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from limits import HANG_SECONDS

import triton_dist
from triton_dist import testing
from triton_dist.testing import Result, forks
from triton_dist.testing.forks import Outcome

__all__ = ["COMPILER", "ROOT", "Forker", "Outcome", "compiler", "forker", "launch"]

ROOT = Path(__file__).resolve().parents[1]

COMPILER = ("torch._dynamo", "torch._inductor.compile_fx", "torch.distributed.tensor.parallel")
"""``modules`` for PEs that call our operators, compile, or have DTensors: importing these takes some seconds."""

_KERNELS = ("triton_dist.kernels", "triton_dist.kernels.gemm.hopper.launch")


def launch(
    args: Sequence[str | os.PathLike[str]],
    n_pes: int,
    *,
    env: Mapping[str, str] | None = None,
    timeout: float = HANG_SECONDS,
    modules: tuple[str, ...] = (),
) -> Result:
    """What :func:`triton_dist.testing.launch` does, for the CPU world, in a fraction of the time.

    In another world it is that function. ``modules`` are those of :func:`forker`.
    """
    if (env or {}).get("TRITON_DIST_WORLD", triton_dist.kind()) != "cpu":
        return testing.launch(args, n_pes, env=env, timeout=timeout)
    return forker(modules).launch(args, n_pes, env=env, timeout=timeout)


class Forker(forks.Forker):
    """With a short way to run a script."""

    def run(self, script: Path, *args: str, n_pes: int = 2, **env: str) -> Outcome:
        """A script whose PEs write to one file."""
        return self.launch_together([script, *args], n_pes, env=env, timeout=HANG_SECONDS)


@functools.cache
def forker(modules: tuple[str, ...] = ()) -> Forker:
    """The one of this process, which ends with it, for PEs that import ``modules``, too."""
    return _started(Forker({"OMP_NUM_THREADS": "1"}, ["hypothesis", "pytest", *_KERNELS, *modules]))


@functools.cache
def compiler() -> Forker:
    """One of this process for programs whose kernels are compiled and not interpreted."""
    return _started(Forker({"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "0"}, _KERNELS))


def _started(forker: Forker) -> Forker:
    atexit.register(forker.__exit__)
    forker.__enter__()
    return forker
