"""Shows Triton our compiler plugin, whatever is imported first and whichever Triton is installed.

Triton up to 3.8 reads TRITON_PLUGIN_PATHS once, while ``triton._C.libtriton`` is imported, and aborts the process on a
plugin that it cannot use. So the variable is set by this module only, only around that one import, and
only when there is a plugin that was built for exactly that Triton and loads beside it. A program that never imports
triton_dist runs as it would without us; one that does gets an ImportError that says what is wrong and what to
type. Triton 3.9 is told the plugin's path by calls, right after that import.

``triton_dist.pth`` calls :func:`install` at the start of every interpreter, which is what makes ``import
triton`` before ``import triton_dist`` work. Hence the style: the standard library only, nothing imported that
an interpreter has not loaded anyway, and no work before Triton is imported.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

__all__ = ["built_for", "check", "install", "plugin_info", "plugin_pass", "plugin_path", "supported", "version"]

_LIBTRITON = "triton._C.libtriton"
_PLUGIN_PATHS = "TRITON_PLUGIN_PATHS"
_SEPARATOR = ":"  # Triton's, on every system
_DISABLE = "TRITON_DIST_DISABLE_PLUGIN"
_PLUGIN = "libtriton_dist_plugin-"
_BINARIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "triton_dist", "_C")

_refused: "str | None" = None  # why Triton was imported without the plugin, as far as this module decided it


def plugin_path() -> str:
    """Where the plugin for the installed Triton lies once it is built."""
    return _plugin_file(_installed_triton(), ".so")


def plugin_info() -> "dict[str, str]":
    """What the build wrote down about the plugin for the installed Triton. OSError where there is none."""
    return _info(_installed_triton())


def version() -> str:
    """Which version of triton_dist was built. (:func:`check` has found the plugin.)"""
    return str(plugin_info()["version"])


def built_for() -> "list[str]":
    """The versions of Triton that there is a finished plugin for, the oldest first."""
    try:
        names = os.listdir(_BINARIES)
    except OSError:
        return []
    ends = len(_PLUGIN), -len(".json")
    versions = [name[ends[0] : ends[1]] for name in names if name.startswith(_PLUGIN) and name.endswith(".json")]
    return sorted(filter(_is_finished, versions), key=lambda version: [int(part) for part in _numbers(version)])


def supported() -> "list[str]":
    """The versions of Triton that a plugin can be built for, as far as a finished plugin tells."""
    return [version for built in built_for()[:1] for version in _info(built).get("supported", "").split()]


def install() -> None:
    """Have the plugin loaded when Triton is imported, if it can be. Calling it again does nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def check() -> None:
    """Import Triton with the plugin.

    Raises:
        ImportError: it cannot be done; the message says why, and what to do about it.
    """
    install()
    if reason := _obstacle(_installed_triton()):
        raise ImportError(reason, name="triton_dist")
    from triton._C import libtriton

    if _pass_of(libtriton, "shmem_to_llvm") is None:
        too_late = (
            "triton was imported before triton_dist and without its plugin. Import triton_dist first, or install it "
            "with pip: then its start-up hook sees every import of triton."
        )
        raise ImportError(_refused or too_late, name="triton_dist")


def plugin_pass(name: str) -> "Any":
    """What adds a pass of the plugin to a pass manager: a function of the manager and the pass's arguments, strings."""
    from triton._C import libtriton

    return _pass_of(libtriton, name)


def _pass_of(libtriton: "ModuleType", name: str) -> "Any":
    plugin = libtriton.passes.plugin
    return getattr(plugin, name, None) or getattr(plugin, f"add_{name}", None)  # as Triton 3.9 calls it


def _obstacle(triton: "str | None") -> "str | None":
    """Why the plugin must not be shown to this version of Triton; None when it may."""
    if os.environ.get(_DISABLE, "").lower() not in ("", "0", "false", "no", "off"):
        return (
            f"triton_dist's plugin is switched off: unset {_DISABLE} (now {os.environ[_DISABLE]!r}) to use triton_dist."
        )
    built = built_for()
    if not built:
        return f"triton_dist's plugin is not built (in {_BINARIES}). In a source tree: make build"
    if triton not in built:
        found = f"Triton {triton} is installed" if triton else "no Triton is installed"
        build = " (or build for this one: make plugins)" if triton in supported() else ""
        return (
            f"triton_dist works inside the versions of Triton's compiler that it was built for: {found}, and "
            f"triton_dist was built for Triton {', '.join(built)}. Install one of them: pip install "
            f"triton=={built[-1]}{build}; triton-dist-info names the one for the installed PyTorch"
        )
    if _SEPARATOR in plugin_path():
        return f"Triton cannot load a plugin whose path contains '{_SEPARATOR}': {plugin_path()}"
    return None


