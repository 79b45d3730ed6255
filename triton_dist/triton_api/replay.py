"""Calls of Triton's builtins in interpreted kernels: what the front end decides is recorded once, then replayed.

``a + b`` in a kernel calls the front end, which checks and promotes the operands' types, broadcasts their shapes, and
has the builder do one operation or a few. Its decisions depend on types and constants only, as in the compiler, so they
are made at the first call with operands of these types and with these constants. Later calls do the builder's
operations alone: the front end takes most of the time of an interpreted kernel.

While a call is recorded, the front end is given a :class:`_Symbol` for each handle. A builtin that looks at the data of
a handle, which only the interpreter has, is not replayed.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any

import triton.language as tl
from triton.runtime import interpreter as stock

__all__ = ["is_recorded", "replayed"]

_MOST = 1 << 10
"""The number of different calls of a builtin that are kept."""
_FOLDED = 1 << 10
"""The number of elements of the largest block that is kept as a constant."""

_HANDLE_TYPES = "TensorHandle", "BlockPointerHandle", "TensorDescHandle"
_HANDLES = tuple(getattr(stock, name) for name in _HANDLE_TYPES if hasattr(stock, name))
_CONSTANTS = int, bool, str, type(None)
_UNKNOWN: Any = object()
_builder = stock.interpreter_builder


def replayed(builtin: Callable[..., Any]) -> Callable[..., Any]:
    """``builtin`` as interpreted kernels call it: with the interpreter's semantic."""
    plans: dict[tuple[Any, ...], _Plan | None] = {}
    tensor = tl.tensor

    @functools.wraps(builtin)
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("_semantic", None)
        semantic = stock.interpreter_semantic
        if semantic.builder is not _builder:  # part of a call that is recorded
            return builtin(*args, **kwargs, _semantic=semantic)
        key: list[Any] = []
        operands: list[tl.tensor] = []
        try:
            for arg in args:
                if type(arg) is tensor:
                    operands.append(arg)
                    try:  # as ``_identity``, which is called for the first of a type
                        key.append(arg.type._triton_dist_identity)
                    except AttributeError:
                        key.append(_identity(arg.type))
                else:
                    _describe(arg, key, operands)
            for name, arg in kwargs.items():
                key.append(name)
                _describe(arg, key, operands)
        except _OtherError:
            return builtin(*args, **kwargs, _semantic=semantic)
        plan = plans.get(tuple(key), _UNKNOWN)
        if plan is None:
            return builtin(*args, **kwargs, _semantic=semantic)
        if plan is not _UNKNOWN:
            return plan(operands)
        result, plan = _recorded(builtin, args, kwargs)
        if len(plans) >= _MOST:
            plans.clear()
        plans[tuple(key)] = plan
        return result

    return call


def is_recorded(tensor: tl.tensor) -> bool:
    """Whether the tensor stands for one of a call that is recorded, so that nothing may depend on its data."""
    return type(tensor.handle) is _Symbol


# ---- which calls are alike


class _OtherError(Exception):
    """An argument of a kind of which it is not known what the front end looks at."""


def _describe(arg: Any, key: list[Any], operands: list[tl.tensor]) -> None:
    """Append to ``key`` all of an argument that the front end may decide by, and to ``operands`` its tensors."""
    kind = type(arg)
    if kind is tl.tensor:
        operands.append(arg)
        key.append(_identity(arg.type))
        return
    key.append(kind)
    if kind in _CONSTANTS:
        key.append(arg)
    elif kind is float:
        key.append(arg.hex())  # tells -0.0 from 0.0, and a NaN equals itself
    elif kind in (tuple, list):
        key.append(len(arg))
        for part in arg:
            _describe(part, key, operands)
    elif kind is slice:
        if not {type(arg.start), type(arg.stop), type(arg.step)} <= {int, type(None)}:
            raise _OtherError
        key += arg.start, arg.stop, arg.step
    elif kind is tl.constexpr and not isinstance(arg.value, (tl.core.base_value, tuple, list)):
        _describe(arg.value, key, operands)
    elif isinstance(arg, tl.dtype):
        key.append(_identity(arg))
    elif isinstance(arg, enum.Enum):
        key.append(id(arg))
    else:
        raise _OtherError


def _identity(kind: tl.dtype) -> object:
    """The same object for equal types, which take long to compare."""
    try:
        return kind._triton_dist_identity
    except AttributeError:
        kind._triton_dist_identity = _identity_of(_structure(kind))
        return kind._triton_dist_identity


