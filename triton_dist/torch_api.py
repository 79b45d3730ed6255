"""The one seam to PyTorch's internals: what this package uses of them, or changes in them.

The rule: what PyTorch documents is used where it is needed. Names with an underscore are used here alone, and nothing
else puts functions of its own in the place of PyTorch's. tests/test_seams.py holds the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeGuard, TypeVar

import torch
import torch.distributed as dist
from torch.autograd import forward_ad
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

__all__ = [
    "Operators",
    "TensorsForC",
    "constant_in_graphs",
    "count_writes",
    "current_device_index",
    "current_stream_handle",
    "ddp_around",
    "ddp_has",
    "default_store",
    "device_indices",
    "forward_mode",
    "has_modes",
    "have_tangent",
    "is_mesh",
    "is_process_group",
    "is_profiled",
    "is_recorded",
    "is_traced",
    "is_transformed",
    "is_wrapper",
    "leave_out_of_ddp",
    "left_out_of_graphs",
    "matmul_flags",
    "multiply_float8",
    "observers",
    "occupy_stream",
    "operators_are_unobserved",
    "prefers_cublas",
    "process_group",
    "process_groups",
    "replace_functions_of_distributed",
    "shard_embedding",
    "shard_linear",
    "stream_handles",
    "symmetric_memory_of",
    "tensors_for_c",
    "version_of",
    "without_memory",
]

_P = ParamSpec("_P")
_Constant = TypeVar("_Constant", int, str)


def default_store() -> Any:
    """The store of ``torch.distributed``, which serves every process group."""
    return dist.distributed_c10d._get_default_store()


def process_group(name: str) -> Any:
    """The process group of that name.

    Raises:
        RuntimeError, LookupError: there is none.
    """
    return dist.distributed_c10d._resolve_process_group(name)  # type: ignore[arg-type, attr-defined]


def process_groups() -> Callable[..., Any]:
    """:func:`process_group`, as a function that Python calls without a frame of its own."""
    return dist.distributed_c10d._resolve_process_group  # type: ignore[attr-defined]


def shard_linear(style: Any, module: torch.nn.Linear, mesh: Any) -> None:
    """Replace the parameters of ``module`` by DTensors, as ``style``, a parallel style of PyTorch, shards them."""
    style._partition_linear_fn("", module, mesh)


def shard_embedding(style: Any, module: torch.nn.Embedding, mesh: Any) -> None:
    """As :func:`shard_linear`, for an embedding."""
    style._partition_embedding_fn("", module, mesh)


def is_wrapper(value: Any) -> bool:
    """Whether ``value`` is a tensor without memory of its own: it wraps others, as a DTensor, or is a FakeTensor, whose
    address is 0 on the device that it pretends to be on."""
    if not isinstance(value, torch.Tensor):
        return False
    return bool(is_traceable_wrapper_subclass(value)) or (type(value) is not torch.Tensor and _has_no_data(value))


def without_memory(tensor: torch.Tensor) -> str:
    """What to say of a tensor of which :func:`is_wrapper` is true."""
    kind = type(tensor).__name__
    return (
        f"a {kind} has no memory of its own: pass what it wraps (of a DTensor: to_local(); of an"
        " AsyncCollectiveTensor: wait()), or an ordinary tensor"
    )


def _has_no_data(tensor: torch.Tensor) -> bool:
    try:
        return tensor.untyped_storage().device.type == "meta" != tensor.device.type
    except (NotImplementedError, RuntimeError):  # a subclass without a storage
        return tensor.layout is torch.strided


def symmetric_memory_of(tensor: torch.Tensor) -> str:
    """The backend of ``torch.distributed._symmetric_memory`` that has made a tensor's memory; empty if none has."""
    theirs: Any = getattr(getattr(torch._C, "_distributed_c10d", None), "_SymmetricMemory", None)
    if not hasattr(theirs, "is_symm_mem_tensor"):  # a version of PyTorch that does not tell
        return ""
    try:
        if tensor.storage_offset():  # allocations are known by where they begin
            tensor = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
        if theirs.is_symm_mem_tensor(tensor):
            return theirs.get_backend(tensor.device) or "unknown"
    except (RuntimeError, NotImplementedError):  # a kind of device without it, or a tensor without a storage
        pass
    return ""


# Dynamo of PyTorch 2.11 does not trace hasattr() of groups and meshes, and all versions trace isinstance().


def is_process_group(group: Any) -> TypeGuard[dist.ProcessGroup]:
    """Whether it is a group of PyTorch's."""
    return dist.is_available() and isinstance(group, dist.ProcessGroup)


def is_mesh(group: Any) -> TypeGuard[DeviceMesh]:
    """Whether it is a mesh of devices."""
    return dist.is_available() and isinstance(group, DeviceMesh)


def ddp_around() -> Any:
    """The ``DistributedDataParallel`` whose forward this is part of, or None."""
    if not dist.is_available():
        return None
    return torch.nn.parallel.DistributedDataParallel._get_active_ddp_module()  # type: ignore[no-untyped-call]


