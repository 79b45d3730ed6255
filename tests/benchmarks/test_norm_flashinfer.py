"""How norm.py calls FlashInfer's fused kernel, which a function of the same arguments stands in for here."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
PATTERNS = {
    "kARResidualRMSNorm": None,
    "kARResidualRMSNormDynamicFP8Quant": "token",
    "kARResidualRMSNormPerTokenGroupFP8PackedQuant": "block",
}
M, H = 5, 256


class Library:
    """As much of FlashInfer as the benchmark calls, for two PEs with the partial sums of ``rows``."""

    AllReduceFusionPattern = SimpleNamespace(**{name: name for name in PATTERNS})

    def __init__(self) -> None:
        self.rows: Any = None
        self.open: list[Any] = []
        self.chosen: list[bool | None] = []

    def get_trtllm_comm_module(self) -> None: ...

    def trtllm_create_ipc_workspace_for_all_reduce_fusion(
        self, *, tp_rank: int, tp_size: int, max_token_num: int, hidden_dim: int, create_metadata: bool
    ) -> tuple[object, torch.Tensor, dict[str, int]]:
        assert (tp_rank, tp_size, max_token_num, hidden_dim, create_metadata) == (0, 2, M, H, True)
        self.open.append(handles := [[0]])
        return handles, torch.zeros(7, dtype=torch.int64), {"max_token_num": max_token_num}

    def trtllm_destroy_ipc_workspace_for_all_reduce_fusion(self, handles: object) -> None:
        self.open.remove(handles)

    def trtllm_allreduce_fusion(self, **a: Any) -> None:
        quantize = PATTERNS[a["pattern_code"]]
        self.chosen.append(a["use_oneshot"])
        [i] = [i for i, x in enumerate(self.rows.x) if x is a["allreduce_in"]]
        new = sum(self.rows.random(M, H, seed=100 * i + pe + 10).float() for pe in range(2)) + a["residual_in"].float()
        a["residual_out"].copy_(new)
        normed = new * torch.rsqrt(new.pow(2).mean(-1, keepdim=True) + a["rms_eps"]) * a["rms_gamma"].float()
        if quantize is None:
            assert a["quant_out"] is None and a["scale_out"] is None
            a["norm_out"].copy_(normed)
            return
        pieces = normed.view(-1, H if quantize == "token" else a["block_quant_group_size"])
        scale = pieces.abs().amax(1, keepdim=True) / 448
        if quantize == "token":
            a["scale_out"].copy_(scale)
        else:
            assert a["scale_out"].shape == (1, 8), "words of 4 exponents, and rows padded to a multiple of 4"
            scale = torch.exp2(scale.log2().ceil())
        assert a["norm_out"] is None
        a["quant_out"].copy_((pieces / scale).to(torch.float8_e4m3fn).view(M, H))


class Bench:
    """A benchmark of two PEs, of which the other one has the problem ``theirs``."""

    def __init__(self, theirs: str = "", n_pes: int = 2) -> None:
        self.world = SimpleNamespace(kind="cpu", device=torch.device("cpu"), pe=0, n_pes=n_pes)
        self.theirs = theirs

    def agree(self, problem: str) -> str:
        return problem or self.theirs

    def settle(self) -> None: ...


@pytest.fixture
def norm(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import norm

    return norm


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    for name in ("flashinfer", "flashinfer.comm", "flashinfer.comm.trtllm_ar"):
        module: Any = library if name != "flashinfer" else ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
    return library


@pytest.mark.parametrize("quantize", [None, "token", "block"])
def test_the_fused_kernel_gets_its_arguments(norm: Any, library: Library, quantize: str | None) -> None:
    bench = Bench()
    library.rows = rows = norm.Rows(bench.world, M, H, quantize)
    with norm.fused_by_flashinfer(bench, rows, norm.EPS) as contenders:
        assert list(contenders) == ["FlashInfer fused", "FlashInfer fused, two-shot"]
        for step in contenders.values():
            assert rows.check(step(0), 0) is None
            assert rows.check(step(0).roll(1, 0), 0), "another row's result is wrong"
        assert library.chosen == [None, None, False, False]
        assert len(library.open) == 1
    assert not library.open


def test_two_shot_takes_more_rows_than_pes(norm: Any, library: Library) -> None:
    bench = Bench()
    rows = SimpleNamespace(world=bench.world, m=2, h=H, quantize=None)
    library.trtllm_create_ipc_workspace_for_all_reduce_fusion = lambda **_: ([], None, {})  # type: ignore[method-assign]
    library.open.append([])
    with norm.fused_by_flashinfer(bench, rows, norm.EPS) as contenders:
        assert list(contenders) == ["FlashInfer fused"]


def reason(norm: Any, bench: Bench) -> str:
    """Why the contenders cannot run. Every contender says the same."""
    with norm.fused_by_flashinfer(bench, norm.Rows(bench.world, M, H, None), norm.EPS) as contenders:
        texts = set()
        for step in contenders.values():
            with pytest.raises((ImportError, RuntimeError, ValueError)) as error:
                step(0)
            texts.add(f"{error.type.__name__}: {error.value}")
    [text] = texts
    return text


def test_the_contenders_say_why_they_cannot_run(norm: Any, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reason(norm, Bench("ImportError: none (PE 1)")) == "RuntimeError: ImportError: none (PE 1)"
    assert "takes (2, 4, 8) PEs, not 3" in reason(norm, Bench(n_pes=3))
    assert not library.open
    monkeypatch.setattr(library, "AllReduceFusionPattern", SimpleNamespace(kARResidualRMSNorm=1))
    assert "lacks kARResidualRMSNormDynamicFP8Quant" in reason(norm, Bench())
    for name in ("flashinfer", "flashinfer.comm", "flashinfer.comm.trtllm_ar"):
        monkeypatch.setitem(sys.modules, name, None)
    assert reason(norm, Bench()).startswith("ModuleNotFoundError")
