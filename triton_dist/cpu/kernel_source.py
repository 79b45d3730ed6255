"""Rewrites a kernel's source so that its control flow has the semantics of Triton's compiler.

``a and b`` becomes ``logical("logical_and", lambda: a, lambda: b)``, and so on, with the functions of
:mod:`~triton_dist.cpu.kernel_python`. A construct that the compiler does not support (``break``, a
global variable that is not a constant, before Triton 3.9 ``a < b < c``) becomes a statement that raises the error when
the kernel executes it, since the compiler does not visit branches that are known not to be taken.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from triton_dist.cpu import kernel_python
from triton_dist.triton_api import front_end

__all__ = ["rewritten"]

_SEMANTICS, _INSTEAD_OF, _MAKER = "__kernel_python__", "__instead_of__", "__make_kernel__"


def rewritten(
    function: Callable[..., Any],
    transform: Callable[[ast.Module], ast.Module] | None = None,
    is_gluon: bool = False,
) -> Callable[..., Any]:
    """``function``, a kernel or a device function, as the interpreter runs it: the same file, lines and globals.

    ``transform`` changes its syntax tree first. A function without source is returned as it is. One of Gluon calls what
    :mod:`triton_dist.cpu.gluon` has in place of Gluon's functions.
    """
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return function
    tree = ast.parse("\n" * (first - 1) + textwrap.dedent("".join(lines)))  # with the lines of the file
    definition = (transform(tree) if transform else tree).body[0]
    assert isinstance(definition, ast.FunctionDef), f"{function} is not a function"
    closure = inspect.getclosurevars(function).nonlocals
    _Rewriter(function, closure, is_gluon).rewrite(definition)
    # An enclosing function. Its parameters are the kernel's closure variables.
    module = ast.parse(f"def {_MAKER}({', '.join([_SEMANTICS, _INSTEAD_OF, *closure])}):\n    return {definition.name}")
    maker = module.body[0]
    assert isinstance(maker, ast.FunctionDef)
    maker.body.insert(0, definition)
    ast.fix_missing_locations(module)
    code = compile(module, inspect.getfile(function), "exec", __future__.annotations.compiler_flag, dont_inherit=True)
    made: dict[str, Any] = {}
    exec(code, function.__globals__, made)
    result = made[_MAKER](kernel_python, _gluons() if is_gluon else None, **closure)
    result.__defaults__, result.__annotations__ = function.__defaults__, function.__annotations__
    result.__qualname__, result.__module__ = function.__qualname__, function.__module__
    result.is_gluon = is_gluon
    return result  # type: ignore[no-any-return]


def _gluons() -> Callable[[Any], Any]:
    from triton_dist.cpu.gluon.language import instead_of  # here, since few processes run such kernels

    return instead_of


class _Rewriter(ast.NodeTransformer):
    def __init__(self, function: Callable[..., Any], closure: Mapping[str, Any], is_gluon: bool) -> None:
        self._is_gluon = is_gluon
        self._known = {**function.__globals__, **closure}
        self._locals = set(function.__code__.co_varnames) | set(function.__code__.co_cellvars)
        self._loops = 0

    def rewrite(self, definition: ast.FunctionDef) -> None:
        definition.decorator_list = []
        definition.args.defaults = [ast.Constant(None) for _ in definition.args.defaults]  # set below
        definition.body = self._statements(definition.body)

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, (ast.stmt, ast.expr)) and not front_end.accepts(node):
            return self._refused(node, f"unsupported AST node type: {type(node).__name__}")
        if isinstance(node, ast.FunctionDef):
            return self._refused(node, "nested function definition is not supported.")
        return super().visit(node)

    # ---- conditions

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        return _call(node, "logical", ast.Constant(name), *(_later(self.visit(value)) for value in node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _call(node, "negation", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) > 1:
            return self._chain(node)
        if isinstance(node.ops[0], (ast.In, ast.NotIn)):
            operator = type(node.ops[0]).__name__
            return self._refused(node, f"AST comparison operator '{operator}' is not (currently) implemented.")
        self.generic_visit(node)
        if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            node.left, node.comparators = (
                _call(node, "unwrapped", node.left),
                [_call(node, "unwrapped", node.comparators[0])],
            )
        return node

    def _chain(self, node: ast.Compare) -> ast.AST:
        if not front_end.CHAINS_COMPARISONS:
            return self._refused(node, "simultaneous multiple comparison is not supported")
        links = []
        for op, operand in zip(node.ops, node.comparators, strict=True):
            names = [ast.arg("__left__"), ast.arg("__right__")]
            both = ast.arguments(posonlyargs=[], args=names, kwonlyargs=[], kw_defaults=[], defaults=[])
            left, right = (ast.copy_location(ast.Name(name.arg, ast.Load()), operand) for name in names)
            comparison = self.visit_Compare(ast.copy_location(ast.Compare(left, [op], [right]), operand))
            assert isinstance(comparison, ast.expr)
            links.append(ast.Tuple([ast.Lambda(both, comparison), _later(self.visit(operand))], ast.Load()))
        return _call(node, "chained", self.visit(node.left), *links)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        return _call(node, "either", node.test, _later(node.body), _later(node.orelse))

    def visit_If(self, node: ast.If) -> ast.AST:
        returns = self._loops > 0 and any(isinstance(inner, ast.Return) for inner in ast.walk(node))
        keywords = [ast.keyword("returns_from_loop", ast.Constant(True))] if returns else []
        node.test = _call(node.test, "truth", self.visit(node.test), keywords=keywords)
        node.body, node.orelse = self._statements(node.body), self._statements(node.orelse)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        return ast.copy_location(
            ast.Expr(_call(node, "check_that", node.test, _later(node.msg or ast.Constant("")))), node
        )

    # ---- loops

    def visit_While(self, node: ast.While) -> ast.AST:
        if node.orelse:
            return self._refused(node, "`else` of a `while` is not supported")
        node.test = _call(node.test, "keeps_on", self.visit(node.test))
        return self._loop(node)

    def visit_For(self, node: ast.For) -> ast.AST:
        if not isinstance(node.iter, ast.Call):
            return self._refused(node, "Only `range` and `static_range` iterators are currently supported")
        if not isinstance(node.target, ast.Name) or node.orelse:
            return self._refused(node, "a `for` has one variable, and no `else`")
        over = self.visit_Call(node.iter)
        node.iter = _call(over, "iterate", over.func, *over.args, keywords=over.keywords)
        return self._loop(node)

    def _loop(self, node: ast.For | ast.While) -> ast.AST:
        self._loops += 1
        node.body = self._statements(node.body)
        self._loops -= 1
        return node

    # ---- assignments

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        message = "multiple assignments are not supported" if len(node.targets) > 1 else _obstacle(node.targets[0])
        if message:
            return self._refused(node, message)
        node.value = _call(node.value, "assigned", self.visit(node.value))
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if message := _obstacle(node.target):
            return self._refused(node, message)
        assert isinstance(node.target, ast.Name)
        now = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        combined = ast.copy_location(ast.BinOp(now, node.op, node.value), node)
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], combined), node))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if message := _obstacle(node.target):
            return self._refused(node, message)
        if node.value is not None:
            value = self.visit(node.value)
            constant = ast.unparse(node.annotation).strip("'\"").split(".")[-1] == "constexpr"
            node.value = value if constant else _call(node.value, "assigned", value)
        return node

    # ---- expressions

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add) and isinstance(node.left, ast.Tuple):
            return _call(node, "joined", node.left, node.right)
        return node

    def visit_List(self, node: ast.List) -> ast.AST:
        self.generic_visit(node)
        return ast.copy_location(ast.Tuple(node.elts, ast.Load()), node)  # lists are immutable in kernels

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        if len(node.generators) != 1 or node.generators[0].ifs:
            return self._refused(node, "a comprehension has one `for`, and no `if`")
        self._locals.add(getattr(node.generators[0].target, "id", ""))
        self.generic_visit(node)
        node.generators[0].iter = _call(node, "elements", node.generators[0].iter)
        return ast.copy_location(ast.Tuple([ast.Starred(node, ast.Load())], ast.Load()), node)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        node.func = self.visit(node.func)
        for position, argument in enumerate(node.args):
            if isinstance(argument, ast.Starred):
                argument.value = self.visit(argument.value)
            else:
                node.args[position] = self.visit(argument)
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        if self._is_gluon:
            instead_of = ast.Name(_INSTEAD_OF, ast.Load())
            node.func = ast.copy_location(ast.Call(instead_of, [node.func], []), node.func)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                part.value = self.visit(part.value)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Store) or node.id in self._locals:
            return node
        if node.id in self._known:
            if not front_end.is_known_global(node.id, self._known[node.id]):
                return self._refused(
                    node,
                    f"Cannot access global variable {node.id} from within @jit'ed function. Triton kernels can only "
                    "access global variables that are instantiated as constexpr (`x = triton.language.constexpr(42)`)",
                    "refuse_name",
                )
        elif node.id in _PYTHONS:
            return ast.copy_location(ast.Attribute(_semantics(), _PYTHONS[node.id], ast.Load()), node)
        elif hasattr(builtins, node.id) and node.id not in front_end.BUILTIN_NAMES and node.id != "breakpoint":
            return self._refused(node, f"{node.id} is not defined", "refuse_name")
        return node

    # ----

    def _statements(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [self.visit(statement) for statement in statements]

    def _refused(self, node: ast.AST, message: str, how: str = "refuse") -> ast.AST:
        call = _call(node, how, ast.Constant(message))
        return ast.copy_location(ast.Expr(call), node) if isinstance(node, ast.stmt) else call


_PYTHONS = {"min": "minimum", "max": "maximum"}


def _obstacle(target: ast.AST) -> str | None:
    """The error of an assignment to ``target``; None if it is supported."""
    if isinstance(target, ast.Tuple):
        return next(filter(None, map(_obstacle, target.elts)), None)
    if isinstance(target, ast.Subscript):
        return "__setitem__ is not supported in triton"
    if isinstance(target, ast.Attribute):
        return "Attribute assignment is not supported in triton"
    return None if isinstance(target, ast.Name) else "only names and tuples of names can be assigned to"


def _semantics() -> ast.expr:
    return ast.Name(_SEMANTICS, ast.Load())


def _call(at: ast.AST, name: str, *arguments: ast.expr, keywords: Sequence[ast.keyword] = ()) -> ast.Call:
    """A call of a function of ``kernel_python``, on the line of ``at``."""
    function = ast.Attribute(_semantics(), name, ast.Load())
    return ast.copy_location(ast.Call(function, list(arguments), list(keywords)), at)


def _later(value: ast.expr) -> ast.expr:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(nothing, value), value)
