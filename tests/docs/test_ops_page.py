"""docs/ops.md: every signature that it shows can be called as shown, with its names as keywords and its defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import triton
from op_signatures import PAGE, as_call, imported, signatures
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from triton_dist.compiler import hooks, transport

ARGUMENTS = {"words": "*i64", "status": "*i32", "n": "i32"}


def sections() -> dict[str, list[str]]:
    """Signatures by the title of their section."""
    return signatures("##")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """A kernel for each section, in a file, since Triton reads the source."""

    def lines() -> Iterator[str]:
        yield "import triton_dist.language as dl"
        for number, shown in enumerate(sections().values()):
            yield f"def section_{number}({', '.join(ARGUMENTS)}):"
            yield from (f"    {as_call(signature)}" for signature in dict.fromkeys(shown))

    return imported(lines(), tmp_path_factory.mktemp("signatures") / "kernels_of_signatures.py")


def test_signatures_are_found() -> None:
    shown = {re.match(r"dl\.\w+", signature)[0] for part in sections().values() for signature in part}  # type: ignore[index]
    import triton_dist.language as dl

    functions = {f"dl.{name}" for name in dl.__all__ if callable(getattr(dl, name)) and not name.isupper()}
    assert functions - shown == {"dl.notify", "dl.num_ranks", "dl.rank", "dl.wait"}  # other names for some of these


def test_c_signatures_are_whole() -> None:
    assert "Shmem_" not in re.sub(r"\]\([^)]*\)", "", PAGE), "a name of the op table's own stands on the page"
    for signature in re.findall(r"^C: `([^`]*)`", PAGE, re.MULTILINE):
        assert re.search(r"\(.*\)|!=", signature, re.DOTALL), signature


@pytest.mark.parametrize(("number", "title"), list(enumerate(sections())), ids=list(sections()))
def test_signatures_compile(
    kernels: ModuleType, number: int, title: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    monkeypatch.setattr(triton.knobs.runtime, "add_stages_inspection_hook", None)
    hooks.install()
    source = ASTSource(fn=JITFunction(getattr(kernels, f"section_{number}")), signature=dict(ARGUMENTS))
    with transport.using("p2p"):
        assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]
