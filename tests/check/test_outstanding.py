"""In which order operations in flight may arrive."""

from __future__ import annotations

import itertools
import random
from functools import partial

import pytest

from triton_dist.cpu.outstanding import Outstanding


class Program:
    """Sends numbered operations; ``arrived`` has the numbers in the order of their arrival."""

    def __init__(self) -> None:
        self.steps = 0
        self.arrived: list[int] = []
        self.outstanding = Outstanding(self._moved)
        self._numbers = itertools.count()

    def _moved(self) -> None:
        self.steps += 1

    def send(self, pe: int | None, count: int = 1) -> None:
        for _ in range(count):
            self.outstanding.add(pe, partial(self.arrived.append, next(self._numbers)))


def test_epochs_arrive_in_order_and_the_youngest_of_each_first() -> None:
    program = Program()
    program.send(1, 2)
    program.outstanding.fence()
    program.outstanding.fence(1)  # begins no other epoch: nothing is in this one
    program.send(1, 2)
    program.outstanding.fence(0)  # not of PE 1
    program.send(1)
    program.outstanding.arrive()
    assert program.arrived == [1, 0, 4, 3, 2] and program.steps == 5 and not program.outstanding


def test_an_update_that_is_made_at_once_comes_behind_fences() -> None:
    program = Program()
    program.send(1)
    program.send(2)
    program.outstanding.before_update(1)
    assert program.arrived == []
    program.outstanding.fence(1)
    program.send(1)
    program.outstanding.before_update(2)
    assert program.arrived == []
    program.outstanding.before_update(1)
    assert program.arrived == [0] and program.outstanding


def test_quiet_of_one_pe_completes_gets_too() -> None:
    program = Program()
    program.send(1)
    program.send(None)
    program.send(2)
    program.outstanding.arrive(2)
    assert sorted(program.arrived) == [1, 2] and program.outstanding.n_next() == 1


@pytest.mark.parametrize("seed", range(20))
def test_any_choice_respects_fences(seed: int) -> None:
    dice, program, epochs, epoch = random.Random(seed), Program(), {}, 0
    for number in range(60):
        epochs[number] = (pe := dice.randrange(3)), epoch
        program.send(pe)
        if dice.random() < 0.2:
            program.outstanding.fence()
            epoch += 1
        if dice.random() < 0.3 and (count := program.outstanding.n_next()):
            program.outstanding.arrive_one(dice.randrange(count))
    while count := program.outstanding.n_next():
        program.outstanding.arrive_one(dice.randrange(count))
    assert sorted(program.arrived) == list(range(60)) and not program.outstanding
    for pe in range(3):
        theirs = [epochs[number][1] for number in program.arrived if epochs[number][0] == pe]
        assert theirs == sorted(theirs)
