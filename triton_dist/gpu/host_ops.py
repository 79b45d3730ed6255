"""Operations that hosts start, on GPUs. All are put on a stream, in whose order they are done.

Where every PE is mapped into every other, data is moved by the copy engines, between barriers of NVSHMEM's on the
stream, and combined by torch: that takes no SMs for the transfer and is as fast as the links. Elsewhere NVSHMEM does
it. The parts of a collective are launches and copies without the host, so all of it can be captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from triton_dist.gpu.heap import GpuHeap
from triton_dist.world.host_ops import HostOps
from triton_dist.world.raw_tensor import start_of
from triton_dist.world.teams import Team

__all__ = ["GpuHostOps"]

_NAMES = {
    torch.float16: "half",
    torch.bfloat16: "bfloat16",
    torch.float32: "float",
    torch.float64: "double",
}
"""NVSHMEM's names of types; those of integers are as torch's."""


_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}

_ONE_SHOT_BYTES = 1 << 20
"""Up to here in all, every PE fetches all of every other's data and reduces it, instead of sharing the work."""


class GpuHostOps(HostOps):
    """``mapped``: every PE's memory is mapped into every other's. ``lacks``: why NVSHMEM cannot do anything here."""

    def __init__(self, bindings: Any, heap: GpuHeap, device: torch.device, *, mapped: bool, lacks: str = "") -> None:
        self._bindings = bindings
        self._heap = heap
        self._device = device
        self._mapped = mapped
        self._lacks = lacks

    def put(self, dst: torch.Tensor, src: torch.Tensor, pe: int, stream: Any) -> None:
        there = self._heap.peer(dst, pe)
        with self._on(stream) as handle:
            if there is not None:
                there.copy_(src.detach(), non_blocking=True)
            else:
                _check_contiguous("put", pe, dst, src)
                self._bindings.putmem_on_stream(start_of(dst), start_of(src), src.nbytes, pe, handle)

    def get(self, dst: torch.Tensor, src: torch.Tensor, pe: int, stream: Any) -> None:
        there = self._heap.peer(src, pe)
        with self._on(stream) as handle:
            if there is not None:
                dst.detach().copy_(there, non_blocking=True)
            else:
                _check_contiguous("get", pe, dst, src)
                self._bindings.getmem_on_stream(start_of(dst), start_of(src), src.nbytes, pe, handle)

    def barrier(self, team: Team, stream: Any) -> None:
        with self._on(stream) as handle:
            self._meet(team, handle)

    def broadcast(self, team: Team, dst: torch.Tensor, src: torch.Tensor, root: int, stream: Any) -> None:
        with self._on(stream) as handle:
            if not self._mapped:
                kind, count = _words(dst, src, src.nbytes)
                routine = getattr(self._bindings, f"{kind}_broadcast_on_stream")
                routine(team.handle, start_of(dst), start_of(src), count, root, handle)
                return
            with self._met(team, handle):
                if team.my_pe != root or start_of(dst) != start_of(src):
                    _flat(dst).copy_(self._there(src, team.pes[root]))

    def fcollect(self, team: Team, dst: torch.Tensor, src: torch.Tensor, stream: Any) -> None:
        with self._on(stream) as handle:
            if not self._mapped:
                self._move("fcollect", team, dst, src, src.nbytes, handle)
                return
            with self._met(team, handle):
                for target, pe in zip(_flat(dst).view(team.n_pes, -1), team.pes, strict=True):
                    target.copy_(self._there(src, pe))

    def alltoall(self, team: Team, dst: torch.Tensor, src: torch.Tensor, stream: Any) -> None:
        with self._on(stream) as handle:
            if not self._mapped:
                self._move("alltoall", team, dst, src, src.nbytes // team.n_pes, handle)
                return
            in_place = start_of(dst) == start_of(src)
            target = torch.empty_like(dst) if in_place else dst
            with self._met(team, handle):
                self._fetch_parts(team, _flat(target), src)
            if in_place:
                dst.detach().copy_(target)

    def reduce(self, team: Team, dst: torch.Tensor, src: torch.Tensor, op: str, stream: Any) -> None:
        with self._on(stream) as handle:
            if not self._mapped:
                self._combine("reduce", team, dst, src, op, handle)
            elif src.nbytes * team.n_pes <= _ONE_SHOT_BYTES:
                parts = torch.empty((team.n_pes, src.numel()), dtype=src.dtype, device=self._device)
                with self._met(team, handle):
                    for part, pe in zip(parts, team.pes, strict=True):
                        part.copy_(self._there(src, pe))
                _flat(dst).copy_(_combined(parts, op))
            else:
                self._reduce_in_slices(team, dst, src, op, handle)

    def reducescatter(self, team: Team, dst: torch.Tensor, src: torch.Tensor, op: str, stream: Any) -> None:
        with self._on(stream) as handle:
            if not self._mapped:
                self._combine("reducescatter", team, dst, src, op, handle)
                return
            parts = torch.empty((team.n_pes, dst.numel()), dtype=src.dtype, device=self._device)
            with self._met(team, handle):
                self._fetch_parts(team, parts.view(-1), src)
            _flat(dst).copy_(_combined(parts, op))

    # ---- by copies

    def _reduce_in_slices(self, team: Team, dst: torch.Tensor, src: torch.Tensor, op: str, handle: int) -> None:
        """Each member reduces one slice, and the others fetch it."""
        size = -(-src.numel() // team.n_pes)
        slices = [slice(member * size, (member + 1) * size) for member in range(team.n_pes)]
        mine = slices[team.my_pe]
        result = _flat(dst)
        parts = torch.empty((team.n_pes, len(result[mine])), dtype=src.dtype, device=self._device)
        with self._met(team, handle):
            for part, pe in zip(parts, team.pes, strict=True):
                part.copy_(self._there(src, pe)[mine])
        result[mine].copy_(_combined(parts, op))
        with self._met(team, handle):
            for member, pe in enumerate(team.pes):
                if member != team.my_pe:
                    result[slices[member]].copy_(self._there(dst, pe)[slices[member]])

    def _fetch_parts(self, team: Team, target: torch.Tensor, src: torch.Tensor) -> None:
        """To part i of ``target`` what member i has for this PE."""
        for part, pe in zip(target.view(team.n_pes, -1), team.pes, strict=True):
            part.copy_(self._there(src, pe).view(team.n_pes, -1)[team.my_pe])

    def _there(self, tensor: torch.Tensor, pe: int) -> torch.Tensor:
        """All elements of a tensor on ``pe``, in one row."""
        there = self._heap.peer(tensor, pe)
        assert there is not None, "all PEs are mapped"
        return _flat(there)

    @contextmanager
    def _met(self, team: Team, handle: int) -> Iterator[None]:
        """Between two barriers: what the members had before is there, and may be overwritten behind it."""
        self._meet(team, handle)
        yield
        self._meet(team, handle)

    def _meet(self, team: Team, handle: int) -> None:
        if self._lacks:
            raise RuntimeError(f"PEs cannot meet on a stream here, since that takes NVSHMEM: {self._lacks}")
        self._bindings.barrier_on_stream(team.handle, handle)

    # ---- by NVSHMEM

    def _move(self, name: str, team: Team, dst: torch.Tensor, src: torch.Tensor, nbytes: int, handle: int) -> None:
        """A collective in which each member sends ``nbytes`` to each."""
        kind, count = _words(dst, src, nbytes)
        routine = getattr(self._bindings, f"{kind}_{name}_on_stream")
        routine(team.handle, start_of(dst), start_of(src), count, handle)

    def _combine(self, name: str, team: Team, dst: torch.Tensor, src: torch.Tensor, op: str, handle: int) -> None:
        kind = _NAMES.get(src.dtype, str(src.dtype).removeprefix("torch."))
        routine = getattr(self._bindings, f"{kind}_{op}_{name}_on_stream")
        routine(team.handle, start_of(dst), start_of(src), dst.numel(), handle)

    @contextmanager
    def _on(self, stream: Any) -> Iterator[int]:
        """With ``stream`` the current one: its CUstream."""
        if stream is None:
            stream = torch.cuda.current_stream(self._device)
        elif not isinstance(stream, torch.cuda.Stream):
            raise TypeError(f"stream must be a torch.cuda.Stream or None, got {type(stream).__name__}")
        elif stream.device != self._device:
            raise ValueError(f"stream is one of {stream.device}, and this PE's device is {self._device}")
        with torch.cuda.stream(stream):
            yield int(stream.cuda_stream)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().view(-1)


def _combined(parts: torch.Tensor, op: str) -> torch.Tensor:
    """All rows in one. Halves are added in float32 and rounded once; integers wrap around."""
    if parts.dtype in _SIGNED:  # torch computes with signed integers only
        signed = parts.view(_SIGNED[parts.dtype])
        if op == "sum":
            return _combined(signed, op).view(parts.dtype)
        lowest = torch.iinfo(signed.dtype).min  # the order of unsigned numbers is that of these
        return (_combined(signed ^ lowest, op) ^ lowest).view(parts.dtype)
    if op == "sum":
        is_half = parts.dtype in (torch.float16, torch.bfloat16)
        return parts.sum(0, dtype=torch.float32 if is_half else parts.dtype).to(parts.dtype)
    return parts.amin(0) if op == "min" else parts.amax(0)


def _words(dst: torch.Tensor, src: torch.Tensor, nbytes: int) -> tuple[str, int]:
    """The largest words that parts of ``nbytes`` can be moved in, and how many."""
    places = start_of(dst) | start_of(src) | nbytes
    size = next(size for size in (8, 4, 2, 1) if places % size == 0)
    return f"uint{8 * size}", nbytes // size


def _check_contiguous(op: str, pe: int, *tensors: torch.Tensor) -> None:
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise RuntimeError(f"{op}: PE {pe} cannot be reached by load and store, so both tensors must be contiguous")
