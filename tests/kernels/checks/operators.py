"""The operators of PyTorch: memory, sizes, mistakes, worlds; and in the same launch gradients and torch.compile."""

# ruff: noqa: F401  # main() finds the imported checks by their names

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import torch
from harness import main as run
from harness import raises
from operands import same, whole
from operator_gradients import (
    check_a_is_gathered_while_its_gradient_is_computed,
    check_collectives_and_their_gradients,
    check_gemms_and_their_gradients,
    check_gemms_of_all_layouts_and_their_gradients,
    check_gradients_are_those_of_separate_calls,
    check_gradients_of_one_operand_only,
    check_models_have_the_gradients_of_separate_calls,
    check_public_functions_keep_gradients,
    check_reduce_ops_and_their_gradients,
    check_second_derivatives,
    check_second_derivatives_of_one_loss,
    check_what_kernels_overwrite_has_no_gradient,
)
from operators_compiled import (
    check_compile,
    check_compile_refusals,
    check_compile_with_groups_that_are_new,
    check_norms_and_decode_compiled,
    check_opcheck,
)
from operators_traced import (
    check_autocast_changes_no_operator,
    check_mistakes_while_traced,
    check_results_change_in_place,
    check_traced_by_jit,
    check_traced_by_make_fx,
)
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

import triton_dist
from triton_dist import kernels
from triton_dist.kernels import functional, moe

OPS: Any = torch.ops.triton_dist


def check_sizes_of_all_kinds(world: Any) -> None:
    """One element, none, primes, odd bytes, and more than goes through slots, one after the other in one workspace."""
    n = world.n_pes
    for size in (0, 1, 7, 33_001, 13):
        for dtype in (torch.bfloat16, torch.uint8, torch.int64) if size < 1000 else (torch.bfloat16,):
            mine = (torch.arange(size) % 100 + world.pe).to(dtype)
            same(functional.all_gather(mine), torch.cat([(torch.arange(size) % 100 + pe).to(dtype) for pe in range(n)]))
            exchanged = functional.all_to_all(mine.repeat(n))
            same(exchanged, torch.cat([(torch.arange(size) % 100 + pe).to(dtype) for pe in range(n)]))
        mine = torch.full((size,), float(world.pe + 1)).bfloat16()
        same(functional.all_reduce(mine), torch.full((size,), n * (n + 1) / 2).bfloat16())
        same(functional.reduce_scatter(mine.repeat(n)), torch.full((size,), n * (n + 1) / 2).bfloat16())


def check_results_do_not_alias(world: Any) -> None:
    """What a call returned stays as it is when the next one uses the workspace."""
    a, b = whole(2 * world.n_pes, 4), whole(4, 3, seed=world.pe)
    for call in (
        lambda x: functional.gemm_all_reduce(x, b),
        lambda x: functional.gemm_all_scatter(x, b),
        lambda x: functional.all_gather_gemm(x, b, return_gathered=True)[1],
        lambda x: functional.all_gather(x.repeat(5000, 1)),
    ):
        first = call(a)
        copy = first.clone()
        call(a + 1)
        assert torch.equal(first, copy)


def check_symmetric_tensors_as_operands(world: Any) -> None:
    """They may be parameters, wrapped by nothing, and be dropped: operators keep no symmetric memory of the caller."""
    weight = torch.nn.Parameter(triton_dist.from_tensor(whole(5, 4)))
    x = triton_dist.from_tensor(whole(2 * world.n_pes, 4, seed=world.pe))
    y = functional.gemm_reduce_scatter(x, weight.t())
    y.sum().backward()
    assert weight.grad is not None
    compiled = torch.compile(lambda t: functional.all_reduce(t) * 2, backend="aot_eager", fullgraph=True)
    same(compiled(x), 2 * functional.all_reduce(x))
    free = world.heap_free
    del weight, x, y, compiled
    torch._dynamo.reset()
    gc.collect()
    triton_dist.collect()
    assert world.heap_free > free


