"""Teams: some of a world's PEs, which do things together and number themselves from 0.

A team is start, stride and size, as in OpenSHMEM: PEs of the world at equal distances. It is made by all members of the
team that it is split from, and everything that is collective over a team is for its members alone.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Protocol

from triton_dist.native_calls import Guard
from triton_dist.world.integers import integer
from triton_dist.world.non_member import NonMember
from triton_dist.world.not_copied import NotCopied

__all__ = ["Team", "WorldOfTeams", "agree_on_handle", "as_range", "check_one_dimension", "from_group", "pes_of_group"]


class WorldOfTeams(Protocol):
    """What teams use of their :class:`~triton_dist.world.base.World`, which says what each of these is."""

    pe: int
    team_world: Team
    teams: dict[int, Team]

    def check_live(self) -> None: ...

    def finish_work(self) -> None: ...

    def together(self, team: Team, call: str, value: str = "") -> list[str]: ...

    def make_team(self, parent: Team, team: Team) -> int: ...

    def unmake_team(self, team: Team) -> None: ...

    def pes_of_ranks(self, rank: int, ranks: Sequence[int]) -> list[int]: ...


class Team(NotCopied):
    """Some PEs of a world. Made by :meth:`split_strided`, :meth:`split_2d` or :func:`triton_dist.team_from_group`.

    Kernels take :attr:`handle` as the argument ``team`` of an op. A team ends with :meth:`destroy`, or with its world.
    """

    def __init__(self, world: WorldOfTeams, name: str, handle: int, pes: range) -> None:
        self.world = world
        self._name = name
        self._handle = handle
        self._pes = pes
        self._splits = 0
        self._is_predefined = handle == 0

    @property
    def handle(self) -> int:
        """What kernels call the team by, an int32; 0 is the team of all PEs. Members of a team have the same.

        Raises:
            RuntimeError: the team was destroyed, or its world is finalized.
        """
        self.check_live()
        return self._handle

    @property
    def name(self) -> str:
        """Tells this team from all others of its world, and is the same on its members."""
        return self._name

    @property
    def pes(self) -> range:
        """The members, by their numbers in the world, in the team's order."""
        return self._pes

    @property
    def my_pe(self) -> int:
        """This PE's number in the team, from 0 to ``n_pes - 1``; -1 if it is not a member."""
        return self._pes.index(self.world.pe) if self.world.pe in self._pes else -1

    @property
    def n_pes(self) -> int:
        """How many PEs the team has."""
        return len(self._pes)

    def translate_pe(self, pe: int, destination: Team | NonMember | None) -> int:
        """The number in ``destination`` of this team's PE ``pe``; -1 if either has no such PE.

        Where this PE is no member of ``destination`` (a :class:`NonMember`, or None), the result is -1.
        """
        if destination is not None and not isinstance(destination, (Team, NonMember)):
            raise TypeError(f"destination must be a triton_dist.Team or None, got {type(destination).__name__}")
        pe = integer("pe", pe)
        if not isinstance(destination, Team) or not 0 <= pe < self.n_pes:
            return -1
        in_world = self._pes[pe]
        return destination._pes.index(in_world) if in_world in destination._pes else -1

    def split_strided(self, start: int, stride: int, size: int) -> Team | NonMember:
        """The team of this one's PEs ``start``, ``start + stride``, … (``size`` of them). *Collective* over this team.

        Returns:
            the team; on a PE that is not in it a :class:`NonMember`, which is false.

        Raises:
            ValueError: ``size`` is not positive, there are no such PEs, or ``stride`` is not positive. The standard's
                stride 0 is taken for a team of one PE; its negative strides are not, since NVSHMEM has no such teams.
            TypeError: one of them is no integer.
            RuntimeError: members pass different numbers; no more teams can be had; this team was destroyed.

        OpenSHMEM 1.5, 9.4.6.
        """
        start, stride, size = integer("start", start), integer("stride", stride), integer("size", size)
        if size < 1 or stride < 0 or (stride == 0 and size > 1):
            raise ValueError(f"stride {stride} and size {size} must be positive (stride may be 0 where size is 1)")
        last = start + (size - 1) * stride
        if start < 0 or last >= self.n_pes:
            raise ValueError(f"PEs {start} to {last} are not all in [0, {self.n_pes}), the PEs of {self}")
        return self._split(f"split_strided({start}, {stride}, {size})", [range(start, last + 1, stride or 1)])

    def split_2d(self, xrange: int) -> tuple[Team, Team]:
        """This PE's row and column, when this team's PEs are laid out in rows of ``xrange``. *Collective* over it.

        The last row is shorter where ``xrange`` does not divide the number of PEs.

        Returns:
            the team of this PE's row (the x axis), and that of its column (the y axis).

        Raises:
            ValueError: ``xrange`` is not positive.
            RuntimeError: as of :meth:`split_strided`.

        OpenSHMEM 1.5, 9.4.7.
        """
        xrange = min(integer("xrange", xrange), self.n_pes)
        if xrange < 1:
            raise ValueError(f"xrange {xrange} must be positive")
        call = f"split_2d({xrange})"
        rows = [range(first, min(first + xrange, self.n_pes)) for first in range(0, self.n_pes, xrange)]
        columns = [range(first, self.n_pes, xrange) for first in range(xrange)]
        row = self._split(call, rows)
        column = self._split(call, columns)
        assert row and column, "every PE is in a row and in a column"
        return row, column

    def barrier(self) -> None:
        """Wait until all members are here and the work each had started on its device is complete. *Collective.*"""
        self.check_live()
        self.world.finish_work()
        self.world.together(self, "team.barrier()")

    def destroy(self) -> None:
        """End the team. *Collective* over it; once its members have done what they do together.

        Raises:
            ValueError: it is the team of all PEs, or that of a host, which end with the world.
            RuntimeError: it was destroyed already.
        """
        self.check_live()
        if self._is_predefined:
            which = "all PEs" if self._handle == 0 else "the PEs of a host"
            raise ValueError(f"the team of {which} cannot be destroyed: it ends with the world")
        self.world.finish_work()
        self.world.together(self, "team.destroy()")
        self.world.unmake_team(self)
        del self.world.teams[self._handle]

    def check_live(self) -> None:
        """RuntimeError if the team has ended."""
        self.world.check_live()
        if self.world.teams.get(self._handle) is not self:
            raise RuntimeError(f"{self} was destroyed")

    def guards(self) -> tuple[Guard, ...]:
        """What :meth:`check_live` asks of the team itself, as data."""
        return (Guard(self.world.teams, "item", (self._handle,), "is", self),)

    def check_member(self, what: str) -> None:
        """ValueError if this PE is not in the team, and so cannot take part in ``what``."""
        self.check_live()
        if self.world.pe not in self._pes:
            raise ValueError(f"{what}: PE {self.world.pe} is not in {self}")

    def split_predefined(self, call: str, parts: Sequence[range]) -> Team:
        """The team that a world makes of this PE's part, one of ``parts``, which cover this team. *Collective.*"""
        team = self._split(call, parts)
        assert team, "every PE is in a part"
        team._is_predefined = True
        return team

    def _split(self, call: str, parts: Sequence[range]) -> Team | NonMember:
        """Of these disjoint parts of the team, the one with this PE. *Collective* over this team.

        All members make all parts, those they are not in too: that is how NVSHMEM wants it.
        """
        self.check_live()
        self._splits += 1
        self.world.together(self, call)
        mine, made = None, []
        for number, part in enumerate(parts):
            team = Team(self.world, f"{self._name}.{self._splits}.{number}", -1, _compose(self._pes, part))
            made.append(team)
            team._handle = self.world.make_team(self, team)
            if self.world.pe in team._pes:
                self.world.teams[team._handle] = mine = team
        return NonMember(self.world.pe, " or ".join(map(repr, made)) or "a group") if mine is None else mine

    def __repr__(self) -> str:
        pes = self._pes
        what = f"PE {pes[0]}" if len(pes) == 1 else f"PEs {', '.join(map(str, pes))}"
        return f"<team of {what}>" if len(pes) < 9 else f"<team of PEs {pes[0]}, {pes[1]}, …, {pes[-1]}>"


