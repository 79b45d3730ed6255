"""Collectives of hosts that a transport does as a whole: the results of torch, and which calls it takes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

import triton_dist

NAMES = ("barrier", "broadcast", "fcollect", "alltoall", "reduce")


def main() -> None:
    with triton_dist.init() as world:
        n, taken = world.n_pes, Counter[tuple[str, bool]]()
        library: Any = world._transport.collectives  # type: ignore[attr-defined]

        def counted(name: str, function: Callable[..., bool]) -> Callable[..., bool]:
            def call(*arguments: Any) -> bool:
                done = function(*arguments)
                taken[name, done] += 1
                return done

            return call

        for name in NAMES:
            setattr(library, name, counted(name, getattr(library, name)))
        for dtype, k in itertools.product((torch.int16, torch.int32, torch.int64, torch.float32), (4, 1001, 30000)):
            parts = [torch.arange(k * n).to(dtype) % 100 + pe for pe in range(n)]
            src, dst = triton_dist.from_tensor(parts[world.pe]), triton_dist.zeros(k * n, dtype=dtype)
            triton_dist.alltoall(dst, src)
            assert torch.equal(dst, torch.cat([part[world.pe * k : (world.pe + 1) * k] for part in parts]))
            triton_dist.fcollect(dst, src[:k])
            assert torch.equal(dst, torch.cat([part[:k] for part in parts]))
            triton_dist.broadcast(dst, src, k % n)
            assert torch.equal(dst, parts[k % n])
            for op, combine in (("sum", torch.add), ("min", torch.minimum), ("max", torch.maximum)):
                expected = parts[0]
                for part in parts[1:]:
                    expected = combine(expected, part)
                triton_dist.reduce(dst, src, op)
                assert torch.equal(dst, expected), (op, dtype, k)
        assert all(taken[name, True] for name in NAMES), taken
        assert {name for name, done in taken if not done} == {"alltoall", "broadcast", "fcollect", "reduce"}, taken
        print("passed", flush=True)


if __name__ == "__main__":
    main()
