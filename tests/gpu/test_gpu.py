"""The whole way on real GPUs: examples, every op between PEs, the disk cache, and what happens when it cannot work."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torchrun import ROOT, torchrun

pytestmark = pytest.mark.gpu(2)

EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))
GPU = {"TRITON_DIST_WORLD": "gpu"}
# The largest reducescatter takes 3 MB from 4 PEs together; NVSHMEM's memory for reductions must hold the double.
CHECKS = GPU | {"TRITON_DIST_SYMMETRIC_SIZE": "8G", "NVSHMEM_REDUCE_SCRATCH_SIZE": "16M", "OMP_NUM_THREADS": "1"}

each_transport = pytest.mark.parametrize("transport", ["p2p", "nvshmem"])


@each_transport
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example: Path, n_gpus: int, transport: str) -> None:
    run = torchrun(n_gpus, f"examples/{example.name}", env=GPU | {"TRITON_DIST_TRANSPORT": transport})
    assert run.returncode == 0, run.stdout
    assert f"PASS {example.stem}: gpu world, {n_gpus} PEs" in run.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_alone(example: Path) -> None:
    run = torchrun(1, f"examples/{example.name}", env=GPU)
    assert run.returncode == 0, run.stdout
    assert f"PASS {example.stem}: gpu world, 1 PE," in run.stdout


def test_transformer_of_experts(n_gpus: int) -> None:
    """Prefill and decode of Qwen3-30B-A3B's shapes, eager, compiled, and in CUDA graphs."""
    arguments = "--config", "qwen3-30b-a3b", "--layers", "2"
    run = torchrun(min(n_gpus, 4), "examples/05_transformer.py", *arguments, env=GPU)
    assert run.returncode == 0, run.stdout
    assert "PASS 05_transformer: gpu world" in run.stdout


def test_models_in_training_and_serving(n_gpus: int) -> None:
    run = torchrun(min(n_gpus, 4), "tests/gpu/worker_models.py", env=CHECKS, timeout=900)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("PASS") == 5, run.stdout


def test_sums_beside_other_processes(n_gpus: int) -> None:
    """Three worlds on the same GPUs, whose kernels take turns: so peers are late (docs/decisions/0132)."""
    arguments = "--limit", "300", "--only", "sums_of_late_peers", "scales_of_rows"

    def run(_: int) -> subprocess.CompletedProcess[str]:
        return torchrun(min(n_gpus, 4), "tests/gpu/worker_ops.py", *arguments, env=CHECKS, timeout=900)

    with ThreadPoolExecutor() as pool:
        for one in pool.map(run, range(3)):
            assert one.returncode == 0, one.stdout
            assert one.stdout.count("PASS") == 3, one.stdout


def test_experts_as_dtensors(n_gpus: int) -> None:
    """Checkpoints, optimizers, FSDP and DistributedDataParallel, over NCCL."""
    n_pes = 4 if n_gpus >= 4 else 2
    env = CHECKS | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/world/checks")])}
    run = torchrun(n_pes, "tests/kernels/checks/moe_distributed.py", env=env, timeout=900)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("passed:") == 12 * n_pes, run.stdout


@functools.cache
def warm_cache(transport: str) -> None:
    """The checks' kernels are compiled by all cores at once. What fails here, fails in the test as well."""
    subprocess.run([sys.executable, ROOT / "tests/gpu/warm_cache.py", transport], env=os.environ | CHECKS)


@each_transport
def test_ops(n_gpus: int, transport: str, tmp_path: Path) -> None:
    warm_cache(transport)
    env, report = CHECKS | {"TRITON_DIST_TRANSPORT": transport}, tmp_path / "results.json"
    run = torchrun(n_gpus, "tests/gpu/worker_ops.py", "--results", str(report), env=env, timeout=600)
    print(run.stdout)
    assert run.returncode == 0, run.stdout
    command = [sys.executable, ROOT / "tests/gpu/worker_ops.py", "--list"]
    listed = subprocess.run(command, env=os.environ | env, capture_output=True, text=True).stdout.split()
    results = json.loads(report.read_text())
    assert [check["check"] for check in results["checks"] if check["passed"]] == listed


