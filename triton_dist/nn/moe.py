"""A layer of experts as a module of PyTorch."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from triton_dist import torch_api
from triton_dist.kernels.functional.autocast import as_autocast
from triton_dist.kernels.functional.group import communicator, resolve
from triton_dist.kernels.moe.layer import ALGORITHMS, ONE_OF, check_replicated, moe_layer
from triton_dist.kernels.moe.routing import group_limited_top_k, softmax_top_k
from triton_dist.kernels.moe.shared_tokens import check_grid
from triton_dist.kernels.options import check_bool, check_int, check_number
from triton_dist.nn.distribute import check_mesh, distribute
from triton_dist.nn.replicas import check_ddp, check_mesh_of, divide_gradient
from triton_dist.world.current import current_world

__all__ = ["EXPERTS", "MoE"]


EXPERTS = "w13", "w2"
"""Parameters of which every PE has its own."""


class MoE(nn.Module):
    """A layer of experts, of which every PE has an equal part: some experts whole, a slice of each, or slices of some.

        # Qwen3-30B-A3B
        MoE(2048, 768, num_experts=128, top_k=8, max_tokens=4096)
        # DeepSeek-V3
        MoE(7168, 2048, num_experts=256, top_k=8, max_tokens=128, scoring="sigmoid", n_group=8, topk_group=4,
            routed_scaling_factor=2.5, shared_intermediate=2048)

    The router and the shared expert are replicated: every PE has them whole, and their gradients are those of its own
    tokens, to be summed over PEs as in data parallelism. Experts are not: a gradient of one is that of all PEs' tokens.

    Args:
        hidden, intermediate: sizes of tokens, and of what is between an expert's two matrices.
        num_experts: of all PEs together. top_k: how many a token chooses.
        max_tokens: how many tokens a PE may have in a call.
        parallel: ``expert``: every PE has num_experts / n_pes experts. ``tensor``: every PE has intermediate / n_pes of
            the columns between the two matrices of each expert, so that all PEs have as much to do with any routing.
        scoring: ``softmax`` (Mixtral, Qwen3-MoE) or ``sigmoid``, of groups (DeepSeek-V3).
        norm_topk_prob: divide the weights of a token by their sum.
        n_group, topk_group, routed_scaling_factor: of ``sigmoid``; see
            :func:`~triton_dist.kernels.moe.routing.group_limited_top_k`.
        shared_intermediate: of an expert that all tokens pass; 0 for none.
        capacity: for how many rows a PE has room; by default for the most that can come. Fewer take less memory, and it
            is an error of the kernel if more come.
        num_sms: for thousands of tokens, how many SMs send and receive them; see
            :func:`~triton_dist.kernels.moe.dispatch`. With ``tensor`` how many SMs do while the others multiply; see
            :func:`~triton_dist.kernels.moe.all_gather_grouped_gemm`.
        algorithm: as of :func:`~triton_dist.kernels.moe.moe_layer`.
        group: the PEs that share the experts, as of :mod:`triton_dist.kernels.functional`.
        tp_group: with ``expert``: the PEs that share each expert of a PE, of which each has a slice of intermediate / n
            columns, so that experts are spread over ``group`` and sliced over ``tp_group``. With it the module is
            *collective* over both groups to make.
        replicated: the PEs of ``tp_group``, or without one those of ``group``, call with the same tokens and get the
            same result, as between tensor-parallel layers whose activations are replicated; the router's gradient is
            the same on them, too. Else every PE has tokens of its own, as with a sharded sequence. See
            :func:`~triton_dist.kernels.moe.moe_layer`.
        dtype, device: of the parameters; by default PyTorch's dtype, and this PE's device.

    Attributes:
        gate: [num_experts, hidden], the router. bias: [num_experts] float32, with ``sigmoid``; a buffer that training
            updates to balance the load, and that stays float32 where the module is converted (``.bfloat16()``), since
            the updates are smaller than what other dtypes resolve.
        w13: [L, 2 * intermediate, hidden], of this PE's L experts, the gates' rows first.
        w2: [L, hidden, intermediate]. With ``tensor`` L is num_experts. With it and with ``tp_group`` intermediate is
            that of this PE's slice.
        mesh: of :meth:`distribute_parameters`, or None.
        divisor: what gradients of experts are divided by; see :func:`prepare_for_ddp`.

    These tensors have the same names on all PEs, and other numbers. What saves or adds up by names, as
    ``torch.distributed.checkpoint`` and ``clip_grad_norm_`` do, takes them for one tensor:
    :meth:`distribute_parameters` makes DTensors of them.

    Under ``torch.autocast`` tokens and matrices are cast to its dtype, as those of ``nn.Linear``, and the result is of
    that. The router is computed in float32 with and without it. A copy of the module (``copy.deepcopy``) has the same
    groups.

    Raises:
        ValueError: an argument is not as described. RuntimeError: there is no world.
    """

    bias: torch.Tensor | None

    def __init__(
        self,
        hidden: int,
        intermediate: int,
        *,
        num_experts: int,
        top_k: int,
        max_tokens: int,
        scoring: str = "softmax",
        norm_topk_prob: bool = True,
        n_group: int = 1,
        topk_group: int = 1,
        routed_scaling_factor: float = 1.0,
        shared_intermediate: int = 0,
        capacity: int | None = None,
        num_sms: int = 0,
        parallel: str = "expert",
        algorithm: str = "auto",
        group: Any = None,
        tp_group: Any = None,
        replicated: bool = False,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        size, _ = resolve(group)
        if scoring not in ("softmax", "sigmoid"):
            raise ValueError(f"MoE: scoring must be softmax or sigmoid, got {scoring!r}")
        if scoring == "softmax" and (n_group, topk_group, routed_scaling_factor) != (1, 1, 1.0):
            raise ValueError("MoE: n_group, topk_group and routed_scaling_factor are for scoring='sigmoid'")
        if parallel not in ("expert", "tensor"):
            raise ValueError(f"MoE: parallel must be expert or tensor, got {parallel!r}")
        if algorithm not in ALGORITHMS or (parallel == "tensor" and algorithm != "auto"):
            raise ValueError(f"MoE: algorithm must be {ONE_OF}, and auto with parallel='tensor', got {algorithm!r}")
        sizes = {"hidden": hidden, "intermediate": intermediate, "num_experts": num_experts, "top_k": top_k}
        sizes |= {"max_tokens": max_tokens, "n_group": n_group, "topk_group": topk_group}
        for name, value in sizes.items():
            check_int("MoE", name, value, 1)
        check_int("MoE", "shared_intermediate", shared_intermediate, 0)
        check_int("MoE", "num_sms", num_sms, 0)
        check_number("MoE", "routed_scaling_factor", routed_scaling_factor)
        if capacity is not None:
            check_int("MoE", "capacity", capacity, 1)
        check_bool("MoE", "replicated", replicated)
        check_bool("MoE", "norm_topk_prob", norm_topk_prob)
        kind = dtype or torch.get_default_dtype()
        if kind not in (torch.bfloat16, torch.float16, torch.float32) or (
            parallel == "expert" and hidden * kind.itemsize % 16
        ):
            raise ValueError(
                "MoE: matrices are of bfloat16, float16 or float32, and rows of tokens that are sent have a multiple of"
                f" 16 bytes; got hidden {hidden} and dtype {kind}"
            )
        if replicated and tp_group is None:
            check_replicated("MoE", algorithm, num_sms)
        sliced = parallel == "tensor"
        if sliced and tp_group is not None:
            raise ValueError("MoE: tp_group is for parallel='expert': with parallel='tensor' group has the slices")
        if sliced and (intermediate % max(size, 1) or capacity is not None):
            raise ValueError(
                f"MoE: with parallel='tensor' intermediate must be a multiple of the {size} PEs, and there is no"
                f" capacity; got intermediate {intermediate}, capacity {capacity}"
            )
        if (not sliced and num_experts % max(size, 1)) or num_experts % n_group or not 1 <= topk_group <= n_group:
            raise ValueError(
                f"MoE: num_experts must be a multiple of the {size} PEs and of n_group, and topk_group in [1, n_group];"
                f" got num_experts {num_experts}, n_group {n_group}, topk_group {topk_group}"
            )
        if not 1 <= top_k <= min(num_experts // n_group * topk_group, 64):
            raise ValueError(
                f"MoE: top_k {top_k} is more than 64 or than the experts of which a token may choose, or less than 1"
            )
        slices = size if sliced else 1
        if tp_group is not None:
            slices, _ = resolve(tp_group)
            check_grid("MoE", *(communicator("MoE", *resolve(each)) for each in (group, tp_group)))
            if intermediate % slices:
                raise ValueError(
                    f"MoE: intermediate must be a multiple of the {slices} PEs of tp_group, got {intermediate}"
                )
        self.top_k, self.num_experts, self.max_tokens, self.capacity = top_k, num_experts, max_tokens, capacity
        self.num_sms, self.parallel, self.algorithm = num_sms, parallel, algorithm
        self.scoring, self.norm_topk_prob = scoring, norm_topk_prob
        self.n_group, self.topk_group, self.routed_scaling_factor = n_group, topk_group, routed_scaling_factor
        self.group, self.tp_group, self.replicated = group, tp_group, replicated
        self.mesh: Any = None
        self.divisor = 1
        made: dict[str, Any] = {"dtype": dtype, "device": device or current_world().device}
        local = num_experts if sliced else num_experts // max(size, 1)
        intermediate //= max(slices, 1)
        self.gate = nn.Parameter(torch.empty(num_experts, hidden, **made))
        self.w13 = nn.Parameter(torch.empty(local, 2 * intermediate, hidden, **made))
        self.w2 = nn.Parameter(torch.empty(local, hidden, intermediate, **made))
        bias = torch.zeros(num_experts, dtype=torch.float32, device=made["device"]) if scoring == "sigmoid" else None
        self.register_buffer("bias", bias)
        self.shared_up = nn.Linear(hidden, 2 * shared_intermediate, False, **made) if shared_intermediate else None
        self.shared_down = nn.Linear(shared_intermediate, hidden, False, **made) if shared_intermediate else None
        self.reset_parameters()

    def __setattr__(self, name: str, value: Any) -> None:
        """As of any module. A module that has this gets its parameters from ``fully_shard`` by it, and so by
        :meth:`register_parameter`; others get them past both."""
        super().__setattr__(name, value)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As of any module; what ``fully_shard`` or ``distribute_module`` makes of parameters is looked at."""
        if name in EXPERTS and self.mesh is None:
            check_mesh_of(name, param, self.groups())
        super().register_parameter(name, param)

    def reset_parameters(self) -> None:
        """Draw the router's and the experts' matrices as ``nn.Linear`` draws its own, and zero ``bias``. The shared
        expert's modules have methods of their own for that. Seeds of PEs should differ."""
        for weight in (self.gate, self.w13, self.w2):
            bound = 1 / math.sqrt(weight.shape[-1])
            nn.init.uniform_(weight, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> MoE:
        """Of ``bias`` only the device changes, by its float32 numbers."""
        bias = self.bias
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if bias is not None and self.bias is not None and self.bias.dtype != torch.float32:
            self.bias = bias.to(self.bias.device, torch.float32)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> MoE:
        """Of everything but groups and mesh, which PEs make together and a copy shares."""
        memo |= {id(group): group for group in (self.group, self.tp_group, self.mesh)}
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(copy.deepcopy(self.__dict__, memo))  # type: ignore[no-untyped-call]
        return copied

    def distribute_parameters(self, mesh: Any) -> MoE:
        """Make DTensors over ``mesh`` of the parameters, and return the module.

        ``w13`` becomes [num_experts, 2, intermediate, hidden] and ``w2`` [num_experts, hidden, intermediate], of which
        every PE has its experts or its slice of them, in the same memory; router and shared expert are those of the
        mesh's first PE. So ``torch.distributed.checkpoint`` saves all of them, and loads them for any number of PEs and
        any ``parallel``; optimizers and ``clip_grad_norm_`` see which gradients are to be added up. Call it before
        optimizers, ``fully_shard`` and ``torch.compile`` see the module. *Collective.*

        Args:
            mesh: a ``DeviceMesh`` whose one dimension has the PEs of ``group``, or two those of ``group`` and of
                ``tp_group``, in their order.

        Raises:
            TypeError, ValueError: ``mesh`` is not as described. RuntimeError: the parameters are DTensors.
        """
        if self.mesh is not None:
            raise RuntimeError("MoE.distribute_parameters: the parameters are DTensors of a mesh already")
        groups = [("group", self.group), ("tp_group", self.tp_group)][: 1 if self.tp_group is None else 2]
        check_mesh("MoE.distribute_parameters", mesh, groups)
        if mesh.device_type != self.gate.device.type and not self.gate.is_meta:
            raise ValueError(
                f"MoE.distribute_parameters: the mesh is of {mesh.device_type}, and the parameters are on"
                f" {self.gate.device}"
            )
        experts = [2 if self.parallel == "tensor" else 0, 2][: mesh.ndim]
        self.mesh = mesh
        self.w13 = distribute(self.w13, self.w13.view(len(self.w13), 2, -1, self.w13.shape[2]), mesh, experts)
        self.w2 = distribute(self.w2, self.w2, mesh, experts)
        for module, name in ((self, "gate"), (self.shared_up, "weight"), (self.shared_down, "weight")):
            if module is not None:
                parameter = getattr(module, name)
                setattr(module, name, distribute(parameter, parameter, mesh, [None] * mesh.ndim))
        return self

    @torch_api.constant_in_graphs
    def _check_ddp(self) -> int:
        """Under torch.compile when forward is traced, which DistributedDataParallel's is around then, too."""
        check_ddp(self, (self.w13, self.w2), self.groups())
        return 0

    def groups(self) -> tuple[Any, ...]:
        """Those whose PEs have parts of the experts, each its own."""
        return (self.group,) if self.tp_group is None else (self.group, self.tp_group)

    def n_losses(self) -> int:
        """Of how many PEs the tokens are their own, to whose losses a gradient of an expert belongs."""
        groups = self.groups()[:-1] if self.replicated else self.groups()  # the PEs of the last have the same
        return math.prod(resolve(group)[0] for group in groups)

    def _own(self, parameter: torch.Tensor) -> torch.Tensor:
        """This PE's part of the matrices of experts, as an ordinary tensor."""
        if self.mesh is None:
            return parameter
        own: torch.Tensor = parameter.to_local()  # type: ignore[attr-defined]
        return own.flatten(1, 2) if own.dim() == 4 else own

    def _replicated(self, parameter: torch.Tensor) -> torch.Tensor:
        """A parameter that all PEs have, as an ordinary tensor, whose gradients are those of this PE's tokens."""
        if self.mesh is None:
            return parameter
        from torch.distributed.tensor import Partial, Replicate

        same = (self.replicated and self.tp_group is None, self.replicated)
        sums = [Replicate() if same[dim] else Partial() for dim in range(self.mesh.ndim)]
        return parameter.to_local(grad_placements=sums)  # type: ignore[attr-defined, no-any-return]

    def route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The experts of tokens [T, hidden], and their weights: [T, top_k] int64 and float32."""
        with torch.autocast(x.device.type, enabled=False):
            return self._route(x)

    def _route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = nn.functional.linear(x.float(), self._replicated(self.gate).float())
        if self.scoring == "softmax":
            return softmax_top_k(logits, self.top_k, norm_topk_prob=self.norm_topk_prob)
        return group_limited_top_k(
            logits,
            self.top_k,
            bias=self.bias,
            n_group=self.n_group,
            topk_group=self.topk_group,
            norm_topk_prob=self.norm_topk_prob,
            routed_scaling_factor=self.routed_scaling_factor,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's output for tokens [..., hidden], of their shape and dtype, or autocast's dtype. *Collective.*

        Raises:
            ValueError: tokens of another size.
            RuntimeError: a ``DistributedDataParallel`` takes the experts for replicas; see :func:`prepare_for_ddp`.
        """
        self._check_ddp()
        if x.dim() == 0 or x.shape[-1] != self.gate.shape[1]:
            raise ValueError(f"MoE: x must be [..., {self.gate.shape[1]}], got shape {tuple(x.shape)}")
        tokens = x.reshape(-1, x.shape[-1])
        ids, weights = self.route(tokens)
        out = moe_layer(
            as_autocast(tokens),
            ids,
            weights,
            as_autocast(divide_gradient(self._own(self.w13), self.divisor)),
            as_autocast(divide_gradient(self._own(self.w2), self.divisor)),
            num_experts=self.num_experts,
            max_tokens=self.max_tokens,
            capacity=self.capacity,
            num_sms=self.num_sms,
            parallel=self.parallel,
            algorithm=self.algorithm,
            group=self.group,
            tp_group=self.tp_group,
            replicated=self.replicated,
        )
        if self.shared_up is not None and self.shared_down is not None:
            out = out + self._shared(tokens, self.shared_up, self.shared_down)
        # A view only where it must be: FSDP2 loses its hooks where a module's result is one, and is written to.
        return out if out.shape == x.shape else out.view(x.shape)

    def _shared(self, tokens: torch.Tensor, up_projection: nn.Linear, down_projection: nn.Linear) -> torch.Tensor:
        if self.mesh is None:  # hooks on these modules, and others in their places, work as in any module
            gate, up = up_projection(tokens).chunk(2, dim=-1)
            return down_projection(nn.functional.silu(gate) * up)  # type: ignore[no-any-return]
        gate, up = nn.functional.linear(tokens, self._replicated(up_projection.weight)).chunk(2, dim=-1)
        return nn.functional.linear(nn.functional.silu(gate) * up, self._replicated(down_projection.weight))
