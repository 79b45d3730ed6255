"""The slots of dispatch and of combine, and which of them have an exchange in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton

import triton_dist
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import check_sm_margin, has_gpu_sizes, sms
from triton_dist.kernels.moe.arguments import Routing, has_many_tokens
from triton_dist.kernels.prepared import Launch, Step, Taken, everything, nothing, steps
from triton_dist.kernels.protocols.workspace import symmetric_workspace
from triton_dist.native_calls import Guard

__all__ = [
    "Cut",
    "Exchange",
    "InFlight",
    "Slots",
    "block_of",
    "cut_of",
    "open_exchange",
    "refuse_second",
    "warps_of",
]


class InFlight:
    """Of one communicator: the exchanges that have been sent and not received, by the names of their slots."""

    def __init__(self, communicator: Communicator) -> None:
        self.sent: dict[str, int] = {}
        self.last = 0

    def close(self) -> None:
        self.sent.clear()


@dataclass(frozen=True)
class Slots:
    """Slots of exchanges, of which one at most is in flight.

    Attributes:
        name: of the slots; the same sizes share them.
        sent, received: the numbers of the last exchange, of each program.
        programs: how many programs a launch has.
    """

    name: str
    sent: torch.Tensor
    received: torch.Tensor
    programs: int
    in_flight: InFlight

    def is_in_flight(self) -> bool:
        """Whether an exchange in these slots has been sent and not received."""
        return self.name in self.in_flight.sent

    def is_free(self) -> tuple[Guard, ...]:
        """The contrary of :meth:`is_in_flight`, as data."""
        return (Guard(self.in_flight.sent, "item", (self.name,), "is", None),)

    @property
    def next_number(self) -> int:
        """Of the exchange that is sent next."""
        return self.in_flight.last + 1

    def send(self, *held: object) -> int:
        """Note that an exchange has been sent, and number it. What is ``held`` by the call's result is not used."""
        self.in_flight.last += 1
        self.in_flight.sent[self.name] = self.in_flight.last
        return self.in_flight.last

    def sending(self, made: Launch | None, taken: Taken = everything, held: Taken = nothing) -> tuple[Step, ...] | None:
        """A call that is ``made``, with what it takes, and notes then that the exchange has been sent.

        Args:
            held: what the call's result holds of its tensors that are not ``taken``, so that they are the plan's.
        """
        return steps((made, taken), (self.send, held))

    def receive(self, function: str, number: int) -> None:
        """Note that the exchange with this number is received now.

        Raises:
            RuntimeError: it is not in flight; another one in its slots may be.
        """
        if self.in_flight.sent.get(self.name) != number:
            raise RuntimeError(f"{function}: nothing is in flight of this exchange: it has been received")
        del self.in_flight.sent[self.name]


@dataclass(frozen=True)
class Exchange(Slots):
    """Slots for messages of every PE to every PE.

    Attributes:
        slots: [2, n_pes, max_tokens, words] int32.
        messages: [2, n_pes, …] int64, in the LL protocol: the message that every PE sends to every PE.
    """

    slots: torch.Tensor
    messages: torch.Tensor


def open_exchange(
    comm: Communicator,
    function: str,
    routing: Routing,
    what: str,
    row_words: int,
    message_words: int,
    buffer: int,
    sm_margin: int,
    cut: Cut,
) -> Exchange:
    """The slots of an exchange, with programs as ``cut`` says. *Collective* the first time.

    Raises:
        RuntimeError: an exchange in these slots is in flight.
    """
    per_sm = 1 if sm_margin else cut.per_sm  # an idle GPU spreads programs over all of its multiprocessors
    n_pes, n_programs = routing.members.size, per_sm * min(sms(), check_sm_margin(function, sm_margin))
    name = f"moe: {what}, {routing.max_tokens} tokens, buffer {buffer}, {n_programs} programs"
    in_flight = comm.own(InFlight)
    refuse_second(function, name, in_flight)
    header = -(-2 * n_programs // 32) * 32
    memory = symmetric_workspace(comm, name, header + 2 * n_pes * routing.max_tokens * row_words)
    messages = symmetric_workspace(comm, f"{name}, counts", 2 * n_pes * message_words, torch.int64)
    numbers = memory[: 2 * n_programs].view(2, -1)
    return Exchange(name, numbers[0], numbers[1], n_programs, in_flight, memory[header:], messages)


def refuse_second(function: str, name: str, in_flight: InFlight) -> None:
    """RuntimeError if an exchange in the slots ``name`` is in flight."""
    if name in in_flight.sent:
        raise RuntimeError(
            f"{function}: the last exchange in these slots has been sent and not received: call its receive half"
            " first, or give the calls that overlap different numbers as buffer="
        )


class Cut(NamedTuple):
    """How many programs a multiprocessor has, and how many words of a row each moves at a time."""

    per_sm: int
    num_warps: int
    block: int

    @property
    def options(self) -> dict[str, int]:
        """Of a launch. All programs run at the same time, since they wait for each other."""
        if self.per_sm == 1:
            return {"num_warps": self.num_warps}
        of_thread = _REGISTERS // (32 * self.num_warps * self.per_sm) // 8 * 8
        return {"num_warps": self.num_warps, "maxnreg": min(of_thread, 248)}  # ptxas ignores more than 255


def cut_of(words: int, max_tokens: int, most: int, messages: int = 0) -> Cut:
    """The cut for rows of so many words, of up to ``max_tokens`` tokens of each PE.

    Where a program has several messages, one after the other, up to four of a multiprocessor hide each other's
    latencies. Where it has one or two, all of its threads move ``most`` words of a row at once.

    Args:
        messages: how many a PE receives at most, where each is a chain of latencies: then programs are as many, up to
            four of a multiprocessor.
    """
    per_sm = 4 if has_many_tokens(max_tokens) else min(4, -(-messages // sms()))
    if per_sm > 1:
        return Cut(per_sm if has_gpu_sizes() else 1, 4, block_of(words, 2048))  # interpreted programs hide nothing
    block = block_of(words, most)
    return Cut(1, warps_of(block), block)


_REGISTERS = 65536
"""Of a multiprocessor."""


def block_of(words: int, most: int) -> int:
    """How many words of a row a program loads at a time."""
    if triton_dist.kind() == "cpu":  # where a load of more is not taken for a poll (cpu/builder.py)
        most = min(most, 512)
    return min(most, int(triton.next_power_of_2(words)))


def warps_of(words: int) -> int:
    """How many warps move so many words 16 bytes a thread: a power of two, as Triton wants it."""
    return max(1, min(8, int(triton.next_power_of_2(words)) // 128))
