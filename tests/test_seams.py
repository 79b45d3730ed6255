"""The internals of PyTorch and nvshmem4py are reached through one module each; for Triton's see test_triton_api.py."""

from __future__ import annotations

from pathlib import Path

import torch.distributed as dist
from reaches import is_private, reaches

import triton_dist
from triton_dist import torch_api

PACKAGE = Path(triton_dist.__file__).parent

SETTINGS = ("changes torch.backends.", "changes torch.utils.deterministic.")
"""What PyTorch documents as attributes to set."""


def _found(library: str, seam: str, *, public: bool) -> dict[str, set[str]]:
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        part = str(file.relative_to(PACKAGE))
        reached = set(reaches(file, library, lambda name: public and not is_private(name)))
        reached = {name for name in reached if not name.startswith(SETTINGS)}
        if part != seam and reached:
            found[part] = reached
    return found


def test_pytorch_is_reached_through_the_seam() -> None:
    assert not _found("torch", "torch_api.py", public=True)


def test_nvshmem4py_is_reached_through_the_seam() -> None:
    assert not _found("nvshmem", "gpu/nvshmem_api.py", public=False)


def test_functions_of_distributed_are_put_back() -> None:
    plain, called = dist.barrier, []
    undo = torch_api.replace_functions_of_distributed(
        ["barrier"], lambda name, original: lambda: called.append((name, original))
    )
    dist.barrier()
    undo()
    assert called == [("barrier", plain)] and dist.barrier is plain
