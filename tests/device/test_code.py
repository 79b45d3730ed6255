"""What the bitcode holds: every routine of the op table, nothing foreign, and the instructions that it is about."""

from __future__ import annotations

import itertools
import re
import subprocess
from pathlib import Path

import pytest
from device_tools import LIBRARIES, tool

from triton_dist._C.op_table import OPS, Effect, Op, Reduction

TARGETS = ["nvptx64", "amdgcn"]
each_target = pytest.mark.parametrize("target", TARGETS)

FLOATS = {"f16", "bf16", "f32", "f64"}
BITWISE = {"and", "or", "xor"}


def routines(op: Op) -> list[str]:
    """All routines that an op may call."""
    name = op.routines["p2p"]
    choices = {
        "$op": [reduction.name.lower() for reduction in Reduction] if "$op" in name else [""],
        "$type": [element.name.lower() for element in op.elements] if "$type" in name else [""],
        "$aligned": ["", "_aligned", "_between_aligned"] if "$aligned" in name else [""],
        "$scope": ["", "_warp", "_block"] if "$scope" in name else [""],
    }
    return [
        name.replace("$op", reduction).replace("$type", kind).replace("$aligned", aligned).replace("$scope", scope)
        for reduction, kind, aligned, scope in itertools.product(*choices.values())
        if kind not in FLOATS or reduction not in BITWISE
    ]


def library(target: str) -> Path:
    return LIBRARIES / f"p2p_{target}.bc"


def symbols(target: str) -> dict[str, str]:
    """Kind of each symbol, as nm tells it."""
    listing = subprocess.run([tool("llvm-nm"), str(library(target))], check=True, capture_output=True, text=True)
    return {line.split()[-1]: line.split()[-2] for line in listing.stdout.splitlines()}


def ir(target: str) -> str:
    command = [tool("llvm-dis"), "-o", "-", str(library(target))]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def code(target: str, cpu: str, *routines: str) -> str:
    """Routines and what they call, as a GPU runs them."""
    functions = [f"--func={routine}" for routine in routines]
    extract = [tool("llvm-extract"), *functions, "--recursive", "-o", "-", str(library(target))]
    bitcode = subprocess.run(extract, check=True, capture_output=True).stdout
    architecture = ["-mattr=+ptx80"] if target == "nvptx64" else []
    compile_ = [tool("llc"), f"-march={target}", f"-mcpu={cpu}", *architecture, "-o", "-"]
    return subprocess.run(compile_, input=bitcode, check=True, capture_output=True).stdout.decode()


def ptx(*routines: str) -> str:
    return code("nvptx64", "sm_90", *routines)


def ptx_by_function(*routines: str) -> dict[str, str]:
    """The PTX of routines and of what they call, by name."""
    functions = re.split(r"(?=^\.(?:(?:visible|weak) \.)?func)", ptx(*routines), flags=re.MULTILINE)
    return {re.search(r"(\w+)\(", text)[1]: text for text in functions if "\n{" in text}  # type: ignore[index]


def assert_in_order(text: str, *patterns: str) -> None:
    assert re.search(".*?".join(patterns), text, flags=re.DOTALL), f"not in this order: {patterns}\n{text}"


# ---- the whole library


@each_target
def test_every_routine_of_the_table_is_there(target: str) -> None:
    wanted = {routine for op in OPS.values() if op.caller for routine in routines(op)}
    assert len(wanted) > 700
    defined = {name for name, kind in symbols(target).items() if kind == "T"}
    assert wanted - defined == set()
    assert defined - wanted == set(), "routines that no op calls"


@each_target
def test_it_calls_one_function_and_has_two_globals(target: str) -> None:
    kinds = symbols(target)
    undefined = {name for name, kind in kinds.items() if kind == "U" and not name.startswith("llvm.")}
    assert undefined == {"triton_dist_program_threads"}, "the lowering defines that one"
    assert {name for name, kind in kinds.items() if kind not in "TtUW"} == {
        "triton_dist_p2p_state",
        "triton_dist_wait_state",
    }


@each_target
def test_it_fits_any_kernel(target: str) -> None:
    """Marks of a machine keep LLVM from inlining; zeros of the state must not be taken for what it holds."""
    text = ir(target)
    for mark in ("target-cpu", "target-features", "amdgpu-", "zeroext", "signext", "!llvm.module.flags"):
        assert mark not in text
    for state in ("p2p_state", "wait_state"):
        assert re.search(rf"@triton_dist_{state} = .*addrspace\(4\) externally_initialized constant", text)
    assert "nounwind" in text
    groups = dict(re.findall(r"^attributes (#\d+) = \{(.*)\}$", text, flags=re.MULTILINE))
    defining = {
        name: groups[group] for name, group in re.findall(r"^define .*?@(\S+?)\(.* (#\d+) ", text, re.MULTILINE)
    }
    called = {name for name, attributes in defining.items() if "alwaysinline" not in attributes}
    # Kernels for NVIDIA's GPUs call what waits rarely execute.
    assert bool(called) == (target == "nvptx64") and all("lookAtClock" in name for name in called)
    assert all(("noinline" in attributes) == (name in called) for name, attributes in defining.items())


# ---- NVIDIA


def test_copies_have_eight_loads_of_16_bytes_under_way() -> None:
    for routine in ("putmem_block", "getmem_warp", "putmem_nbi", "putmem_aligned_block", "putmem_between_aligned"):
        text = ptx(f"triton_dist_{routine}")
        load, store = r"ld\.global\.v4\.b32", r"st\.global\.v4\.b32"
        assert_in_order(text, *[load] * 8, *[store] * 8)
        assert not re.search(r"\t(ld|st)\.(v4|b\d)", text), "generic accesses"


