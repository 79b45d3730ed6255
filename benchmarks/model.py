"""A decoder of Qwen3's shape, tensor-parallel: our parallel styles against PyTorch's and Hugging Face's.

    torchrun --nproc-per-node 2 benchmarks/model.py [--config qwen3-32b] [--layers 8] [--kind decode] [--save FILE]
        [--trace FOLDER] [--only layer whole] [--batch 1 32] [--contenders ours torch]

The model is that of examples/qwen3.py with our styles, with torch's own (NCCL), and with these and torch's async tensor
parallelism, compiled and eager; all of them with one set of weights. "ours, fused" is qwen3.FusedPrefill and
qwen3.FusedDecode, whose weight of gate and up is a copy with columns in turn; "dependent launches" is FusedDecode with
TRITON_DIST_DEPENDENT_LAUNCH. Hugging Face's is its Qwen3 with `tp_plan="auto"` and the same weights, by its own public
calls. Logits are compared with those of the unsharded model, or, where that does not fit beside the sharded one, with
those of torch's styles.

Of models of experts (qwen3_moe.py, `--config qwen3-30b-a3b`) the peers are those with torch's styles, in which NCCL
exchanges the tokens (model_experts.py). "40 SMs" is FusedPrefill with so many SMs that move rows.

- prefill: 8192 tokens of one sequence; decode: a token for each of 1, 32 and 128 sequences, with 1024 before it.
- a layer alone, and the whole model (`--only whole`: all of its layers without `--layers`); tokens/s are the whole
  model's.
- `--kind`, `--batch` and `--contenders` run parts alone. Hugging Face's model, which takes long to build, is for its
  contender.
- --trace traces a layer's prefill, and its decode of 1 and 32 sequences, in a CUDA graph: for each contender a Chrome
  trace (Perfetto opens it) and a table of its kernels, and one picture. `--only --trace FOLDER` does nothing else.

In the CPU world nothing is timed: a tiny model runs through the same code, and what needs GPUs is listed as such.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_DIST_SYMMETRIC_SIZE", "4G" if os.environ.get("TRITON_DIST_WORLD") != "cpu" else "64M")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import qwen3
import qwen3_moe
import torch
import torch.distributed as dist
from harness import Bench, Entry, session
from layer_traces import trace_layers
from model_experts import planned, replace_experts
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import parallel

import triton_dist
from triton_dist import tensor_parallel
from triton_dist.kernels.dependent_launch import DependentLaunches
from triton_dist.world.current import current_world

SMALL = triton_dist.kind() == "cpu"
PREFILL, CONTEXT, BATCHES = (8, 8, (1, 3)) if SMALL else (8192, 1024, (1, 32, 128))
CASES = (("prefill", 1, PREFILL), *(("decode", batch, 1) for batch in BATCHES))
"""Kind, sequences, and tokens of each."""
TRACED = CASES[:3]
LIMIT, LIMIT_OF_EXPERTS = 0.1, 0.3
"""Of relative errors: by a rounding a token may choose another of two experts that are near."""
STYLES = {"ours": tensor_parallel, "torch": parallel}
CONFIGS = qwen3.CONFIGS | qwen3_moe.CONFIGS
SENDING_SMS = 2 if SMALL else 40

Step = Callable[..., torch.Tensor]
Cases = Sequence[tuple[str, int, int]]


class Checks:
    """A benchmark's place in the CPU world: every contender runs once and is checked, none is timed."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.entries: list[Entry] = []

    def compare(self, title: str, contenders: dict[str, Any], *, check: Callable[..., str | None], **_: Any) -> Entry:
        entry = Entry(title, None)
        for name, step in contenders.items():
            try:
                problem = check(step(0), 0)
            except NotImplementedError as error:
                entry.absent[name] = str(error)
            else:
                assert problem is None, f"{title}, {name}: {problem}"
                entry.absent[name] = "right; not timed in the CPU world"
        self.entries.append(entry)
        self.say(str(entry))
        return entry

    def say(self, text: str) -> None:
        if self.world.pe == 0:
            print(text, flush=True)


@contextmanager
def checks() -> Iterator[Checks]:
    dist.init_process_group("gloo")
    with triton_dist.init() as world:
        yield Checks(world)
    dist.destroy_process_group()


