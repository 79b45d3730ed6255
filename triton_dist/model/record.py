"""Runs a script in the CPU world as the checker does, and keeps the logs of its PEs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from triton_dist.check.log import LogError, PELog
from triton_dist.check.run import Run
from triton_dist.check.symmetry import Symmetry
from triton_dist.model.machine import Machine
from triton_dist.testing.forks import Forker

__all__ = ["ScriptError", "record"]


_LIGHT = str(Path(__file__).parents[1] / "cpu" / "light" / "__main__.py")
"""A program of a package that is above this one: it is run, and not imported."""


class ScriptError(RuntimeError):
    """The script did not end well, or left no log."""


def record(
    forker: Forker,
    script: Sequence[str],
    n_pes: int,
    machine: Machine,
    *,
    timeout: float,
    captures: bool = False,
    light: bool = False,
    programs: tuple[int, ...] | None = None,
    alone: bool = False,
) -> Run:
    """What the PEs of ``script`` (its file and its arguments) do, with the sizes that kernels have on ``machine``.

    Args:
        forker: starts the PEs.
        timeout: seconds after which the run is ended.
        captures: the script's output is shown only if it fails.
        light: PEs are coroutines of one process (docs/model.md), and not processes.
        programs: light, and of each launch the first and the last program run only, and those with these numbers; for
            an ``ExpandedGraph``.
        alone: of these, one PE runs only, for a ``RepresentativeGraph``.

    Raises:
        ScriptError: it failed, did not end in time, or made no world.
    """
    with tempfile.TemporaryDirectory() as folder:
        env = {
            "TRITON_DIST_CHECK": "1",
            "TRITON_DIST_SCHEDULE": "round-robin",
            "TRITON_DIST_CHECK_LOG": folder,
            "TRITON_DIST_CPU_SMS": str(machine.sm.count),
        }
        hosts, rest = divmod(n_pes, machine.gpus_per_host)
        if rest and hosts:
            raise ScriptError(f"{n_pes} PEs do not fill hosts of {machine.gpus_per_host} GPUs ({machine.name})")
        if hosts > 1:
            env["TRITON_DIST_TOPOLOGY"] = f"{hosts}x{machine.gpus_per_host}"
        some = () if programs is None and alone else programs
        one_process = light or some is not None
        options = [] if some is None else ["--programs", ",".join(map(str, some))]
        if alone:
            options += ["--alone", str(Symmetry(n_pes, machine.gpus_per_host).representative)]
        pes = [_LIGHT, *options, str(n_pes), *script] if one_process else script
        outcome = forker.launch_together(pes, 1 if one_process else n_pes, env=env, timeout=timeout, captures=captures)
        if outcome.timed_out:
            raise ScriptError(f"{script[0]} did not end within {timeout:g} s")
        if any(outcome.statuses):
            pe = next(pe for pe, status in enumerate(outcome.statuses) if status)
            raise ScriptError(
                f"{outcome.output}{script[0]}: PE {pe} ended with status {outcome.statuses[pe]}; "
                "triton-dist-check says more of deadlocks and of accesses outside of tensors"
            )
        files = [Path(folder) / f"pe{pe}.log" for pe in range(n_pes)]
        if not all(file.exists() for file in files):
            raise ScriptError(f"{script[0]} made no world (triton_dist.init()), so there is nothing to replay")
        try:
            return Run([PELog(pe, file.read_bytes(), n_pes) for pe, file in enumerate(files)])
        except LogError as error:
            raise ScriptError(str(error)) from None
