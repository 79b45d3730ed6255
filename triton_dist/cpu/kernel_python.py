"""Python's control flow in interpreted kernels, with the semantics and the errors of Triton's compiler.

A kernel is plain Python to Triton's interpreter: ``a and b`` of two blocks is ``b``, ``if block`` is always taken. So
:mod:`~triton_dist.cpu.kernel_source` has kernels call these functions instead. Each implements a method of
``triton.compiler.code_generator.CodeGenerator``, named in its docstring. Every value but a
:class:`triton.language.tensor` is a compile-time constant (a ``constexpr`` for the compiler).
"""

from __future__ import annotations

import builtins
import functools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import numpy as np
import triton.language as tl

from triton_dist.cpu.program import running
from triton_dist.triton_api import front_end, interpreter
from triton_dist.triton_api.interpreter import TensorHandle

__all__ = [
    "assigned",
    "chained",
    "check_that",
    "either",
    "elements",
    "iterate",
    "joined",
    "keeps_on",
    "logical",
    "maximum",
    "minimum",
    "negation",
    "refuse",
    "refuse_name",
    "static_assert",
    "truth",
    "unwrapped",
]

_STATIC_RANGE, _RANGE = tl.core.static_range, tl.core.range
_semantic = interpreter.semantic()


def refuse(message: str) -> NoReturn:
    """``CodeGenerator._unsupported``; the launch adds the line."""
    front_end.refuse_construct(f"{message} (Triton's compiler refuses it)")


def refuse_name(message: str) -> NoReturn:
    """``CodeGenerator.dereference_name``."""
    raise NameError(message)


def elements(value: Any) -> Any:
    """``visit_ListComp``: what a comprehension goes through."""
    if not isinstance(value, (tuple, tl.tuple)):
        refuse("only tuple comprehensions are supported")
    return value


def unwrapped(value: Any) -> Any:
    """``_unwrap_if_constexpr``, for ``is`` and ``is not``."""
    return value.value if isinstance(value, tl.constexpr) else value


def logical(operation: str, *operands: Callable[[], Any], of_blocks: bool = False) -> Any:
    """``visit_BoolOp``: tensor operands are all evaluated and combined; constants may short-circuit.

    ``operation`` is ``"logical_and"`` or ``"logical_or"``. ``of_blocks``: blocks are meant, so nothing warns of them.
    """
    tensors, value = [], None
    for operand in operands:
        value = operand()
        if isinstance(value, tl.tensor):
            tensors.append(value)
        elif bool(value) == (operation == "logical_or"):
            return value
    if not tensors:
        return value
    if not of_blocks and any(tensor.type.is_block() for tensor in tensors):
        frame = sys._getframe(1)
        text = "'and' and 'or' are deprecated for non-scalar tensors; please use '&' or '|' instead"
        once = frame.f_globals.setdefault("__warningregistry__", {})
        where = frame.f_code.co_filename, frame.f_lineno
        warnings.warn_explicit(f"Logical operators {text}", UserWarning, *where, registry=once)
    combined = tensors.pop()
    while tensors:
        combined = getattr(_semantic, operation)(tensors.pop(), combined)
    return combined


def chained(first: Any, *links: tuple[Callable[[Any, Any], Any], Callable[[], Any]]) -> Any:
    """``visit_Compare`` since Triton 3.9: ``a < b < c`` evaluates ``b`` once. A link: an operator, an operand."""
    left = first

    def holds(compare: Callable[[Any, Any], Any], operand: Callable[[], Any]) -> Any:
        nonlocal left
        before, left = left, operand()
        return compare(before, left)

    return logical("logical_and", *(functools.partial(holds, *link) for link in links), of_blocks=True)


def negation(value: Any) -> Any:
    """``visit_UnaryOp`` of ``not``."""
    return _semantic.not_(value) if isinstance(value, tl.tensor) else not value


def truth(condition: Any, *, returns_from_loop: bool = False) -> bool:
    """``visit_If``. ``returns_from_loop``: the statement is in a loop and contains a ``return``."""
    if not isinstance(condition, tl.tensor):
        condition = unwrapped(condition)
        if type(condition) not in front_end.CONDITION_TYPES:
            names = ", ".join(sorted(kind.__name__ for kind in front_end.CONDITION_TYPES))
            refuse(f"conditionals can only accept values of type {{{names}}}, not objects of type {type(condition)}")
        return bool(condition)
    if returns_from_loop:
        refuse("Cannot have `return` statements inside `while` or `for` statements in triton.")
    return _scalar_truth(condition)


def _scalar_truth(condition: Any) -> bool:
    if condition.handle.data.size != 1:
        refuse("Boolean value of Tensor with more than one value is ambiguous")
    if condition.dtype.is_floating():
        condition = _semantic.cast(condition, tl.int1)
    return bool(condition.handle.data.item())


def either(condition: Any, chosen: Callable[[], Any], other: Callable[[], Any]) -> Any:
    """``visit_IfExp``: ``chosen() if condition else other()``."""
    value = (chosen if truth(condition) else other)()
    return _semantic.to_tensor(value) if isinstance(condition, tl.tensor) else value


