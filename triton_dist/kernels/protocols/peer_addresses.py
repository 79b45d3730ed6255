"""Where symmetric tensors lie on the members of a communicator, for what the host gives to the driver in every call."""

from __future__ import annotations

import torch

from triton_dist.kernels.communicator import Communicator

__all__ = ["PeerAddresses"]

_TENSORS = 256


class PeerAddresses:
    """The addresses of one communicator's symmetric tensors. They are kept as long as nothing is allocated or freed."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._known: dict[int, tuple[int, ...]] = {}
        self._changes = -1

    def close(self) -> None:
        self._known.clear()

    def of(self, tensor: torch.Tensor) -> tuple[int, ...]:
        """Where ``tensor`` begins on each member, by rank.

        Raises:
            ValueError: it is not symmetric, or was freed.
        """
        comm = self._communicator
        changes = comm.world.registry.changes + comm.world.group_memory.changes
        if changes != self._changes or len(self._known) == _TENSORS:
            self._known.clear()
            self._changes = changes
        address = tensor.data_ptr()
        found = self._known.get(address)
        if found is None:
            found = self._known[address] = tuple(comm.peer(tensor, rank).data_ptr() for rank in range(comm.n_pes))
        return found
