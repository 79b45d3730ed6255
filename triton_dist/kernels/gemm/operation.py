"""The signature of the fused GEMMs, and what a call does around the algorithm: checks, the choice, the result.

An operation is a function that takes a checked :class:`Call` and returns its result and the algorithms that can compute
it. :func:`fused_gemm` makes the public function of it. Signature and arguments stand here, once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import torch

from triton_dist.kernels.arguments import by_hosts, places_of
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.device import check_sm_margin, is_hopper
from triton_dist.kernels.gemm.arguments import (
    check_activation,
    check_choice,
    check_epilogue,
    check_operands,
    check_rows,
    result,
    result_dtype,
)
from triton_dist.kernels.gemm.choice import choose_gemm
from triton_dist.kernels.gemm.epilogue import fold_of, kinds
from triton_dist.kernels.gemm.fp8 import FORMS, FP8, RowScales, Scale, checked_scale, given_scale
from triton_dist.kernels.gemm.operands import Operands, Tensors
from triton_dist.kernels.new_tensors import NewTensors
from triton_dist.kernels.overlaps import refuse_overlap, same_place
from triton_dist.kernels.prepared import Launch, Prepared, Step, place_of
from triton_dist.kernels.protocols.workspace import is_symmetric

__all__ = ["BETWEEN_HOSTS", "IN_SLICES", "Call", "Computation", "FusedGemm", "fused_gemm"]


class FusedGemm(Protocol):
    """A GEMM that is fused with a collective. *Collective* over ``group``, on the current stream.

    When it ends on a PE, as far as its stream is concerned, its ``out`` is complete, and ``a`` and ``b`` may be
    overwritten. The result is the same whenever it is computed by the same algorithm. A call may be captured in a CUDA
    graph after one has run whose M is in the same bucket (docs/kernels.md).
    """

    def __call__(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        out: torch.Tensor | None = None,
        *,
        algorithm: str = "auto",
        scale_a: torch.Tensor | float | None = None,
        scale_b: torch.Tensor | float | None = None,
        out_dtype: torch.dtype | None = None,
        sm_margin: int = 0,
        activation: str | None = None,
        bias: torch.Tensor | None = None,
        residual: torch.Tensor | None = None,
        rows: int | None = None,
        group: Any = None,
        pattern: str | None = None,
    ) -> torch.Tensor:
        """
        Args:
            a: bfloat16, float16, float32, float8_e4m3fn or float8_e5m2, with contiguous rows; any number of them, also
                none, the same on all PEs; of all_gather_gemm with ``rows`` the last PEs may have fewer, or none.
            b: with contiguous rows or columns, of the same shape on every PE. Of ``a``'s dtype; if that is an fp8 one,
                of either.
            out: contiguous; by default a new tensor. It may be ``residual``; it may not overlap other tensors of the
                call. If it must be symmetric, a new one is *collective* and not for
                graphs. Of ``a``'s dtype; if that is an fp8 one, bfloat16, float16 or float32, and so are partial sums
                that PEs exchange.
            algorithm: how communication overlaps with computation, one of those named above; or ``auto``: the fastest
                of those that are available, by measured times or a model; no call is timed. Over several hosts that is
                ``bulk_synchronous`` or ``two_level``, which is for those only; all others need peers that are reached
                by load and store. Algorithms that need a Hopper GPU take up to 8 PEs and rows that begin at multiples
                of 16 bytes; with fp8, ``b`` with contiguous columns and a result of 16-bit floats.
            scale_a, scale_b: what the elements of ``a`` and ``b`` are multiplied by, as a float32 tensor of one element
                each, or a number; for fp8 only. By default 1. They may differ between PEs, but for the scale of an
                operand that PEs share. Or of rows, contiguous float32 of two dimensions as of ``torch._scaled_mm``:
                [rows of a, 1] and [1, columns of b], by which the float32 sums of this PE's products are multiplied;
                of all_gather_gemm scale_a may have all rows of A instead, the same on all PEs. Or of blocks,
                contiguous float32 of two dimensions: [rows of a, K / 128], one
                for 128 elements of a row, and [K / 128, N / 128], rounded up, one for 128 × 128 of ``b``, where K, the
                columns of ``a``, is a multiple of 128. The sum of every 128 products is multiplied by its scales in
                float32.
            out_dtype: dtype of the result of fp8 operands; by default ``out``'s, or bfloat16.
            sm_margin: how many SMs are left to other kernels, the same on all PEs. cuBLAS, which cannot leave any, is
                then not used.
            activation: what is applied to the sums, after the bias: ``gelu`` (by erf), ``gelu_tanh``, ``silu``, or
                ``swiglu``, which is not for sums over PEs. With a sum over PEs it is applied to that. ``swiglu`` makes
                one column of two, SiLU of the first times the second: column 2 i of ``b`` belongs to the gate, column
                2 i + 1 is that of up, and the result has half as many columns as ``b``
                (:func:`~triton_dist.kernels.interleave_gate_up` makes such operands).
            bias: [N], as many as ``b`` has columns, bfloat16, float16 or float32; contiguous. It is added to
                every row; with a sum over PEs once, so that it is the same on all PEs.
            residual: only with a sum over PEs: of ``out``'s shape and of these dtypes, contiguous. It is added once: by
                gemm_reduce_scatter each PE's own, by gemm_all_reduce what is the same on all PEs.
            rows: only of all_gather_gemm: how many rows A has, all PEs' together, the same on all PEs; by default
                ``n_pes`` times those of ``a``. ``a`` is this PE's shard of them, as gemm_reduce_scatter cuts.
            group: whose PEs take part: None for all of the world, a ``triton_dist.Team``, a ``ProcessGroup``, a
                ``DeviceMesh`` of one dimension, or a :class:`~triton_dist.kernels.Communicator`. PEs are numbered as
                the group's ranks, and ``n_pes`` is its size. Symmetric tensors are so on all members.
            pattern: the former name of ``algorithm``, deprecated.

        Returns:
            ``out``: ``activation(sums + bias) + residual``, computed in float32, in which products are accumulated, and
            rounded once; those of fp8 with the bits that the GPU keeps of them
            (``hopper/multiply.py``).

        Raises:
            TypeError, ValueError: an argument is not as described; the message says which and how.
            RuntimeError: in the capture of a graph, before a first run in the same bucket; another thread is in a call
                of the same communicator.
        """
        ...


class Call(NamedTuple):
    """The arguments of a call; its operands are checked. ``function`` is the operation's name, for messages. ``scale``
    is what ``scale_a`` and ``scale_b`` make (:func:`~triton_dist.kernels.gemm.fp8.given_scale`). PEs share ``rows``,
    those of A, in shards of ``each``, where an operation has shards. ``a`` has ``rows_of_a`` rows, or fewer where it is
    one of the last shards."""

    comm: Communicator
    function: str
    a: torch.Tensor
    b: torch.Tensor
    out: torch.Tensor | None
    out_dtype: torch.dtype | None
    scale_a: torch.Tensor | float | None
    scale_b: torch.Tensor | float | None
    scale: Scale
    sm_margin: int
    activation: str | None
    bias: torch.Tensor | None
    residual: torch.Tensor | None
    algorithm: str
    rows: int
    each: int
    rows_of_a: int

    def result(self, shape: tuple[int, int], *, symmetric: bool) -> torch.Tensor:
        """``out``, or a new tensor."""
        return result(
            self.comm, self.function, self.out, shape, self.a.dtype, symmetric=symmetric, out_dtype=self.out_dtype
        )

    @property
    def columns(self) -> int:
        """Columns of C that this PE computes of ``b``."""
        return self.b.shape[1] // int(fold_of(self.activation))

    def operands(self, c: torch.Tensor, *, reduces: bool) -> Operands:
        """This PE's GEMM, whose scales and epilogue are checked. ``c`` are sums over PEs if it ``reduces``."""
        name, a, b = self.function, self.a, self.b
        given = [key for key in ("scale_a", "scale_b") if getattr(self, key) is not None]
        # Of rows that are gathered, C has all.
        rows = (a.shape[0],) if c.shape[0] <= a.shape[0] else (a.shape[0], c.shape[0])
        scale = checked_scale(self.comm, name, a, b, self.scale, given, rows)
        epilogue = check_epilogue(name, b, c, self.activation, self.bias, self.residual, reduces=reduces)
        return Operands(self.comm, a, b, c, scale, epilogue, self.sm_margin, self.each)


