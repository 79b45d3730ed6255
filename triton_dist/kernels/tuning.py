"""``kernels.tune``: measure the algorithms of operations once, and store the times for later processes.

    torchrun --nproc-per-node 2 -m triton_dist.kernels --max-tokens 8192 --hidden 8192 --weights 8192x3584

Nothing else times algorithms: calls with ``algorithm="auto"`` take what tables and models say.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

import torch

import triton_dist
from triton_dist.kernels.choice import files
from triton_dist.kernels.choice.choose import Choices
from triton_dist.kernels.choice.measure import measure
from triton_dist.kernels.choice.tables import BYTES, Case, Entry, Table
from triton_dist.kernels.collectives import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.gemm import all_gather_gemm, gemm_all_reduce, gemm_all_scatter, gemm_reduce_scatter
from triton_dist.kernels.gemm.arguments import DTYPES
from triton_dist.kernels.gemm.choice import case_of as case_of_gemm
from triton_dist.kernels.gemm.fp8 import FORMS, FP8, SCALE_BLOCK, BlockScales, RowScales, Scale
from triton_dist.kernels.gemm.local_gemm import local_ways
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.norm import all_reduce_norm, norm_all_gather, reduce_scatter_norm
from triton_dist.kernels.norm.choice import case_of as case_of_norm
from triton_dist.kernels.prepared import Prepared
from triton_dist.kernels.shards import each_of, own_rows

__all__ = ["OPERATIONS", "Workload", "tune"]

_log = logging.getLogger("triton_dist")


class Workload(NamedTuple):
    """What a model will compute.

    Attributes:
        max_tokens: the most rows of all PEs together.
        hidden: the length of a row that collectives and norms exchange; 0 if none do.
        weights: K and N of ``b`` of each GEMM, as this PE has it.
        dtype: of rows and operands.
        scales: which forms of scales operands of fp8 have.
    """

    max_tokens: int
    hidden: int
    weights: Sequence[tuple[int, int]]
    dtype: torch.dtype
    scales: Sequence[str]


_Ways = Mapping[str, Callable[[], object]]
_Measured = Iterator[tuple[Case, _Ways]]


# ---- what is measured


def _ways(call: Callable[..., object], algorithms: Iterable[str]) -> _Ways:
    """The algorithms that take such a call: others refuse it on all PEs alike, before anything is launched.

    ``two_level`` is the only choice between hosts, and never ``auto``'s inside of one.
    """
    return {algorithm: partial(call, algorithm=algorithm) for algorithm in algorithms if algorithm != "two_level"}


def _sizes(largest: int) -> Iterator[int]:
    """1, 4, 16 and powers of two up to ``largest``, and that itself."""
    yield from takewhile(lambda size: size < largest, (1, 4, *(1 << i for i in range(4, 62))))
    yield largest


def _collective(operation: str, comm: Communicator, work: Workload) -> _Measured:
    module: Any = _MODULES[operation]
    most = _up(work.max_tokens, comm.n_pes)
    source, result = (comm.zeros(most, work.hidden, dtype=work.dtype) for _ in range(2))
    for tokens in _sizes(work.max_tokens):
        each = -(-tokens // comm.n_pes)
        whole = tokens if operation in ("all_reduce", "broadcast") else each * comm.n_pes
        x = source[: each if operation == "all_gather" else whole]
        y = result[: each if operation == "reduce_scatter" else whole]
        given: dict[str, tuple[Any, ...]] = {"all_reduce": (x, "sum", y), "broadcast": (x,)}
        call = partial(getattr(module, operation), *given.get(operation, (y, x)), group=comm)
        yield Case(operation, BYTES, (x.nbytes,)), _ways(call, module.ALGORITHMS)


def _norm(operation: str, comm: Communicator, work: Workload) -> _Measured:
    module: Any = _MODULES[operation]
    gathers = operation == "norm_all_gather"
    for tokens in _sizes(work.max_tokens):
        each, own = each_of(tokens, comm.n_pes), len(own_rows(comm, tokens))
        rows = own if gathers else tokens
        x = torch.zeros(rows, work.hidden, dtype=work.dtype, device=comm.world.device)
        residual = torch.zeros_like(x if operation != "reduce_scatter_norm" else x[:own])
        told = {"rows": tokens} if gathers else {}
        call = partial(getattr(module, operation), x, x.new_ones(work.hidden), residual, **told, group=comm)
        yield case_of_norm(operation, x, rows=each if gathers else None), _ways(call, module.ALGORITHMS)


def _gemm(operation: str, comm: Communicator, work: Workload) -> _Measured:
    module: Any = _MODULES[operation]
    result = torch.bfloat16 if work.dtype in FP8 else work.dtype
    gathers, scatters = operation == "all_gather_gemm", operation == "gemm_reduce_scatter"
    for k, n in work.weights:
        columns = n * comm.n_pes if operation == "gemm_all_scatter" else n
        make = partial(torch.empty, device=comm.world.device) if gathers or scatters else comm.empty
        memory = make(work.max_tokens, columns, dtype=result)
        for tokens in _sizes(work.max_tokens):
            each, own = each_of(tokens, comm.n_pes), len(own_rows(comm, tokens))
            a, b = _random(comm, own if gathers else tokens, k, work.dtype), _random(comm, n, k, work.dtype).t()
            if work.dtype not in FP8:
                b = b.contiguous()
            out = memory[: own if scatters else tokens]
            c = torch.empty(tokens, n, dtype=result, device=a.device)
            local = _random(comm, tokens, k, work.dtype) if gathers else a
            told = {"rows": tokens} if gathers else {}
            for form, (scale, given) in _scales(local, a, b, work.scales).items():
                # First, since bulk_synchronous takes what is fastest of these.
                yield case_of_gemm("local_gemm", local, b, scales=form), local_ways(Operands(comm, local, b, c, scale))
                call = partial(getattr(module, operation), a, b, out, **given, **told, group=comm)
                case = case_of_gemm(operation, a, b, scales=form, rows=each if gathers else None)
                yield case, _ways(call, module.ALGORITHMS)


def _scales(
    local: torch.Tensor, a: torch.Tensor, b: torch.Tensor, forms: Sequence[str]
) -> dict[str, tuple[Scale, dict[str, torch.Tensor]]]:
    """By form, ``FORMS`` or empty for one of whole operands, the scale of ``local`` · ``b`` and what a call with ``a``
    takes. Operands that are not of fp8 have none, and blocks need a K of whole ones."""
    if a.dtype not in FP8:
        return {"": (None, {})}
    ones = partial(torch.ones, dtype=torch.float32, device=a.device)
    found: dict[str, tuple[Scale, dict[str, torch.Tensor]]] = {}
    k, n = b.shape
    if "whole" in forms:
        found[""] = ones(1), {}
    if "rows" in forms:
        of_b = ones(1, n)
        found["rows"] = RowScales(ones(local.shape[0], 1), of_b), {"scale_a": ones(a.shape[0], 1), "scale_b": of_b}
    if "blocks" in forms and k % SCALE_BLOCK == 0:
        blocks = k // SCALE_BLOCK
        of_b = ones(blocks, -(-n // SCALE_BLOCK))
        of_rows = [ones(x.shape[0], blocks) for x in (local, a)]
        found["blocks"] = BlockScales(of_rows[0], of_b), {"scale_a": of_rows[1], "scale_b": of_b}
    return found


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _random(comm: Communicator, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Numbers as they are multiplied in models: GPUs compute with zeros faster. A program's own random numbers stay."""
    generator = torch.Generator(comm.world.device).manual_seed(comm.world.pe)
    return torch.randn(rows, columns, device=comm.world.device, generator=generator).to(dtype)