def ddp_has(ddp: Any, parameter: torch.Tensor) -> bool:
    """Whether ``ddp`` copies and averages a parameter: its module has it, and it is not left out."""
    left_out = ddp.parameters_to_ignore
    return any(other is parameter and name not in left_out for name, other in ddp.module.named_parameters())


def leave_out_of_ddp(model: torch.nn.Module, names: Sequence[str]) -> None:
    """Have a ``DistributedDataParallel`` leave out these parameters, too: of ``model``, or of what torch.compile makes
    of it."""
    before = getattr(model, "_ddp_params_and_buffers_to_ignore", ())
    leave_out = torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
    compiled = (f"_orig_mod.{name}" for name in names)
    leave_out(model, sorted({*before, *names, *compiled}))  # type: ignore[no-untyped-call]


def constant_in_graphs(function: Callable[_P, _Constant]) -> Callable[_P, _Constant]:
    """``function``, whose result is a constant for torch.compile, without guards on what it reads.

    As ``torch.compiler.assume_constant_result``, whose import takes seconds.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def left_out_of_graphs(function: Callable[..., Any], reason: str) -> Callable[..., Any]:
    """``function``, where torch.compile breaks its graph; ``reason`` is in the error of ``fullgraph=True``.

    ``torch.compiler.disable`` does that, but takes a microsecond for each call, and its import takes seconds. So it
    is called only when something is compiled, and the attributes by which it tells the compiler are set here.
    """

    def outside(*args: Any, **kwargs: Any) -> Any:
        return torch.compiler.disable(function)(*args, **kwargs)  # type: ignore[no-untyped-call]

    outside._torchdynamo_disable = True  # type: ignore[attr-defined]
    outside._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
    return outside


is_profiled: Callable[[], bool] = torch._C._autograd._profiler_enabled
"""Whether a profiler of PyTorch (``torch.profiler``, ``emit_nvtx``) records what this thread does. Python calls it
without a frame of its own."""


_TRACING = [getattr(torch._C._TorchDispatchModeKey, name) for name in ("FAKE", "PROXY", "FUNCTIONAL")]


has_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
is_transformed: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack
is_recorded: Callable[[], Any] = torch._C._get_tracing_state
"""Something true if modes of PyTorch's dispatcher, a transform of ``torch.func``, or ``torch.jit.trace`` are on in this
thread. Python calls all three without a frame of their own."""


def is_traced() -> bool:
    """Whether something other than torch.compile traces or transforms what this thread does: ``make_fx``, fake tensors,
    ``torch.func`` or ``torch.jit.trace``. In the function of an operator nothing does. To be asked where
    :func:`has_modes`, :func:`is_transformed` or :func:`is_recorded` says that something is on."""
    if is_transformed() or is_recorded():
        return True
    return any(torch._C._get_dispatch_mode(key) is not None for key in _TRACING)


def operators_are_unobserved() -> bool:
    """Whether nothing sees or changes calls of operators in this thread: no mode, transform, trace or profiler."""
    return not (
        torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
        or is_profiled()
        or forward_ad._current_level >= 0
    )


def observers() -> tuple[Callable[[], Any], ...]:
    """What :func:`operators_are_unobserved` asks but for :func:`forward_mode`: functions that Python calls without a
    frame of their own, and that return something false if nothing sees operators."""
    return (
        torch._C._len_torch_dispatch_stack,
        torch._C._len_torch_function_stack,
        torch._C._functorch.peek_interpreter_stack,
        torch._C._get_tracing_state,
        is_profiled,
    )


def forward_mode() -> Any:
    """The module whose ``_current_level`` is -1 where nothing has derivatives in forward mode."""
    return forward_ad


def have_tangent(values: Iterable[Any]) -> bool:
    """Whether one of these is a tensor with a derivative in forward mode, in the current level."""
    if forward_ad._current_level < 0:
        return False
    tensors = (value for value in values if isinstance(value, torch.Tensor))
    unpack: Callable[[torch.Tensor], Any] = forward_ad.unpack_dual
    return any(unpack(tensor).tangent is not None for tensor in tensors)


def replace_functions_of_distributed(
    names: Sequence[str], replacement: Callable[[str, Callable[..., Any]], Callable[..., Any]]
) -> Callable[[], None]:
    """Put ``replacement(name, original)`` in the place of functions of ``torch.distributed``.

    Returns:
        a function that takes it back.
    """
    originals = {name: getattr(dist, name) for name in names}
    for name, original in originals.items():
        setattr(dist, name, replacement(name, original))

    def undo() -> None:
        for name, original in originals.items():
            setattr(dist, name, original)

    return undo


def current_device_index() -> int:
    """The number of the current GPU, of a process that has used one."""
    return torch._C._cuda_getDevice()


def device_indices() -> Callable[[], int]:
    """:func:`current_device_index`, as a function that Python calls without a frame of its own."""
    return torch._C._cuda_getDevice


def current_stream_handle(device: int) -> int:
    """The CUstream of the current stream of a GPU, without an object for it."""
    return int(torch._C._cuda_getCurrentRawStream(device))


def stream_handles(device: int) -> Callable[[], int]:
    """:func:`current_stream_handle` of this GPU, as a function that Python calls without a frame of its own."""
    return partial(torch._C._cuda_getCurrentRawStream, device)


class TensorsForC(NamedTuple):
    """What C code needs to read tensors by DLPack."""

    table: Any
    """A capsule with the table of functions that reads them."""
    kinds: tuple[type, ...]
    """The types of tensors whose memory is theirs."""
    dtypes: type
    is_grad_enabled: Callable[[], bool]
    is_conj: Callable[[torch.Tensor], bool]
    is_neg: Callable[[torch.Tensor], bool]


def tensors_for_c() -> TensorsForC:
    """What the installed PyTorch has for C code that links nothing of it.

    Raises:
        RuntimeError: it has no such table, or is for AMD GPUs, whose launches go through Triton.
    """
    if torch.version.hip is not None:
        raise RuntimeError("PyTorch is for AMD GPUs, whose launches go through Triton")
    table = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if table is None:
        raise RuntimeError(f"PyTorch {torch.__version__} has no table of DLPack for C, as later ones have")
    kinds = torch.Tensor, torch.nn.Parameter
    return TensorsForC(table, kinds, torch.dtype, torch.is_grad_enabled, torch.Tensor.is_conj, torch.Tensor.is_neg)


def occupy_stream(cycles: int) -> None:
    """Have the current stream of the GPU do nothing for so many cycles of its clock."""
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


def multiply_float8(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, c: torch.Tensor
) -> None:
    """``c = scale_a * a · scale_b * b`` of float8 matrices, with sums as exact as those of our kernels."""
    torch._scaled_mm(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=c.dtype, use_fast_accum=True, out=c)


def matmul_flags(dtype: torch.dtype) -> tuple[tuple[Callable[[], Any], Any], ...]:
    """What decides, besides the matrices, how ``torch.mm`` computes with ``dtype``, a float of 16 bits, on a GPU.

    Functions that Python calls without a frame of their own, and what they return where nothing was set.
    """
    library: Any = torch._C
    short = "bf16" if dtype == torch.bfloat16 else "fp16"
    reduction = getattr(library, f"_get_cublas_allow_{short}_reduced_precision_reduction")
    allowed = (True, True) if isinstance(reduction(), tuple) else True  # of sums, and of those of a split K
    found = [(reduction, allowed), (torch._C._get_deterministic_algorithms, False)]
    others = {"_get_sm_carveout_experimental": None, "_cuda_tunableop_is_enabled": False}
    if dtype == torch.float16:
        others["_get_cublas_allow_fp16_accumulation"] = False
    return (*found, *((getattr(library, name), default) for name, default in others.items() if hasattr(library, name)))


def prefers_cublas() -> bool:
    """Whether PyTorch's GEMMs go to cuBLAS, and not to another library of BLAS."""
    prefers: Any = torch.backends.cuda.preferred_blas_library
    return "cublaslt" not in str(prefers()).lower()


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Calls ``touched(operator, tensor, writes)`` for each tensor that an operator reads or writes.

    From :meth:`start` to :meth:`stop`, in the thread that calls them. An operator that PyTorch declares to write an
    argument writes all of it, else it reads it; views and the like touch nothing.
    """

    def __init__(self, touched: Callable[[str, torch.Tensor, bool], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._touched = touched
        self._runs = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # PyTorch would import its compiler, which takes seconds, only to keep it away from us

    def start(self) -> None:
        self.__enter__()  # type: ignore[no-untyped-call]
        self._runs = True

    def stop(self) -> None:
        if self._runs:
            self._runs = False
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._runs and not _only_looks_at_shapes(func):
            for tensor, writes in _tensors(func, args, kwargs):
                self._touched(str(func.overloadpacket), tensor, writes)
        return func(*args, **kwargs)


_SHAPE_ONLY = ("empty", "new_", "_like", "detach", "alias", "is_", "sym_", "_unsafe_view", "_reshape_alias", "lift")
"""In the names of operators that look at an argument's shape only."""


def _only_looks_at_shapes(func: Any) -> bool:
    name = func._schema.name.removeprefix("aten::")
    returns = func._schema.returns
    is_view = any(value.alias_info is not None and not value.alias_info.is_write for value in returns)
    return is_view or any(part in name for part in _SHAPE_ONLY)


def _tensors(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[tuple[torch.Tensor, bool]]:
    """The tensors among the arguments, and whether the operator writes them."""
    for i, declared in enumerate(func._schema.arguments):
        value = args[i] if i < len(args) else kwargs.get(declared.name)
        writes = declared.alias_info is not None and declared.alias_info.is_write
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor):
                yield tensor, writes


count_writes: Callable[[Iterable[torch.Tensor]], None] = torch._C._increment_version
"""Let autograd know that tensors were written to, so that a backward that was to read what they held before is refused.
As ``torch.autograd.graph.increment_version``; Python calls it without a frame of its own."""


def version_of(tensor: torch.Tensor) -> int | None:
    """How often a tensor has been written to, as autograd counts it. None where that says nothing of this tensor alone:
    a view shares its number with the whole, and tensors of inference mode have none."""
    return None if tensor.is_inference() or tensor._is_view() else tensor._version