@each_transport
def test_ops_between_pretended_hosts(n_gpus: int, transport: str, tmp_path: Path) -> None:
    """Each GPU is a host, or every two of them: what loads from and stores to all PEs is left out."""
    hosts = f"{n_gpus // 2}x2" if n_gpus > 2 and n_gpus % 2 == 0 else f"{n_gpus}x1"
    report = tmp_path / "results.json"
    env = CHECKS | {"TRITON_DIST_TRANSPORT": transport, "TRITON_DIST_TOPOLOGY": hosts}
    arguments = ("--limit", "300", "--results", str(report))
    run = torchrun(n_gpus, "tests/gpu/worker_ops.py", *arguments, env=env, timeout=1200)
    print(run.stdout)
    assert run.returncode == 0, run.stdout
    results = json.loads(report.read_text())
    assert results["transport"] == transport and results["checks"] and all(c["passed"] for c in results["checks"])


def test_operators_and_parallel_styles_of_pytorch(n_gpus: int) -> None:
    run = torchrun(n_gpus, "tests/gpu/worker_torch_ops.py", env=CHECKS, timeout=600)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("PASS") == 10, run.stdout


@pytest.mark.skipif(not find_spec("transformers"), reason="Hugging Face transformers is not installed (extra models)")
def test_hugging_face(n_gpus: int) -> None:
    run = torchrun(n_gpus, "tests/gpu/worker_hf.py", env=CHECKS, timeout=600)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("PASS") == 4, run.stdout


def test_profilers(n_gpus: int) -> None:
    run = torchrun(n_gpus, "tests/gpu/worker_profilers.py", env=CHECKS)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("PASS") == 3, run.stdout


def test_mixture_of_experts(n_gpus: int) -> None:
    # With four GPUs or more some checks are of a group, whose rounds of 64 programs take more than the default.
    env = CHECKS | {"TRITON_DIST_GROUP_MEMORY": "2G"}
    run = torchrun(n_gpus, "tests/gpu/worker_moe.py", env=env, timeout=600)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("PASS") == 29, run.stdout


@each_transport
def test_mixture_of_experts_between_pretended_hosts(n_gpus: int, transport: str) -> None:
    hosts = f"{n_gpus // 2}x2" if n_gpus > 2 and n_gpus % 2 == 0 else f"{n_gpus}x1"
    env = CHECKS | {"TRITON_DIST_TRANSPORT": transport, "TRITON_DIST_TOPOLOGY": hosts}
    run = torchrun(n_gpus, "tests/gpu/worker_moe.py", env=env, timeout=600)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("PASS") == 17, run.stdout


def test_second_streams_on_more_streams_than_torch_has(n_gpus: int) -> None:
    run = torchrun(n_gpus, "tests/gpu/worker_streams.py", env=CHECKS, timeout=600)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("PASS") == 20, run.stdout


@pytest.mark.parametrize(
    "setting",
    [
        "CUDA_LAUNCH_BLOCKING=1",
        "CUDA_DEVICE_MAX_CONNECTIONS=1",
        "CUDA_MODULE_LOADING=EAGER",
        "PYTORCH_NO_CUDA_MEMORY_CACHING=1",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync",
        "--own-gpu",
    ],
)
def test_settings_of_cuda_and_pytorch(n_gpus: int, setting: str) -> None:
    own = [setting] if setting.startswith("--") else []
    env = CHECKS if own else CHECKS | dict([setting.split("=")])
    run = torchrun(n_gpus, "tests/gpu/worker_settings.py", *own, env=env, timeout=600)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("PASS") == 4, run.stdout


def test_another_default_device(n_gpus: int) -> None:
    env = CHECKS | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/world/checks")])}
    run = torchrun(n_gpus, "tests/kernels/checks/default_device.py", env=env, timeout=300)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("passed:") == 3 * n_gpus, run.stdout


def test_any_number_of_rows_in_graphs_and_tuning(n_gpus: int, tmp_path: Path) -> None:
    env = CHECKS | {"TRITON_DIST_TUNING_DIR": str(tmp_path)}
    run = torchrun(n_gpus, "tests/gpu/worker_serving.py", env=env, timeout=900)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("PASS") == 3, run.stdout


def test_kernels_compiled_ahead_of_time(n_gpus: int, tmp_path: Path) -> None:
    major, minor = torch.cuda.get_device_capability()
    command = [sys.executable, str(ROOT / "tests/gpu/compile_ahead_of_time.py"), str(tmp_path), f"cuda:{major}{minor}"]
    subprocess.run(command, check=True)
    run = torchrun(n_gpus, "tests/gpu/worker_ahead_of_time.py", str(tmp_path), env=GPU)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("PASS") == 6, run.stdout


