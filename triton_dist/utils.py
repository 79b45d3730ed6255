"""What Triton-distributed's tutorials import from its ``triton_dist.utils``, over our world (docs/migrating.md).

New programs call :func:`triton_dist.init`, :func:`triton_dist.empty` and their like.
"""

from __future__ import annotations

import functools
import os
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
import torch.distributed as dist

import triton_dist
from triton_dist.bootstrap.launchers.start import MAX_PES, integer
from triton_dist.profiler_utils import perf_func, sleep_async
from triton_dist.world.current import find_world

__all__ = [
    "CUDA_CHECK",
    "HIP_CHECK",
    "NVSHMEM_SIGNAL_DTYPE",
    "assert_allclose",
    "dist_print",
    "finalize_distributed",
    "generate_data",
    "get_triton_dist_local_world_size",
    "get_triton_dist_world",
    "init_nvshmem_by_torch_process_group",
    "init_seed",
    "initialize_distributed",
    "is_cuda",
    "is_hip",
    "is_shmem_initialized",
    "nvshmem_barrier_all_on_stream",
    "nvshmem_create_tensor",
    "nvshmem_create_tensors",
    "nvshmem_free_tensor_sync",
    "perf_func",
    "requires_p2p_native_atomic",
    "rocshmem_barrier_all_on_stream",
    "sleep_async",
    "supports_p2p_native_atomic",
]

NVSHMEM_SIGNAL_DTYPE = torch.int64

_TIMEOUT = timedelta(minutes=30)

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Origin:
    """The group that a world was made from."""

    def __init__(self, world: triton_dist.World) -> None:
        self.group: dist.ProcessGroup | None = None

    def close(self) -> None:
        self.group = None


# ---- begin and end


def initialize_distributed(seed: int | None = None, initialize_shmem: bool = True) -> dist.ProcessGroup:
    """Start ``torch.distributed`` from torchrun's variables and a world on it; the group of all ranks."""
    gpu = triton_dist.kind() == "gpu"
    if gpu:
        torch.cuda.set_device(_launched("LOCAL_RANK", 0))
    dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo", timeout=_TIMEOUT)
    group = dist.new_group(backend="nccl" if gpu else "gloo")
    assert isinstance(group, dist.ProcessGroup)
    dist.barrier(group)
    init_seed(dist.get_rank() if seed is None else seed)
    if initialize_shmem:
        init_nvshmem_by_torch_process_group(group)
    return group


def init_nvshmem_by_torch_process_group(pg: dist.ProcessGroup) -> None:
    """Start a world whose PEs are the ranks of ``pg``."""
    triton_dist.init(group=pg).own(_Origin).group = pg


def finalize_distributed() -> None:
    """End the world and ``torch.distributed``."""
    triton_dist.finalize()
    dist.destroy_process_group()


def is_shmem_initialized() -> bool:
    """Whether there is a world."""
    return triton_dist.is_initialized()


def get_triton_dist_world() -> dist.ProcessGroup | None:
    """The group that the world was made from; None when there is no world."""
    world = find_world()
    return None if world is None else world.own(_Origin).group


def get_triton_dist_local_world_size() -> int:
    """How many ranks this machine has."""
    return _launched("LOCAL_WORLD_SIZE", 1)


def _launched(name: str, default: int) -> int:
    """The value of torchrun's variable. RuntimeError if it is not a number."""
    return integer(name, 0, MAX_PES) if name in os.environ else default


