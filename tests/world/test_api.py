"""The public functions around a world: what they accept, what they refuse, and what the end of a world means."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from forking import launch

import triton_dist
import triton_dist.language as dl


@pytest.fixture
def world() -> Iterator[triton_dist.World]:
    with triton_dist.init() as world:
        yield world


def test_public_names_are_there() -> None:
    assert sorted(triton_dist.__all__) == sorted(set(triton_dist.__all__))
    for name in triton_dist.__all__:
        assert getattr(triton_dist, name).__doc__, f"{name} has no docstring"


def test_everything_needs_a_world() -> None:
    for call in (
        triton_dist.my_pe,
        triton_dist.n_pes,
        triton_dist.barrier_all,
        lambda: triton_dist.zeros(1),
        lambda: triton_dist.empty(1),
        lambda: triton_dist.full(1, 0),
        lambda: triton_dist.from_tensor(torch.zeros(1)),
        lambda: triton_dist.peer(torch.zeros(1), 0),
        lambda: triton_dist.free(torch.zeros(1)),
    ):
        with pytest.raises(RuntimeError, match=r"there is no world: call triton_dist\.init\(\) first"):
            call()
    triton_dist.finalize()


def test_a_world_of_one(world: triton_dist.World) -> None:
    assert triton_dist.is_initialized()
    assert (triton_dist.my_pe(), triton_dist.n_pes(), triton_dist.kind()) == (0, 1, world.kind)
    assert repr(world) == f"<{world.kind} world: PE 0 of 1 on {world.device}>"
    with pytest.raises(RuntimeError, match="initialised already"):
        triton_dist.init()


def test_worlds_follow_each_other() -> None:
    for _ in range(2):
        world = triton_dist.init()
        assert triton_dist.zeros(3).sum() == 0
        triton_dist.finalize()
        triton_dist.finalize()
        world.finalize()
        assert world.finalized
        assert not triton_dist.is_initialized()
        for ask in (lambda world: world.heap_free, lambda world: world.is_reachable(0)):
            with pytest.raises(RuntimeError, match="this world is finalized"):
                ask(world)


def test_worlds_that_have_ended_are_released() -> None:
    program = """
import gc, os, triton_dist
def memory():
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:  # what listed them
            pass
    return sum("memfd:triton_dist" in place for place in found)
counts = []
for _ in range(4):
    with triton_dist.init() as world:
        x = triton_dist.full(1024, 1.0)
    del x, world
    gc.collect()
    counts.append(memory())
assert counts[0] and counts[1] == counts[3], counts
"""
    launch(["-c", program], 2).check()


def test_settings_are_read_by_init() -> None:
    """Also those that are asked for late: a wrong one would end a wait, hours later."""
    program = """
import os
if os.environ["RANK"] == "1": os.environ["TRITON_DIST_WAIT_ACTION"] = "x"
import triton_dist
triton_dist.init()
"""
    result = launch(["-c", program], 2)
    assert all(pe.returncode == 1 for pe in result), result.report
    for pe in result:
        assert "TRITON_DIST_WAIT_ACTION='x': expected one of report, abort" in pe.stderr, result.report


def test_an_error_aborts_the_world() -> None:
    with pytest.raises(KeyError), triton_dist.init() as world:
        raise KeyError
    assert world.finalized
    assert not triton_dist.is_initialized()


def test_shapes(world: triton_dist.World) -> None:
    assert triton_dist.empty(2, 3).shape == (2, 3)
    assert triton_dist.empty((2, 3)).shape == (2, 3)
    assert triton_dist.empty(torch.Size([4])).shape == (4,)
    assert triton_dist.empty().shape == ()
    assert triton_dist.zeros(0).shape == (0,)
    assert triton_dist.full(5, 1).shape == (5,)
    assert triton_dist.full((5, 1), 1).shape == (5, 1)
    with pytest.raises(TypeError, match="a shape is made of integers, got"):
        triton_dist.empty(2.5)  # type: ignore[arg-type]
    for wrong in (True, 1.0, "1", dl.CMP_GE, np.bool_(True), torch.tensor(True)):
        with pytest.raises(TypeError, match=r"a shape is made of integers, got .*: a size must be an integer, got "):
            triton_dist.zeros(2, wrong)
    assert triton_dist.empty(np.int64(2), torch.tensor(3)).shape == (2, 3)
    with pytest.raises(ValueError, match=r"sizes must not be greater than 9223372036854775807, got \(0, 9223372036854"):
        triton_dist.zeros(0, 1 << 63)
    with pytest.raises(ValueError, match=r"sizes must not be negative, got \(2, -3\)"):
        triton_dist.empty(2, -3)


def test_dtypes(world: triton_dist.World) -> None:
    assert triton_dist.empty(1).dtype == torch.float32
    assert triton_dist.full(1, 7).dtype == torch.int64
    assert triton_dist.full(1, True).dtype == torch.bool
    assert triton_dist.full(1, 0.5).dtype == torch.float32
    assert triton_dist.full(1, 7, dtype=torch.bfloat16).dtype == torch.bfloat16
    with pytest.raises(TypeError, match=r"expected a torch\.dtype, got 'float32'"):
        triton_dist.empty(1, dtype="float32")  # type: ignore[arg-type]


def test_from_tensor_copies_values_not_history(world: triton_dist.World) -> None:
    source = torch.randn(3, 4, requires_grad=True).T
    copy = triton_dist.from_tensor(source)
    assert torch.equal(copy, source)
    assert copy.is_contiguous()
    assert not copy.requires_grad
    with pytest.raises(TypeError, match="got list"):
        triton_dist.from_tensor([1, 2])  # type: ignore[arg-type]


FORGETFUL = """
import sys, triton_dist
world = triton_dist.init()
triton_dist.zeros(3)
if "fail" in sys.argv and world.pe == 1:
    raise KeyError("PE 1 fails")
