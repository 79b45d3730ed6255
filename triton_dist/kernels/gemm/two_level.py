"""The algorithm ``two_level`` of fused GEMMs: over several hosts, slices by host, and what crosses beside them.

A slice is the fused GEMM of one host's rows, as inside of one host: its PEs gather the slice's rows of A, or
reduce-scatter its rows of C, by load and store. What crosses between hosts goes straight from PE to PE of a column, in
the side stream, while a slice is computed (``protocols/host_exchange.py``): each byte once, by put with signal.

- All-gather: the own host's rows come first. Beside each slice the shard arrives that the next one gathers.
- Sums: the rows of the other hosts come first, those of the next host first of all, and the own host's last. Beside
  each slice but the first the sums of the slice before are sent to the PE that they belong to. A kernel then adds up
  the sums of all hosts in float32, in the order of the hosts, applies the epilogue and rounds once.

A slice waits for PEs of its host only, and an exchange for those of its column only. So neither waits for the other,
and they need not be resident together to end. Slices leave multiprocessors to exchanges, so that they are. Both end
before the next slice begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

import triton_dist
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.between_hosts import finish_rows, gather_rows
from triton_dist.kernels.gemm.epilogue import EMPTY
from triton_dist.kernels.gemm.fp8 import BlockScales, RowScales, Scale
from triton_dist.kernels.gemm.local_gemm import local_gemm
from triton_dist.kernels.gemm.operands import Operands, Tensors
from triton_dist.kernels.gemm.workspaces import symmetric_matrix
from triton_dist.kernels.prepared import Part, Step, Work, nothing, steps
from triton_dist.kernels.protocols.host_exchange import PROGRAMS, admit, exchange
from triton_dist.kernels.protocols.side_stream import side_stream
from triton_dist.kernels.protocols.workspace import symmetric_buffer

__all__ = ["gather_two_level", "reduce_two_level", "shards_of_hosts", "sums_of_hosts", "why_not_two_level"]

Fused = Callable[..., torch.Tensor]
"""The public function, for a slice in the group of this host."""


def why_not_two_level(gemm: Operands) -> str:
    """What the algorithm needs that is not there; empty if it is available."""
    comm = gemm.comm
    if comm.grid.hosts == 1:
        return "needs a group over several hosts"
    if not comm.grid.is_by_hosts:
        return "needs PEs that are numbered host by host"
    rows = max(gemm.a.shape[0], gemm.c.shape[0])
    if rows % comm.n_pes or gemm.each * comm.n_pes != rows:
        return f"needs as many rows of each of the {comm.n_pes} PEs"
    if portable.programs(gemm.sm_margin) <= _left():
        return f"needs more than {PROGRAMS} SMs"
    return ""


def gather_two_level(gemm: Operands, within_host: Fused) -> Sequence[Step] | None:
    """``gemm.c`` = all PEs' ``gemm.a`` · ``gemm.b``; ``within_host`` is ``all_gather_gemm``."""
    comm, hosts = gemm.comm, gemm.comm.grid.hosts
    me, _ = comm.grid.place_of(comm.my_rank)
    shards = shards_of_hosts(comm, gemm.each, gemm.a.shape[1], gemm.a.dtype, _columns_of_scales(gemm))
    own = shards[me]

    def place(a: torch.Tensor, scale: Scale) -> None:
        own.a.copy_(a)
        if own.scales is not None and isinstance(scale, (BlockScales, RowScales)):
            own.scales.copy_(scale.a)

    admitted = admit(comm)
    place(gemm.a, gemm.scale)
    parts: list[Part] = [(admitted, nothing), (place, lambda call: (call.a, call.scale))]
    for distance in range(hosts):
        host = (me - distance) % hosts
        send = (own.memory, own.memory, distance + 1) if distance + 1 < hosts else None
        parts.append(_step(_slice_of_c(gemm, host, shards[host], within_host, beside=send is not None), comm, send))
    return steps(*parts)