def _plugin_file(triton: "str | None", ending: str) -> str:
    """A file of the plugin for a version of Triton."""
    return os.path.join(_BINARIES, f"{_PLUGIN}{triton}{ending}")


def _is_finished(triton: str) -> bool:
    """Whether the build of the plugin for a version of Triton came to its end."""
    try:
        return _info(triton)["triton"] == triton and os.path.isfile(_plugin_file(triton, ".so"))
    except (OSError, ValueError, KeyError):
        return False


def _info(triton: "str | None") -> "dict[str, str]":
    """What the build wrote down about the plugin for a version of Triton."""
    import json

    with open(_plugin_file(triton, ".json"), encoding="utf-8") as file:
        info: dict[str, str] = json.load(file)
    return info


def _numbers(version: str) -> "list[str]":
    import re

    return re.findall(r"\d+", version)


def _installed_triton() -> "str | None":
    """The version of the Triton that is, or would be, imported, read without importing it; None when there is none."""
    if module := sys.modules.get("triton"):
        return str(getattr(module, "__version__", "unknown"))
    import importlib.util
    import re

    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return None
    with open(spec.origin, encoding="utf-8") as file:
        version = re.search(r"^__version__ = ['\"]([^'\"]+)['\"]", file.read(), re.MULTILINE)
    return version[1] if version else "unknown"


def _why_unloadable(libtriton: "str | None") -> "str | None":
    """Do what Triton is about to do, where failing is harmless: load the plugin beside libtriton.so."""
    import ctypes

    try:
        ctypes.CDLL(libtriton)
        ctypes.CDLL(plugin_path())
    except OSError as error:
        return f"triton_dist's plugin does not load beside {libtriton}: {error}. Build it on this machine again."
    return None


class _Finder:
    """Finds ``triton._C.libtriton`` as it would be found without us, and has it loaded with the plugin."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        global _refused
        if name != _LIBTRITON:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)):
                break
        else:
            return None
        _refused = _obstacle(_installed_triton()) or _why_unloadable(spec.origin)
        if not _refused and spec.loader:
            spec.loader = _LoaderWithPlugin(spec.loader)  # type: ignore[assignment]
        return spec


class _LoaderWithPlugin:
    """A module's own loader, with the plugin in TRITON_PLUGIN_PATHS while it works."""

    def __init__(self, loader: "Loader") -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> "Any":
        return getattr(self._loader, name)

    def create_module(self, spec: "ModuleSpec") -> "ModuleType | None":
        with _PluginPath():
            return self._loader.create_module(spec)

    def exec_module(self, module: "ModuleType") -> None:
        with _PluginPath():
            self._loader.exec_module(module)
        if hasattr(module.passes.plugin, "extend_with"):
            _extend(module)
        module.__loader__ = self._loader
        if module.__spec__:
            module.__spec__.loader = self._loader


def _extend(libtriton: "ModuleType") -> None:
    """Tell Triton 3.9 about the plugin."""
    global _refused
    try:
        for extend in (
            libtriton.ir.extend_dialects_with,
            libtriton.ir.builder.extend_with,
            libtriton.passes.plugin.extend_with,  # the last, for whose passes check() looks
        ):
            extend(plugin_path())
    except RuntimeError as error:
        _refused = f"Triton {_installed_triton()} does not load triton_dist's plugin: {error}"


class _PluginPath:
    """Puts the plugin in front of the user's own TRITON_PLUGIN_PATHS, and puts the variable back as it was."""

    def __enter__(self) -> None:
        self._before = os.environ.get(_PLUGIN_PATHS)
        users = self._before.split(_SEPARATOR) if self._before else []
        if plugin_path() not in users:
            os.environ[_PLUGIN_PATHS] = _SEPARATOR.join([plugin_path(), *users])

    def __exit__(self, *exception: object) -> None:
        if self._before is None:
            os.environ.pop(_PLUGIN_PATHS, None)
        else:
            os.environ[_PLUGIN_PATHS] = self._before