def check_fp8(world: Any) -> None:
    a, b = whole(2 * world.n_pes, 16).to(torch.float8_e4m3fn), whole(16, 8, seed=1).to(torch.float8_e5m2)
    scale = torch.tensor(0.5)
    plain = kernels.all_gather_gemm(a, b, scale_a=scale, scale_b=2.0)
    assert torch.equal(functional.all_gather_gemm(a, b, scale_a=scale, scale_b=torch.tensor(2.0)), plain)
    for name in ("all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce", "gemm_all_scatter"):
        form = getattr(functional, name)
        found = form(a, b, scale_a=0.5, scale_b=2)
        assert torch.equal(found, form(a, b, scale_a=scale, scale_b=torch.tensor(2.0))), name
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda a, b: kernels.all_gather_gemm(a, b, scale_a=scale, scale_b=2.0), backend="aot_eager", fullgraph=True
    )
    assert torch.equal(compiled(a, b), plain) and plain.dtype == torch.bfloat16
    out = functional.gemm_reduce_scatter(a, b, out_dtype=torch.float32)
    assert out.dtype == torch.float32
    with raises(ValueError, "operands of torch.float8_e4m3fn have no gradient here"):
        functional.all_gather_gemm(a.detach().requires_grad_(), b)


def check_mistakes(world: Any) -> None:
    n = world.n_pes
    a, b = torch.ones(2 * n, 3), torch.ones(3, 5)
    with raises(ValueError, rf"the group has {n + 1} members, and the world has {n} PEs"):
        OPS.all_reduce(a, "sum", n + 1, "")
    with raises(ValueError, "all_gather_gemm: there is no process group named 'tp'"):
        functional.all_gather_gemm(a, b, group="tp")
    with raises(ValueError, "all_gather_gemm: a must have two dimensions or more", r"\(6,\)|\(\d+, 3\)"):
        functional.all_gather_gemm(a, torch.ones(4, 5))
    with raises(ValueError, r"gather_dim must be in \[0, 1\), got 1"):
        functional.all_gather_gemm(a, b, 1)
    with raises(ValueError, "gemm_reduce_scatter: reduce_op must be 'sum', got 'avg'"):
        functional.gemm_reduce_scatter(a, b, "avg")
    with raises(ValueError, "reduce_scatter: op must be 'sum', 'max', 'min', 'avg', got 'prod'"):
        functional.reduce_scatter(a, "prod")
    with raises(ValueError, "all_reduce: sum is of .*, got torch.int16"):
        functional.all_reduce(a.short())
    with raises(ValueError, "a is of torch.float32, and b of torch.bfloat16"):
        functional.gemm_all_reduce(a, b.bfloat16())
    with raises(ValueError, "no elements"):
        functional.all_gather_gemm(a[:, :0], b[:0])
    for call in (
        functional.all_gather_gemm,
        partial(functional.all_gather_gemm, return_gathered=True),
        functional.gemm_all_scatter,
        functional.gemm_reduce_scatter,
        functional.gemm_all_reduce,
    ):
        with raises(ValueError, r"b has no elements: its shape is \(3, 0\)"):
            call(a, b[:, :0])
    with raises(TypeError, "all_reduce: reduce_grad is of type bool, not str"):
        functional.all_reduce(a, reduce_grad="no")  # type: ignore[arg-type]
    with raises(TypeError, r"all_gather: rows is of type Optional\[int\], not float"):
        functional.all_gather(a, rows=2.5)  # type: ignore[arg-type]
    with raises(ValueError, "algorithm must be auto"):
        functional.all_gather(a, algorithm="fast")
    with raises(ValueError, "algorithm must be auto"):
        functional.all_gather_gemm(a, b, algorithm="fast")
    if n > 1:
        with raises(ValueError, rf"dimension 0 of input is {2 * n - 1}, which {n} PEs cannot share equally"):
            torch.ops.triton_dist.reduce_scatter(a[1:], "sum", 0, n, "")
        with raises(ValueError, rf"all_to_all: dimension 0 of input is {2 * n - 1}, which {n} PEs cannot"):
            functional.all_to_all(a[1:])


