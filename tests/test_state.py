"""Modules have no state: worlds and calls own it. What belongs to the process is in process_state, and listed here."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import triton_dist
from triton_dist import process_state
from triton_dist.process_state import of_process
from triton_dist.world.current import Current, current_world, find_world

PACKAGE = Path(triton_dist.__file__).parent

ALLOWED = {
    "process_state.py: _instances": "the one place: what of_process holds",
    "compiler/transport.py: _override": "a ContextVar, whose values belong to contexts; Python wants them in modules",
    "triton_api/autotuning.py: _autotuned": "a ContextVar, too",
}

OF_PROCESS = {
    "bootstrap/forking.py: Children": "a registration with os cannot be taken back",
    "bootstrap/discovery.py: Sources": "a later world meets where an earlier one met",
    "compiler/transport.py: Chosen": "compilations in all threads ask",
    "triton_api/language_patch.py: LanguagePatch": "triton.language is one for each process",
    "cpu/oshmem/library.py: Library": "the library starts once in a process",
    "cpu/gluon/chance.py: GluonLaunches": "also without a world",
    "cpu/world.py: EndedHeaps": "about worlds that have ended",
    "gpu/launch_check.py: LaunchChecks": "loaded kernels outlive worlds",
    "gpu/nvshmem_api.py: Starts": "exit handlers cannot be taken back",
    "gpu/module_state.py: LoadedModules": "modules that worlds write to stay loaded",
    "triton_api/common.py: StayingKernels": "these are the modules",
    "gpu/wait_reports.py: Memories": "kernels go on writing reports after their world",
    "gpu/waiting_kernels.py: WaitingKernels": "kernels that wait stay loaded",
    "kernels/native.py: NativeCalls": "public functions are the process's",
    "world/current.py: Current": "a process is one PE of at most one world",
    "world/kind.py: Choice": "triton.jit has chosen",
    "world/raw_tensor.py: TensorMemory": "torch's storages outlive worlds",
}
"""The classes of which a process has one, and why; their docstrings say it, too."""

CACHES = {
    "bootstrap/process.py: kernel_identity": "the machine",
    "bootstrap/process.py: host_identity": "the machine",
    "compiler/device_library.py: nvshmem_bitcode": "installed files",
    "compiler/device_library.py: _rocshmem_bitcode": "installed files",
    "compiler/device_library.py: plugin_hash": "installed files",
    "compiler/device_library.py: _digest": "installed files",
    "compiler/hooks.py: _cache_key_for": "installed files",
    "triton_api/launch_compiler.py: _compute_capabilities": "installed files",
    "triton_api/interpreter.py: _launch_options": "Triton's classes",
    "triton_api/language_patch.py: _interpreted": "Triton's functions",
    "triton_api/replay.py: _identity_of": "Triton's types",
    "triton_api/replay.py: _compiled": "texts of functions",
    "triton_api/language_patch.py: _language_changes": "Triton's functions",
    "cpu/gluon/language.py: _table": "Gluon's functions",
    "cpu/location.py: _is_machinery": "names of files",
    "gpu/module_state.py: cuda_driver": "the machine",
    "gpu/p2p.py: _layout": "installed files",
    "gpu/waiting_kernels.py: is_inside": "names of files",
    "kernels/cuda.py: driver": "installed files",
    "tensor_parallel.py: _overlapping_class": "classes of modules",
    "triton_api/common.py: device_properties": "the machine",
    "cublas.py: library": "what PyTorch has loaded",
    "stream_operations.py: library": "installed files",
    "native_calls.py: _loaded": "installed files",
    "native_calls.py: _lacks": "installed files",
    "native_calls.py: _driver_functions": "installed files",
}
"""Functions that remember their results, and what the results are facts of: nothing of a world."""

CONTAINERS = ("dict", "list", "set", "Counter", "defaultdict", "deque", "OrderedDict", "bytearray", "count")
STATEFUL = (*CONTAINERS, "WeakSet", "WeakKeyDictionary", "WeakValueDictionary", "ContextVar", "local", "of_process")
CHANGES = (
    *("append", "add", "update", "pop", "setdefault", "clear", "extend", "remove", "discard", "insert", "popitem"),
    *("appendleft", "popleft", "sort", "reverse"),
)
MUTABLE = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)


def _called(node: ast.expr | None) -> str:
    """``c`` of ``a.b.c[…](…)``."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func.value if isinstance(node.func, ast.Subscript) else node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _bindings(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr | None]]:
    """Names that a module or a class binds, and what to, also under ``if``, ``try`` and the like."""
    for node in body:
        if isinstance(node, ast.Assign):
            names = [part for target in node.targets for part in ast.walk(target)]
            yield from ((name.id, node.value) for name in names if isinstance(name, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.value
        elif isinstance(node, (ast.If, ast.For, ast.While, ast.Try, ast.With)):
            parts = [getattr(node, part, []) for part in ("body", "orelse", "finalbody")]
            handlers = [handler.body for handler in getattr(node, "handlers", [])]
            yield from (binding for part in (*parts, *handlers) for binding in _bindings(part))


def _changed(tree: ast.Module) -> Iterator[str]:
    """Names ``x`` where a function has ``global x``, ``x[…] = …``, ``x.y = …`` or ``x.append(…)``."""
    for node in _in_functions(tree):
        if isinstance(node, ast.Global):
            yield from node.names
        elif isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            yield getattr(node.value, "id", "")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            yield getattr(node.func.value, "id", "")


def _in_functions(tree: ast.Module) -> list[ast.AST]:
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Lambda))]
    return [node for function in functions for node in ast.walk(function)]