def test_groups_and_communicators(n_gpus: int) -> None:
    run = torchrun(n_gpus, "tests/gpu/worker_groups.py", env=CHECKS, timeout=600)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("PASS") == 5, run.stdout


def test_members_that_call_with_different_shapes_are_named() -> None:
    run = torchrun(2, "tests/gpu/worker_groups.py", "shapes", env=CHECKS, timeout=120)
    assert run.returncode != 0
    assert "PE 0: all_reduce((96,), torch.float32" in run.stdout, run.stdout
    assert "PE 1: all_reduce((64,), torch.float32" in run.stdout, run.stdout


def test_stress(n_gpus: int) -> None:
    run = torchrun(
        n_gpus, "tests/gpu/stress.py", "--seconds", "90", "--seed", "1", "--variety", "1", env=GPU, timeout=400
    )
    assert run.returncode == 0, run.stdout
    assert "PASS seed 1: " in run.stdout, run.stdout


def test_heap_teams_and_host_operations(n_gpus: int) -> None:
    run = torchrun(n_gpus, "tests/gpu/worker_heap.py", env=GPU)
    assert run.returncode == 0, run.stdout
    assert re.search(r"^(\d+) of \1 without failure", run.stdout, re.MULTILINE), run.stdout


@pytest.mark.parametrize("first", ["torch", "ours", "cuda"])
def test_torch_s_symmetric_memory(first: str) -> None:
    run = torchrun(2, "tests/gpu/worker_symm_mem.py", first, env=GPU, timeout=120)
    assert "symm_mem: passed" in run.stdout, run.stdout


def test_registered_memory() -> None:
    run = torchrun(2, "tests/gpu/worker_register.py", env=GPU, timeout=120)
    assert run.returncode == 0, run.stdout
    assert "register: passed" in run.stdout


def test_lifecycle(n_gpus: int) -> None:
    run = torchrun(n_gpus, "tests/gpu/worker_lifecycle.py", env=GPU)
    assert run.returncode == 0, run.stdout
    assert "lifecycle: passed" in run.stdout


def test_an_error_in_a_second_world_is_the_end_s_reason(n_gpus: int) -> None:
    run = torchrun(n_gpus, "tests/gpu/worker_lifecycle.py", "fail", env=GPU)
    assert "lifecycle: failed on purpose" in run.stdout, run.stdout
    assert "exitcode  : 1 " in run.stdout and "exitcode  : -" not in run.stdout, run.stdout


@pytest.mark.parametrize("end", ["exit", "finalize"])
def test_a_script_may_end_nvshmem_itself(end: str) -> None:
    run = torchrun(2, "tests/gpu/worker_nvshmem_finalize.py", end, env=GPU, timeout=120)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("nvshmem_finalize passed") == 2, run.stdout


def test_second_process_uses_the_disk_cache(tmp_path: Path) -> None:
    env = GPU | {"TRITON_CACHE_DIR": str(tmp_path)}
    first = torchrun(2, "tests/gpu/worker_cache.py", env=env)
    assert first.returncode == 0, first.stdout
    second = torchrun(2, "tests/gpu/worker_cache.py", env=env)
    assert second.returncode == 0, second.stdout
    compiled = [int(re.search(r"compiled (\d+), cached (\d+)", run.stdout)[1]) for run in (first, second)]
    assert compiled[0] >= 2, first.stdout
    assert compiled[1] == 0, second.stdout


def test_more_pes_than_gpus_is_an_error_within_seconds() -> None:
    begin = time.monotonic()
    run = torchrun(torch.cuda.device_count() + 1, "examples/01_ring_put.py", env=GPU, timeout=120)
    assert run.returncode != 0
    assert "TRITON_DIST_WORLD=cpu" in run.stdout, run.stdout
    assert time.monotonic() - begin < 90


def test_a_pe_that_fails_ends_the_others() -> None:
    program = ROOT / "tests/gpu/worker_fails.py"
    run = torchrun(2, str(program.relative_to(ROOT)), env=GPU, timeout=120)
    assert run.returncode != 0
    assert "PE 1 gives up" in run.stdout, run.stdout
    assert "killed after" not in run.stdout, "the launch hung"