@dataclass(frozen=True)
class Computation:
    """What an operation does for one call.

    Attributes:
        out: its result.
        c: what this PE computes of C; ``out``, or a part of it.
        algorithms: by name, each a function that computes ``out``, or a text that says what it needs.
        passed_over: those that ``auto`` does not consider.
    """

    out: torch.Tensor
    c: torch.Tensor
    algorithms: Mapping[str, Callable[[], object] | str]
    passed_over: Sequence[str] = ()


def _checked(operation: Callable[[Call], Computation], call: Call) -> Computation:
    """What ``operation`` does for a call, whose result is none of its operands."""
    computation = operation(call)
    if call.out is not None:
        given = {key: getattr(call, key) for key in ("a", "b", "scale_a", "scale_b", "bias")}
        refuse_overlap(call.function, {"out": call.out}, given)
        if call.residual is not None and not same_place(call.out, call.residual):
            but = "; in place, out is residual itself"
            refuse_overlap(call.function, {"out": call.out}, {"residual": call.residual}, but)
    return computation


def fused_gemm(
    algorithms: Sequence[str],
    *,
    reduces: bool = False,
    gathers: bool = False,
    symmetric_result: bool = True,
    stores_here: Callable[[Communicator, torch.Tensor, torch.Tensor, torch.dtype, str], bool] | None = None,
) -> Callable[[Callable[[Call], Computation]], FusedGemm]:
    """Make a public function of an operation, which has these ``algorithms``, and ``reduces``: its sums are over PEs;
    or ``gathers``: each PE has a shard of the rows of A.

    Without a ``symmetric_result`` kernels use ``out`` on this PE only, and every prepared launch takes it as its third
    tensor. Else kernels may have descriptors of it on all members, so where it lies is a part of a call's signature,
    and compared, but of calls of which ``stores_here`` says that each PE stores its own.

    Its documentation is the operation's, followed by that of :class:`FusedGemm`.
    """

    def decorate(operation: Callable[[Call], Computation]) -> FusedGemm:
        name = operation.__name__

        def function(
            a: torch.Tensor,
            b: torch.Tensor,
            out: torch.Tensor | None = None,
            *,
            algorithm: str = "auto",
            scale_a: torch.Tensor | float | None = None,
            scale_b: torch.Tensor | float | None = None,
            out_dtype: torch.dtype | None = None,
            sm_margin: int = 0,
            activation: str | None = None,
            bias: torch.Tensor | None = None,
            residual: torch.Tensor | None = None,
            rows: int | None = None,
            group: Any = None,
            shard: int | None = None,  # rows of a whole one: operators have shards of one dimension of several
        ) -> torch.Tensor:
            with calling(name, group, between_hosts=True) as comm:
                prepared = comm.own(Prepared)
                signature, place, new = None, None, out is None and not symmetric_result
                scale: Scale = None
                form: type | None = None
                also: tuple[torch.Tensor, ...] = ()
                if scale_a is not None or scale_b is not None:
                    scale = given_scale(name, comm.world.device, a, b, scale_a, scale_b)
                    form, also = (torch.Tensor, (scale,)) if isinstance(scale, torch.Tensor) else (type(scale), scale)
                if bias is not None:
                    also = *also, bias
                if residual is not None:
                    also = *also, residual
                if new or type(out) is torch.Tensor:
                    tensors = (a, b, *also) if out is None else (a, b, out, *also)
                    place = place_of(out) if symmetric_result else None
                    options = (
                        name, algorithm, out_dtype, place, sm_margin, activation, new, bias is None, form, rows, shard
                    )  # fmt: skip
                    signature = prepared.signature(options, *tensors)
                    to = out
                    if new and (known := prepared.details(signature)) is not None:
                        (to,) = known.tensors()
                    if to is not None and prepared.repeat(signature, a, b, to, *also):
                        return to
                check_operands(name, ("a", "b"), a, b)
                check_choice(name, "algorithm", algorithm, ("auto", *algorithms))
                check_sm_margin(name, sm_margin)
                check_activation(name, activation, b.shape[1], reduces=reduces)
                all_rows, each, of_rows = check_rows(comm, name, a, rows, shard, gathers=gathers)
                compared: tuple[Any, ...] = name, *of_rows, a.dtype, b.shape, b.dtype, algorithm, sm_margin
                compared += (f"scales of {FORMS[form]}",) if form in FORMS else ()
                if isinstance(scale, RowScales):
                    of_all = gathers and all_rows > 1 and scale.a.shape[0] != a.shape[0]
                    compared += (f"scale_a of {scale.a.shape[0] if of_all else 'own'} rows",)
                compared += _of_choice(comm, name, algorithm, a, b, out, out_dtype)
                compared += kinds(activation, bias=bias, residual=residual)
                if symmetric_result and place_of(out) is not None:
                    dtype = result_dtype(name, out, a.dtype, out_dtype)
                    if stores_here is None or not stores_here(comm, a, b, dtype, algorithm):
                        compared += _where(comm, out)
                epilogue = activation, bias, residual
                call = Call(
                    comm, name, a, b, out, out_dtype, scale_a, scale_b, scale, sm_margin, *epilogue, algorithm,
                    all_rows, each, each if gathers else all_rows,
                )  # fmt: skip
                # What only one PE refuses is no call yet. Symmetric results are made by all, and shards are those of a
                # number of rows that all have: both come behind the comparison.
                later = (out is None and symmetric_result) or rows is not None or shard is not None
                computation = None if later else _checked(operation, call)
                comm.compare(*compared)
                if computation is None:
                    computation = _checked(operation, call)
                if all_rows == 0:
                    return computation.out
                made = _chosen(call, algorithm, computation)()
                launched = cast("Launch | Sequence[Step] | None", made)
                made_anew = NewTensors.of(computation.out, at=2) if new else None
                named = partial(Tensors.of, form, bias is not None, residual is not None)
                fixed = (2,) if signature is not None and place is not None else ()
                prepared.keep(
                    signature, launched, *compared, details=made_anew, also=also, named=named, fixed=fixed,
                    new=made_anew,
                )  # fmt: skip
                return computation.out

        functools.update_wrapper(function, operation, assigned=("__module__", "__name__", "__qualname__"))
        del function.__wrapped__  # type: ignore[attr-defined]  # its signature is not the public one
        # ``pattern`` is read where gradients are looked for (gradients.py), which is in front of this.
        _, *public = inspect.signature(FusedGemm.__call__, eval_str=False).parameters.values()
        function.__signature__ = inspect.Signature(public)  # type: ignore[attr-defined]
        function.__doc__ = "\n\n".join(
            inspect.cleandoc(part.__doc__ or "") for part in (operation, FusedGemm, FusedGemm.__call__)
        )
        return cast("FusedGemm", function)

    return decorate


