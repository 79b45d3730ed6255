"""Every op with the NVSHMEM of ``NVSHMEM_HOME``, where that is another version than the one that is installed with us.

NVSHMEM_HOME=/path/to/nvidia/nvshmem pytest tests/compiler/test_nvshmem_versions.py
scripts/nvshmem_versions.sh does so with the wheels of all versions that are supported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from op_examples import EXAMPLES, SIGNATURE, as_kernels

from triton_dist.compiler import device_library, transport

pytestmark = pytest.mark.skipif("NVSHMEM_HOME" not in os.environ, reason="NVSHMEM_HOME names no other NVSHMEM")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return as_kernels(tmp_path_factory.mktemp("kernels"))


def test_the_library_is_of_the_architecture() -> None:
    path, version = device_library.nvshmem_bitcode("sm_90")
    assert str(path).startswith(os.environ["NVSHMEM_HOME"])
    by_architecture = tuple(map(int, version.split(".")[:2])) >= (3, 7)
    assert path.name == ("libnvshmem_device_sm_90.bc" if by_architecture else "libnvshmem_device.bc")


@pytest.mark.parametrize("name", EXAMPLES)
def test_op_compiles_to_machine_code(name: str, kernels: ModuleType, compile_kernel: Callable[..., Any]) -> None:
    with transport.using("nvshmem"):
        compiled = compile_kernel(getattr(kernels, name), SIGNATURE)
    assert compiled.asm["cubin"]
    undefined = {line for line in compiled.asm["ptx"].splitlines() if line.startswith(".extern .func")}
    assert not [line for line in undefined if not re.search("__assertfail|vprintf", line)], "not CUDA's own"