def keeps_on(condition: Any) -> bool:
    """``visit_While``: whether the loop has another iteration."""
    if isinstance(condition, tl.core.condition):
        condition = condition.condition
    if not isinstance(condition, tl.tensor):
        refuse(f"the condition of a `while` must be a run-time value; this is the constant {condition!r}")
    if condition.type.is_block() or not (condition.type.scalar.is_int1() or front_end.WHILE_TAKES_NUMBERS):
        refuse(f"the condition of a `while` must be a scalar of type int1, such as a comparison; got {condition.type}")
    return _scalar_truth(condition)


def check_that(condition: Any, message: Callable[[], Any]) -> None:
    """``visit_Assert``, which emits ``tl.device_assert``. In the CPU world it is always enabled, as in Python."""
    holds = condition.handle.data.all() if isinstance(condition, tl.tensor) else bool(condition)
    if not holds:
        raise AssertionError(message())


def static_assert(cond: Any, msg: Any = "") -> None:
    """``execute_static_assert``."""
    if not isinstance(unwrapped(cond), bool):
        raise NotImplementedError(
            "Assertion condition could not be determined at compile-time. Make sure that it depends only on `constexpr`"
            " values"
        )
    assert unwrapped(cond), unwrapped(msg)


def assigned(value: Any) -> Any:
    """``visit_Assign``: the value of the variable after ``name = value``. Numbers become tensors."""
    if isinstance(value, tl.tensor) or value is None:
        return value
    value = unwrapped(value)
    if isinstance(value, tuple):
        return front_end.tuple_like(value, map(assigned, value))
    if isinstance(value, list):
        return tuple(map(assigned, value))
    if isinstance(value, tl.tuple):
        return tl.tuple([assigned(item) for item in value.values], value.type)
    if value is None or isinstance(value, (tl.core.base_value, tl.dtype)):
        return value
    return _semantic.to_tensor(value)


def joined(first: tuple[Any, ...], second: Any) -> Any:
    """``[…] + second``, which may be a tuple of Triton's: the shape of a tensor or of a descriptor's blocks."""
    return first + tuple(second.values) if isinstance(second, tl.tuple) else first + second


def minimum(*values: Any, **options: Any) -> Any:
    """Python's ``min``."""
    return tl.core.builtin_min(*values, **options, _semantic=_semantic)


def maximum(*values: Any, **options: Any) -> Any:
    """Python's ``max``."""
    return tl.core.builtin_max(*values, **options, _semantic=_semantic)


# ---- for


def iterate(iterator: Any, *bounds: Any, **options: Any) -> Iterable[Any]:
    """``visit_For`` over ``iterator(*bounds, **options)``."""
    if iterator is _STATIC_RANGE:
        return _unrolled(*bounds, **options)
    if iterator is _RANGE:
        return _counted(*_of_range(*bounds, **options))
    if iterator is builtins.range:
        return _counted(*((0, *bounds) if len(bounds) == 1 else bounds))
    raise RuntimeError("Only `range` and `static_range` iterators are currently supported")


def _unrolled(arg1: Any, arg2: Any = None, step: Any = None) -> range:
    bounds = {"start": 0, "end": arg1} if arg2 is None else {"start": arg1, "end": arg2}
    bounds = {name: unwrapped(value) for name, value in (bounds | {"step": 1 if step is None else step}).items()}
    for name, value in bounds.items():
        assert not isinstance(value, tl.tensor), f"{value.type} used as tl.static_range {name} value is not a constexpr"
    return range(bounds["start"], bounds["end"], bounds["step"])


def _of_range(arg1: Any, arg2: Any = None, step: Any = None, **options: Any) -> tuple[Any, Any, Any]:
    start, end = (0, arg1) if arg2 is None else (arg1, arg2)
    return start, end, 1 if step is None else step


def _counted(start: Any, end: Any, step: Any = 1) -> Iterator[Any]:
    """The loop indices, as tensors like in the compiler."""
    backwards = not isinstance(step, tl.tensor) and unwrapped(step) < 0
    bounds = [_semantic.to_tensor(bound) for bound in (start, end, step)]
    if not all(bound.dtype.is_int() for bound in bounds):
        raise TypeError(f"For loop bounds and step must all be ints, are ({', '.join(str(b.dtype) for b in bounds)})")
    for name, bound in zip(("lower bound", "upper bound", "step"), bounds, strict=True):
        if bound.type.is_block() and bound.type.numel != 1:
            raise TypeError(f"For {name} must be a scalar, got {bound.type}")
    kind = bounds[0].dtype
    for bound in bounds[1:]:
        kind = _semantic.integer_promote_impl(kind, bound.dtype)
    first, last, by = (int(bound.handle.data.item()) for bound in bounds)
    if by == 0 or (by < 0 and not backwards):
        raise ValueError(f"the step of a `for` is {by}: it must be positive, unless it is a negative constant")
    numpy_type, program = interpreter.numpy_dtype(kind), running()
    for number in range(first, last, by):
        program.steps += 1  # a counted loop is not a polling loop
        yield tl.tensor(TensorHandle(np.array([number], numpy_type), kind), kind)