def _where(comm: Communicator, out: torch.Tensor | None) -> tuple[str, ...]:
    """Which tensor of the heap ``out`` is, the same on all members; nothing, if it is none, which is an error."""
    return places_of(comm, out=out) if out is not None and is_symmetric(comm, out) else ()


def _of_choice(
    comm: Communicator,
    function: str,
    algorithm: str,
    a: torch.Tensor,
    b: torch.Tensor,
    out: object,
    out_dtype: torch.dtype | None,
) -> tuple[str, ...]:
    """What must be equal on all members besides shapes, since it decides which kernels run and what these exchange: the
    dtype of the result and, where an algorithm may be one for Hopper, whether TMA can address the matrices."""
    from triton_dist.kernels.gemm.hopper.launch import operands_fit, operands_fit_alone

    dtype = result_dtype(function, out, a.dtype, out_dtype)
    found = (f"result of {dtype}",) if a.dtype in FP8 else ()
    alone = algorithm in _FOR_ANY_ROWS or (comm.grid.hosts > 1 and function not in IN_SLICES)
    if alone or not is_hopper():
        return found
    # Over several hosts slices are the kernels, of fewer PEs.
    fit = operands_fit(comm, a, b) if comm.grid.hosts == 1 else operands_fit_alone(a, b)
    fit = fit and (not isinstance(out, torch.Tensor) or out.data_ptr() % 16 == 0)
    return (*found, "for TMA" if fit else "not for TMA")


