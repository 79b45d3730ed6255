"""Operators are called without PyTorch's dispatcher where it would do nothing, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from triton_dist.kernels import functional
from triton_dist.kernels.functional import operator as module
from triton_dist.kernels.functional import repeats

_SCHEMA = (
    "(Tensor x, float factor, str name, Tensor? y=None, bool negate=False, ScalarType? dtype=None, SymInt? n=None)"
    " -> Tensor"
)
_NAME = "scaled_for_tests"


def _scaled(
    x: torch.Tensor,
    factor: float,
    name: str,
    y: torch.Tensor | None = None,
    negate: bool = False,
    dtype: torch.dtype | None = None,
    n: int | None = None,
) -> torch.Tensor:
    result = x * (-factor if negate else factor)
    return (result if y is None else result + y).to(dtype or x.dtype)


_OPERATOR = module.Operator(_scaled, _NAME, _SCHEMA)


@_OPERATOR.register_fake
def _fake(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return torch.empty_like(x)


_OPERATOR.register_autograd(
    lambda ctx, grad: (grad * ctx.factor, *[None] * 6),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
)

X = torch.arange(4.0)


@pytest.fixture
def dispatched(monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Whether a call goes through the dispatcher; what it returns or raises is what the dispatcher's does."""
    seen: list[str] = []
    overload = getattr(torch.ops.triton_dist, _NAME)

    class Operators:
        def __getattr__(self, name: str) -> Any:
            seen.append(name)
            return getattr(torch.ops.triton_dist, name)

    def outcome(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def is_dispatched(*arguments: Any) -> bool:
        seen.clear()
        monkeypatch.setattr(module, "_ops", Operators())
        found = outcome(lambda: _OPERATOR(*arguments))
        expected = outcome(lambda: overload(*arguments))
        if isinstance(expected, str):
            assert found == expected
        else:
            torch.testing.assert_close(found, expected, equal_nan=True)
            assert (found.requires_grad, found.is_meta) == (expected.requires_grad, expected.is_meta)
        return bool(seen)

    return is_dispatched


def test_plain_arguments_need_no_dispatcher(dispatched: Callable[..., bool]) -> None:
    assert not dispatched(X, 2.0, "a")
    assert not dispatched(X, 2.0, "a", X, True, torch.float64, 3)
    assert not dispatched(X, 2.0, "a", None, False, None, None)
    wanting = X.clone().requires_grad_()
    with torch.no_grad():
        assert not dispatched(torch.nn.Parameter(X), 2.0, "a", wanting)
    with torch.inference_mode():
        assert not dispatched(wanting, 2.0, "a")


def test_what_the_dispatcher_converts_or_refuses_is_its(dispatched: Callable[..., bool]) -> None:
    for arguments in (
        (X, 2, "a"),  # an int for a float
        (X, torch.tensor(2.0), "a"),
        (X, 2.0, 3),
        (X, None, "a"),
        (X, 2.0, "a", 1.0),
        (X, 2.0, "a", None, 1),
        (X, 2.0, "a", None, None),
        (X, 2.0, "a", None, False, "float32"),
        (X, 2.0, "a", None, False, None, 1.5),
        (X, 2.0, "a", None, False, None, None, 0),
        (X.to("meta"), 2.0, "a"),
        (torch.complex(X, X).conj(), 2.0, "a"),
        (torch.complex(X, X).conj().imag, 2.0, "a"),
    ):
        assert dispatched(*arguments), arguments


@pytest.mark.parametrize(
    ("given", "error", "what"),
    [
        (None, TypeError, "x must be a torch.Tensor, got NoneType"),
        ([1.0], TypeError, "x must be a torch.Tensor, got list"),
        (X.to_sparse(), ValueError, "x is of layout torch.sparse_coo, not dense"),
        (torch.nested.nested_tensor([X, X]), ValueError, "x is nested, not dense"),
    ],
    ids=["None", "list", "sparse", "nested"],
)
def test_what_is_no_dense_tensor_is_refused_by_its_name(given: Any, error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=f"^scaled_for_tests: {what}$"):
        _OPERATOR(given, 2.0, "a")


def test_gradients_are_recorded(dispatched: Callable[..., bool]) -> None:
    x = X.clone().requires_grad_()
    assert dispatched(x, 2.0, "a")
    assert dispatched(torch.nn.Parameter(X), 2.0, "a")
    _OPERATOR(x, 3.0, "a").sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3.0] * 4


def test_whoever_observes_operators_sees_the_call(dispatched: Callable[..., bool]) -> None:
    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    for mode in (Dispatch, Function):
        seen: list[str] = []
        with mode():
            assert dispatched(X, 2.0, "a")
        assert any(_NAME in name for name in seen), mode
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        assert dispatched(X, 2.0, "a")
        _OPERATOR(X, 2.0, "a")
    assert any(_NAME in event.key for event in profile.key_averages())
    traced = torch.jit.trace(lambda x: _OPERATOR(x, 2.0, "a"), X)  # type: ignore[no-untyped-call]
    assert _NAME in str(traced.graph)
    with forward_ad.dual_level():
        assert dispatched(X, 2.0, "a")
        assert dispatched(forward_ad.make_dual(X, X), 2.0, "a")
    found = torch.func.vmap(lambda x: torch.tensor(dispatched(X, 2.0, "a")))(X)
    assert found.all()
    assert not dispatched(X, 2.0, "a")


def test_subclasses_are_dispatched(dispatched: Callable[..., bool]) -> None:
    class Subclass(torch.Tensor):
        pass

    assert dispatched(X.as_subclass(Subclass), 2.0, "a")


def test_a_type_that_is_not_known_is_dispatched() -> None:
    (numbers, tensor) = module._kinds_of("(int[] sizes, Tensor? x=None) -> Tensor")
    assert not numbers and tensor == {torch.Tensor, torch.nn.Parameter, type(None)}


def test_a_compiled_graph_holds_the_operator() -> None:
    """Also if it was compiled where nothing observes operators. (Without a world the fake of all_reduce refuses.)"""
    seen: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        seen.extend(node.target for node in graph.graph.nodes)
        return graph

    function = torch.compile(functional.norm_gemm, backend=backend, fullgraph=True)
    with pytest.raises(RuntimeError, match="there is no world"):
        function(torch.ones(2, 16), torch.ones(16, 8))
    assert any("norm_gemm" in str(target) for target in seen)


def test_process_groups_are_looked_up_in_every_call() -> None:
    """One that was destroyed is refused by functional calls, also by those that C++ makes again."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        group = torch.distributed.new_group([0])
        found = repeats._guards(group)[0]
        assert found.object() is found.expected is group
        torch.distributed.destroy_process_group(group)
        with pytest.raises((LookupError, RuntimeError)):
            found.object()
    finally:
        torch.distributed.destroy_process_group()
    assert not repeats._guards("a name") and repeats._guards(None)


def test_every_function_has_its_operator() -> None:
    assert functional._OPERATORS.keys() >= set(functional.__all__)
