"""Conditions on the thread's index, as loops of the program.

Triton has programs, not threads, and our operations act once per program. A Triton-distributed kernel may say

    peer = tid(0)
    if peer < n and peer != rank:
        libshmem_device.signal_wait_until(flag + peer, libshmem_device.NVSHMEM_CMP_EQ, 1)

which means: thread after thread, those for which the condition holds do what follows. Where threads do not wait for
each other, that is what a loop does, and it holds in a world without threads as well:

    for thread in range(0, n):
        if thread < n and thread != rank:
            libshmem_device.signal_wait_until(flag + thread, libshmem_device.NVSHMEM_CMP_EQ, 1)

``if tid(0) == 0:`` needs no loop. So no operation ever stands in control flow on which a program's threads differ.
An index that is used anywhere but in and under the condition of an ``if`` is an error that shows the line.

An operation that all threads of a warp, or of the program, make together (``putmem_warp``, ``putmem_block``) is one
action of theirs. The first thread of the warp for which the condition holds does it, and the others do not:

    warp = tid(0) // 32
    if warp < n:
        libshmem_device.putmem_warp(dst, src, nbytes, warp)

    _warp_0 = 0
    for thread in range(0, tid(count=True)):
        if thread % tid(warp_size=True) == 0:
            _warp_0 = 0
        if thread // 32 < n:
            if _warp_0 == 0:
                libshmem_device.putmem_warp(dst, src, nbytes, thread // 32)
            _warp_0 = 1
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from triton_dist.triton_api.front_end import CompilationError

__all__ = ["as_loops", "mentioned"]

_INDEX = "is_the_index_of_a_thread"
_GROUP = "acts_once_per"
_Node = TypeVar("_Node", bound=ast.AST)


def mentioned(fn: Callable[..., Any]) -> bool:
    """Whether a function calls ``tid``."""
    try:
        source = textwrap.dedent(inspect.getsource(fn))
    except OSError:
        return False  # Triton will say that it needs the source
    known = _Known(fn)
    return any(map(known.is_index, ast.walk(ast.parse(source))))


def as_loops(tree: ast.Module, fn: Callable[..., Any]) -> ast.Module:
    """The syntax tree of ``fn`` with each condition on a thread's index as a loop; ``tree`` itself is changed.

    Raises:
        CompilationError: the index is used in another way.
    """
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
    function.body = _Loops(function, _Known(fn), ast.unparse(tree)).block(function.body)
    return ast.fix_missing_locations(tree)


class _Known:
    """What names in a function stand for."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        assert isinstance(fn, FunctionType)
        captured = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
        self._names: dict[str, Any] = fn.__globals__ | {name: cell.cell_contents for name, cell in captured}

    def is_index(self, node: ast.AST) -> bool:
        """Whether an expression is a call of ``tid``."""
        return isinstance(node, ast.Call) and hasattr(self._value(node.func), _INDEX)

    def group(self, node: ast.AST) -> str | None:
        """ "warp" or "block" if an expression is a call that the threads of this group execute together."""
        return getattr(self._value(node.func), _GROUP, None) if isinstance(node, ast.Call) else None

    def not_for_one_thread(self, node: ast.Call) -> str | None:
        """The first operation of a called device function that one thread cannot execute; None if there is none."""
        function = getattr(self._value(node.func), "fn", None)
        return _acts_for_others(function) if isinstance(function, FunctionType) else None

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return self._names.get(node.id)
        if isinstance(node, ast.Attribute) and isinstance(module := self._value(node.value), ModuleType):
            return getattr(module, node.attr, None)
        return None


def _acts_for_others(function: FunctionType, seen: frozenset[FunctionType] = frozenset()) -> str | None:
    """A call, in a device function or one that it calls, of ``tid`` or of an operation of a warp or a block."""
    if function in seen or function.__module__.startswith("triton."):
        return None
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except OSError:
        return None
    known = _Known(function)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if known.is_index(node) or known.group(node):
            return ast.unparse(node.func)
        called = getattr(known._value(node.func), "fn", None)
        if isinstance(called, FunctionType) and (found := _acts_for_others(called, seen | {function})):
            return found
    return None


