"""The kernels in the CPU world: a test for each check of ``checks/`` and each number of PEs, one launch a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from check_files import CheckFiles
from forking import COMPILER, launch

from triton_dist.testing import Result

CHECKS = Path(__file__).parent / "checks"
HARNESS = Path(__file__).parents[1] / "world" / "checks"  # whose harness.py runs the checks of a file on one PE
ENVIRONMENT = {"TRITON_DIST_WORLD": "cpu", "TRITON_DIST_WAIT_TIMEOUT": "600", "TRITON_DIST_SYMMETRIC_SIZE": "64M"}
RUNS = {
    "barrier.py": (3,),
    "collectives.py": (1, 3, 4),
    "exchanges.py": (1, 2, 3, 4),
    "overlaps.py": (2, 3),
    "options.py": (1,),
    "groups.py": (4,),
    "process_groups.py": (4,),
    "moe_distributed.py": (4,),
    "default_device.py": (2,),
    "gemms.py": (2, 3),
    "bands.py": (2, 4),
    "hopper_gemms.py": (2, 3),
    "hopper_rounds.py": (2, 3),
    "hopper_tokens.py": (2, 3),
    "hopper_tokens_of_many_pes.py": (5,),
    "hopper_layers.py": (2, 3),
    "uneven.py": (2, 3, 4),
    "uneven_norms.py": (2, 3, 4),
    "uneven_operators.py": (2, 3, 4),
    "epilogues.py": (2, 3),
    "moe.py": (2, 3),
    "moe_many.py": (2, 3),
    "moe_many_pes.py": (5,),
    "moe_tokens.py": (2, 3),
    "moe_assertions.py": (2,),
    "moe_misuse.py": (4,),
    "moe_layers.py": (2,),
    "moe_backward.py": (2, 4),
    "moe_tensor.py": (2, 3),
    "moe_tensor_layers.py": (2,),
    "moe_grids.py": (4,),
    "moe_grids_all.py": (4,),
    "moe_whole.py": (2, 3),
    "deep_ep.py": (2,),
    "norms.py": (2, 3),
    "decode.py": (2, 3),
    "projection.py": (2, 3),
    "sm_margin.py": (2,),
    "tracing.py": (3,),
    "tuning.py": (2, 3),
    "reserving.py": (2, 3),
    "operators.py": (2,),
    "tensor_parallel.py": (2,),
    "uneven_tensor_parallel.py": (2, 3, 4),
    "inductor.py": (3,),
    "profiles.py": (2,),
}
SLOW = (
    *("uneven-2", "uneven-4", "uneven_norms-2", "uneven_norms-4", "uneven_operators-2", "uneven_operators-4"),
    *(
        "uneven_tensor_parallel-2",
        "uneven_tensor_parallel-4",
        "uneven_tensor_parallel-3-uneven_sequences_compiled",
        "uneven_operators-3-uneven_opcheck",
        "uneven_norms-3-uneven_norms_opcheck",
    ),
    "overlaps-3",
    *("exchanges-1", "exchanges-4", "exchanges-3-sizes"),
    *(f"exchanges-2-{check}" for check in ("rounds", "every_float", "gathered", "gathered_zeros", "refusals")),
    *("collectives-1", "collectives-4", "gemms-2", "bands-2", "inductor-3", "tuning-3", "reserving-3", "projection-3"),
    *("hopper_gemms-3", "hopper_rounds-3", "hopper_tokens-3", "hopper_layers-3"),
    *("epilogues-3", "moe-3", "moe_many-3", "moe_many_pes-5", "moe_tensor-3", "moe_whole-3", "norms-3", "decode-3"),
    *("gemms-3-fp8_with_scales_of_blocks", "moe_tensor-2-moe_tensor_sizes_and_dtypes"),
    *("process_groups-4-operators_and_their_gradients", "process_groups-4-parallel_styles_on_a_part_of_a_mesh"),
    *("process_groups-4-all_operators_by_name", "operators-2-sizes_of_all_kinds"),
    *("sm_margin-2-gemms", "groups-4-gemms", "groups-4-many_shapes_take_bounded_memory"),
    *("epilogues-2-bias_and_residual_of_sums", "epilogues-2-activations", "epilogues-2-activations_of_sums"),
    *("moe_tokens-2-moe_tokens_compiled", "moe_tokens-3-moe_tokens_compiled", "moe_tokens-3-moe_tokens_opcheck"),
    *("moe_tokens-3-moe_tokens_gradients", "moe_tokens-3-moe_tokens", "moe_tokens-3-moe_tokens_are_refused"),
    *("moe-2-moe_rounds", "moe_layers-2-moe_opcheck", "moe_layers-2-moe_compiled"),
    "moe_layers-2-moe_layers_by_tokens_compiled",
    *("moe_backward-4", "moe_backward-2-backward_opcheck", "moe_backward-2-backward_of_slices_opcheck"),
    "moe_backward-2-backward_compiled",
    *("moe_distributed-4-compiled", "moe_distributed-4-data_parallel_compiled"),
    "moe_distributed-4-gradients_in_data_parallel_are_those_of_the_mean_loss",
    *("moe_grids-4-moe_grid_opcheck", "moe_grids-4-moe_grid_compiled", "moe_grids_all-4"),
    *("moe_tensor_layers-2-moe_tensor_opcheck", "moe_tensor_layers-2-moe_tensor_compiled"),
    *("moe_whole-2-moe_whole_sizes_and_dtypes", "operators-2-opcheck", "operators-2-compile"),
    *("operators-2-norms_and_decode_compiled", "tensor_parallel-2-compile", "groups-4-rows_and_columns"),
    "operators-2-gemms_of_all_layouts_and_their_gradients",
)
"""Repeats at other sizes, with another number of PEs, or compiled what the other checks of the same operations show."""


ALL_CASES = (
    *(("moe_distributed.py", 4), ("moe_misuse.py", 4), ("moe_grids.py", 4), ("bands.py", 4), ("deep_ep.py", 2)),
    *(("moe_layers.py", 2), ("moe_backward.py", 2), ("operators.py", 2), ("hopper_tokens_of_many_pes.py", 5)),
    *(("hopper_gemms.py", 2), ("hopper_rounds.py", 2), ("hopper_tokens.py", 2), ("exchanges.py", 3)),
)
"""Launches of which fast tests draw a part of the cases."""


def launched(args: Sequence[str | Path], n_pes: int) -> Result:
    """Checks of Hopper's kernels in a world that has them."""
    hopper = {"TRITON_DIST_CPU_CAPABILITY": "9.0"} if Path(args[0]).name.startswith("hopper") else {}
    return launch(args, n_pes, env=ENVIRONMENT | {"PYTHONPATH": str(HARNESS)} | hopper, modules=COMPILER)


