"""Which GPU a PE takes, what it has, and whether PEs may share one."""

from __future__ import annotations

import os
import warnings

import torch

from triton_dist import environment, triton_api
from triton_dist.bootstrap.launch import Launch
from triton_dist.gpu.shared_gpu import multiprocessors_to_fill
from triton_dist.world.gpus import Gpu

__all__ = ["choose_device", "gpu_at", "why_not_nvshmem"]


def choose_device(launch: Launch) -> tuple[torch.device, bool]:
    """This PE's GPU, and whether any two PEs of the world share one. *Collective.*

    The GPU is the one of the PE's local number, or the only one that the launcher lets it see.

    Raises:
        RuntimeError: there is none, or PEs would share one without ``TRITON_DIST_ALLOW_SHARED_GPU``.
    """
    if torch.version.hip is not None:
        raise RuntimeError(
            "the GPU world runs on NVIDIA GPUs only so far: set TRITON_DIST_WORLD=cpu to do without GPUs"
        )
    count = torch.cuda.device_count()
    if count == 0:
        raise RuntimeError("TRITON_DIST_WORLD=gpu, but PyTorch sees no GPU: set TRITON_DIST_WORLD=cpu")
    device = torch.device("cuda", launch.local_pe % count)
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    allowed: bool = environment.get("TRITON_DIST_ALLOW_SHARED_GPU")
    gpus, consents = zip(*(word.split() for word in launch.exchange("gpu", f"{uuid} {allowed:d}")), strict=True)
    shared = len(set(gpus)) < len(gpus)
    if shared and "0" in consents:
        raise RuntimeError(_refusal(gpus, consents, launch, count))
    if shared and launch.pe == 0:
        warnings.warn(
            "several PEs share a GPU (TRITON_DIST_ALLOW_SHARED_GPU): their kernels take turns, so a wait for another PE"
            " takes milliseconds, and it never ends when the program on the other side cannot become resident, as in a"
            " grid that fills the GPU. Times measured like this mean nothing",
            stacklevel=4,
        )
    return device, shared


def gpu_at(index: int, shared: bool) -> Gpu:
    """The GPU of this number in this process, as PEs may use it that share it or not."""
    properties = triton_api.device_properties(index)
    return Gpu(
        torch.cuda.get_device_name(index),
        torch.cuda.get_device_capability(index),
        multiprocessors_to_fill(properties["multiprocessor_count"], shared=shared),
        properties["max_shared_mem"],
        getattr(torch.cuda.get_device_properties(index), "L2_cache_size", 0),
        os.environ.get("CUDA_LAUNCH_BLOCKING", "0") in ("", "0"),
    )


def why_not_nvshmem(shared: bool, status: int) -> str:
    """Why kernels cannot use NVSHMEM's device library, if they cannot.

    Args:
        shared: whether PEs share a GPU.
        status: of ``nvshmemx_init_status()``; 3 is NVSHMEM_STATUS_LIMITED_MPG.
    """
    if shared and status == 3:
        return "several PEs share a GPU, for which NVSHMEM's kernels need CUDA's Multi-Process Service (MPS)"
    return ""


def _refusal(gpus: tuple[str, ...], consents: tuple[str, ...], launch: Launch, count: int) -> str:
    shared = max(set(gpus), key=gpus.count)
    pes = [str(pe) for pe, gpu in enumerate(gpus) if gpu == shared]
    if "1" in consents:
        return (
            f"PEs {', '.join(pes)} would share a GPU, and TRITON_DIST_ALLOW_SHARED_GPU is not set on PE"
            f" {consents.index('0')}: set it alike on all PEs"
        )
    return (
        f"{launch.n_local_pes} PEs on a host where {count} GPU{'s are' if count > 1 else ' is'} visible: PEs"
        f" {', '.join(pes)} would share one, and each needs its own. Start fewer processes, set"
        " TRITON_DIST_ALLOW_SHARED_GPU=1 to share it for development, or TRITON_DIST_WORLD=cpu to run any number of PEs"
        " without GPUs"
    )
