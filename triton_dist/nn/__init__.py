"""Modules of PyTorch whose parameters are spread over PEs."""

from triton_dist.nn.ddp import prepare_for_ddp
from triton_dist.nn.moe import MoE

__all__ = ["MoE", "prepare_for_ddp"]