_COLLECTIVES = (all_gather, reduce_scatter, all_reduce, all_to_all, broadcast)
_NORMS = (all_reduce_norm, reduce_scatter_norm, norm_all_gather)
_GEMMS = (all_gather_gemm, gemm_all_scatter, gemm_reduce_scatter, gemm_all_reduce)
_MODULES = {module.__name__.rpartition(".")[2]: module for module in (*_COLLECTIVES, *_NORMS, *_GEMMS)}
_MEASURED: dict[str, Callable[[str, Communicator, Workload], _Measured]] = {
    name: _collective if module in _COLLECTIVES else _norm if module in _NORMS else _gemm
    for name, module in _MODULES.items()
}
OPERATIONS = tuple(_MODULES)
"""What can be tuned."""
SCALES = ("whole", "rows", "blocks")
"""The forms of scales of operands of fp8."""


# ---- the public function


def tune(
    *operations: str,
    max_tokens: int,
    hidden: int = 0,
    weights: Sequence[tuple[int, int]] = (),
    dtype: torch.dtype = torch.bfloat16,
    scales: Sequence[str] = SCALES,
    store: bool = True,
    group: Any = None,
) -> dict[str, dict[tuple[int, ...], dict[str, float]]]:
    """Measure all algorithms of ``operations`` for up to ``max_tokens`` rows, and let ``auto`` take the fastest.

    *Collective* over ``group``. Each is timed in CUDA graphs for 1, 4, 16, 32, … rows; the slowest PE's time counts.
    Later calls of the group's communicator use the times, and so do processes that begin later on this host with as
    many PEs on GPUs of the same model: the times are added to a file in ``TRITON_DIST_TUNING_DIR`` of each host. In the
    CPU world every algorithm runs once, and nothing is measured or stored: the first PE warns by the logger
    ``triton_dist``. GEMMs and norms of rows that PEs cannot share equally are timed with the shards that PEs then have,
    of ``torch.chunk``.

    Args:
        operations: names of functions of this package: collectives, norms, GEMMs. By default all for which ``hidden``
            or ``weights`` are given.
        max_tokens: the most rows: of all PEs together where these have some each.
        hidden: the columns of what collectives and norms exchange.
        weights: (K, N) of ``b`` of each GEMM, as each PE has it.
        dtype: of rows and of the operands of GEMMs.
        scales: for operands of fp8, which forms of scales are measured, each for itself: ``whole``, ``rows``,
            ``blocks`` (where K is a multiple of 128). By default all.
        store: whether to store the times for other processes.

    Returns:
        by operation (``gemm_all_reduce, scales of blocks`` where they are of parts of operands) and this PE's sizes
        (``choice/tables.py``) the microseconds of each algorithm; empty in the CPU world.

    Raises:
        TypeError, ValueError: an operation cannot be tuned, or what it needs is not given.
        MemoryError: the symmetric heap has no room for the tensors of a call.
    """
    for name, given, what in (("weights", weights, "pairs (K, N)"), ("scales", scales, "names")):
        # A str is a sequence, too: of letters.
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise TypeError(f"tune: {name} must be a sequence of {what}, got {given!r} of type {type(given).__name__}")
    pairs = tuple(tuple(weight) if isinstance(weight, Sequence) else (weight,) for weight in weights)
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"tune: weights are pairs (K, N) of positive ints, got {weights}")
    work = Workload(max_tokens, hidden, tuple((k, n) for k, n in pairs), dtype, tuple(scales))
    chosen = _checked(operations, work)
    with calling("tune", group) as comm:
        comm.compare("tune", chosen, *work)
        measured: dict[Case, Mapping[str, float]] = {}
        for operation in chosen:
            for case, ways in _MEASURED[operation](operation, comm, work):
                if case not in measured and (times := measure(comm, _possible(ways))):
                    measured[case] = times
                    comm.own(Choices).learn([Entry(case, times)])
        comm.own(Prepared).forget()
        if not measured and comm.world.kind == "cpu" and comm.my_rank == 0:
            _log.warning(
                "kernels.tune: nothing was measured, and the result is empty: the CPU world interprets kernels. Every"
                " algorithm has run once. Tune on GPUs"
            )
        if measured and store:
            try:
                entries = [Entry(case, times) for case, times in measured.items()]
                files.store(Table(comm.tables[0].gpu, comm.n_pes, entries))
            except OSError as error:
                _log.warning("kernels.tune: %s; what was measured counts in this process only", error)
    result: dict[str, dict[tuple[int, ...], dict[str, float]]] = {}
    for case, of_case in measured.items():
        form = case.dtype.rpartition("_")[2]
        name = f"{case.operation}, scales of {form}" if form in FORMS.values() else case.operation
        result.setdefault(name, {})[case.sizes] = dict(of_case)
    return result