def _local(tree: ast.Module) -> set[str]:
    """Names that functions bind for themselves."""
    inside = _in_functions(tree)
    declared = {name for node in inside if isinstance(node, ast.Global) for name in node.names}
    names = {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return (names | {node.arg for node in inside if isinstance(node, ast.arg)}) - declared


def _state(tree: ast.Module) -> Iterator[str]:
    """Names of a module, and ``Class.name``, that hold something which changes or is there to be changed."""
    changed = set(_changed(tree)) - _local(tree)
    for name, value in _bindings(tree.body):
        constant = name.strip("_").isupper() or name == "__all__"
        holds = isinstance(value, MUTABLE) or _called(value) in STATEFUL
        if name in changed or (holds and not constant) or _called(value) == "of_process":
            yield name
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for name, value in _bindings(node.body):
                if (isinstance(value, MUTABLE) or _called(value) in STATEFUL) and not name.strip("_").isupper():
                    yield f"{node.name}.{name}"


def _cached(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            texts = [ast.unparse(decorator) for decorator in node.decorator_list]
            if any(re.fullmatch(r"(functools\.)?(lru_)?cache(\(.*\))?", text) for text in texts):
                yield node.name


@functools.cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def _everywhere(find: object) -> set[str]:
    assert callable(find)
    files = sorted(PACKAGE.rglob("*.py"))
    return {f"{file.relative_to(PACKAGE)}: {name}" for file in files for name in find(_parsed(file))}


def test_modules_have_no_state() -> None:
    assert _everywhere(_state) == set(ALLOWED)


def test_what_is_remembered_is_a_fact_of_no_world() -> None:
    assert _everywhere(_cached) == set(CACHES)


def test_what_belongs_to_the_process_is_known_and_says_why() -> None:
    files = [(file, _parsed(file)) for file in sorted(PACKAGE.rglob("*.py"))]
    calls = [node for _, tree in files for node in ast.walk(tree) if _called(node) == "of_process"]  # type: ignore[arg-type]
    kinds = {ast.unparse(call.args[0]) for call in calls if isinstance(call, ast.Call)}
    assert kinds == {listed.split(": ")[1] for listed in OF_PROCESS}
    classes = {
        f"{file.relative_to(PACKAGE)}: {node.name}": ast.get_docstring(node) or ""
        for file, tree in files
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name in kinds
    }
    assert classes.keys() == OF_PROCESS.keys()
    for kind, text in classes.items():
        assert "One for each process" in text, kind


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = {}\nY = {}\n_Z: dict[str, int] = {}", ["x"]),
        ("Y = {}\ndef f():\n    Y[1] = 2", ["Y"]),
        ("Y = []\ndef f():\n    Y.append(2)", ["Y"]),
        ("Y = []\ndef f():\n    Y = []\n    Y.append(2)", []),
        ("x = None\ndef f():\n    global x\n    x = 1", ["x"]),
        ("x = collections.Counter[str]()\nif x:\n    y = weakref.WeakSet()", ["x", "y"]),
        ("lock = threading.Lock()  # holds nothing between calls\nW = of_process(World)", ["W"]),
        ("class A:\n    x = []\n    y: int = 0\n    Z = []", ["A.x"]),
        ("def f(): ...\nf.x = 1\nY = {}\nY[1] = 2", []),
        ("x = f()\ny = (1, 2)\nz: int = 5\n__all__ = []", []),
    ],
)
def test_state_is_noticed(source: str, found: list[str]) -> None:
    assert list(_state(ast.parse(source))) == found


def test_a_process_has_one_of_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kind:
        """Of nothing."""

    monkeypatch.setattr(process_state, "_instances", {})
    assert of_process(Kind) is of_process(Kind)
    assert find_world() is None
    with pytest.raises(RuntimeError, match=r"there is no world: call triton_dist\.init\(\) first"):
        current_world()
    assert of_process(Current).launch is None
