"""The workspace: symmetric memory that kernels keep between their launches, such as barrier state, slots and staging.

It belongs to a communicator: allocated by its members when a kernel of this package first needs it, and freed with the
communicator. An allocation has a name and is zeroed once. No launch resets it; each leaves it as the next one expects
it, without the host. So kernels may be captured in CUDA graphs and replayed in any order, the same on every member.
"""

from __future__ import annotations

import torch

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.protocols.barrier import PROGRAMS, ROW
from triton_dist.world.raw_tensor import of_another_backend, start_of

__all__ = [
    "Workspace",
    "barrier_state",
    "is_capturing",
    "is_symmetric",
    "peer_distances",
    "refuse_in_capture",
    "rounded",
    "symmetric_buffer",
    "symmetric_workspace",
    "why_not_symmetric",
]


class Workspace:
    """The symmetric memory of one communicator's kernels, by name."""

    def __init__(self, communicator: Communicator) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.distances: dict[int, torch.Tensor] = {}
        """Those of :func:`peer_distances`, by the tensor's address."""
        self.made = 0
        """How many tensors were made, also in the place of smaller ones; the same on all members."""

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def find(self, name: str, numel: int) -> torch.Tensor | None:
        """The tensor ``name``, if it has so many elements."""
        found = self.tensors.get(name)
        return found if found is not None and found.numel() >= numel else None

    def close(self) -> None:
        self.tensors.clear()
        self.distances.clear()


def symmetric_workspace(
    communicator: Communicator, name: str, numel: int, dtype: torch.dtype = torch.int32
) -> torch.Tensor:
    """The tensor ``name``, symmetric on the members, of at least ``numel`` elements, which were zero when it was made.

    *Collective* when it is made, or made anew because more elements are wanted than it has; graphs that were captured
    with the smaller one go on using that.

    Raises:
        RuntimeError: it would have to be made while a CUDA graph is captured: run the kernel once before.
        MemoryError: the symmetric memory is full.
    """
    workspace = communicator.own(Workspace)
    found = workspace.find(name, numel)
    if found is None:
        refuse_in_capture(f"the kernels' symmetric workspace {name!r} does not exist yet")
        found = communicator.zeros(numel, dtype=dtype)
        tensors = workspace.tensors
        if (smaller := tensors.get(name)) is not None:  # after the allocation: if that fails, it has one name only
            tensors.setdefault(f"{name}, {smaller.numel()} elements", smaller)
        tensors[name] = found
        workspace.made += 1
        if smaller is not None and smaller.data_ptr() in workspace.distances:
            peer_distances(communicator, found)  # a call that has run before may be captured next
    assert found.dtype == dtype, f"{name} is of {found.dtype}, and {dtype} is asked for"
    return found


def peer_distances(communicator: Communicator, tensor: torch.Tensor) -> torch.Tensor:
    """Bytes from this PE's part of a symmetric tensor to that of each member, int64 [n_pes] on this PE's device.

    Raises:
        RuntimeError: they are not there yet, and a CUDA graph is captured.
        ValueError: a member is on another host.
    """
    known, here = communicator.own(Workspace).distances, tensor.data_ptr()
    if here not in known:
        refuse_in_capture("the addresses of the kernels' memory are not on the GPU yet")
        away = [communicator.peer(tensor, rank).data_ptr() - here for rank in range(communicator.n_pes)]
        known[here] = torch.tensor(away, dtype=torch.int64, device=tensor.device)
    return known[here]


def symmetric_buffer(communicator: Communicator, name: str, nbytes: int) -> torch.Tensor:
    """As :func:`symmetric_workspace`, at least ``nbytes`` bytes, for contents of any shape."""
    return symmetric_workspace(communicator, name, rounded(nbytes), torch.uint8)[:nbytes]


def rounded(nbytes: int) -> int:
    """The size of a :func:`symmetric_buffer`: a power of two, so that what was outgrown takes no more than what is in
    use."""
    return 1 << max(nbytes - 1, 0).bit_length()


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured on the current stream: no memory can be made then."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def refuse_in_capture(what: str) -> None:
    """RuntimeError, beginning with ``what``, if a CUDA graph is being captured."""
    if is_capturing():
        raise RuntimeError(f"{what}, and cannot be made while a CUDA graph is captured: run the same call once before")


def barrier_state(communicator: Communicator, name: str = "") -> torch.Tensor:
    """State for :func:`~triton_dist.kernels.protocols.barrier.barrier`. Kernels that may run at the same time on one PE
    need states of different names. *Collective* the first time."""
    return symmetric_workspace(communicator, f"barrier {name}", PROGRAMS * ROW)


_OTHERWISE = "it was allocated otherwise"


def is_symmetric(communicator: Communicator, tensor: torch.Tensor) -> bool:
    """Whether a tensor lies in this PE's part of memory that is symmetric on all members."""
    return not _obstacle(communicator, tensor)


def why_not_symmetric(communicator: Communicator, tensor: torch.Tensor) -> str:
    """Why a tensor is not symmetric on all members; empty if it is."""
    why = _obstacle(communicator, tensor)
    return (of_another_backend(tensor) or why) if why == _OTHERWISE else why


def _obstacle(communicator: Communicator, tensor: torch.Tensor) -> str:
    world = communicator.world
    try:
        world.peer(tensor, world.pe)
    except ValueError as error:
        return "it was freed" if str(error).endswith("was freed") else _OTHERWISE
    found = world.group_memory.find(start_of(tensor))
    if found is not None and not set(communicator.pes) <= set(found[1].pes):
        return f"it belongs to {found[1]}, and the call is of {communicator}"
    return ""
