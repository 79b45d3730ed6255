"""Link the bitcode of our device library, and make it fit any kernel.

    link_device_library.py --llvm FOLDER --output FILE INPUT…

clang marks what it compiles for one machine: the processor and its features, how arguments are widened, versions of
conventions. LLVM refuses to inline a function into one with other marks, or to link two modules that differ in them,
and Triton's kernels have marks of their own. All of them are taken off.

What a kernel calls, it gets inlined, before anything else is done with it. LLVM would optimise each function first by
itself and then again wherever it is inlined, which takes twice the time; and what it left as a call would cost. Only
functions that are `cold` stay functions: those that look at the clock in a wait (runtime/device/WaitReport.h), which
inlined would take registers and code from every wait.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

STATES = ("triton_dist_p2p_state", "triton_dist_wait_state")


def generic(ir: str) -> str:
    """LLVM IR (text) without what ties it to one machine, and all of its functions that are not cold to be inlined."""
    defining = set(re.findall(r"^define .* (#\d+) ", ir, flags=re.MULTILINE))
    return "".join(_generic_line(line, defining) for line in ir.splitlines(keepends=True))


def _generic_line(line: str, defining: set[str]) -> str:
    if line.startswith(("!llvm.module.flags", "!llvm.ident", "!llvm.errno")):
        return ""
    if line.startswith("attributes #"):
        line = re.sub(r' "[^"]*"(="[^"]*")?', "", line)  # target-cpu, target-features, …
        if line.split()[1] in defining and " cold " not in line:
            line = re.sub(r" noinline\b", "", line)  # it kept the library small
            line = line.replace("{", "{ alwaysinline", 1)
        return line
    if line.startswith(tuple(f"@{state} " for state in STATES)):
        # The host fills them before the first launch: their zeros are no values, but no kernel sees them change.
        return re.sub(r" addrspace\(4\) global ", " addrspace(4) externally_initialized constant ", line)
    # The callers that our lowering makes do not widen small integers.
    return re.sub(r"\b(zeroext|signext) ", "", line)


def main() -> None:
    parser = argparse.ArgumentParser(description="Link device bitcode.")
    parser.add_argument("--llvm", type=Path, required=True, help="folder of LLVM's tools")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("inputs", nargs="+")
    options = parser.parse_args()

    def tool(name: str, *arguments: str) -> str:
        command = [str(options.llvm / name), *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    options.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        text = Path(directory, "library.ll")
        text.write_text(generic(tool("llvm-link", "-S", *options.inputs)))
        tool("llvm-as", str(text), "-o", str(options.output))


if __name__ == "__main__":
    main()
