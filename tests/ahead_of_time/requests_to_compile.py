"""What triton-dist-compile is asked for: kernels, and mistakes with what is said of them."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE / "ahead_kernels.py"
RING = [f"{SOURCE}:ring", "--signature=*fp32:16, *i64, i32, fp32, 256"]
GOOD = {
    "ring": [*RING, "--target=cuda:90"],
    "meet": [f"{SOURCE}:meet", "--signature=*i32", "--target=cuda:90", "--grid=8", "--num-warps=8"],
    "nvshmem": [*RING, "--target=cuda:90", "--transport=nvshmem", "--name=over_nvshmem"],
    "amd": [*RING, "--target=hip:gfx942"],
    "copied": ["FOLDER/copy/ahead_kernels.py:ring", *RING[1:], "--target=cuda:90"],
}
CUDA = "--target=cuda:90"
WRONG = {
    "no target": ([*RING, "--target=tpu:5"], r"unknown target 'tpu:5': say cuda:<compute capability>"),
    "a target without number": ([*RING, "--target=cuda:ninety"], r"unknown target 'cuda:ninety'"),
    "a GPU that is none": (
        [*RING, "--target=cuda:900"],
        r"unknown target 'cuda:900': Triton .* compiles for no compute capability 900; it does for .*90, .*100",
    ),
    "a GPU before the first": ([*RING, "--target=cuda:60"], r"unknown target 'cuda:60': .* no compute capability 60"),
    "no ops": ([f"{SOURCE}:plain", "--signature=*fp32", CUDA], r"kernel plain has no shmem ops"),
    "no file": (["nothing.py:ring", CUDA], r"there is no file nothing\.py"),
    "no function": ([f"{SOURCE}:rinq", CUDA], r"has no rinq: it has ring, meet, plain, wrong$"),
    "no kernel": ([f"{SOURCE}:NOT_A_KERNEL", CUDA], r"NOT_A_KERNEL is a int and no kernel"),
    "an autotuned kernel": ([f"{SOURCE}:tuned", CUDA], r"tuned is a Autotuner .*name the function that"),
    "no name": (["ring", CUDA], r"'ring' names no kernel: say file\.py:function, or file\.mlir"),
    "no Python": ([f"{HERE / 'c_program.c'}:ring", CUDA], r"c_program\.c is no Python file"),
    "no signature": ([f"{SOURCE}:ring", CUDA], r"ahead_kernels\.py:12: .* needs --signature: out, signal, n"),
    "a short signature": (
        [f"{SOURCE}:ring", "--signature=*fp32", CUDA],
        r"ahead_kernels\.py:12: the signature has 1 entries, and ring takes 5: \(out, .*, BLOCK: constexpr\)",
    ),
    "a wrong op": (
        [f"{SOURCE}:wrong", "--signature=*i64", CUDA],
        r"ahead_kernels\.py:33: signal_op: pe must be an integer",
    ),
    "a wrong grid": ([*RING, CUDA, "--grid=0,1"], r"--grid is '0,1': say up to three numbers"),
    "a wrong number of warps": ([*RING, CUDA, "--num-warps=3"], r"--num-warps is 3: it must be 1, 2, 4"),
    "no stages": ([*RING, CUDA, "--num-stages=0"], r"--num-stages is 0: it must be from 1 to 16"),
    "a wrong transport": ([*RING, CUDA, "--transport=nccl"], r"there is no transport 'nccl'"),
    "another vendor": ([*RING, "--target=hip:gfx942", "--transport=nvshmem"], r"nvshmem is for targets cuda"),
    "a wrong name": ([*RING, CUDA, "--name=a/b"], r"'a/b' cannot be the name of the files"),
    "no MLIR": (["nothing.mlir", CUDA], r"there is no file nothing\.mlir"),
    "MLIR for AMD": (["FOLDER/k.mlir", "--target=hip:gfx942"], r"compiled for targets cuda:… only"),
    "MLIR without a kernel": (["FOLDER/k.mlir", CUDA], r"expected one function .* nvvm\.kernel, found none"),
    "MLIR with two kernels": (["FOLDER/two.mlir", CUDA], r"expected one function .* nvvm\.kernel, found f, g"),
    "MLIR with a structure": (["FOLDER/structure.mlir", CUDA], r"kernel f returns something, or takes what is neither"),
    "MLIR with a result": (["FOLDER/result.mlir", CUDA], r"kernel f returns something, or takes what is neither"),
    "MLIR with a strange name": (["FOLDER/name.mlir", CUDA], r"kernel \"a b\" has a name that C does not have"),
    "MLIR for clusters": (
        ["FOLDER/clusters.mlir", CUDA],
        r"compile: FOLDER/clusters\.mlir:3:3: shmem\.signal_op in a kern",
    ),
    "MLIR that does not verify": (["FOLDER/type.mlir", CUDA], r"compile: FOLDER/type\.mlir: Parse MLIR file failed"),
    "a signature of MLIR": (["FOLDER/k.mlir", "--signature=i32", CUDA], r"leave out --signature"),
    "a name that C cannot have": (
        ["FOLDER/letters.py:f", "--signature=*i32", CUDA],
        r"letters\.py: kernel f cannot be described: .* arguments: name: .* where a name is expected",
    ),
    "a syntax error": (["FOLDER/syntax.py:f", CUDA], r"syntax\.py:2: "),
    "a file that fails": (["FOLDER/fails.py:f", CUDA], r"fails\.py:3: .*cannot be executed: KeyError: 'x'"),
}