def reduce_two_level(gemm: Operands, within_host: Fused, *, to_all: bool) -> Sequence[Step] | None:
    """``gemm.c`` = this PE's rows of the sum over PEs of ``gemm.a`` · ``gemm.b``, or all of it on every PE; after the
    epilogue. ``within_host`` is ``gemm_reduce_scatter``."""
    comm, hosts = gemm.comm, gemm.comm.grid.hosts
    me, _ = comm.grid.place_of(comm.my_rank)
    sent, sums = sums_of_hosts(comm, gemm.each, gemm.b.shape[1], gemm.c.dtype)
    parts: list[Part] = [(admit(comm), nothing)]
    for distance in range(1, hosts + 1):
        host = (me + distance) % hosts
        to = sums[me] if host == me else sent[host]
        send = (sums[me], sent[(host - 1) % hosts], distance - 1) if distance > 1 else None
        parts.append(_step(_slice_of_sums(gemm, host, to, within_host, beside=send is not None), comm, send, True))
    parts.append(finish_rows(gemm, sums, to_all=to_all))
    return steps(*parts, gather_rows(gemm)) if to_all else steps(*parts)


class Shard(NamedTuple):
    """The memory for one host's shard of A: of the PE of this one's column there.

    Attributes:
        memory: all of it, as bytes.
        a: [rows, K].
        scales: of its rows or blocks, float32; None, if there are none.
    """

    memory: torch.Tensor
    a: torch.Tensor
    scales: torch.Tensor | None


