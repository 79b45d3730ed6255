"""Machine code of warp-specialised kernels: whether it fits a Hopper GPU, and which registers it uses under each limit
of ``setmaxnreg``, along jumps, tables, calls and returns."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from pathlib import Path

import triton
from ptx import ptxas_report

__all__ = ["ptx_that_fits", "registers_by_limit", "signals_all", "takes_uniform_numbers", "words_waited_for"]

SHARED = 227 << 10
"""Shared memory of a program, in bytes."""

NVDISASM = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"


def ptx_that_fits(folder: Path, case: str) -> str:
    """The PTX of ``folder/case.ptx``: nothing is spilled, registers stay within their limits, and the shared memory
    that is named beside it exists."""
    file = folder / f"{case}.ptx"
    report = ptxas_report(file)
    assert " 0 bytes spill stores" in report, (case, report)
    assert int((folder / f"{case}.shared").read_text()) <= SHARED
    used = registers_by_limit(file.with_suffix(".cubin"))
    assert all(registers <= limit for limit, registers in used.items() if limit), (case, used)
    return file.read_text()


def takes_uniform_numbers(folder: Path, case: str) -> bool:
    """Whether each row that TMA moves is named by registers of the warp. Where the compiler does not know that all
    lanes name the same one, TMA's instructions are predicated, and registers are moved lane by lane around them."""
    moves = [line for line in _listing(folder / f"{case}.cubin") if re.search(r"UTMA(LD|ST)G", line)]
    assert moves, case
    return not any("@" in line for line in moves)


def words_waited_for(folder: Path, case: str) -> int:
    """How many words of memory a register of the warp takes in a loop, and is the first to ask for: an instruction that
    does so waits for the word, so none of these is loaded ahead (docs/decisions/0129)."""
    LOOP, NEAR = 500, 40  # lines: of a loop over batches at most, and between a load and who waits for it
    lines = _listing(folder / f"{case}.cubin")
    labels = {found[1]: at for at, line in enumerate(lines) if (found := re.fullmatch(r"(\S+):\s*", line))}
    jumps = [
        (labels[found[1]], at)
        for at, line in enumerate(lines)
        if (found := re.search(r"BRA[^`]*`\(([^)]*)\)", line)) and labels[found[1]] < at
    ]
    count = 0
    for at, line in enumerate(lines):
        loaded = re.search(r"LDG\S* (R\d+),", line)
        if loaded and any(begin <= at <= end < begin + LOOP for begin, end in jumps):
            asks = (other for other in lines[at + 1 : at + NEAR] if re.search(rf"\b{loaded[1]}\b", other))
            count += bool(re.search(r" (R2UR|REDUX)", next(asks, "")))
    return count


def _listing(cubin: Path) -> list[str]:
    found = subprocess.run([NVDISASM, "-c", cubin], capture_output=True, text=True, check=True)
    return found.stdout.splitlines()


def registers_by_limit(cubin: Path) -> dict[int, int]:
    """How many registers the kernel's warps use, by the limit in force; 0: before the first ``setmaxnreg``."""
    code: list[str] = []
    labels: dict[str, int] = {}
    for line in _listing(cubin):
        if label := re.fullmatch(r"(\S+):\s*", line):
            labels[label[1]] = len(code)
        elif instruction := re.match(r"\s+/\*[0-9a-f]{4,5}\*/\s+(.*);", line):
            code.append(instruction[1].strip())
    used: dict[int, int] = defaultdict(int)
    reached: set[tuple[int, int, tuple[int, ...]]] = set()
    todo: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, ())]
    while todo:
        state = todo.pop()
        if state in reached:
            continue
        reached.add(state)
        place, limit, callers = state
        instruction_ = re.sub(r"^@!?U?P\w+ +", "", code[place])
        if set_ := re.match(r"USETMAXREG\.\S+ (?:UP\d, )?(0x[0-9a-f]+)", instruction_):
            limit = int(set_[1], 16)
        used[limit] = max([used[limit], *(int(number) + 1 for number in re.findall(r"(?<!\w)R(\d+)", instruction_))])
        operation = instruction_.split(".")[0].split()[0]
        target = re.search(r"`\(([^)]*)\)\s*$", instruction_)
        goes_on = instruction_ != code[place] or re.search(r"^BRA[^`]* !?U?P\d", instruction_) is not None
        if operation == "CALL":
            assert target
            todo.append((labels[target[1]], limit, (*callers, place + 1)))
        elif operation == "RET":
            todo.append((callers[-1], limit, callers[:-1]))
        elif operation == "BRX":
            table = re.search(r'BRANCH_TARGETS ([^"]*)"', instruction_)
            assert table
            todo += [(labels[name], limit, callers) for name in table[1].split(",")]
        elif operation == "BRA":
            assert target
            todo.append((labels[target[1]], limit, callers))
        elif operation != "EXIT":
            goes_on = True
        if goes_on and operation not in ("CALL", "BRX"):
            todo.append((place + 1, limit, callers))
    return dict(used)


def signals_all(code: str) -> bool:
    """Whether flags of peers are set behind a fence that is for all of them, and none by a release of its own."""
    relaxed = "fence.acq_rel.sys;" in code and "atom.global.sys.relaxed.exch" in code
    return relaxed and "atom.global.sys.release" not in code