class _Loops:
    """Rewrites a function, statement by statement in the order in which they run."""

    def __init__(self, function: ast.FunctionDef, known: _Known, source: str) -> None:
        self._known = known
        self._source = source
        self._stores = Counter(_stored(function))
        self._stores.update(node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg))
        self._per_thread: dict[str, ast.expr | None] = {}
        """Names that stand, here, for a thread's value: that value in terms of ``tid``, None if that is not sure."""
        self._count = 0

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Statements of the program."""
        rewritten = [new for statement in statements for new in self._statement(statement)]
        return rewritten or [ast.copy_location(ast.Pass(), statements[0])]

    def _statement(self, node: ast.stmt) -> Iterator[ast.stmt]:
        if isinstance(node, ast.Assign) and self._depends(node.value):
            self._define(node)
            return
        if isinstance(node, ast.If) and self._depends(node.test):
            yield from self._expanded(node)
            return
        for field, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, field, self._branch(value))
            else:
                self._check(node, value)
        if isinstance(node, ast.Assign):
            for name in _stored(node):
                self._per_thread.pop(name, None)
        yield node

    def _branch(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Statements that may run or not: what they assign is not sure behind them."""
        before = dict(self._per_thread)
        rewritten = self.block(statements)
        differing = {name for name, value in self._per_thread.items() if before.get(name) is not value}
        self._per_thread = before | dict.fromkeys(differing | (before.keys() - self._per_thread.keys()))
        return rewritten

    def _depends(self, node: ast.AST) -> bool:
        return any(self._known.is_index(part) or self._is_per_thread(part) for part in ast.walk(node))

    def _is_per_thread(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in self._per_thread

    def _check(self, statement: ast.stmt, value: Any) -> None:
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST) and self._depends(part):
                raise self._error(
                    statement,
                    "a thread's index may stand in the condition of an `if` and under it, nowhere else: a program acts"
                    " as a whole (see docs/migrating.md)",
                )

    def _define(self, node: ast.Assign) -> None:
        """``name = <expression of the index>``: remembered, and put in where the name is used."""
        target = node.targets[0]
        if len(node.targets) != 1 or not isinstance(target, ast.Name):
            raise self._error(node, "what depends on a thread's index must be assigned to one name")
        for part in ast.walk(node.value):
            if isinstance(part, ast.Name) and not self._is_per_thread(part) and self._stores[part.id] > 1:
                raise self._error(node, f"{part.id} is assigned more than once: what depends on it cannot be followed")
        self._per_thread[target.id] = self._spelled_out(node.value)

    def _expanded(self, node: ast.If) -> list[ast.stmt]:
        for part in ast.walk(node):
            if isinstance(part, (ast.Return, ast.Break, ast.Continue)):
                raise self._error(part, "a thread cannot leave a loop or a kernel alone")
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store) and part.id in self._per_thread:
                raise self._error(part, f"{part.id}, which depends on a thread's index, is assigned under a condition")
        node = self._spelled_out(node)
        tid = next(part.func for part in ast.walk(node) if isinstance(part, ast.Call) and self._known.is_index(part))
        thread = f"_thread_{self._count}"
        self._count += 1

        def index(part: ast.AST) -> ast.expr | None:
            return ast.Name(thread, ast.Load()) if self._known.is_index(part) else None

        node = _Replacement(index).visit(node)
        conditions = list(_conjuncts(node.test))
        if node.orelse:
            conditions = []  # every thread has something to do
        one = next((value for c in conditions if (value := _compared(c, thread, ast.Eq)) is not None), None)
        if one is not None:
            return [_assignment(thread, one, node), *(node.body if len(conditions) == 1 else [node])]
        stop = next((value for c in conditions if (value := _compared(c, thread, ast.Lt)) is not None), None)
        if stop is None:
            stop = _asked(tid, "count")
        before: list[ast.stmt] = []
        rounds: list[ast.stmt] = []
        for branch in (node.body, node.orelse):
            for group in sorted(set(self._groups(branch))):
                acted = f"_{group}_{self._count}"
                self._count += 1
                branch[:] = [
                    *(_OncePer(self._known, group, acted).visit(part) for part in branch),
                    _set(acted, 1, node),
                ]
                before.append(_set(acted, 0, node))
                if group == "warp":
                    rounds.append(_new_warp(acted, thread, tid, node))
        return [*before, _loop(thread, stop, [*rounds, node])]

    def _groups(self, branch: list[ast.stmt]) -> Iterator[str]:
        """The groups of the operations in these statements, which the threads execute one after the other."""
        for statement in branch:
            alone = {part.value for part in ast.walk(statement) if isinstance(part, ast.Expr)}
            for part in filter(lambda part: isinstance(part, ast.Call), ast.walk(statement)):
                assert isinstance(part, ast.Call)
                name = ast.unparse(part.func)
                if group := self._known.group(part):
                    if part not in alone:
                        raise self._error(part, f"{name} under a thread's condition must be a statement of its own")
                    yield group
                elif cause := self._known.not_for_one_thread(part):
                    raise self._error(
                        part,
                        f"{name} calls {cause}, which is no matter of one thread: under a condition on a thread's index"
                        f" call {cause} itself, not in a function",
                    )

    def _spelled_out(self, node: _Node) -> _Node:
        """A statement or expression with ``tid(…)`` in the place of names that stand for it."""

        def value_of(part: ast.AST) -> ast.expr | None:
            if not isinstance(part, ast.Name) or not self._is_per_thread(part):
                return None
            value = self._per_thread[part.id]
            if value is None:
                raise self._error(part, f"{part.id} depends on a thread's index on some ways to this line only")
            return copy.deepcopy(value)

        return _Replacement(value_of).visit(node)  # type: ignore[no-any-return]

    def _error(self, node: ast.AST, message: str) -> Exception:
        return CompilationError(self._source, node, message)  # type: ignore[no-any-return]


