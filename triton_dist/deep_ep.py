"""DeepEP's ``Buffer`` for PEs of one host or several: its names on :mod:`triton_dist.kernels.moe`.

    from triton_dist.deep_ep import Buffer  # instead of: from deep_ep import Buffer

docs/migrating.md compares it with DeepEP's, name by name.
"""

import torch

from triton_dist.expert_buffer.buffer import Buffer
from triton_dist.expert_buffer.config import Config
from triton_dist.expert_buffer.events import EventHandle, EventOverlap

__all__ = ["Buffer", "Config", "EventHandle", "EventOverlap", "topk_idx_t"]

topk_idx_t = torch.int64
"""What ids of experts are of. int32 is taken, too."""
