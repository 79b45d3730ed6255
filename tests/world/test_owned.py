"""What a world owns ends with it, however it ends."""

from __future__ import annotations

import pytest
from forking import launch

PROGRAM = """
import contextlib, triton_dist
class Thing:
    def __init__(self, world):
        self.pe = world.pe
    def close(self):
        print("closed", self.pe)
with contextlib.suppress(KeyError), triton_dist.init() as world:
    assert world.own(Thing) is world.own(Thing)
    {end}
print("ended")
world.finalize()
"""


@pytest.mark.parametrize("end", ["pass", "raise KeyError", "world.finalize()"])
def test_it_is_closed_once(end: str) -> None:
    result = launch(["-c", PROGRAM.format(end=end)], 1, env={"TRITON_DIST_WORLD": "cpu"}).check()
    assert result[0].stdout == "closed 0\nended\n"


def test_threads_get_the_same_one() -> None:
    program = """
import time, triton_dist
from concurrent.futures import ThreadPoolExecutor
from triton_dist.process_state import of_process
class Slow:
    def __init__(self, world=None):
        time.sleep(0.2)
    def close(self):
        pass
with triton_dist.init() as world, ThreadPoolExecutor(8) as pool:
    assert len(set(pool.map(world.own, [Slow] * 8))) == 1
    assert len(set(pool.map(of_process, [Slow] * 8))) == 1
"""
    launch(["-c", program], 1, env={"TRITON_DIST_WORLD": "cpu"}).check()


def test_a_later_world_has_nothing_of_an_earlier_one() -> None:
    program = """
import gc, weakref
import triton_dist
from triton_dist import utils
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.gemm import plan_cache
from triton_dist.kernels.protocols import workspace
from triton_dist.kernels.tracing import recorder

unfinished = []
for turn in range(2):
    world = triton_dist.init()
    flags = workspace.symmetric_workspace(communicator_of(), "flags", 4)
    assert flags.tolist() == [0, 0, 0, 0]
    flags.fill_(7)
    assert plan_cache.cached(communicator_of(), "key", lambda: turn) == turn
    assert utils.get_triton_dist_world() is None
    world.own(utils._Origin).group = "a group"
    assert utils.get_triton_dist_world() == "a group"
    assert recorder.claim("kernel", 4, iter) is None
    unfinished.append(recorder.tracing("/dev/null"))
    unfinished[-1].__enter__()
    assert recorder.claim("kernel", 4, iter) is not None
    flags = weakref.ref(flags)
    triton_dist.finalize()
    assert utils.get_triton_dist_world() is None
    gc.collect()
    assert flags() is None, "kernels' workspace is dropped with its world"
"""
    launch(["-c", program], 1, env={"TRITON_DIST_WORLD": "cpu"}).check()
