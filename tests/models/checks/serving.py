"""The interface that vLLM and SGLang call: a coordinator that does as theirs chooses, captures and falls back."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from harness import main as run
from harness import raises
from torch import distributed

from triton_dist.kernels import Communicator
from triton_dist.serving import CustomAllreduce

MAX_SIZE = 2048


class Coordinator:
    """As much as the servers' group coordinators do with ``ca_comm``: the choice, capture, and what is left to NCCL."""

    def __init__(self, ca_comm: Any) -> None:
        self.ca_comm = ca_comm
        self.left_out: list[torch.Tensor] = []

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        if self.ca_comm is not None and not self.ca_comm.disabled and self.ca_comm.should_custom_ar(x):
            out = self.ca_comm.custom_all_reduce(x)
            assert out is not None
            return out
        self.left_out.append(x)
        distributed.all_reduce(x)
        return x

    def graph_capture(self) -> Any:
        return nullcontext() if self.ca_comm is None else self.ca_comm.capture()


def communicator(**options: Any) -> CustomAllreduce:
    return CustomAllreduce(distributed.new_group(backend="gloo"), **options)


def check_coordinator(world: Any) -> None:
    total = sum(range(1, world.n_pes + 1))
    group = Coordinator(communicator(device=world.device, max_size=MAX_SIZE))
    for dtype in (torch.float32, torch.bfloat16):
        for shape in ((1, 7), (3, 64), (MAX_SIZE // dtype.itemsize,)):
            x = torch.full(shape, world.pe + 1.0, dtype=dtype)
            y = group.all_reduce(x)
            assert (y == total).all() and y.dtype == dtype and y.shape == shape
            assert (x == world.pe + 1).all() and y.data_ptr() != x.data_ptr(), "it is not out of place"
    assert not group.left_out


def check_what_is_left_to_other_communicators(world: Any) -> None:
    group = Coordinator(communicator(max_size=MAX_SIZE))
    left = [
        torch.ones(MAX_SIZE // 4 + 1),
        torch.ones(4, dtype=torch.int32),
        torch.ones(4, 6).t(),
        torch.ones(0),
    ]
    for x in left:
        assert group.ca_comm.custom_all_reduce(x) is None
        assert (group.all_reduce(x) == world.n_pes).all()
    assert len(group.left_out) == len(left)


def check_workspace_is_made_at_once(world: Any) -> None:
    """That of all smaller tensors, by a group of its own; no kernel has to run for it."""
    ca = CustomAllreduce(Communicator(), max_size=1 << 18)
    made = ca.group.workspace_bytes
    assert made >= 1 << 18
    for elements in (1, 1000, 1 << 16):
        assert (ca.all_reduce(torch.ones(elements)) == world.n_pes).all()
    assert ca.group.workspace_bytes == made


def check_capture(world: Any) -> None:
    """A run for warming up in ``capture`` computes; the result of one call is not changed by the next."""
    group = Coordinator(communicator(max_size=MAX_SIZE))
    with group.graph_capture():
        first = group.all_reduce(torch.ones(8))
        second = group.all_reduce(torch.full((8,), 2.0))
    assert (first == world.n_pes).all() and (second == 2 * world.n_pes).all()
    group.ca_comm.register_graph_buffers()
    with raises(KeyError, "a test"), group.graph_capture():
        raise KeyError("a test")


def check_in_place_and_registered(world: Any) -> None:
    ca = communicator(max_size=MAX_SIZE)
    x = torch.full((5,), 1.0)
    assert ca.all_reduce(x, out=x, registered=True) is x
    assert (x == world.n_pes).all()


def check_close(world: Any) -> None:
    ca = communicator(max_size=MAX_SIZE)
    ca.close()
    ca.close()
    assert ca.disabled and not ca.should_custom_ar(torch.ones(4)) and ca.custom_all_reduce(torch.ones(4)) is None


def check_mistakes(world: Any) -> None:
    with raises(ValueError, "CustomAllreduce: device is cuda:1, and this PE's device is cpu"):
        CustomAllreduce(device=1)
    with raises(ValueError, "CustomAllreduce: max_size must be at least 1, got 0"):
        CustomAllreduce(max_size=0)
    for out in (torch.ones(2, 4), torch.ones(4, dtype=torch.int32)):
        with raises(ValueError, r"CustomAllreduce.all_reduce: out must be like inp, \(4,\) of torch.float32, got"):
            communicator(max_size=MAX_SIZE).all_reduce(torch.ones(4), out=out)


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    with raises(RuntimeError, "there is no world"):
        CustomAllreduce()
    run(globals())
    distributed.destroy_process_group()