class _Replacement(ast.NodeTransformer):
    """Puts ``new(node)`` in the place of each node for which it is not None."""

    def __init__(self, new: Callable[[ast.AST], ast.expr | None]) -> None:
        self._new = new

    def visit(self, node: ast.AST) -> Any:
        new = self._new(node)
        if new is None:
            return self.generic_visit(node)
        for part in ast.walk(new):
            ast.copy_location(part, node)
        return new


class _OncePer(ast.NodeTransformer):
    """Puts the operations of a group under ``if acted == 0``."""

    def __init__(self, known: _Known, group: str, acted: str) -> None:
        self._known = known
        self._group = group
        self._acted = acted

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        if self._known.group(node.value) != self._group:
            return node
        first = ast.Compare(ast.Name(self._acted, ast.Load()), [ast.Eq()], [ast.Constant(0)])
        return ast.copy_location(ast.If(first, [node], []), node)


def _new_warp(acted: str, thread: str, tid: ast.expr, like: ast.stmt) -> ast.stmt:
    """Reset the flag at the first thread of each warp: no thread of the warp has acted yet."""
    lane = ast.BinOp(ast.Name(thread, ast.Load()), ast.Mod(), _asked(tid, "warp_size"))
    first = ast.Compare(lane, [ast.Eq()], [ast.Constant(0)])
    return ast.copy_location(ast.If(first, [_set(acted, 0, like)], []), like)


def _asked(tid: ast.expr, what: str) -> ast.expr:
    """``tid(count=True)`` or ``tid(warp_size=True)``, which are not thread indices."""
    return ast.Call(copy.deepcopy(tid), [], [ast.keyword(what, ast.Constant(value=True))])


def _set(name: str, value: int, like: ast.stmt) -> ast.stmt:
    return _assignment(name, ast.Constant(value), like)


def _stored(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _conjuncts(test: ast.expr) -> Iterator[ast.expr]:
    """The parts of ``a and b``, and of ``(a) & (b)``, all of which must hold."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for value in test.values:
            yield from _conjuncts(value)
    elif isinstance(test, ast.BinOp) and isinstance(test.op, ast.BitAnd):
        yield from _conjuncts(test.left)
        yield from _conjuncts(test.right)
    else:
        yield test


def _compared(test: ast.expr, thread: str, operator: type[ast.cmpop]) -> ast.expr | None:
    """``value`` where the test is ``thread <operator> value``."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], operator):
        return None
    value = test.comparators[0]
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    return value if isinstance(test.left, ast.Name) and test.left.id == thread and thread not in names else None


def _assignment(name: str, value: ast.expr, like: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], copy.deepcopy(value)), like)


def _loop(name: str, stop: ast.expr, body: list[ast.stmt]) -> ast.stmt:
    threads = ast.Call(ast.Name("range", ast.Load()), [ast.Constant(value=0), copy.deepcopy(stop)], [])
    return ast.copy_location(ast.For(ast.Name(name, ast.Store()), threads, body, []), body[-1])
