"""``triton-dist-info``: what is installed here, which world and transport programs would get, and what to fix.

It stands beside the package, not in it, because it must work where the package cannot be imported: what needs the
package is asked of a process of its own, whose failure, even by a crash, is one of the answers.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.metadata
import importlib.util
import io
import json
import os
import platform
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _triton_dist_loader
import _triton_dist_support

__all__ = ["collect", "escape_output", "main"]

_SECONDS = 120
_PACKAGES = (
    "triton-dist",
    "triton",
    "torch",
    "numpy",
    "greenlet",
    "nvshmem4py-cu12",
    "nvshmem4py-cu13",
    "nvidia-nvshmem-cu12",
    "nvidia-nvshmem-cu13",
    "cuda-bindings",
    "cuda-core",
    "mpi4py",
)
_MLIR = {"mlir": "mlir-python-bindings", "jaxlib.mlir": "jaxlib", "iree.compiler": "iree-base-compiler"}
_PREFIXES = (
    *("TRITON_", "NVSHMEM_", "ROCSHMEM_", "CUDA_", "NCCL_", "TORCH_SYMM_MEM"),
    *("SLURM_STEP", "OMPI_COMM_WORLD", "PMI_"),
)
_NAMES = (
    *("PYTHONPATH", "LD_LIBRARY_PATH"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID"),
)

# What only the package can say. Printed as JSON, behind whatever else is printed.
_ASK_THE_PACKAGE = """
import json
answers = {}
import triton_dist
from triton_dist import environment
from triton_dist.world import interprets, kind
from triton_dist.bootstrap import launchers
def ask(name, function):
    try:
        answers[name] = function()
    except Exception as error:
        answers[name + " error"] = f"{type(error).__name__}: {error}"
ask("kind", kind)
ask("interprets", interprets)
for name in environment.VARIABLES:
    ask(name, lambda: environment.get(name))
ask("launcher", lambda: (lambda start: [start.launcher, start.pe, start.n_pes])(launchers.find()))
from triton_dist import mlir_bindings, native_calls
answers["mlir"] = mlir_bindings.installed()
ask("native calls", native_calls.why_not)
from triton_dist.compiler.device_library import find, nvshmem_bitcode
try:
    answers["nvshmem bitcode"] = [str(part) for part in nvshmem_bitcode()]
except FileNotFoundError:
    answers["nvshmem bitcode"] = None
if kind() == "gpu":
    ask("nvshmem device", lambda: [str(part) for part in nvshmem_bitcode()])
    ask("p2p library", lambda: str(find("p2p", "sm_90").path))
    def binding():
        import nvshmem.core
        return nvshmem.core.get_version().libnvshmem_version
    ask("nvshmem host", binding)
else:
    def runtime():
        from triton_dist.cpu.runtime.library import PATH
        return str(PATH)
    ask("runtime", runtime)