def _possible(ways: _Ways) -> _Ways:
    """Those that do not refuse the call. Each runs once."""
    found = {}
    for name, run in ways.items():
        with contextlib.suppress(ValueError):  # the same on all PEs: it follows from shapes
            run()
            found[name] = run
    return found


def _checked(operations: Sequence[str], work: Workload) -> tuple[str, ...]:
    for name, value in (("max_tokens", work.max_tokens), ("hidden", work.hidden)):
        if type(value) is not int or value < (name == "max_tokens"):
            raise ValueError(f"tune: {name} must be a positive int, got {value!r}")
    if any(type(size) is not int or size < 1 for weight in work.weights for size in weight):
        raise ValueError(f"tune: weights are pairs (K, N) of positive ints, got {work.weights}")
    if work.dtype not in DTYPES:
        raise ValueError(f"tune: dtype must be {', '.join(map(str, DTYPES))}, got {work.dtype}")
    if not work.scales or any(scale not in SCALES for scale in work.scales):
        raise ValueError(f"tune: scales are some of {', '.join(SCALES)}, got {', '.join(map(repr, work.scales))}")
    if work.dtype in FP8 and work.hidden:
        raise ValueError("tune: hidden is of collectives and norms, whose rows are not of fp8: tune them by themselves")
    if unknown := [name for name in operations if name not in OPERATIONS]:
        raise ValueError(f"tune: {unknown[0]!r} is none of {', '.join(OPERATIONS)}")
    possible = tuple(name for name in OPERATIONS if (work.weights if _MEASURED[name] is _gemm else work.hidden))
    if lacking := [name for name in operations if name not in possible]:
        needs = "weights=" if _MEASURED[lacking[0]] is _gemm else "hidden="
        raise ValueError(f"tune: {lacking[0]} needs {needs}")
    if not possible:
        raise ValueError("tune: give hidden=, for collectives and norms, or weights=, for GEMMs")
    return tuple(dict.fromkeys(operations)) or possible