class Models:
    """The sharded models, which share their weights, and what they are compared with."""

    def __init__(self, world: Any, config: qwen3.Config) -> None:
        self.world, self.config = world, config
        self.dtype = torch.float32 if SMALL else torch.bfloat16
        self.mesh = mesh = init_device_mesh(world.device.type, (world.n_pes,))
        options = {"device": world.device, "dtype": self.dtype, "mesh": self.mesh}
        most = {True: PREFILL // world.n_pes, False: max(BATCHES)}
        first = qwen3.build(config, styles=tensor_parallel, sequence=True, max_tokens=most[True], **options)
        self.has_experts = isinstance(config, qwen3_moe.MoEConfig)
        self.limit = LIMIT_OF_EXPERTS if self.has_experts else LIMIT
        self.sharded: dict[tuple[str, bool], qwen3.Transformer] = {("ours", True): first}
        options["device"] = "meta"
        for name, styles in STYLES.items():
            for sequence in (True, False):
                if (name, sequence) not in self.sharded:
                    model = qwen3.build(config, styles=styles, sequence=sequence, max_tokens=most[sequence], **options)
                    qwen3.share_weights(first, model)
                    if name == "torch":
                        replace_experts(model, world.pe)
                    self.sharded[name, sequence] = model
        alternating = dataclasses.replace(config, block=1)
        fused = []
        for sequence in (True, False, *([True] if self.has_experts else ())):
            model = qwen3.build(
                alternating, styles=tensor_parallel, sequence=sequence, max_tokens=most[sequence], **options
            )
            qwen3.share_weights(first, model)
            fused.append(model)
        if not self.has_experts:
            for of_prefill, of_decode in zip(*(model.layers for model in fused), strict=True):
                of_decode.mlp.gate_up.weight = of_prefill.mlp.gate_up.weight  # one copy with columns in turn
        self.fused_prefill, self.fused_decode = qwen3.FusedPrefill(fused[0], mesh), qwen3.FusedDecode(fused[1], mesh)
        self.prefills = {"ours, fused": self.fused_prefill}
        if self.has_experts:
            for layer in fused[2].layers:
                layer.mlp.num_sms = SENDING_SMS
            self.prefills[f"ours, fused, {SENDING_SMS} SMs"] = qwen3.FusedPrefill(fused[2], mesh)

    def whole(self) -> qwen3.Transformer | None:
        """The unsharded model, if it fits beside what there is."""
        c = self.config
        per_layer = c.hidden * c.head_dim * (2 * c.heads + 2 * c.kv_heads) + c.mlp_elements()
        nbytes = (c.layers * per_layer + 2 * c.vocabulary * c.hidden) * self.dtype.itemsize
        if not SMALL and nbytes > 0.5 * torch.cuda.mem_get_info()[0]:
            return None
        return qwen3.build(c, self.world.device, self.dtype)

    def tokens(self, *shape: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        return torch.randint(self.config.vocabulary, shape, generator=generator).to(self.world.device)

    def cache(self, batch: int, length: int, *, whole: bool = False) -> qwen3.Cache:
        """Random keys and values: this PE's heads, or all of them."""
        c, heads = self.config, self.config.kv_heads // self.world.n_pes
        mine = slice(None) if whole else slice(self.world.pe * heads, (self.world.pe + 1) * heads)
        generator = torch.Generator(self.world.device).manual_seed(1)
        shape = batch, length, c.kv_heads, c.head_dim

        def random() -> torch.Tensor:
            full = torch.randn(shape, generator=generator, device=self.world.device).to(self.dtype)
            return full[:, :, mine].contiguous()

        return [(random(), random()) for _ in range(c.layers)]

    def steps(self, sequence: bool) -> dict[str, Step]:
        """Our styles' model and the peers', compiled and eager, as functions of the model's arguments."""
        made = contenders(*(self.sharded[name, sequence] for name in STYLES), self.mesh if sequence else None)
        if sequence:
            return made | {name: by_layers(prefill, compiled) for name, prefill in self.prefills.items()}
        decode = by_layers(self.fused_decode, compiled)
        return made | {"ours, fused": decode, "ours, fused, dependent launches": with_dependent_launches(decode)}


def with_dependent_launches(step: Step) -> Step:
    """The kernels of a step are launched before those in front of them have ended."""

    def launched(*args: Any) -> torch.Tensor:
        with current_world().own(DependentLaunches).turned_on():
            return step(*args)

    return launched


def contenders(ours: torch.nn.Module, theirs: torch.nn.Module, mesh: Any) -> dict[str, Step]:
    """Both, compiled and eager; with a mesh, torch's overlap as well (without gathers it has nothing to overlap)."""
    made = {
        "ours": by_layers(ours, compiled),
        "ours, eager": ours,
        "torch, NCCL": by_layers(theirs, compiled),
        "torch, NCCL, eager": theirs,
    }
    if mesh is not None:
        made["torch, async TP"] = by_layers(theirs, partial(async_tensor_parallel, mesh=mesh))
    return made


def by_layers(module: Any, change: Callable[[Any], Step]) -> Step:
    """``change`` of a layer; of a model, a copy with each layer changed: then one layer is compiled and not all."""
    if isinstance(module, qwen3.Transformer):
        changed = copy.copy(module)
        vars(changed)["layers"] = [change(layer) for layer in module.layers]
        return changed
    if isinstance(module, qwen3.FusedPrefill | qwen3.FusedDecode):
        changed = copy.copy(module)
        changed.layer = change(module.layer)
        return changed
    return change(module)


def compiled(module: Step, **options: bool) -> Step:
    if SMALL:
        return module  # tests/models compiles it
    return torch.compile(module, fullgraph=True, dynamic=False, options=options)


def async_tensor_parallel(module: torch.nn.Module, mesh: Any) -> Step:
    """Torch's own overlap: inductor replaces collectives and GEMMs by fused operators on symmetric memory."""
    if SMALL:
        return unavailable("torch's fused operators need CUDA")
    import torch.distributed._symmetric_memory as symm_mem

    symm_mem.enable_symm_mem_for_group(mesh.get_group().group_name)
    return compiled(module, _micro_pipeline_tp=True)


def unavailable(reason: str) -> Step:
    """A contender that cannot run here."""

    def step(*args: Any) -> torch.Tensor:
        raise NotImplementedError(reason)

    return step


class HuggingFace:
    """Hugging Face's Qwen3 with the weights of ours, sharded by transformers itself."""

    def __init__(self, models: Models) -> None:
        if models.has_experts:
            raise NotImplementedError("Hugging Face's models of experts are not compared")
        try:
            import transformers
        except ImportError as error:
            raise NotImplementedError(f"Hugging Face transformers cannot be imported: {error}") from None
        self.transformers, self.models, c = transformers, models, models.config
        self.config = transformers.Qwen3Config(
            vocab_size=c.vocabulary, hidden_size=c.hidden, intermediate_size=c.intermediate, head_dim=c.head_dim,
            num_hidden_layers=c.layers, num_attention_heads=c.heads, num_key_value_heads=c.kv_heads,
            rope_theta=c.rope_theta, rms_norm_eps=c.eps, tie_word_embeddings=False, max_position_embeddings=40960,
        )  # fmt: skip
        folder = [tempfile.mkdtemp(prefix="qwen3-") if models.world.pe == 0 else ""]
        dist.broadcast_object_list(folder)
        if models.world.pe == 0:
            weights = hugging_face_weights(qwen3.build(c, "cpu" if SMALL else models.world.device, models.dtype))
            model = transformers.Qwen3ForCausalLM(self.config).to(models.dtype)
            model.load_state_dict(weights)
            model.save_pretrained(folder[0])
        dist.barrier()
        from transformers.distributed import DistributedConfig

        options = {"distributed_config": DistributedConfig(tp_plan="auto"), "dtype": models.dtype}
        self.model = transformers.Qwen3ForCausalLM.from_pretrained(folder[0], **options)
        self.model.eval()
        dist.barrier()
        if models.world.pe == 0:
            shutil.rmtree(folder[0])

    def prefill(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(tokens, use_cache=False, logits_to_keep=1).logits
        return logits

    def decode(self, batch: int) -> Callable[[torch.Tensor], torch.Tensor]:
        """A step of one token behind the random context of :meth:`Models.cache`."""
        cache = self.transformers.StaticCache(config=self.config, max_cache_len=CONTEXT + 1)
        kept = self.models.cache(batch, CONTEXT + 1)

        def step(token: torch.Tensor) -> torch.Tensor:
            for layer in cache.layers:
                if layer.is_initialized:
                    layer.cumulative_length.fill_(CONTEXT)  # each step extends the cache by the same token
            logits: torch.Tensor = self.model(token, past_key_values=cache, use_cache=True).logits
            return logits

        step(torch.zeros(batch, 1, dtype=torch.int64, device=self.models.world.device))
        for layer, (keys, values) in zip(cache.layers, kept, strict=True):
            layer.keys.copy_(keys.transpose(1, 2))
            layer.values.copy_(values.transpose(1, 2))
        return step


def hugging_face_weights(model: qwen3.Transformer) -> dict[str, torch.Tensor]:
    """The weights by the names of transformers' Qwen3, which has q, k and v, and gate and up, apart."""
    c, found = model.config, {}
    names = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
    for name, part in names.items():
        found[f"{part}.weight"] = model.get_submodule(name).weight
    for i, layer in enumerate(model.layers):
        at, queries = f"model.layers.{i}", c.heads // c.kv_heads
        qkv = layer.attention.qkv.weight.view(c.kv_heads, queries + 2, c.head_dim, c.hidden)
        gate_up = layer.mlp.gate_up.weight.view(-1, 2, c.block, c.hidden)
        parts = {
            "self_attn.q_proj": qkv[:, :queries].flatten(0, 2),
            "self_attn.k_proj": qkv[:, -2].flatten(0, 1),
            "self_attn.v_proj": qkv[:, -1].flatten(0, 1),
            "self_attn.o_proj": layer.attention.out.weight,
            "self_attn.q_norm": layer.attention.q_norm.weight,
            "self_attn.k_norm": layer.attention.k_norm.weight,
            "mlp.gate_proj": gate_up[:, 0].flatten(0, 1),
            "mlp.up_proj": gate_up[:, 1].flatten(0, 1),
            "mlp.down_proj": layer.mlp.down.weight,
            "input_layernorm": layer.attention_norm.weight,
            "post_attention_layernorm": layer.mlp_norm.weight,
        }
        found |= {f"{at}.{name}.weight": weight for name, weight in parts.items()}
    return found


def differs(found: torch.Tensor, expected: torch.Tensor, limit: float) -> str | None:
    """What is wrong, if the root mean square error is above what the rounding of many layers makes."""
    error = (found.float() - expected.float()).square().mean().sqrt() / expected.float().square().mean().sqrt()
    return None if error <= limit else f"a relative error of {error:.2g}"  # NaN is wrong


def part_of(models: Models, logits: torch.Tensor) -> torch.Tensor:
    """This PE's part of the vocabulary; Hugging Face returns all of it."""
    return logits.chunk(models.world.n_pes, -1)[models.world.pe]


def chosen(contenders: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The contenders whose names begin with one of these."""
    return {name: contender for name, contender in contenders.items() if name.startswith(tuple(names))}


def whole_model(
    bench: Any, models: Models, cases: Cases, peer: HuggingFace | None, absent: str, names: Sequence[str]
) -> None:
    """Prefill, and decode of several batches, of the whole model."""
    reference = models.whole()
    for kind, batch, length in cases:
        tokens, sequence = models.tokens(batch, length), kind == "prefill"
        position = None if sequence else torch.tensor([CONTEXT], device=tokens.device)
        cache = models.cache(batch, PREFILL if sequence else CONTEXT + 1)
        if reference is not None:
            cache_of_all = models.cache(batch, PREFILL if sequence else CONTEXT + 1, whole=True)
            expected = part_of(models, reference(tokens, cache_of_all, position)).clone()
            del cache_of_all
        else:
            with planned(models.sharded["torch", sequence]):
                expected = models.sharded["torch", sequence](tokens, cache, position).clone()
        with planned(models.sharded["torch", sequence]):
            models.sharded["torch", sequence](tokens, cache, position)
        contenders: dict[str, Any] = {
            name: lambda i, step=step, inputs=(tokens, cache, position): step(*inputs)
            for name, step in models.steps(sequence).items()
        }
        contenders["Hugging Face"] = hugging_face_contender(models, peer, absent, kind, tokens)
        contenders = chosen(contenders, names)
        entry = bench.compare(
            f"{kind}, {tokens.numel()} tokens",
            contenders,
            check=lambda r, i, e=expected: differs(r, e, models.limit),
            calls=1,
        )
        rates = (f"{name} {tokens.numel() / time.median * 1e6:,.0f}" for name, time in entry.timings.items())
        bench.say("    tokens/s: " + "; ".join(rates) if entry.timings else "")


def hugging_face_contender(
    models: Models, peer: HuggingFace | None, absent: str, kind: str, tokens: torch.Tensor
) -> Any:
    made: list[Callable[[torch.Tensor], torch.Tensor]] = []

    def contender(i: int) -> torch.Tensor:
        if peer is None:
            raise NotImplementedError(absent)
        if not made:
            made.append(peer.prefill if kind == "prefill" else peer.decode(len(tokens)))
        return part_of(models, made[0](tokens))

    return contender


def layer_steps(models: Models, sequence: bool, batch: int, length: int) -> tuple[dict[str, Step], torch.Tensor]:
    """The first layer of each model, as functions of nothing, and its result on one PE (this PE's rows of it)."""
    c, world = models.config, models.world
    generator = torch.Generator(world.device).manual_seed(2)
    x = torch.randn(batch, length, c.hidden, generator=generator, device=world.device).to(models.dtype)
    positions = torch.arange(length, device=world.device) + (0 if sequence else CONTEXT)
    rope = qwen3.angles(positions, c)
    position = None if sequence else positions
    one = dataclasses.replace(c, layers=1)
    whole = qwen3.build(one, world.device, models.dtype).layers[0]
    total = length if sequence else CONTEXT + 1
    expected = whole(x, rope, models.cache(batch, total, whole=True)[0], position)
    if sequence:
        x, expected = (t.chunk(world.n_pes, 1)[world.pe].contiguous() for t in (x, expected))
    cache = models.cache(batch, total)[0]
    ours, theirs = (models.sharded[name, sequence].layers[0] for name in STYLES)
    with planned(theirs):
        theirs(x, rope, cache, position)
    made = contenders(ours, theirs, models.mesh if sequence else None)
    steps = {name: partial(step, x, rope, cache, position) for name, step in made.items()}
    shape = x.shape
    if sequence:
        for name, prefill in models.prefills.items():
            steps[name] = partial(compiled(prefill.layer), prefill.model.layers[0], x, rope, cache)
    else:
        layer, step = models.fused_decode.model.layers[0], compiled(models.fused_decode.layer)

        def decode() -> torch.Tensor:
            return step(layer, x.flatten(0, 1), rope, cache, position).view(shape)

        steps |= {"ours, fused": decode, "ours, fused, dependent launches": with_dependent_launches(decode)}
    return steps, expected


def layer_alone(bench: Any, models: Models, cases: Cases, names: Sequence[str]) -> None:
    for kind, batch, length in cases:
        steps, expected = layer_steps(models, kind == "prefill", batch, length)
        contenders = {name: lambda i, step=step: step() for name, step in chosen(steps, names).items()}
        bench.compare(
            f"a layer's {kind}, {batch * length} tokens",
            contenders,
            check=lambda r, i, e=expected: differs(r, e, models.limit),
            calls=4,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", choices=tuple(CONFIGS), default="tiny" if SMALL else "qwen3-8b")
    parser.add_argument("--layers", type=int, help="fewer than the model has")
    parser.add_argument("--only", nargs="*", choices=("layer", "whole"), default=("layer", "whole"))
    parser.add_argument("--kind", nargs="+", choices=("prefill", "decode"), default=("prefill", "decode"))
    parser.add_argument("--batch", nargs="+", type=int, choices=BATCHES, default=BATCHES, help="sequences of decode")
    parser.add_argument(
        "--contenders", nargs="+", default=[""], help='what names of contenders begin with, as "ours" or "torch"'
    )
    parser.add_argument("--save", help="write JSON to this file")
    parser.add_argument("--trace", type=Path, help="write traces of a layer to this folder")
    args = parser.parse_args()
    config = CONFIGS[args.config]
    config = dataclasses.replace(config, layers=args.layers or config.layers)
    torch._dynamo.config.recompile_limit = 64  # the same functions are compiled for every contender
    cases = [case for case in CASES if case[0] in args.kind and (case[0] == "prefill" or case[1] in args.batch)]
    count = len(cases) * len(args.only)
    opened: Any = checks() if SMALL else session(f"model {args.config}", total=count)
    with opened as bench, torch.no_grad():
        models = Models(bench.world, config)
        if "layer" in args.only:
            layer_alone(bench, models, cases, args.contenders)
        for kind, batch, length in [case for case in TRACED if case in cases] if args.trace else ():
            steps, _ = layer_steps(models, kind == "prefill", batch, length)
            found = trace_layers(chosen(steps, args.contenders), args.trace / f"{kind}-{batch}", bench.world)
            bench.say(f"a layer's {kind}, {batch * length} tokens\n{found}")
        if "whole" in args.only:
            peer, absent = None, ""
            try:
                peer = HuggingFace(models) if chosen({"Hugging Face": None}, args.contenders) else None
            except Exception as error:
                absent = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
            whole_model(bench, models, cases, peer, absent, args.contenders)
        if args.save and isinstance(bench, Bench):
            bench.save(args.save)


if __name__ == "__main__":
    main()