FILES = CheckFiles(CHECKS, launched, RUNS, SLOW)


@pytest.mark.parametrize(("file", "n_pes", "check"), FILES.parameters())
def test_check(file: str, n_pes: int, check: str) -> None:
    FILES.assert_passed(file, n_pes, check)


@pytest.mark.slow
@pytest.mark.parametrize(("file", "n_pes"), ALL_CASES)
def test_all_cases(file: str, n_pes: int) -> None:
    FILES.assert_all_cases_passed(file, n_pes)


def test_compiled_before_any_world() -> None:
    """The error says what is missing, also where nothing has looked for a world before."""
    program = """
import torch
from triton_dist.kernels import functional
torch.compile(functional.all_reduce, backend="aot_eager", fullgraph=True)(torch.ones(2))
"""
    result = launch(["-c", program], 1, env=ENVIRONMENT, modules=COMPILER)
    assert "there is no world: call triton_dist.init() first" in result[0].stderr, result.report


def test_an_operator_without_a_gradient_refuses_it_and_none_imports_the_compiler() -> None:
    program = """
import sys
import torch
import triton_dist
from triton_dist.kernels import functional
with triton_dist.init():
    a, b, weight = torch.ones(2, 16, requires_grad=True), torch.ones(16, 8), torch.ones(16)
    summed = functional.all_reduce(a)
    summed.sum().backward()
    assert "torch._dynamo" not in sys.modules, "that takes seconds"
    torch.ops.triton_dist.all_reduce_norm(a, weight, None, None, "rms", None, 1e-6, "", 1, "")[0].sum().backward()
"""
    result = launch(["-c", program], 1, env=ENVIRONMENT)
    assert "triton_dist::all_reduce_norm has no gradient: call it with detached tensors" in result[0].stderr, (
        result.report
    )
    assert "takes seconds" not in result[0].stderr, result.report
