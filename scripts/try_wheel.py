"""Use a wheel as its users do, beside the PyTorch and Triton that they have.

    python scripts/try_wheel.py dist/triton_dist-….whl PYTHON…

Each PYTHON is the interpreter of an environment with PyTorch, a supported Triton, numpy and greenlet. That environment
is only read: the wheel goes into a new one, which sees the packages of the other. There Triton is imported before and
after triton_dist, triton-dist-info must find nothing to fix, the demo runs in the CPU world, and a kernel of the
examples is compiled for sm_90. What pip would install for the wheel must not include Triton or PyTorch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VERSIONS = """import json, platform, site, torch, triton
print(json.dumps({"Python": platform.python_version(), "Triton": triton.__version__, "torch": torch.__version__,
                  "folders": site.getsitepackages()}))"""
SIGNATURE = "*fp32:16, *fp32:16, *i64:16, *fp32:16, 1024"  # of examples/01_ring_put.py:ring_put


class StepError(Exception):
    """A step that did not end well; the message is what it printed."""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command without this process's settings of Python and Triton; gives what it printed."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("TRITON", "PYTHON"))}
    variables |= {"TRITON_CACHE_DIR": str(cwd / "cache"), "TRITON_DIST_WORLD": "cpu"}
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True)
    if done.returncode != 0:
        raise StepError(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def try_wheel(wheel: Path, python: Path, folder: Path) -> dict[str, str]:
    """The versions and what was found. Raises: StepError, a step failed."""
    here = json.loads(run(python, "-c", VERSIONS, cwd=folder))
    would = json.loads(run(python, "-m", "pip", "install", "-q", "--dry-run", "--report", "-", wheel, cwd=folder))
    changed = {package["metadata"]["name"].lower() for package in would["install"]} & {"torch", "triton"}
    if changed:
        raise StepError(f"pip would install another {' and '.join(sorted(changed))}")

    environment = folder / "environment"
    run(python, "-m", "venv", "--without-pip", environment, cwd=folder)
    installed = environment / "bin" / "python"
    run(python, "-m", "pip", "--python", installed, "install", "-q", "--no-deps", "--no-index", wheel, cwd=folder)
    site_packages = next(environment.glob("lib/python3*/site-packages"))
    (site_packages / "zz_more.pth").write_text("".join(f"{packages}\n" for packages in here.pop("folders")))

    for program in ("import triton, triton_dist", "import triton_dist, triton"):
        if run(installed, "-c", f"{program}; print(triton.__version__)", cwd=folder).strip() != here["Triton"]:
            raise StepError(f"{program}: another Triton than {here['Triton']}")
    info = json.loads(run(environment / "bin" / "triton-dist-info", "--json", cwd=folder))
    plugin = Path(info["versions"]["plugin"]["path"])
    if not plugin.is_relative_to(environment) or f"-{here['Triton']}." not in plugin.name:
        raise StepError(f"the plugin is {plugin}")
    demo = run(installed, "-m", "triton_dist.demo", "--pes", "2", cwd=folder).splitlines()[-1]
    kernel = f"{site_packages / 'triton_dist' / 'examples' / '01_ring_put.py'}:ring_put"
    options = ["--signature", SIGNATURE, "--target", "cuda:90", "-o", folder / "kernel"]
    run(environment / "bin" / "triton-dist-compile", kernel, *options, cwd=folder)
    return here | {"demo": demo, "ring_put for sm_90": f"{(folder / 'kernel' / 'ring_put.cubin').stat().st_size} bytes"}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("python", type=Path, nargs="+")
    arguments = parser.parse_args()
    failed = 0
    for python in arguments.python:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                # The path of an environment's Python is a link, and leads to another environment when it is followed.
                found = try_wheel(arguments.wheel.resolve(), Path(os.path.abspath(python)), Path(folder))
            except StepError as failure:
                failed += 1
                print(f"FAIL {python}: {failure}", flush=True)
            else:
                cells = ", ".join(f"{name} {value}" for name, value in found.items())
                print(f"ok   {cells} ({time.monotonic() - begin:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
