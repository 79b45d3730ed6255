"""What a world owns ends with it, however it ends."""

from __future__ import annotations

import pytest

from triton_dist.testing import launch

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
    result = launch(["-c", PROGRAM.format(end=end)], 1, env={"TRITON_DIST_WORLD": "cpu"}, timeout=60).check()
    assert result[0].stdout == "closed 0\nended\n"
