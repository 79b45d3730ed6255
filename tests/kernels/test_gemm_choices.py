"""Which algorithms take which numbers of rows, and which one ``auto`` takes, by ``gemm_choices.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from host_checks import results_of

DOCS = Path(__file__).resolve().parents[2] / "docs" / "kernels.md"
OVERLAPPED = {
    "all_gather_gemm": {"copy_engine"},
    "gemm_reduce_scatter": {"ring", "direct"},
    "gemm_all_reduce": {"ring", "direct"},
    "gemm_all_scatter": {
        *("producer_consumer", "copy_engine", "fused_sequential", "fused_producer_consumer", "warp_specialized"),
    },
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return results_of("gemm_choices.py", tmp_path_factory)


def test_the_table_of_the_documentation_is_what_auto_takes(found: dict[str, Any]) -> None:
    assert "\n".join(found["table"]) in DOCS.read_text(), "\n".join(found["table"])


@pytest.mark.parametrize("operation", OVERLAPPED)
def test_overlapped_algorithms_take_any_number_of_rows(found: dict[str, Any], operation: str) -> None:
    assert len(found["available"][operation]) >= 4 * 12
    for rows, *names in found["available"][operation]:
        assert set(names) >= OVERLAPPED[operation], rows
        assert ("fused" in names) == (rows <= 512 and operation in ("gemm_reduce_scatter", "gemm_all_reduce")), rows


@pytest.mark.parametrize("operation", OVERLAPPED)
def test_fp8_with_scales_of_blocks_is_overlapped(found: dict[str, Any], operation: str) -> None:
    """From 4096 rows on; a ring never where few rows let B be streamed once."""
    assert len(found["blocks"][operation]) >= 4 * 12
    for rows, taken, names in found["blocks"][operation]:
        assert set(names) >= OVERLAPPED[operation] and "fused" not in names, rows
        assert taken != "bulk_synchronous" or rows < 4096, rows
        assert taken != "ring" or rows > 128, rows


def test_with_launches_that_wait_no_kernel_waits_for_what_is_queued_behind_it(found: dict[str, Any]) -> None:
    """``CUDA_LAUNCH_BLOCKING=1``: copies behind a GEMM that waits for them would never be queued."""
    assert len(found["blocking"]["all_gather_gemm"]) >= 4 * 12
    for rows, taken, names in found["blocking"]["all_gather_gemm"]:
        assert "copy_engine" not in (taken, *names) and "bulk_synchronous" in names, rows
    assert all("copy_engine" in names for _, _, names in found["blocking"]["gemm_all_scatter"])