def init_seed(seed: int = 0) -> None:
    """Seed the random numbers of Python, NumPy and PyTorch, and ask for results that can be repeated."""
    random.seed(3 + seed)
    np.random.seed(3 + seed)
    torch.manual_seed(3 + seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # it hides mistakes
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = False


# ---- symmetric memory


def nvshmem_create_tensor(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A symmetric tensor with unspecified contents. *Collective.*"""
    return triton_dist.empty(tuple(shape), dtype=dtype)


def nvshmem_create_tensors(
    shape: Sequence[int], dtype: torch.dtype, rank: int, local_world_size: int
) -> list[torch.Tensor]:
    """A symmetric tensor as it lies on each rank of this machine. *Collective*; free the one of ``rank``."""
    tensor = nvshmem_create_tensor(shape, dtype)
    first = rank - rank % local_world_size
    return [tensor if pe == rank else triton_dist.peer(tensor, pe) for pe in range(first, first + local_world_size)]


def nvshmem_free_tensor_sync(tensor: torch.Tensor) -> None:
    """Give a symmetric tensor back. *Collective.*"""
    triton_dist.free(tensor)


def nvshmem_barrier_all_on_stream(stream: Any = None) -> None:
    """Wait until every PE is here and its work is complete, that of ``stream`` included.

    The host waits, too; so it cannot be captured in a CUDA graph. *Collective.*
    """
    if stream is not None:
        stream.synchronize()
    triton_dist.barrier_all()


rocshmem_barrier_all_on_stream = nvshmem_barrier_all_on_stream


# ---- what scripts print and check


def dist_print(
    *args: Any,
    allowed_ranks: Iterable[int] | str | None = None,
    prefix: bool = False,
    need_sync: bool = False,
    **kwargs: Any,
) -> None:
    """``print`` on some ranks: rank 0, those of ``allowed_ranks``, or "all"; one after the other with ``need_sync``."""
    rank, n_ranks = _launched("RANK", 0), _launched("WORLD_SIZE", 1)
    if allowed_ranks == "all":
        allowed_ranks = range(n_ranks)
    for turn in [0] if allowed_ranks is None else allowed_ranks:
        if need_sync:
            dist.barrier()
        if turn == rank:
            print(*([f"[rank:{rank}]"] if prefix else []), *args, **{"flush": True, **kwargs})


def generate_data(configs: Iterable[tuple[Any, ...]]) -> Iterator[Iterator[torch.Tensor | None]]:
    """Without end: for each ``(shape, dtype, (scale, bias), device)`` a tensor of ``[-scale, scale) + bias``."""
    configs = list(configs)
    while True:
        yield (_random_tensor(*config) if config else None for config in configs)


def _random_tensor(
    shape: Any, dtype: torch.dtype, scale_and_bias: tuple[float, float], device: str | None = None
) -> torch.Tensor:
    shape = shape() if callable(shape) else shape
    sizes = [size() if callable(size) else size for size in ((shape,) if isinstance(shape, int) else shape)]
    scale, bias = scale_and_bias
    device = device or ("cuda" if triton_dist.kind() == "gpu" else "cpu")
    if not dtype.is_floating_point:
        return torch.randint(-int(scale), int(scale), sizes, dtype=dtype, device=device) + int(bias)
    wide = torch.float16 if dtype.itemsize == 1 else dtype
    return ((torch.rand(sizes, dtype=wide, device=device) * 2 - 1) * scale + bias).to(dtype)


def assert_allclose(
    x: torch.Tensor, y: torch.Tensor, rtol: float, atol: float, verbose: bool = True, **ignored: Any
) -> None:
    """AssertionError, which says where and by how much, unless ``x`` is close to ``y``."""
    torch.testing.assert_close(x, y, rtol=rtol, atol=atol)
    if verbose:
        print("all close", flush=True)


# ---- the machine


def is_cuda() -> bool:
    """Whether this world's devices are NVIDIA's."""
    return triton_dist.kind() == "gpu" and torch.version.hip is None


def is_hip() -> bool:
    """Whether this world's devices are AMD's."""
    return triton_dist.kind() == "gpu" and torch.version.hip is not None


def CUDA_CHECK(error: Any) -> None:  # noqa: N802 (its name there)
    """RuntimeError unless ``error``, of the CUDA driver or runtime, is success."""
    if int(error) != 0:
        raise RuntimeError(f"CUDA error: {error!r}")


HIP_CHECK = CUDA_CHECK


def supports_p2p_native_atomic() -> bool:
    """Whether each GPU of this machine supports atomics on the memory of the others. True in the CPU world."""
    if triton_dist.kind() == "cpu" or torch.cuda.device_count() <= 1 or torch.version.hip is not None:
        return True
    from cuda.bindings import runtime

    torch.cuda.init()  # type: ignore[no-untyped-call]
    attribute = runtime.cudaDeviceP2PAttr.cudaDevP2PAttrNativeAtomicSupported
    error, supported = runtime.cudaDeviceGetP2PAttribute(attribute, 0, 1)
    CUDA_CHECK(error)
    return bool(supported)


def requires_p2p_native_atomic(fn: Callable[_P, _R]) -> Callable[_P, _R]:
    """Warn at each call of ``fn`` where :func:`supports_p2p_native_atomic` is false."""

    @functools.wraps(fn)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not supports_p2p_native_atomic():
            warnings.warn(
                f"{fn.__name__} needs atomics between GPUs, which the links of this machine do not have", stacklevel=2
            )
        return fn(*args, **kwargs)

    return wrapper


def __getattr__(name: str) -> Any:
    """``cuda`` and ``cudart``: the bindings of CUDA's driver and runtime, where they are installed."""
    if name in ("cuda", "cudart"):
        try:
            from cuda.bindings import driver, runtime
        except ImportError as error:
            raise AttributeError(
                f"{__name__}.{name} needs cuda-python ({error}): pip install cuda-python", name=name
            ) from error
        return driver if name == "cuda" else runtime
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