_FOR_ANY_ROWS = ("bulk_synchronous", "fused", "fused_sequential", "producer_consumer")
"""Algorithms in which a PE's kernels may differ from the others', by how its matrices lie."""

IN_SLICES = ("all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce")
"""Functions that have ``two_level``, whose slices allocate memory on all hosts together. The modules' ``ALGORITHMS``
are those of one host."""

BETWEEN_HOSTS = ("two_level", "bulk_synchronous")
"""Algorithms of groups over several hosts."""


def _chosen(call: Call, algorithm: str, computation: Computation) -> Callable[[], object]:
    name, a, b = call.function, call.a, call.b
    known = [key for key in computation.algorithms if call.comm.grid.hosts == 1 or key in BETWEEN_HOSTS]
    algorithm = by_hosts(call.comm, name, algorithm, *known)
    available = {key: computation.algorithms[key] for key in known if not isinstance(computation.algorithms[key], str)}
    if algorithm == "auto":
        considered = [key for key in available if key not in computation.passed_over]
        algorithm = choose_gemm(
            call.comm, name, a, b, computation.c, considered,
            scales=FORMS.get(type(call.scale), ""), rows=call.rows_of_a,
        )  # fmt: skip
    needs = computation.algorithms[algorithm]
    if isinstance(needs, str):
        raise ValueError(
            f"{name}: algorithm {algorithm} {needs}, got a of shape {tuple(a.shape)} and {a.dtype}, b of shape"
            f" {tuple(b.shape)}. Available are {', '.join(available)}"
        )
    return needs