def check_what_is_no_dense_tensor(world: Any) -> None:
    """PyTorch's dispatcher passes on None, and sparse and nested tensors."""
    x = torch.ones(2 * world.n_pes, 8)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    for value, error, what in (
        (None, TypeError, "must be a torch.Tensor, got NoneType"),
        ([1.0], TypeError, "must be a torch.Tensor, got list"),
        (x.to_sparse(), ValueError, "is of layout torch.sparse_coo, not dense"),
        (nested, ValueError, "is nested, not dense"),
    ):
        for name in ("all_reduce", "all_to_all"):
            with raises(error, f"{name}: input {what}"):
                getattr(functional, name)(value)
        with raises(error, f"gemm_all_reduce: b {what}"):
            functional.gemm_all_reduce(x, value)
        with raises(error, "all_gather_gemm: "):
            functional.all_gather_gemm(value, x)
    assert torch.equal(functional.all_reduce(x), world.n_pes * x)


def check_dimensions_of_rows_without_elements(world: Any) -> None:
    """Forward and backward, whichever dimension of rows has none."""
    n = world.n_pes
    for shape, dim in (((0, 2 * n, 6), 1), ((n, 0, 6), 0), ((0, n, 6), 0), ((0, 6), 0)):
        for call in (functional.gemm_reduce_scatter, functional.all_gather_gemm):
            a, b = torch.ones(shape, requires_grad=True), torch.ones(6, 4, requires_grad=True)
            y = call(a, b, **{"scatter_dim" if call is functional.gemm_reduce_scatter else "gather_dim": dim})
            assert y.numel() == 0 and y.dim() == len(shape)
            y.sum().backward()
            assert a.grad.shape == a.shape
            same(b.grad, torch.zeros(6, 4))
    assert functional.norm_gemm(torch.ones(0, 3, 16), torch.ones(16, 8)).shape == (0, 3, 8)


def check_forward_mode_is_refused(world: Any) -> None:
    """No tangent is dropped in silence: the derivative would be zero."""
    x, w = torch.ones(2, 4), torch.ones(4, 4)
    calls: dict[str, Any] = {
        "all_reduce": functional.all_reduce,
        "all_gather_gemm": lambda x: functional.all_gather_gemm(x, w),
        "all_reduce_norm": lambda x: functional.all_reduce_norm(x)[0],
        "moe_grouped_gemm": lambda x: moe.functional.grouped_gemm(x, w[None], *torch.tensor([[0], [2]]).int()),
    }
    for name, call in calls.items():
        with raises(NotImplementedError, f"triton_dist::{name} has no derivative in forward mode"):
            torch.func.jvp(call, (x,), (x,))
        with forward_ad.dual_level():
            with raises(NotImplementedError, f"triton_dist::{name} has no derivative in forward mode"):
                call(forward_ad.make_dual(x, x))
            call(x)
    with raises(NotImplementedError, "all_reduce has no derivative in forward mode"):
        torch.func.jacfwd(functional.all_reduce)(x)
    n = world.n_pes
    same(torch.func.jvp(lambda y: y * functional.all_reduce(x), (x,), (x,))[1], n * x)  # of a constant


def check_tensors_without_data(world: Any) -> None:
    """A FakeTensor's address is 0 on the device that it pretends to be on."""
    fake = FakeTensorMode().from_tensor
    x, ids = torch.ones(2, 4), torch.zeros(2, 1, dtype=torch.int32)
    offsets = torch.tensor([0], dtype=torch.int32)
    for text, call in (
        ("all_reduce: a FakeTensor", lambda: kernels.all_reduce(fake(x))),
        ("all_gather_gemm: a FakeTensor", lambda: kernels.all_gather_gemm(x, fake(x.t()))),
        ("gemm_all_reduce: a FakeTensor", lambda: kernels.gemm_all_reduce(x, x.t(), fake(torch.ones(2, 2)))),
        ("all_reduce_norm: a FakeTensor", lambda: kernels.all_reduce_norm(fake(x))),
        ("dispatch: x: a FakeTensor", lambda: moe.dispatch(fake(x), ids, num_experts=world.n_pes, max_tokens=2)),
        ("grouped_gemm: b: a FakeTensor", lambda: moe.grouped_gemm(x, fake(torch.ones(1, 4, 4)), offsets, offsets)),
    ):
        with raises(TypeError, text, "has no memory of its own"):
            call()
    mode = FakeTensorMode()
    assert functional.all_gather_gemm(mode.from_tensor(x), mode.from_tensor(x.t())).shape == (2 * world.n_pes, 2)


