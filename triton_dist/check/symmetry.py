"""Runs in which every PE does what one does, with the numbers of hosts and local numbers shifted.

PE (h + i, l + j), number l + j of host h + i, does to PE (x + i, y + j) what PE (h, l) does to PE (x, y); sums wrap
around. So what one PE, the *representative*, does to others says what is done to it: when it sends to the PE that is i
hosts and j local numbers further, the one that is as far behind sends to it. A flag or a signal that it changes there
has an image in its own memory. Words of the members of a row of the grid of PEs, or of a column, lie side by side by
rank, each with its sender's; so the image is as far from the word as the ranks of their senders are.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Symmetry"]


@dataclass(frozen=True)
class Symmetry:
    """Of ``n_pes`` PEs, ``per_host`` on each host, numbered host by host."""

    n_pes: int
    per_host: int

    @property
    def representative(self) -> int:
        """The first PE of the last host.

        A reduce-scatter awaits the other hosts in their order, and not in that of their distance. On the last host
        these are equal, and the message that arrives last is awaited first. All other steps follow it: that takes
        longest.
        """
        return self.n_pes - self.per_host

    def source(self, target: int) -> int:
        """The PE that does to the representative what that does to ``target``."""
        (host, local), (to_host, to_local) = self._place(self.representative), self._place(target)
        hosts = self.n_pes // self.per_host
        return (2 * host - to_host) % hosts * self.per_host + (2 * local - to_local) % self.per_host

    def image(self, target: int, offset: int, size: int) -> int:
        """Where in the representative's memory :meth:`source` changes a word of ``size`` bytes, when the representative
        changes the one at ``offset`` of ``target``.

        Raises ValueError if ``target`` is neither in its row nor in its column.
        """
        (host, local), (from_host, from_local) = self._place(self.representative), self._place(self.source(target))
        if from_host != host and from_local != local:
            raise ValueError(
                f"PE {self.representative} changes a word of PE {target}, which is on another host and has another "
                "number there"
            )
        return offset + size * (from_host - host + from_local - local)

    def _place(self, pe: int) -> tuple[int, int]:
        return divmod(pe, self.per_host)