def _compose(pes: range, part: range) -> range:
    """The PEs of the world that ``part`` of ``pes`` means."""
    return range(pes[part[0]], pes[part[-1]] + 1, pes.step * part.step)


def agree_on_handle(parent: Team, team: Team, free: Container[int], limit: int) -> int:
    """The smallest handle below ``limit`` that all members of ``team`` have ``free``. *Collective* over ``parent``.

    Disjoint teams may have the same.
    """
    mine = sum(1 << handle for handle in range(1, limit) if handle in free)
    masks = parent.world.together(parent, "making a team", f"{mine:x}")
    common = ~0
    for pe, mask in zip(parent.pes, masks, strict=True):
        common &= int(mask, 16) if pe in team.pes else ~0
    if common == 0:
        raise RuntimeError(f"a PE of {team} is in {limit} teams, and no more are to be had: destroy() one")
    return (common & -common).bit_length() - 1


def from_group(world: WorldOfTeams, group: Any, mesh_dim: str | int | None) -> Team | NonMember:
    """See :func:`triton_dist.team_from_group`."""
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        raise RuntimeError("team_from_group needs torch.distributed: call init_process_group() first")
    ranks = _ranks(group, mesh_dim)
    said = world.together(world.team_world, "team_from_group()", f"{distributed.get_rank()} {_regular(ranks)}")
    pe_of_rank = {int(text.split()[0]): pe for pe, text in enumerate(said)}
    groups = list(dict.fromkeys(text.split()[1] for text in said))
    if "irregular" in groups:
        raise ValueError(f"a team has its PEs at equal, ascending distances; a PE passed another group (here: {ranks})")
    parts = []
    for text in filter(lambda text: text != "none", groups):
        start, stride, size = map(int, text.split(":"))
        pes = [pe_of_rank.get(rank, -1) for rank in range(start, start + stride * size, stride)]
        part = as_range(pes)
        if part is None or any(said[pe].split()[1] != text for pe in part):
            raise RuntimeError(
                f"the group of ranks {start}, {start + stride}, … ({size} of them): each of its ranks must be a PE of"
                " this world, in an equal distance, and pass this group"
            )
        parts.append(part)
    return world.team_world._split(f"team_from_group({groups})", parts)


