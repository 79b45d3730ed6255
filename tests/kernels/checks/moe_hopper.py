"""The fused layer's kernels for Hopper GPUs, run by PE 0 as threads for all PEs, against the kernels for any GPU."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import torch
from harness import main as run
from harness import on_pe
from moe_whole import Layer

import triton_dist
from triton_dist.kernels import moe
from triton_dist.kernels.communicator import calling
from triton_dist.kernels.gemm.config import Config
from triton_dist.kernels.gemm.hopper import (
    buffers,
    dispatch_grouped_gemm,
    epochs,
    expert_rows,
    flags,
    grouped_gemm,
    grouped_gemm_combine,
    load,
    multiply,
    warps,
)
from triton_dist.kernels.gemm.hopper.epochs import Peers
from triton_dist.kernels.gemm.hopper.expert_layout import COPIED, FINISHED, MESSAGE, MOST_PARTS
from triton_dist.kernels.moe.arrival_plan import arrival_plan

sys.path.insert(0, str(Path(__file__).parents[1]))
import gluon_threads
from gluon_threads import Descriptor, Memory
from triton.experimental.gluon import language as gl

MODULES = (
    *(buffers, dispatch_grouped_gemm, epochs, expert_rows, flags, grouped_gemm, grouped_gemm_combine, load, multiply),
    warps,
)
BLOCK_K, HIDDEN, INNER, CHUNK, PROGRAMS = 32, 48, 40, 64, 4
UP, DOWN = Config(32, 32, 3, 2, fold=2), Config(32, 32, 3, 2)
FLAT_UP, FLAT_DOWN = Config(16, 32, 4, 1, fold=2), Config(16, 32, 4, 1)


def gathered(world: Any, mine: dict[str, Any]) -> list[dict[str, Any]]:
    """What each PE has, on PE 0."""
    data = torch.frombuffer(bytearray(pickle.dumps(mine)), dtype=torch.uint8)
    shared = triton_dist.zeros(1 << 21, dtype=torch.uint8)
    shared[: len(data)] = data
    triton_dist.barrier_all()
    found = [pickle.loads(bytes(on_pe(shared, pe).numpy())) for pe in range(world.n_pes)] if world.pe == 0 else []
    triton_dist.barrier_all()
    return found


class Gpu:
    """What a PE's launches work on, in the memory of all."""

    def __init__(self, memory: Memory, given: dict[str, Any], me: int, n_pes: int, room: int) -> None:
        def words(*size: int, dtype: torch.dtype = torch.int32) -> Any:
            return memory.array(torch.zeros(size, dtype=dtype))

        self.me, self.given, self.memory = me, given, memory
        self.x, self.w13, self.w2, self.routing = (memory.array(given[n]) for n in ("x", "w13", "w2", "routing"))
        self.gathered = words(n_pes, room, HIDDEN, dtype=torch.float16)
        self.flags, self.dispatch_state = words(24), words(int(COPIED.value) + int(MOST_PARTS.value) * n_pes)
        self.combine_state, self.barriers = words(int(FINISHED.value) + 8), words(2 * PROGRAMS * 128)
        self.slots = words(2, n_pes, room, CHUNK, dtype=torch.float16)

    def distances(self, others: list[Gpu], name: str) -> Any:
        here = self.memory.address(getattr(self, name))
        away = [self.memory.address(getattr(other, name)) - here for other in others]
        return self.memory.pointer(self.memory.array(torch.tensor(away)), gl.int64)

    def words(self, array: Any) -> Any:
        return self.memory.pointer(array, gl.int32)

    def floats(self, array: Any) -> Any:
        return self.memory.pointer(array, gl.float16)


def dispatched(gpus: list[Gpu], config: Config, senders: int, room: int) -> list[Any]:
    """Rows of hidden values on each PE."""
    results, arguments = [], []
    for gpu in gpus:
        given, memory, n = gpu.given, gpu.memory, len(gpu.x)
        capacity = max(1, given["rows"])
        rows = memory.array(torch.full((capacity, HIDDEN), torch.nan, dtype=torch.float16))
        c = memory.array(torch.full((capacity, INNER), torch.nan, dtype=torch.float16))
        w = gpu.w13.reshape(-1, HIDDEN)
        tokens = memory.array(given["tokens"])
        messages = memory.array(torch.full((PROGRAMS * config.stages * int(MESSAGE.value),), -1, dtype=torch.int32))
        peers = Peers(gpu.me, gpu.words(gpu.flags), gpu.distances(gpus, "flags"))
        results.append(c)
        arguments.append((
            Descriptor(rows, (config.group_m, BLOCK_K)), Descriptor(rows, (16, BLOCK_K)),
            Descriptor(w, (config.block_n, BLOCK_K)), Descriptor(w, (config.c_columns, BLOCK_K)),
            Descriptor(c, (config.group_m, config.c_columns)), gpu.floats(c), gpu.words(gpu.x), gpu.words(gpu.gathered),
            gpu.words(rows), gpu.words(tokens), gpu.words(memory.array(given[f"destinations {config.block_m}"])),
            gpu.words(memory.array(given[f"units {config.block_m}"])), gpu.words(messages),
            gpu.words(gpu.dispatch_state), peers, gpu.distances(gpus, "gathered"), n, senders, INNER, HIDDEN,
            2 * INNER, config, True, len(gpus), len(gpu.w13), HIDDEN // 2, room,
        ))  # fmt: skip
    gluon_threads.run(dispatch_grouped_gemm.moe_dispatch_grouped_gemm_kernel, PROGRAMS, arguments)
    for gpu in gpus:
        left = gpu.dispatch_state.copy()
        left[0] = 0  # how many launches there were
        assert not left.any() and not gpu.flags[16:].any(), "state for the next launch"
    return results


