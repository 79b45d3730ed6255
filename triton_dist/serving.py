"""The all-reduce of inference servers: a class with the interface of vLLM's and SGLang's ``CustomAllreduce``.

Both servers send an all-reduce to their communicator ``ca_comm`` if it takes the tensor, else to NCCL, and tell it when
CUDA graphs are captured. So this class takes its place in a worker, once the worker has made its groups:

    from triton_dist.serving import CustomAllreduce

    triton_dist.init(group=tp_group.cpu_group)
    communicator = CustomAllreduce(tp_group.cpu_group)
    tp_group.device_communicator.ca_comm = communicator  # vLLM
    tp_group.ca_comm = communicator  # SGLang

Nothing is registered for graphs: kernels read their own PE's tensors, and peers reach the world's symmetric workspace
only, whose addresses stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from triton_dist.kernels import functional
from triton_dist.kernels.functional import group as groups
from triton_dist.kernels.options import check_int
from triton_dist.kernels.reserving import reserve
from triton_dist.world.current import current_world

__all__ = ["CustomAllreduce"]

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class CustomAllreduce:
    """Sums over the PEs of a group, out of place. *Collective*, on the current stream, as all kernels.

    Args:
        group: as of :mod:`triton_dist.kernels.functional`; the servers pass the CPU's process group.
        device: of the tensors; only compared with the world's.
        max_size: bytes; larger tensors are left to the server's other communicators. The workspace for them is made
            here, so that graphs of all smaller shapes can be captured once their kernels have run.

    Raises:
        RuntimeError: there is no world. ValueError: the group or the device is another one, or ``max_size`` is not
            positive.
    """

    def __init__(self, group: Any = None, device: Any = None, max_size: int = 8 << 20) -> None:
        world = current_world()
        if device is not None and _device(device) != world.device:
            raise ValueError(f"CustomAllreduce: device is {_device(device)}, and this PE's device is {world.device}")
        check_int("CustomAllreduce", "max_size", max_size, 1)
        size, name = groups.resolve(group)
        groups.check("CustomAllreduce", size, name)
        self.group, self.device, self.max_size, self.world_size = group, world.device, max_size, size
        self.disabled = size == 1
        if not self.disabled:
            elements = (max_size + 1) // 2
            reserve("all_reduce", max_tokens=size, hidden=-(-elements // size), functional=True, group=group)

    def should_custom_ar(self, inp: torch.Tensor) -> bool:
        """Whether :meth:`custom_all_reduce` takes ``inp``: alike on all PEs, as it depends on shape and dtype only."""
        known = inp.device == self.device and inp.dtype in DTYPES and inp.is_contiguous()
        return not self.disabled and known and 0 < inp.numel() * inp.element_size() <= self.max_size

    def custom_all_reduce(self, input: torch.Tensor) -> torch.Tensor | None:
        """The sum of all PEs' ``input``, a new tensor; None for what :meth:`should_custom_ar` refuses.

        The servers run a shape once in :meth:`capture` before they capture it. That call computes, too: it compiles
        what is captured next.
        """
        return self.all_reduce(input) if self.should_custom_ar(input) else None

    def all_reduce(
        self, inp: torch.Tensor, *, out: torch.Tensor | None = None, registered: bool = False
    ) -> torch.Tensor:
        """The sum of all PEs' ``inp``, in ``out`` if it is given, which may be ``inp``.

        ``registered`` makes no difference: every tensor will do.
        """
        if out is not None and (out.shape != inp.shape or out.dtype != inp.dtype):
            raise ValueError(
                f"CustomAllreduce.all_reduce: out must be like inp, {tuple(inp.shape)} of {inp.dtype}, got"
                f" {tuple(out.shape)} of {out.dtype}"
            )
        with torch.no_grad():
            total = functional.all_reduce(inp, group=self.group)
            return total if out is None else out.copy_(total)

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Around the capture of graphs. Nothing is to be done for it."""
        yield

    def register_graph_buffers(self) -> None:
        """Graphs hold no address of a peer's tensor, so there is none to exchange."""

    def close(self) -> None:
        """Take no more tensors. The workspace belongs to the world. May be called twice."""
        self.disabled = True


def _device(device: int | str | torch.device) -> torch.device:
    return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