def pes_of_group(world: WorldOfTeams, group: Any) -> range:
    """The PEs of a group, in its order of ranks. *Collective* over a ``ProcessGroup`` the first time.

    Args:
        group: None (all PEs of the world), a :class:`Team`, a ``ProcessGroup`` or a ``DeviceMesh`` of one dimension.

    Raises:
        TypeError: ``group`` is none of these. RuntimeError: the team has ended; a member has ended.
        ValueError: it is a team of another world, or a rank is no PE of this one; its PEs are not at equal, ascending
            distances; this PE is no member of the team or the process group.
    """
    if group is None:
        return world.team_world.pes
    if isinstance(group, Team):
        if group.world is not world:
            raise ValueError(f"{group} is a team of another world")
        group.check_live()
        return group.pes
    if isinstance(group, NonMember):
        group.refuse("group")
    from torch import distributed
    from torch.distributed.device_mesh import DeviceMesh

    if not distributed.is_available() or not isinstance(group, (distributed.ProcessGroup, DeviceMesh)):
        if group is distributed.GroupMember.NON_GROUP_MEMBER:
            NonMember(world.pe, "the process group").refuse("group")
        raise TypeError(
            "group must be a triton_dist.Team, a ProcessGroup, a DeviceMesh of one dimension, a Communicator or None"
            f" (all PEs of the world), got {type(group).__name__}"
        )
    ranks = _ranks(group, None)
    pes = world.pes_of_ranks(distributed.get_rank(), ranks)
    found = as_range(pes)
    if found is None:
        raise ValueError(
            f"the group of ranks {', '.join(map(str, ranks))} is of PEs {', '.join(map(str, pes))}, and the PEs of a"
            " group must be at equal, ascending distances, as those of OpenSHMEM's and NVSHMEM's teams: a row or a"
            " column of a mesh is"
        )
    return found


def _ranks(group: Any, mesh_dim: str | int | None) -> list[int]:
    """The global ranks of a process group, or of this rank's group along a dimension of a mesh; none without one."""
    from torch import distributed
    from torch.distributed.device_mesh import DeviceMesh

    if group is None or isinstance(group, NonMember):
        return []
    if isinstance(group, DeviceMesh):
        if mesh_dim is None:
            check_one_dimension(group)
        group = group.get_group(mesh_dim)
    elif mesh_dim is not None:
        raise ValueError("mesh_dim is for a DeviceMesh")
    if group is distributed.GroupMember.NON_GROUP_MEMBER:
        return []
    return list(distributed.get_process_group_ranks(group))


def check_one_dimension(mesh: Any) -> None:
    """ValueError if a ``DeviceMesh`` has several dimensions, of which a group is one."""
    if mesh.ndim > 1:
        names = mesh.mesh_dim_names
        parts = [f"mesh[{name!r}]" for name in names] if names else ["mesh.get_group(0)"]
        raise ValueError(f"a mesh of {mesh.ndim} dimensions: pass one of them, as {' or '.join(parts)}")


def _regular(ranks: list[int]) -> str:
    if not ranks:
        return "none"
    part = as_range(ranks)
    return "irregular" if part is None else f"{part[0]}:{part.step}:{len(part)}"


def as_range(numbers: Sequence[int]) -> range | None:
    """The numbers as a range that ascends, if they are one."""
    stride = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    if numbers[0] < 0 or stride < 1:
        return None
    part = range(numbers[0], numbers[0] + stride * len(numbers), stride)
    return part if list(part) == list(numbers) else None