def test_copies_of_whole_vectors_hold_nothing_else() -> None:
    assert re.search(r"ld\.global\.(b8|b64)", ptx("triton_dist_getmem_block"))
    for routine in ("getmem_aligned_block", "putmem_signal_nbi_aligned_warp"):
        assert not re.search(r"ld\.global\.(b8|b64)", ptx(f"triton_dist_{routine}")), routine
    for routine in ("getmem_between_aligned_block", "putmem_signal_between_aligned_warp"):
        loads = re.findall(r"ld\.global\.\S+", ptx(f"triton_dist_{routine}"))
        assert set(loads) == {"ld.global.b8", "ld.global.v4.b32"}, routine


def test_signal_behind_a_put_is_ordered() -> None:
    text = ptx("triton_dist_putmem_signal_block")
    assert_in_order(text, r"call\.uni \S*copy", r"bar\.sync \t0", r"fence\.acq_rel\.sys", r"atom\.sys\.add\.u64")
    assert_in_order(text, r"fence\.acq_rel\.sys", r"st\.relaxed\.sys\.global\.b64")
    assert "bar.warp.sync" in ptx("triton_dist_putmem_signal_warp")
    assert "bar." not in ptx("triton_dist_putmem_signal")


def test_atomics_reach_other_gpus() -> None:
    atomics = [name for op in OPS.values() if op.effect is Effect.UPDATE_ATOMIC for name in routines(op)]
    compiled = ptx_by_function(*atomics)
    assert compiled.keys() == {*atomics}, "they call nothing"
    for routine, text in compiled.items():
        accesses = re.findall(r"^\t(?:ld|st|atom|red)\.(?!param)\S+", text, flags=re.MULTILINE)
        accesses = [access for access in accesses if ".const" not in access]
        assert len(accesses) == 1, routine
        assert ".sys." in accesses[0], routine


def test_waits_poll_the_system() -> None:
    for routine in ("signal_wait_until", "wait_until_i32", "wait_until_any_u16", "test_some_vector_u64"):
        assert re.search(r"ld\.relaxed\.sys\.global\.b(16|32|64)", ptx(f"triton_dist_{routine}")), routine


def test_waits_look_at_the_clock_and_report_only_after_many_polls() -> None:
    for routine in ("signal_wait_until", "wait_until_i32", "wait_until_any_u16", "sync_block", "poll"):
        defined = ptx_by_function(f"triton_dist_{routine}")
        (look,) = (text for name, text in defined.items() if "lookAtClock" in name)
        assert_in_order(look, r"ld\.const\.b32", r"%globaltimer;", r"atom\.sys\.add\.s32", r"fence\.acq_rel\.sys")
        assert look.count("%globaltimer;") == 1 and ".local" not in look, routine
        others = "".join(text for name, text in defined.items() if "lookAtClock" not in name)
        assert "globaltimer" not in others and len(re.findall(r"call\.uni [^;]*lookAtClock", others)) == 1, routine
        assert "4095" in others or "4096" in others, routine
    others = [op for op in OPS.values() if op.caller and not (op.wait or op.collective) and op.name != "poll"]
    for name, text in ptx_by_function(*(routines(op)[0] for op in others)).items():
        assert "globaltimer" not in text, f"{name} does not wait"


def test_fences() -> None:
    assert "fence.acq_rel.sys" in ptx("triton_dist_fence")
    assert "fence.sc.sys" in ptx("triton_dist_quiet")


def test_barrier_publishes_meets_and_acquires() -> None:
    release = [r"bar\.sync \t0", r"fence\.acq_rel\.sys", r"st\.relaxed\.sys"]
    acquire = [r"ld\.relaxed\.sys", r"fence\.acq_rel\.sys", r"bar\.sync \t0"]
    assert_in_order(ptx("triton_dist_sync_block"), *release, *acquire)
    assert_in_order(ptx("triton_dist_barrier_block"), r"fence\.sc\.sys|call")


def test_reductions_load_16_bytes() -> None:
    for name in ("f32", "bf16", "i8"):
        assert "ld.global.v4.b32" in ptx(f"triton_dist_reduce_sum_{name}_block")
    assert "min.s32" in ptx("triton_dist_reduce_min_i32")
    assert "min.u32" in ptx("triton_dist_reduce_min_u32")


# ---- AMD


@pytest.mark.parametrize("cpu", ["gfx942", "gfx950"])
def test_amd(cpu: str) -> None:
    put = code("amdgcn", cpu, "triton_dist_putmem_block")
    assert_in_order(put, *[r"global_load_dwordx4"] * 8, *[r"global_store_dwordx4"] * 8)
    signal = code("amdgcn", cpu, "triton_dist_putmem_signal_block")
    assert_in_order(signal, r"s_barrier", r"buffer_wbl2 sc0 sc1", r"global_atomic_add_x2 \S+ \S+ \S+( off)?.*sc1")
    wait = code("amdgcn", cpu, "triton_dist_signal_wait_until")
    assert "sc0 sc1" in wait
    assert "s_sleep" in wait
    assert "sc0 sc1" in code("amdgcn", cpu, "triton_dist_sync_block")
    assert "global_atomic_add_f32" not in code("amdgcn", cpu, "triton_dist_atomic_add_f32"), (
        "not for fine-grained memory"
    )
