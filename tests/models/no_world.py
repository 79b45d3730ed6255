"""What a sharded layer does after finalize(): forward, backward of an earlier forward, and under torch.compile."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import distributed, nn
from torch.distributed.tensor import Shard, init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module

import triton_dist
from triton_dist.tensor_parallel import ColwiseParallel


def told(what: str, call: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match=r"there is no world: call triton_dist.init\(\) first"):
        call()
    print(f"passed: {what}", flush=True)


distributed.init_process_group("gloo")
triton_dist.init()
mesh = init_device_mesh("cpu", (1,))
layer = parallelize_module(nn.Linear(4, 4), mesh, ColwiseParallel(input_layouts=Shard(0)))
x = torch.ones(2, 4, requires_grad=True)
y = layer(x)
triton_dist.finalize()
told("forward", lambda: layer(x))
told("backward", y.sum().backward)
told("compiled", lambda: torch.compile(layer, backend="aot_eager", fullgraph=True)(x))
distributed.destroy_process_group()