def shards_of_hosts(comm: Communicator, rows: int, columns: int, dtype: torch.dtype, scales: int) -> list[Shard]:
    """Symmetric memory for shards of so many rows, each with so many ``scales``, by hosts. *Collective.*"""
    of_a, of_scales = rows * columns * dtype.itemsize, rows * scales * 4
    begin = -(-of_a // _ALIGNED) * _ALIGNED
    size = -(-(begin + of_scales) // _ALIGNED) * _ALIGNED
    all_of_it = symmetric_buffer(comm, "shards of hosts", size * comm.grid.hosts)
    found = []
    for memory in all_of_it.view(comm.grid.hosts, size):
        used = memory[: begin + of_scales if scales else of_a]
        of_rows = used[begin:].view(torch.float32).view(rows, scales) if scales else None
        found.append(Shard(used, used[:of_a].view(dtype).view(rows, columns), of_rows))
    return found


def sums_of_hosts(comm: Communicator, rows: int, columns: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric memory, [hosts, rows, columns] each: for this host's sums of the shards of this column's PEs, and for
    all hosts' of this PE's. *Collective.*"""
    hosts = comm.grid.hosts
    names = "sums for hosts", "sums of hosts"
    sent, sums = (symmetric_matrix(comm, name, hosts * rows, columns, dtype) for name in names)
    return sent.view(hosts, rows, columns), sums.view(hosts, rows, columns)


_ALIGNED = 512  # bytes, to which parts of memory are


def _left() -> int:
    """How many SMs slices leave to an exchange. In the CPU world kernels follow each other."""
    return PROGRAMS if triton_dist.kind() == "gpu" else 0


def _columns_of_scales(gemm: Operands) -> int:
    """Scales that come with each row of this PE's shard of A; 0 where each PE has those of all rows."""
    scale = gemm.scale
    if not isinstance(scale, (BlockScales, RowScales)) or scale.a.shape[0] != gemm.a.shape[0]:
        return 0
    return scale.a.shape[1]


class _Slice(NamedTuple):
    """What computes a slice now, and its work and what that takes in a later call."""

    compute: Callable[[], Work | None]
    tensors: Callable[[Tensors], Sequence[Any]]


def _step(
    of: _Slice, comm: Communicator, send: tuple[torch.Tensor, torch.Tensor, int] | None, early: bool = False
) -> Part:
    """A slice, with an exchange beside it; in the CPU world behind it or, ``early``, in front of it."""
    if send is None:
        return of.compute(), of.tensors
    if triton_dist.kind() == "cpu":
        sent = exchange(comm, *send) if early else None
        computed = of.compute()
        sent = sent if early else exchange(comm, *send)
    else:
        with side_stream(comm) as side:
            computed = of.compute()
            with torch.cuda.stream(side):
                sent = exchange(comm, *send)
    return computed, of.tensors, (sent, nothing)


def _rows_of_host(gemm: Operands, host: int) -> slice:
    rows = gemm.each * gemm.comm.grid.per_host
    return slice(host * rows, (host + 1) * rows)


def _slice_of_c(gemm: Operands, host: int, shard: Shard, within_host: Fused, *, beside: bool) -> _Slice:
    """The rows of C of a host, whose shard for this PE to gather has arrived."""
    rows, margin = _rows_of_host(gemm, host), gemm.sm_margin + (_left() if beside else 0)
    row, epilogue = gemm.comm.within_host, gemm.epilogue
    activation = None if epilogue.activation is None else epilogue.activation.value

    def scale_of(scale: Scale) -> Scale:
        if not isinstance(scale, (BlockScales, RowScales)):
            return scale
        return scale._replace(a=scale.a[rows] if shard.scales is None else shard.scales)

    if row.n_pes == 1:
        scale = scale_of(gemm.scale)
        local = gemm._replace(comm=row, a=shard.a, c=gemm.c[rows], scale=scale, sm_margin=margin, shard=0)
        # A slice of the call's own scales is another tensor in each call, and no launch's argument to be kept.
        again = scale is gemm.scale or shard.scales is not None
        return _local(local, lambda call: call._replace(a=shard.a, out=call.out[rows]), again=again)

    def compute(call: Tensors) -> None:
        within_host(
            shard.a, call.b, call.out[rows], **_scales(scale_of(call.scale)), activation=activation, bias=call.bias,
            sm_margin=margin, group=row,
        )  # fmt: skip

    return _called(gemm, compute)


def _slice_of_sums(gemm: Operands, host: int, to: torch.Tensor, within_host: Fused, *, beside: bool) -> _Slice:
    """This host's sums of the rows of a host: this PE's shard of them."""
    rows, margin = _rows_of_host(gemm, host), gemm.sm_margin + (_left() if beside else 0)
    row = gemm.comm.within_host

    def scale_of(scale: Scale) -> Scale:
        return scale._replace(a=scale.a[rows]) if isinstance(scale, (BlockScales, RowScales)) else scale

    if row.n_pes == 1:
        scale = scale_of(gemm.scale)
        local = gemm._replace(
            comm=row, a=gemm.a[rows], c=to, scale=scale, epilogue=EMPTY, sm_margin=margin, shard=0
        )  # fmt: skip
        again = scale is gemm.scale
        return _local(
            local, lambda call: call._replace(a=call.a[rows], out=to, bias=None, residual=None), again=again
        )  # fmt: skip

    def compute(call: Tensors) -> None:
        within_host(call.a[rows], call.b, to, **_scales(scale_of(call.scale)), sm_margin=margin, group=row)

    return _called(gemm, compute)


def _local(gemm: Operands, tensors: Callable[[Tensors], Tensors], *, again: bool) -> _Slice:
    """The slice of a host with one PE. Only if it may be computed ``again`` a later call is prepared."""

    def compute() -> Work | None:
        made = local_gemm(gemm)
        return made if again else None

    return _Slice(compute, tensors)


def _called(gemm: Operands, compute: Callable[[Tensors], None]) -> _Slice:
    """A slice that is a call in the group of this host, which prepares its own launches."""

    def first() -> Work:
        compute(gemm.tensors)
        return compute

    return _Slice(first, lambda call: (call,))


def _scales(scale: Scale) -> dict[str, Any]:
    if isinstance(scale, (BlockScales, RowScales)):
        return {"scale_a": scale.a, "scale_b": scale.b}
    return {} if scale is None else {"scale_a": scale}