def check_flops_are_counted(world: Any) -> None:
    """By ``FlopCounterMode``, forward and backward: those of this PE, three times as many as forward's with gradients
    of both operands, and twice as many with those of one."""
    n, k, columns = world.n_pes, 8, 16
    of_one = 2 * 6 * n * k * columns  # of six rows a PE
    a, b, c = torch.ones(2, 3, k), torch.ones(k, columns), torch.ones(columns, k)
    wide = torch.ones(6 * n, columns)
    calls: dict[str, tuple[Any, int]] = {
        "all_gather_gemm": (lambda: functional.all_gather_gemm(a, b, gather_dim=1), of_one),
        "and gathered": (lambda: functional.all_gather_gemm(a, b, return_gathered=True)[0], of_one),
        "swiglu": (lambda: functional.all_gather_gemm(a, b, activation="swiglu"), of_one),
        "gemm_reduce_scatter": (lambda: functional.gemm_reduce_scatter(wide, c), of_one),
        "gemm_all_reduce": (lambda: functional.gemm_all_reduce(wide, c), of_one),
        "gemm_all_scatter": (lambda: functional.gemm_all_scatter(wide, c), of_one),
        "replicated_gemm": (lambda: functional.replicated_gemm(wide, c), of_one),
        "norm_gemm": (lambda: functional.norm_gemm(wide, c), of_one),
        "all_gather": (lambda: functional.all_gather(wide), 0),
    }
    for name, (call, expected) in calls.items():
        with FlopCounterMode(display=False) as counted:
            call()
        assert counted.get_total_flops() == expected, (name, counted.get_flop_counts())
    for of_both in (True, False):
        leaf, weight, second = a.clone().requires_grad_(), b.clone(), c.clone()
        weight.requires_grad_(of_both)
        second.requires_grad_(of_both)
        with FlopCounterMode(display=False) as counted:
            hidden = functional.all_gather_gemm(leaf, weight, gather_dim=1)
            functional.gemm_reduce_scatter(hidden, second, scatter_dim=1).sum().backward()
        assert counted.get_total_flops() == (6 if of_both else 4) * of_one, counted.get_flop_counts()


def main() -> None:
    run(globals())
    # The world of run() has ended.
    for call in (functional.all_reduce, torch.compile(functional.all_reduce, backend="aot_eager", fullgraph=True)):
        torch._dynamo.reset()
        with raises(RuntimeError, "there is no world: call triton_dist.init()"):
            call(torch.ones(2))
    print("passed: no_world", flush=True)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(functional.all_gather, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        with triton_dist.init() as world:
            for _ in range(2):
                same(compiled(torch.ones(2)), torch.ones(2 * world.n_pes))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    print("passed: one_graph_for_worlds_of_a_size", flush=True)
    with triton_dist.init():
        x = torch.ones(2, requires_grad=True)
        y = functional.all_reduce(x)
    with raises(RuntimeError, "there is no world: call triton_dist.init()"):
        y.sum().backward()
    print("passed: backward_after_finalize", flush=True)


def check_views_that_begin_between_words(world: Any) -> None:
    """Kernels load words of 4 bytes. Views of 16-bit floats may begin between them, as autograd's gradient of a cat."""
    n = world.n_pes
    whole = torch.arange(8 * n + 1).remainder(5).bfloat16()
    view = whole[1:]
    mine = slice(8 * world.pe, 8 * (world.pe + 1))
    assert view.data_ptr() % 4 == 2
    assert torch.equal(functional.all_reduce(view), n * view)
    assert torch.equal(functional.all_gather(view), view.repeat(n))
    assert torch.equal(functional.reduce_scatter(view), n * view[mine])
    assert torch.equal(functional.all_to_all(view), view[mine].repeat(n))
    x, head = torch.ones(8, dtype=torch.bfloat16, requires_grad=True), torch.ones(1, dtype=torch.bfloat16)
    (torch.cat([head, functional.all_reduce(x)]) * whole[:9]).sum().backward()
    assert torch.equal(x.grad, n * whole[1:9])
    columns = torch.ones(5, 9).bfloat16()[:, 1:]
    shard = columns[2 * world.pe : 2 * world.pe + 2] if n == 3 else columns
    found = kernels.all_gather_gemm(shard, torch.ones(8, 4).bfloat16(), **({"rows": 5} if n == 3 else {}))
    assert torch.equal(found, torch.full_like(found, 8.0))


if __name__ == "__main__":
    main()