def combined(gpus: list[Gpu], config: Config, reducers: int, room: int, top_k: int, hidden: list[Any]) -> list[Any]:
    """Sums of tokens on each PE, of these hidden values."""
    results, arguments = [], []
    for gpu, a in zip(gpus, hidden, strict=True):
        given, memory = gpu.given, gpu.memory
        products = memory.array(torch.full((len(a), HIDDEN), torch.nan, dtype=torch.float16))
        out = memory.array(torch.full((len(gpu.x), HIDDEN), torch.nan, dtype=torch.float16))
        w = gpu.w2.reshape(-1, INNER)
        i32 = {n: gpu.words(memory.array(given[n])) for n in ("counts", "begins", "of_pes", "positions")}
        results.append(out)
        arguments.append((
            Descriptor(a, (config.group_m, BLOCK_K)), Descriptor(a, (16, BLOCK_K)),
            Descriptor(w, (config.block_n, BLOCK_K)), Descriptor(products, (config.group_m, config.block_n)),
            gpu.floats(products), gpu.floats(out), *i32.values(),
            memory.pointer(memory.array(given["weights"]), gl.float32), gpu.floats(gpu.slots), gpu.words(gpu.barriers),
            gpu.distances(gpus, "slots"), gpu.distances(gpus, "barriers"), gpu.words(gpu.combine_state),
            gluon_threads.Value(torch.tensor(gpu.me).numpy()), reducers, HIDDEN, INNER, HIDDEN, config, True, len(gpus),
            len(gpu.w2), top_k, room, CHUNK // 2, True,
        ))  # fmt: skip
    gluon_threads.run(grouped_gemm_combine.moe_grouped_gemm_combine_kernel, PROGRAMS, arguments)
    assert not any(gpu.combine_state.any() for gpu in gpus), "state for the next launch"
    return results


def described(world: Any, layer: Layer) -> dict[str, Any]:
    """This PE's part of a layer, what the host makes of it, and the results."""
    routing = moe.gather_routing(layer.ids, layer.weights, num_experts=layer.experts, max_tokens=layer.max_tokens)
    local = layer.experts // world.n_pes
    first, last = (int(routing.offsets[local * pe]) for pe in (world.pe, world.pe + 1))
    plans: dict[str, Any] = {}
    with calling("moe_hopper", None) as comm:
        for block_m in (16, 32):
            units, destinations = arrival_plan(comm, routing, routing.rows, block_m)
            plans |= {f"units {block_m}": units, f"destinations {block_m}": destinations}
    hidden = moe.dispatch_grouped_gemm(layer.x, layer.w13.transpose(1, 2), routing, swiglu=True)
    return plans | {
        "x": layer.x, "w13": layer.w13, "w2": layer.w2, "routing": routing.memory, "rows": last - first,
        "tokens": routing.tokens.clone(), "positions": routing.positions.clone(),
        "begins": routing.offsets.clone(), "counts": routing.counts[local * world.pe :][:local].clone(),
        "of_pes": torch.tensor([len(layer.x)]),
        "weights": routing.weights.clone(), "hidden": hidden[: last - first].clone(),
        "out": moe.grouped_gemm_combine(hidden, layer.w2.transpose(1, 2), routing),
    }  # fmt: skip


def close(found: Any, expected: torch.Tensor) -> None:
    torch.testing.assert_close(torch.from_numpy(found.copy()), expected, rtol=5e-3, atol=5e-3)


def verify(world: Any, layer: Layer, senders: tuple[int, ...], flat: bool) -> None:
    given = gathered(world, described(world, layer))
    if world.pe > 0:
        return
    of_pes = torch.cat([one["of_pes"] for one in given]).int()
    memory, room = Memory(), layer.max_tokens
    given = [one | {"of_pes": of_pes} for one in given]
    gpus = [Gpu(memory, one, pe, world.n_pes, room) for pe, one in enumerate(given)]
    for some in senders:  # launch after launch, with what the last one has left
        hidden = dispatched(gpus, FLAT_UP if flat else UP, some, room)
        for one, found in zip(given, hidden, strict=True):
            close(found[: one["rows"]], one["hidden"])
        out = combined(gpus, FLAT_DOWN if flat else DOWN, some, room, layer.ids.shape[1], hidden)
        for one, found in zip(given, out, strict=True):
            close(found, one["out"])


Case = tuple[list[int], str, int, tuple[int, ...], bool]
"""Tokens of each PE, how they are routed, experts of a PE, how many programs send, and whether tiles are flat."""


def check_moe_hopper_layers(world: Any) -> None:
    """Rows of one PE and of several in a tile, around an expert's end; experts and PEs without any; and again."""
    verify_all(world, ([37, 0, 5], "any", 3, (1, 2), False), ([5, 17, 1], "some", 5, (2,), True))


def check_moe_hopper_layers_of_many_tokens(world: Any) -> None:
    """Also for one expert, for many, and for none."""
    cases = (
        ([37, 0, 40], "any", 3, (1, 2), False),
        ([40, 40, 33], "one", 1, (1,), False),
        ([0, 0, 0], "any", 2, (3,), True),
        ([5, 40, 1], "some", 9, (2,), True),
    )
    verify_all(world, *cases)


def verify_all(world: Any, *cases: Case) -> None:
    options: dict[str, Any] = {"dtype": torch.float16, "hidden": HIDDEN, "inner": INNER, "max_tokens": 40, "top_k": 3}
    for seed, (tokens, routing, local, senders, flat) in enumerate(cases):
        layer = Layer(world, tokens, routing=routing, local=local, seed=seed, **options)
        with gluon_threads.interpreted(*(MODULES if world.pe == 0 else ())):
            verify(world, layer, senders, flat)


if __name__ == "__main__":
    run(globals())
