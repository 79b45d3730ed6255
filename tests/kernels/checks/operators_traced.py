"""What PyTorch does around operators and public functions: traces without torch.compile, autocast, changes in place."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from harness import raises
from operands import leaf, same, whole
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from triton_dist import kernels
from triton_dist.kernels import functional, moe
from triton_dist.nn import MoE


def check_traced_by_make_fx(world: Any) -> None:
    """The graph calls our operators, and fake tensors give a shape; what has none refuses both."""
    n = world.n_pes
    b, vector, cache = whole(32, 8, seed=1), whole(32, seed=2), whole(2, 4, 1, 16, seed=world.pe)
    lengths = torch.tensor([3, 2], dtype=torch.int32)
    layers = [
        MoE(32, 8 * n, num_experts=2 * n, top_k=2, max_tokens=16, **options).requires_grad_(False)
        for options in ({}, {"num_sms": 2}, {"parallel": "tensor"}, {"replicated": True})
    ]
    calls: list[Callable[[torch.Tensor], Any]] = [
        lambda x: kernels.all_gather_gemm(x, b),
        lambda x: kernels.gemm_reduce_scatter(x, b),
        lambda x: kernels.gemm_all_reduce(x, b),
        lambda x: kernels.gemm_all_scatter(x, b),
        lambda x: kernels.norm_gemm(x, b, vector),
        lambda x: kernels.all_reduce_norm(x, vector)[0],
        lambda x: kernels.flash_decode(x.view(-1, 2, 1, 16)[0], cache, cache, lengths)[0],
        *layers,
    ]
    for call in calls:
        x, other = whole(2 * n, 32, seed=3 + world.pe), whole(2 * n, 32, seed=13 + world.pe)
        with torch.no_grad():
            traced = make_fx(call)(x)
            assert any("triton_dist" in str(node.target) for node in traced.graph.nodes), traced.graph
            same(traced(other), call(other))
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                shape = call(mode.from_tensor(x)).shape
            assert shape == call(other).shape
    ids = torch.zeros(2, 1, dtype=torch.int64)
    for refused in (
        lambda x: kernels.all_reduce(x),
        lambda x: kernels.all_gather_gemm(x, b, torch.empty(4 * n * n, 8)),
        lambda x: moe.dispatch(x[:2], ids, num_experts=n, max_tokens=2)[0],
        lambda x: moe.dispatch_tokens(x[:2], ids, num_experts=n, max_tokens=2)[0],
    ):
        with raises(ValueError, "cannot (be traced|trace it)"):
            make_fx(refused)(x)


def check_traced_by_jit(world: Any) -> None:
    """What has a functional form is recorded as its operator; a call that would be lost from the trace is refused."""
    ids, weights, n, b = torch.tensor([[0], [1 % world.n_pes]]), torch.ones(2, 1), world.n_pes, whole(8, 4)
    recorded: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "functional": lambda x: functional.all_reduce(x) * 2,
        "gemm": lambda x: kernels.gemm_all_reduce(x, b) + 1,
        "norm": lambda x: kernels.all_reduce_norm(x).output + 1,
    }
    refused: tuple[Callable[[torch.Tensor], Any], ...] = (
        lambda x: kernels.all_reduce(x.clone()),
        lambda x: moe.dispatch(x, ids, weights, num_experts=n, max_tokens=2).x,
        lambda x: moe.grouped_gemm(x, b[None], torch.tensor([0, 2]).int(), torch.tensor([2]).int()),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jit.trace is deprecated
        for function in recorded.values():
            traced, others = torch.jit.trace(function, (whole(2, 8),)), whole(2, 8, seed=1)
            same(traced(others), function(others))
        for function in refused:
            with raises(ValueError, "trace"):
                torch.jit.trace(function, (whole(2, 8),))
    assert torch.equal(kernels.all_reduce(torch.ones(3)), torch.full((3,), float(n)))


def check_results_change_in_place(world: Any) -> None:
    """Also where gradients are recorded, in which PyTorch lets no view of an operator's be changed."""
    n = world.n_pes
    a, b = leaf(whole(2 * n, 3, 8, seed=1 + world.pe)), leaf(whole(8, 4, seed=2))
    for call in (
        lambda: functional.all_gather_gemm(a, b),
        lambda: functional.all_gather_gemm(a, b, 1),
        lambda: functional.gemm_reduce_scatter(a, b),
        lambda: functional.gemm_all_reduce(a, b),
        lambda: functional.gemm_all_scatter(a, b),
        lambda: functional.replicated_gemm(a, b),
        lambda: functional.all_gather(a, 2),
        lambda: functional.reduce_scatter(a),
        lambda: functional.all_reduce(a),
        lambda: functional.all_to_all(a),
    ):
        expected = call()
        assert not expected._is_view()
        (a_grad,) = torch.autograd.grad(expected.relu().sum(), a)
        changed = call().relu_()
        same(changed, expected.relu())
        same(torch.autograd.grad(changed.sum(), a)[0], a_grad)


def check_autocast_changes_no_operator(world: Any) -> None:
    """Results and gradients keep the dtype of the operands, in the forward and if the backward runs under autocast."""
    n = world.n_pes
    a, b = leaf(torch.randn(2 * n, 64) + world.pe), leaf(torch.randn(64, 8))
    for call in (
        functional.all_gather_gemm,
        functional.gemm_reduce_scatter,
        functional.gemm_all_reduce,
        functional.gemm_all_scatter,
        functional.replicated_gemm,
    ):
        plain = call(a, b)
        expected = torch.autograd.grad(plain.square().sum(), (a, b))
        with torch.autocast("cpu", torch.bfloat16):
            found = call(a, b)
            assert found.dtype == torch.float32
            grads = torch.autograd.grad(found.square().sum(), (a, b))
        assert torch.equal(found, plain)
        for grad, exact in zip(grads, expected, strict=True):
            assert grad.dtype == torch.float32 and torch.equal(grad, exact)


def check_mistakes_while_traced(world: Any) -> None:
    """They have the words of plain calls."""
    x, b = whole(2, 3, 256), whole(256, 8)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor(x)
        for name in ("all_reduce_norm", "reduce_scatter_norm", "norm_all_gather"):
            with raises(ValueError, rf"{name}: x must be a matrix, got shape \(2, 3, 256\)"):
                getattr(functional, name)(fake)
        with raises(ValueError, "all_reduce_norm: quantize must be None, token or block, got 'bad'"):
            functional.all_reduce_norm(fake[0], quantize="bad")
        with raises(ValueError, "norm_gemm: a must have two dimensions or more"):
            functional.norm_gemm(fake[0, 0], b)
        with raises(ValueError, "norm_gemm: activation"):
            functional.norm_gemm(fake, b, activation="relu")
