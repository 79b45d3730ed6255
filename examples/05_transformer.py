"""A decoder of Qwen3's shape, tensor-parallel by PyTorch's parallelize_module with the styles of triton_dist.

The model and its plans are in qwen3.py, layers of experts in qwen3_moe.py. A prefill of a few tokens fills the KV
cache, with the sequence sharded; a step of decode follows for each further token, with the rows of the batch on every
PE, each all-reduce fused with the residual, and each norm with the GEMM behind it. The logits of all steps are compared
with those of the same model on one PE.

    torchrun --nproc-per-node 2 examples/05_transformer.py [--config qwen3-30b-a3b] [--layers 48] [--mode graph]
"""

import argparse
import dataclasses
import sys
import time

import qwen3_moe
import torch
from common import report
from qwen3 import CONFIGS, FusedDecode, build, captured, empty_cache, share_weights
from torch.distributed.tensor import init_device_mesh

import triton_dist
from triton_dist import tensor_parallel
from triton_dist.kernels import functional


def logits(prefill, decode, tokens, prompt, cache, mode):
    """Of the last token of the prompt and of all that follow, [batch, tokens, vocabulary]."""
    if mode != "eager":
        backend = "inductor" if tokens.is_cuda else "aot_eager"
        prefill, decode = (torch.compile(m, fullgraph=True, backend=backend) for m in (prefill, decode))

    def step(token, position):
        return decode(token, cache, position)

    step = captured(step) if mode == "graph" else step
    found = [prefill(tokens[:, :prompt].contiguous(), cache)]
    for i in range(prompt, tokens.shape[1]):
        found.append(step(tokens[:, i : i + 1].contiguous(), torch.tensor([i], device=tokens.device)))
    return torch.cat(found, 1)


def main() -> int:
    small, configs = triton_dist.kind() == "cpu", CONFIGS | qwen3_moe.CONFIGS
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", choices=configs, default="tiny" if small else "qwen3-8b")
    parser.add_argument("--layers", type=int, default=2 if small else 4, help="how many of the model's")
    modes = ["eager", "compiled"] if small else ["eager", "compiled", "graph"]
    parser.add_argument("--mode", nargs="+", choices=modes, default=modes[:1] if small else modes)
    parser.add_argument("--prompt", type=int, default=8 if small else 1024, help="tokens, a multiple of the PEs")
    args = parser.parse_args()
    dtype = torch.float32 if small else torch.bfloat16
    with triton_dist.init() as world, torch.no_grad():
        config, batch, steps = dataclasses.replace(configs[args.config], layers=args.layers), 2, 3
        alternating = dataclasses.replace(config, block=1)  # FusedDecode takes columns of gate and up in turn
        tokens = torch.randint(
            config.vocabulary, (batch, args.prompt + steps), generator=torch.Generator().manual_seed(0)
        )
        tokens = tokens.to(world.device)
        whole = build(config, world.device, dtype)
        cache = empty_cache(whole, batch, tokens.shape[1])
        expected = logits(whole, whole, tokens, args.prompt, cache, "eager").cpu()
        del whole, cache

        mesh = init_device_mesh(world.device.type, (world.n_pes,))  # makes torch.distributed's process group, too
        rows = batch * args.prompt // world.n_pes  # of a PE, in a prefill
        prefill = build(config, world.device, dtype, mesh, tensor_parallel, sequence=True, max_tokens=rows)
        decode = build(alternating, "meta", dtype, mesh, tensor_parallel, sequence=False, max_tokens=batch)
        share_weights(prefill, decode)
        decode = FusedDecode(decode, mesh)
        start = time.perf_counter()
        found = []
        for mode in args.mode:
            cache = empty_cache(prefill, batch, tokens.shape[1], world.n_pes)
            mine = logits(prefill, decode, tokens, args.prompt, cache, mode)
            found.append(functional.all_gather(mine, gather_dim=-1))
        triton_dist.barrier_all()
        seconds = time.perf_counter() - start  # with the compiler's share, and with choosing algorithms by measurement
        # Logits are of about one. Roundings of layers add up; by them, a token may choose another of two near experts.
        tolerance = 1e-4 if small else (0.4 if args.config in qwen3_moe.CONFIGS else 0.05) * config.layers**0.5
        return report("05_transformer", torch.cat(found), torch.cat([expected] * len(found)), tolerance, seconds)


if __name__ == "__main__":
    sys.exit(main())
