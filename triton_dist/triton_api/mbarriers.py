"""What Triton's IR for GPUs does with mbarriers. The same in the version lines that are known."""

from __future__ import annotations

import re

__all__ = ["forgotten_mbarriers"]


def forgotten_mbarriers(ttgir: str) -> list[tuple[str, int]]:
    """Files and lines of mbarriers whose memory may become something else while the GPU still writes to it.

    These are initialised, not invalidated, and used by no partition; of a kernel without partitions, not used at all.
    To Triton their memory is free. But a GPU keeps mbarriers apart, and may put one into the memory that was its own
    microseconds later (PTX ISA, mbarrier.inval; docs/decisions/0125).
    """
    partitions = re.search(r"ttg\.warp_specialize\(.*?partition0\(", ttgir, re.DOTALL)
    found = []
    for name, place in re.findall(
        r"(%\w+) = ttg\.local_alloc : \(\) -> !ttg\.memdesc<(?:\d+x)+i64\b[^\n]*loc\((#?\w+)\)", ttgir
    ):
        names = [name, *re.findall(rf"(%\w+) = ttg\.memdesc_index {name}\[", ttgir)]
        mention = rf"(?:{'|'.join(names)})\b"
        done = {text.strip() for text in re.findall(rf"^(.*?){mention}", ttgir, re.MULTILINE)}
        # Where there are partitions, what they are given, and the code of the first.
        used = re.search(mention, partitions[0]) if partitions else done - {"", "ttng.init_barrier"}
        if "ttng.init_barrier" in done and "ttng.inval_barrier" not in done and not used:
            found.append(_place(ttgir, place))
    return found


def _place(ttgir: str, name: str) -> tuple[str, int]:
    """File and line of a location of MLIR, that of the innermost call."""
    while definition := re.search(rf"^{name} = loc\((.*)\)$", ttgir, re.MULTILINE):
        if here := re.match(r'"([^"]*)":(\d+):\d+$', definition[1]):
            return here[1], int(here[2])
        inner = re.search(r"#\w+", definition[1])
        if inner is None:
            break
        name = inner[0]
    return "", 0
