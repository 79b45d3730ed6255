"""Kernels on symmetric tensors: all-gather, reduce-scatter, all-reduce, all-to-all, broadcast, GEMMs whose
communication overlaps with computation, and norms and attention that are fused with theirs.

They work on the current stream, without the host, and may be captured in CUDA graphs once they have run. The PEs of a
``group``, by default all of the world, call them in the same order. A :class:`Communicator` owns the workspace of its
calls: groups have one each, and calls with different ones may run at the same time.

Importing this package registers the operators ``torch.ops.triton_dist``: see :mod:`triton_dist.kernels.functional`.
"""

from triton_dist.kernels import functional
from triton_dist.kernels.attention import flash_decode as _flash_decode
from triton_dist.kernels.attention import projection as _projection
from triton_dist.kernels.collectives import all_gather as _all_gather
from triton_dist.kernels.collectives import all_reduce as _all_reduce
from triton_dist.kernels.collectives import all_to_all as _all_to_all
from triton_dist.kernels.collectives import broadcast as _broadcast
from triton_dist.kernels.collectives import reduce_scatter as _reduce_scatter
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import all_gather_gemm as _all_gather_gemm
from triton_dist.kernels.gemm import gemm_all_reduce as _gemm_all_reduce
from triton_dist.kernels.gemm import gemm_all_scatter as _gemm_all_scatter
from triton_dist.kernels.gemm import gemm_reduce_scatter as _gemm_reduce_scatter
from triton_dist.kernels.gemm import norm_gemm as _norm_gemm
from triton_dist.kernels.gemm.gate_up import interleave_gate_up
from triton_dist.kernels.gradients import differentiable, for_inference, without_gradients
from triton_dist.kernels.norm import all_reduce_norm as _all_reduce_norm
from triton_dist.kernels.norm import norm_all_gather as _norm_all_gather
from triton_dist.kernels.norm import reduce_scatter_norm as _reduce_scatter_norm
from triton_dist.kernels.norm.arguments import Normed
from triton_dist.kernels.reserving import reserve
from triton_dist.kernels.tracing.recorder import tracing
from triton_dist.kernels.tuning import tune

__all__ = [
    "Communicator",
    "Normed",
    "all_gather",
    "all_gather_gemm",
    "all_reduce",
    "all_reduce_norm",
    "all_to_all",
    "broadcast",
    "flash_decode",
    "flash_decode_projection",
    "functional",
    "gemm_all_reduce",
    "gemm_all_scatter",
    "gemm_reduce_scatter",
    "interleave_gate_up",
    "norm_all_gather",
    "norm_gemm",
    "reduce_scatter",
    "reduce_scatter_norm",
    "reserve",
    "tracing",
    "tune",
]

all_gather = without_gradients(functional.all_gather)(_all_gather.all_gather)
all_reduce = without_gradients(functional.all_reduce)(_all_reduce.all_reduce)
all_to_all = without_gradients(functional.all_to_all)(_all_to_all.all_to_all)
broadcast = without_gradients(None)(_broadcast.broadcast)
reduce_scatter = without_gradients(functional.reduce_scatter)(_reduce_scatter.reduce_scatter)
all_gather_gemm = differentiable(functional.all_gather_gemm)(_all_gather_gemm.all_gather_gemm)
gemm_all_reduce = differentiable(functional.gemm_all_reduce)(_gemm_all_reduce.gemm_all_reduce)
gemm_all_scatter = differentiable(functional.gemm_all_scatter)(_gemm_all_scatter.gemm_all_scatter)
gemm_reduce_scatter = differentiable(functional.gemm_reduce_scatter)(_gemm_reduce_scatter.gemm_reduce_scatter)
all_reduce_norm = for_inference(functional.all_reduce_norm)(_all_reduce_norm.all_reduce_norm)
reduce_scatter_norm = for_inference(functional.reduce_scatter_norm)(_reduce_scatter_norm.reduce_scatter_norm)
norm_all_gather = for_inference(functional.norm_all_gather)(_norm_all_gather.norm_all_gather)
flash_decode = for_inference(functional.flash_decode)(_flash_decode.flash_decode)
flash_decode_projection = for_inference(functional.flash_decode_projection)(_projection.flash_decode_projection)
norm_gemm = for_inference(functional.norm_gemm)(_norm_gemm.norm_gemm)