print("\\n=====" + json.dumps(answers))
"""

_ASK_TORCH = """
import json, warnings
warnings.simplefilter("ignore")
import torch
answers = {"version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip, "gpus": [], "peers": []}
if torch.cuda.is_available():
    count = torch.cuda.device_count()
    for i in range(count):
        gpu = torch.cuda.get_device_properties(i)
        answers["gpus"].append({"name": gpu.name, "architecture": f"sm_{gpu.major}{gpu.minor}",
                                "memory": gpu.total_memory, "multiprocessors": gpu.multi_processor_count})
    answers["peers"] = [[i == j or torch.cuda.can_device_access_peer(i, j) for j in range(count)] for i in range(count)]
else:
    try:
        torch.cuda.init()
    except Exception as error:
        answers["no gpu"] = (str(error).splitlines() or [type(error).__name__])[0]
print("\\n=====" + json.dumps(answers))
"""


def collect() -> dict[str, Any]:
    """What is here: ``versions, matrix, places, gpus, peers, links, world, launch, environment, problems``."""
    problems: list[dict[str, str]] = []

    def problem(what: str, fix: str = "") -> None:
        problems.append({"what": what, "fix": fix})

    versions: dict[str, Any] = {
        "python": platform.python_version(),
        "system": f"{platform.platform()} {_system()}".strip(),
    }
    versions |= {name: _installed(name) for name in _PACKAGES}
    plugin = _plugin()
    versions["plugin"] = plugin
    versions["plugins for Triton"] = ", ".join(_triton_dist_loader.built_for()) or None
    versions["supported Triton"] = ", ".join(_triton_dist_loader.supported()) or None
    versions["LLVM of the plugin"] = plugin.get("llvm") if plugin else None
    versions["NVSHMEM host library"] = _nvshmem_host()
    versions["driver"] = _driver()
    torch = _answers(_ASK_TORCH)
    versions["CUDA of PyTorch"] = torch.get("cuda") or (torch.get("hip") and f"HIP {torch['hip']}")
    package = _answers(_ASK_THE_PACKAGE)
    matrix = _triton_dist_support.matrix(_found(versions, torch, package))
    if "failure" in torch:
        again = "pip install --force-reinstall torch=={}".format((versions["torch"] or "").partition("+")[0])
        problem(f"PyTorch cannot be used: {torch['failure']}", _action(matrix, "PyTorch", "Triton") or again)
    if "failure" in package and package["failure"] != torch.get("failure"):
        fix = _action(matrix, "Python", "Triton", "plugin", "PyTorch") or "the message says what is wrong"
        problem(f"triton_dist cannot be imported: {package['failure']}", fix)
    for name, value in package.items():
        if name.endswith(" error"):
            problem(f"{name.removesuffix(' error')}: {value}", _fix(name, versions))
    device = package.get("nvshmem device") or package.get("nvshmem bitcode")
    versions["NVSHMEM device library"] = device and f"{device[1]} ({device[0]})"
    host = package.get("nvshmem host") or versions["NVSHMEM host library"]
    if device and host and device[1] != host:
        problem(
            f"NVSHMEM's host library has version {host}, its device library {device[1]} ({device[0]})",
            "install one version of both, and see that NVSHMEM_HOME points to it",
        )
    gpus, peers = torch.get("gpus", []), torch.get("peers", [])
    if versions["driver"] and not gpus and "failure" not in torch:
        reason = torch.get("no gpu", "it does not say why")
        problem(
            f"there is a GPU driver ({versions['driver']}), but PyTorch sees no GPU: {reason}",
            "install a PyTorch that is built for GPUs and not newer than the driver, or a newer driver; see "
            "CUDA_VISIBLE_DEVICES",
        )
    if not problems:  # else they tell it already
        for row in matrix:
            if row.status in ("missing", "unsupported"):
                problem(
                    f"{row.component} {row.installed or 'is missing'}: supported is {row.supported or 'any'}",
                    row.action,
                )
    launcher = package.get("launcher")
    return {
        "versions": versions,
        "matrix": [row.to_dict() for row in matrix],
        "places": {"python": sys.executable} | {name: _place(name) for name in ("triton", "torch", "triton_dist")},
        "gpus": gpus,
        "peers": peers,
        "links": _links() if gpus else None,
        "world": _world(package, gpus, peers),
        "launch": launcher and {"launcher": launcher[0], "pe": launcher[1], "n_pes": launcher[2]},
        "environment": {
            name: value for name, value in sorted(os.environ.items()) if name.startswith(_PREFIXES) or name in _NAMES
        },
        "problems": problems,
    }


def escape_output() -> None:
    """Print characters that the encoding of stdout lacks, as ASCII and Latin-1 do, as escapes: else they are errors."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        with contextlib.suppress(OSError):  # its descriptor has become another kind of file
            sys.stdout.reconfigure(errors="backslashreplace")


def put(program: str, text: str) -> int:
    """Print ``text``. The exit status: 1 if it cannot be written, which one line on stderr says."""
    try:
        print(text, flush=True)
    except OSError as error:
        print(f"{program}: cannot write to stdout: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left of it, when Python ends
        return 1
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Print it; the exit status is 1 when there is something to fix."""
    parser = argparse.ArgumentParser(prog="triton-dist-info", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    escape_output()
    options = parser.parse_args(arguments)
    found = collect()
    status = put("triton-dist-info", json.dumps(found, indent=2) if options.json else _page(found))
    return 1 if found["problems"] else status


def _page(found: dict[str, Any]) -> str:
    lines = ["Versions"]
    for name, value in found["versions"].items():
        if name == "plugin" and value:
            value = f"{value['version']} for Triton {value['triton']}, {value['sha256'][:12]} ({value['path']})"
        lines.append(f"  {name:24} {value or '–'}")
    lines.append("Support")
    rows = [_triton_dist_support.Row(**row) for row in found["matrix"]]
    lines += [f"  {line}" for line in _triton_dist_support.table(rows)]
    lines.append("Places")
    lines += [f"  {name:24} {place or '–'}" for name, place in found["places"].items()]
    lines.append("GPUs" if found["gpus"] else "GPUs: PyTorch sees none")
    for i, gpu in enumerate(found["gpus"]):
        memory, reach = gpu["memory"] / 2**30, found["peers"][i]
        others = [str(j) for j, yes in enumerate(reach) if yes and j != i]
        seen = f"reaches {', '.join(others)}" if others else "reaches no other"
        lines.append(f"  {i}: {gpu['name']}, {gpu['architecture']}, {memory:.0f} GiB, {seen} by load and store")
    if found["links"]:
        lines += ["Links (nvidia-smi topo -m)", textwrap.indent(found["links"], "  ")]
    world = found["world"]
    lines.append(f"World: {world['kind'] or 'none'} ({world['why']})")
    if world["transport"]:
        lines.append(f"Transport: {world['transport']} ({world['why transport']})")
    if world.get("calls"):
        lines.append(f"Calls of triton_dist.kernels: {world['calls']}")
    if found["launch"]:
        lines.append("Launch: {launcher}, PE {pe} of {n_pes}".format(**found["launch"]))
    lines.append("Environment" if found["environment"] else "Environment: none of the variables that matter is set")
    lines += [f"  {name}={value}" for name, value in found["environment"].items()]
    lines.append("To fix" if found["problems"] else "To fix: nothing found")
    for problem in found["problems"]:
        lines.append(textwrap.fill(problem["what"], 116, initial_indent="  * ", subsequent_indent="    "))
        if problem["fix"]:
            lines.append(textwrap.fill(problem["fix"], 116, initial_indent="    → ", subsequent_indent="      "))
    return "\n".join(lines)


def _action(rows: list[_triton_dist_support.Row], *components: str) -> str:
    """What mends the first of these components that is not as it must be; empty where all are."""
    wrong = {row.component: row.action for row in rows if row.status in ("missing", "unsupported")}
    return next((wrong[component] for component in components if wrong.get(component)), "")


def _found(versions: dict[str, Any], torch: dict[str, Any], package: dict[str, Any]) -> _triton_dist_support.Found:
    """What the matrix of what is supported follows from."""
    runtime = Path(_triton_dist_loader.__file__).parent / "triton_dist" / "_C" / "libtriton_dist_runtime.so"
    bitcode = package.get("nvshmem bitcode")
    plugin = versions["plugin"]
    return _triton_dist_support.Found(
        python=versions["python"],
        requires=_requirements(),
        triton=versions["triton"],
        plugins=tuple(_triton_dist_loader.built_for()),
        supported=tuple(_triton_dist_loader.supported()),
        plugin=plugin and Path(plugin["path"]).name,
        runtime=runtime.name if runtime.exists() else None,
        torch=torch.get("version") or versions["torch"],
        torch_gpu=versions["CUDA of PyTorch"],
        gpus=len(torch.get("gpus", [])),
        nvshmem_device=bitcode and bitcode[1],
        nvshmem_host=package.get("nvshmem host") or versions["NVSHMEM host library"],
        nvshmem4py=versions["nvshmem4py-cu13"] or versions["nvshmem4py-cu12"],
        mlir=tuple((name, _installed(_MLIR[name]) or "") for name in package.get("mlir") or _distributed()),
    )


def _distributed() -> list[str]:
    """Packages with MLIR's bindings, where triton_dist cannot say."""
    return [name for name, distribution in _MLIR.items() if _installed(distribution)]


def _requirements() -> dict[str, str]:
    """Which Python, PyTorch and NVSHMEM the package asks for, as it is installed."""
    try:
        metadata = importlib.metadata.metadata("triton-dist")
    except importlib.metadata.PackageNotFoundError:
        return {}
    asked = {"python": metadata["Requires-Python"] or ""}
    for line in metadata.get_all("Requires-Dist") or ():
        if found := re.fullmatch(r"(?:nvidia-)?(torch|nvshmem)(?:-cu13)?\s*([<>=!~][^;]*)(;.*)?", line.strip()):
            asked.setdefault(found[1], found[2].strip())
    return asked


def _world(package: dict[str, Any], gpus: list[Any], peers: list[list[bool]]) -> dict[str, Any]:
    """Which world and transport ``init()`` would give PEs on this host's GPUs, and why."""
    kind = package.get("kind")
    world: dict[str, Any] = {"kind": kind, "why": "see below", "transport": None, "why transport": None}
    if kind is None:
        return world
    if package.get("TRITON_DIST_WORLD"):
        world["why"] = f"TRITON_DIST_WORLD={package['TRITON_DIST_WORLD']}"
    else:
        world["why"] = f"PyTorch sees {len(gpus)} GPU{'s' if len(gpus) != 1 else ''}"
    if kind == "cpu":
        return world
    why_not = package.get("native calls")
    world["calls"] = f"repeated by Python: {why_not}" if why_not else "repeated by C++"
    asked = package.get("TRITON_DIST_TRANSPORT", "auto")
    apart = [(i, j) for i, row in enumerate(peers) for j, yes in enumerate(row) if not yes]
    if asked != "auto":
        world |= {"transport": asked, "why transport": f"TRITON_DIST_TRANSPORT={asked}"}
    elif apart:
        why = f"GPU {apart[0][0]} cannot reach GPU {apart[0][1]} by load and store"
        world |= {"transport": "nvshmem", "why transport": why}
    else:
        why = "every GPU of this host reaches every other; with several hosts it is nvshmem"
        world |= {"transport": "p2p", "why transport": why}
    return world


def _fix(name: str, versions: dict[str, Any]) -> str:
    if name.startswith("nvshmem"):
        cuda = str(versions.get("CUDA of PyTorch") or "13").split(".")[0]
        return f"pip install 'triton-dist[cuda{cuda}]', or set TRITON_DIST_WORLD=cpu to do without GPUs"
    if name.startswith(("runtime", "p2p")):
        return "build it for this Python: make build, or install the wheel for it"
    return "the message says what was expected" if name.startswith("TRITON_DIST") else ""


def _answers(program: str) -> dict[str, Any]:
    """What a program says in a process of its own; ``failure``: why it could not."""
    try:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"failure": str(error)}
    _, mark, answer = done.stdout.rpartition("\n=====")
    if mark and done.returncode == 0:
        found: dict[str, Any] = json.loads(answer)
        return found
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    if done.returncode < 0:
        return {"failure": f"the process ended by signal {-done.returncode}: {' '.join(lines[:2])}"}
    return {"failure": lines[-1] if lines else f"exit status {done.returncode}"}


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _place(module: str) -> str | None:
    """The folder that a package would be imported from: not that of the installed version, where a path comes first."""
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return str(Path(found.origin).parent) if found and found.origin else None


def _plugin() -> dict[str, str] | None:
    try:
        return {**_triton_dist_loader.plugin_info(), "path": _triton_dist_loader.plugin_path()}
    except (OSError, ValueError):
        return None


def _nvshmem_host() -> str | None:
    """The version that NVSHMEM's host library tells; None when it is not installed or does not load."""
    homes = [Path(home) for home in (os.environ.get("NVSHMEM_HOME"),) if home]
    try:
        package = importlib.util.find_spec("nvidia.nvshmem")
    except ModuleNotFoundError:
        package = None
    homes += [Path(place) for place in (package.submodule_search_locations or ())] if package else []
    parts = [ctypes.c_int() for _ in range(3)]
    for file in (file for home in homes for file in sorted((home / "lib").glob("libnvshmem_host.so*"))):
        try:
            ctypes.CDLL(str(file)).nvshmemx_vendor_get_version_info(*map(ctypes.byref, parts))
        except (OSError, AttributeError):
            continue
        return ".".join(str(part.value) for part in parts)
    return None


def _driver() -> str | None:
    version = Path("/proc/driver/nvidia/version")
    if version.exists():
        found = re.search(r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)", version.read_text(encoding="utf-8"))
        return f"NVIDIA {found[1]}" if found else "NVIDIA"
    amd = Path("/sys/module/amdgpu/version")
    return f"AMD {amd.read_text(encoding='utf-8').strip()}" if amd.exists() else None


def _links() -> str | None:
    return _output(["nvidia-smi", "topo", "-m"], lambda text: re.sub(r"\x1b\[\d*m", "", text).split("\n\n")[0].rstrip())


def _output(command: list[str], read: Callable[[str], str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return read(done.stdout) if done.returncode == 0 else None


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