# ---- the command


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="triton_dist.kernels", description=tune.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("operations", nargs="*", metavar="OPERATION", help=f"of {', '.join(OPERATIONS)}")
    parser.add_argument("--max-tokens", type=int, required=True)
    parser.add_argument("--hidden", type=int, default=0)
    parser.add_argument("--weights", nargs="*", default=[], metavar="KxN", help="of each PE, as 8192x3584")
    parser.add_argument("--dtype", choices=[str(dtype).removeprefix("torch.") for dtype in DTYPES], default="bfloat16")
    parser.add_argument("--scales", nargs="+", choices=SCALES, default=SCALES, help="of operands of fp8")
    parser.add_argument("--copy", metavar="FILE", help="write the stored table of this host there, too (PE 0)")
    given = parser.parse_args(arguments)
    try:
        weights = [(int(k), int(n)) for k, n in (text.split("x") for text in given.weights)]
    except ValueError:
        parser.error(f"--weights are of the form 8192x3584, got {' '.join(given.weights)}")
    os.environ.setdefault("TRITON_DIST_SYMMETRIC_SIZE", "8G")
    with triton_dist.init() as world:
        dtype = getattr(torch, given.dtype)
        sizes = {"max_tokens": given.max_tokens, "hidden": given.hidden, "weights": weights}
        result = tune(*given.operations, **sizes, dtype=dtype, scales=given.scales)
        if world.pe == 0:
            _report(result)
            if result and given.copy:
                name = torch.cuda.get_device_name(world.device)
                with open(given.copy, "wb") as file:
                    file.write(files.stored_path(name, world.n_pes).read_bytes())


def _report(result: Mapping[str, Mapping[tuple[int, ...], Mapping[str, float]]]) -> None:
    if not result:
        print("tune: every algorithm has run, none was measured. The CPU world interprets kernels.")
    for operation, cases in result.items():
        for sizes, times in cases.items():
            figures = ", ".join(f"{name} {time:.1f}" for name, time in sorted(times.items(), key=lambda item: item[1]))
            print(f"{operation} {' × '.join(map(str, sizes))}: {figures} µs")


if __name__ == "__main__":
    main()