"""


@pytest.mark.parametrize("n_pes", [1, 3])
def test_a_program_may_forget_to_finalize(n_pes: int) -> None:
    launch(["-c", FORGETFUL], n_pes).check()


def test_a_pe_that_fails_keeps_nobody_at_exit() -> None:
    result = launch(["-c", FORGETFUL, "fail"], 3)
    assert not result.timed_out, result.report
    assert "PE 1 fails" in result[1].stderr


def test_a_forked_child_has_no_part_in_the_world() -> None:
    """It ends as any process does, and the world goes on; a PE that is killed while its child lives is lost, too."""
    program = """
import os, signal, sys, time, torch, triton_dist
from triton_dist import kernels
world = triton_dist.init()
assert (kernels.all_reduce(torch.ones(2)) == 2).all()
if (child := os.fork()) == 0:
    triton_dist.finalize()
    for call in (triton_dist.my_pe, world.barrier_all, triton_dist.init, lambda: kernels.all_reduce(torch.ones(2))):
        try:
            call()
        except RuntimeError as error:
            assert f"was forked from PE {world.pe}, whose world a child has no part in" in str(error), error
        else:
            os._exit(1)
    assert not triton_dist.is_initialized()
    sys.exit(0) if world.pe == 0 else time.sleep(1000)
if world.pe == 0:
    assert os.waitpid(child, 0)[1] == 0
triton_dist.barrier_all()
print("after the fork", flush=True)
if world.pe == 1:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(1000)
"""
    result = launch(["-c", program], 2)
    assert [pe.returncode for pe in result] == [1, -9], result.report
    assert [pe.stdout for pe in result] == ["after the fork\n"] * 2, result.report
    assert "PE 1 is lost" in result[0].stderr, result.report


NO_INTEGERS = ("0", 1.5, 0.0, True, None, dl.CMP_EQ, np.bool_(False))


@pytest.mark.parametrize("wrong", NO_INTEGERS, ids=repr)
def test_a_pe_is_an_integer(world: triton_dist.World, wrong: object) -> None:
    x, y = triton_dist.zeros(4), triton_dist.full(4, 1.0)
    team = triton_dist.team_world()
    calls: list[tuple[str, Callable[[Any], object]]] = [
        ("pe", lambda pe: triton_dist.put(x, y, pe)),
        ("pe", lambda pe: triton_dist.get(x, y, pe)),
        ("pe", lambda pe: triton_dist.peer(x, pe)),
        ("pe", lambda pe: team.translate_pe(pe, team)),
        ("broadcast: root", lambda root: triton_dist.broadcast(x, y, root)),
        ("start", lambda start: team.split_strided(start, 1, 1)),
        ("stride", lambda stride: team.split_strided(0, stride, 1)),
        ("size", lambda size: team.split_strided(0, 1, size)),
        ("xrange", lambda xrange: team.split_2d(xrange)),
    ]
    for name, call in calls:
        with pytest.raises(TypeError, match=f"{name} must be an integer, got {re.escape(repr(wrong))} of type"):
            call(wrong)
    assert not x.any()


def test_other_integers_are_integers(world: triton_dist.World) -> None:
    x, y = triton_dist.zeros(4), triton_dist.full(4, 1.0)
    for zero in (np.int32(0), torch.tensor(0), False + 0):
        x.zero_()
        triton_dist.put(x, y, zero)  # type: ignore[arg-type]
        assert x.all()


def test_stride_zero_makes_a_team_of_one(world: triton_dist.World) -> None:
    team = triton_dist.team_world().split_strided(0, 0, 1)
    assert team and list(team.pes) == [0]
    assert team.translate_pe(0, None) == -1
    team.destroy()