@functools.cache
def _identity_of(structure: tuple[Any, ...]) -> object:
    return object()


def _structure(kind: tl.dtype) -> tuple[Any, ...]:
    if type(kind) is tl.dtype:
        return (kind.name,)
    if type(kind) is tl.pointer_type:
        return _identity(kind.element_ty), kind.address_space, kind.const
    if type(kind) is tl.block_type:
        return _identity(kind.element_ty), tuple(kind.shape)
    raise _OtherError


# ---- recording


class _Symbol:
    """A handle that the front end passes on without looking into it. If it does look, the call is not replayed."""

    __slots__ = ("handle", "place", "recording")

    def __init__(self, recording: _Recording, handle: Any, place: int) -> None:
        self.recording, self.handle, self.place = recording, handle, place

    def __getattr__(self, name: str) -> Any:
        self.recording.fails = True
        return getattr(self.handle, name)


@dataclass(frozen=True)
class _Constant:
    """An argument of a step that is the same in all calls."""

    value: Any


@dataclass(frozen=True)
class _Step:
    """Something that the builder was asked to do."""

    name: str
    method: Callable[..., Any]
    arguments: list[_Symbol | _Constant]
    result: Any


class _Recording:
    """Takes the builder's place for one call. It has the builder do what it is asked to do, and records it."""

    def __init__(self) -> None:
        self.fails = False
        """Whether the call cannot be replayed."""
        self.operands: list[tl.tensor] = []
        """The call's tensors, with symbols for handles. Their places are the first, those of steps follow."""
        self.steps: list[_Step] = []

    def argument(self, value: Any) -> Any:
        """What the front end gets for an argument of the call."""
        if type(value) is tl.tensor:
            self.operands.append(_tensor(vars(value), _Symbol(self, value.handle, len(self.operands))))
            return self.operands[-1]
        if type(value) in (tuple, list):
            return type(value)(map(self.argument, value))
        return value

    def __getattr__(self, name: str) -> Any:
        found = getattr(_builder, name)
        if callable(found):
            return functools.partial(self._do, name, found)
        self.fails |= name not in ("options", "codegen_fns")  # these do not change
        return found

    def _do(self, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        stock.interpreter_semantic.builder = _builder  # for other programs, which the operation may let run
        try:
            result = method(*_real(args), **_real(kwargs))
        finally:
            stock.interpreter_semantic.builder = self
        if isinstance(result, tl.dtype):  # for other steps a constant
            return result
        self.fails |= bool(kwargs)
        symbol = self._step(name, method, args, result)
        if isinstance(result, _HANDLES):
            return symbol
        if isinstance(result, tuple) and all(isinstance(part, _HANDLES) for part in result):
            return tuple(self._step("part", getitem, (symbol, i), part) for i, part in enumerate(result))
        self.fails |= result is not None
        return result

    def _step(self, name: str, method: Callable[..., Any], args: Iterable[Any], result: Any) -> _Symbol:
        if self.fails:  # and may poll for long
            return _Symbol(self, result, -1)
        self.steps.append(_Step(name, method, [self._taken(arg) for arg in args], result))
        return _Symbol(self, result, len(self.operands) + len(self.steps) - 1)

    def _taken(self, arg: Any) -> _Symbol | _Constant:
        if isinstance(arg, _Symbol):
            return arg
        if isinstance(arg, (tuple, list)) and any(isinstance(part, (_Symbol, *_HANDLES)) for part in arg):
            return self._step("list", _listed, arg, None)
        self.fails |= isinstance(arg, _HANDLES)  # of unknown origin
        return _Constant(arg)


def _listed(*parts: Any) -> list[Any]:
    return list(parts)


def _real(value: Any) -> Any:
    """``value`` with handles in place of symbols. Objects of the language are changed, others are new."""
    if isinstance(value, _Symbol):
        return value.handle
    if type(value) in (tuple, list):
        return type(value)(map(_real, value))
    if type(value) is dict:
        return {name: _real(part) for name, part in value.items()}
    if isinstance(value, tl.core.base_value) and not isinstance(value, tl.constexpr):
        vars(value).update(_real(vars(value)))
    return value


def _recorded(builtin: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, _Plan | None]:
    """The result of a call, and how to make it again; None if only the front end can."""
    recording = _Recording()
    arguments = [recording.argument(arg) for arg in args]
    named = {name: recording.argument(arg) for name, arg in kwargs.items()}
    stock.interpreter_semantic.builder = recording
    try:
        result = builtin(*arguments, **named, _semantic=stock.interpreter_semantic)
    finally:
        stock.interpreter_semantic.builder = _builder
    plan = None
    if not recording.fails and _is_known(result):
        plan = _plan_of(recording, result)
    originals = [part for arg in (*args, *kwargs.values()) for part in _tensors(arg)]
    for original, operand in zip(originals, recording.operands, strict=True):
        if result is operand:
            return original, plan
    return _real(result), plan


def _tensors(arg: Any) -> Iterable[tl.tensor]:
    if type(arg) is tl.tensor:
        yield arg
    elif type(arg) in (tuple, list):
        for part in arg:
            yield from _tensors(part)


def _is_known(result: Any) -> bool:
    """Whether it is a kind of result that a plan can make."""
    if type(result) is tl.tensor:
        return result.handle is None or isinstance(result.handle, _Symbol)
    if type(result) is tuple:
        return all(type(part) is tl.tensor and _is_known(part) for part in result)
    return type(result) in (*_CONSTANTS, float) or isinstance(result, tl.dtype)


def _tensor(attributes: Mapping[str, Any], handle: Any) -> tl.tensor:
    """Without what ``tl.tensor`` finds out about its type."""
    tensor = object.__new__(tl.tensor)
    own = tensor.__dict__
    own.update(attributes)
    own["handle"] = handle
    return tensor


# ---- replaying

_Plan = Callable[[Sequence[tl.tensor]], Any]
"""Makes a recorded call again, with the tensors of another call that is like it."""


def _plan_of(recording: _Recording, result: Any) -> _Plan:
    """``result``: what the call returned, with symbols for handles.

    A plan is a function that is written here, as going through a list of steps takes longer than most of them. Plans
    that differ in methods and constants only share its code.
    """
    first = len(recording.operands)
    results = {part.handle.place for part in _tensors(result) if part.handle is not None}
    folded: dict[int, Any] = {}
    names: dict[str, Any] = {"new": object.__new__, "kind": tl.tensor}
    lines: list[str] = []
    used = {place for place in results if place < first}

    def named(value: Any) -> str:
        name = f"v{len(names)}"
        names[name] = value
        return name

    def taken(arg: _Symbol | _Constant) -> str:
        if isinstance(arg, _Constant):
            return named(arg.value)
        if arg.place in folded:
            return named(folded[arg.place])
        if arg.place < first:
            used.add(arg.place)
        return f"h{arg.place}"

    for place, step in enumerate(recording.steps, first):
        known = all(isinstance(arg, _Constant) or arg.place in folded for arg in step.arguments)
        if known and place not in results and _is_pure(step):
            folded[place] = step.result
        else:
            lines.append(f"h{place} = {named(step.method)}({', '.join(map(taken, step.arguments))})")
    parts = [_made(part, recording.operands, lines, named) for part in (result if type(result) is tuple else (result,))]
    lines = [*(f"h{place} = operands[{place}].handle" for place in sorted(used)), *lines]
    several = "".join(f"{part}, " for part in parts)
    lines.append(f"return ({several})" if type(result) is tuple else f"return {parts[0]}")
    exec(_compiled("\n ".join(["def plan(operands):", *lines])), names)
    plan: _Plan = names["plan"]
    return plan


@functools.cache
def _compiled(source: str) -> Any:
    return compile(source, __file__, "exec")


def _made(result: Any, operands: Sequence[tl.tensor], lines: list[str], named: Callable[[Any], str]) -> str:
    """The name of a result in a plan, behind the lines that make it."""
    for i, operand in enumerate(operands):
        if result is operand:
            return f"operands[{i}]"
    if type(result) is not tl.tensor:
        return named(result)
    # Without what ``tl.tensor`` finds out about its type.
    attributes = named({name: value for name, value in vars(result).items() if name != "handle"})
    handle = "None" if result.handle is None else f"h{result.handle.place}"  # None: of a store
    tensor = f"t{attributes}"
    lines.append(f"{tensor} = new(kind); own = {tensor}.__dict__; own.update({attributes}); own['handle'] = {handle}")
    return tensor


def _is_pure(step: _Step) -> bool:
    """Whether it makes a small constant of constants, and does nothing else."""
    if not step.name.startswith("get_") and step.name not in ("create_splat", "create_broadcast", "create_make_range"):
        return False
    return isinstance(step.result, stock.TensorHandle) and step.result.data.size <= _FOLDED
