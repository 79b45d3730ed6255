"""What kernels are cut for, and whether tensors and devices are what they take."""

from __future__ import annotations

import torch

import triton_dist
from triton_dist import environment
from triton_dist.kernels.options import check_int
from triton_dist.world.current import current_world
from triton_dist.world.gpus import Gpu

__all__ = [
    "LAZY",
    "NO_LIMIT",
    "check_current_device",
    "check_sm_margin",
    "gpu",
    "has_gpu_sizes",
    "is_hopper",
    "is_lazy",
    "sms",
]

NO_LIMIT = 1 << 30
"""Of programs that a kernel may have."""


def gpu() -> Gpu:
    """What the GPUs of all PEs have, with the name of this PE's, in a GPU world."""
    return current_world().gpu


LAZY = (
    "is the conjugate or the negative of what lies in memory, which kernels would take as it is: pass"
    " tensor.resolve_conj().resolve_neg()"
)
"""What messages say of such a tensor."""


def is_lazy(tensor: torch.Tensor) -> bool:
    """Whether the elements are the conjugates, or the negatives, of what lies in memory, where kernels find them."""
    return bool(tensor.is_conj() or tensor.is_neg())


def sms() -> int:
    """The number of SMs that every PE's GPU has; 4 in the CPU world, or ``TRITON_DIST_CPU_SMS``."""
    if triton_dist.kind() == "cpu":
        return environment.get("TRITON_DIST_CPU_SMS") or 4
    return gpu().multiprocessors


def has_gpu_sizes() -> bool:
    """Whether kernels cut their work as for a GPU: on GPUs, and where ``TRITON_DIST_CPU_SMS`` asks for it."""
    return triton_dist.kind() == "gpu" or environment.get("TRITON_DIST_CPU_SMS") is not None


def is_hopper() -> bool:
    """Whether kernels may be those for Hopper: on its GPUs, and where ``TRITON_DIST_CPU_CAPABILITY`` asks for them."""
    if triton_dist.kind() == "cpu":
        return bool(environment.get("TRITON_DIST_CPU_CAPABILITY") == (9, 0))
    return triton_dist.kind() == "gpu" and gpu().capability == (9, 0)


def check_sm_margin(function: str, sm_margin: int) -> int:
    """How many programs a kernel may have that leaves ``sm_margin`` SMs to others; ``NO_LIMIT`` if that is 0.

    Raises:
        TypeError, ValueError: it is no integer; it leaves no SM to the kernel.
    """
    if type(sm_margin) is int and sm_margin == 0:
        return NO_LIMIT
    check_int(function, "sm_margin", sm_margin, 0, sms())
    return sms() - sm_margin


def check_current_device(function: str) -> None:
    """Check that the current device, on which kernels are launched, is this PE's.

    Raises:
        RuntimeError: it is another device.
    """
    device = current_world().device
    if device.type == "cuda" and torch.cuda.current_device() != device.index:
        raise RuntimeError(
            f"{function}: the current device is cuda:{torch.cuda.current_device()}, but this PE's is {device}: call it"
            " inside `with torch.cuda.device(world.device)`, and on a stream of that device"
        )
