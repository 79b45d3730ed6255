"""Messages name the user's line: not one of Python's own modules, nor of ours, through which the call went."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import triton_dist
from triton_dist.bootstrap import exit_report
from triton_dist.bootstrap.source_lines import is_library, is_ours, is_standard_library
from triton_dist.check.log import Place
from triton_dist.cpu import location
from triton_dist.gpu import waiting_kernels

PACKAGE = Path(triton_dist.__file__).parent


@contextlib.contextmanager
def context() -> Iterator[None]:
    yield
    raise ValueError("at the end of the block")


def failing() -> None:
    with context():
        pass


def test_whose_file() -> None:
    for module in (contextlib, threading, subprocess):
        assert is_standard_library(module.__file__) and is_library(module.__file__)
    assert is_standard_library("<frozen runpy>") and not is_standard_library("<string>")
    assert not is_standard_library(pytest.__file__) and is_library(pytest.__file__)
    assert not is_library(__file__) and not is_library(sys.executable)


def test_an_error_behind_a_context_manager() -> None:
    """As of our own ones: the innermost frame that is not ours is contextlib's."""
    with pytest.raises(ValueError, match="at the end") as caught:
        failing()
    trace = caught.value.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != contextlib.__file__:
        trace = trace.tb_next
    assert trace is not None
    trace.tb_next = None
    assert location.of_error(caught.value) == f"{__file__}:{failing.__code__.co_firstlineno + 1}"


def test_a_program_beside_the_package() -> None:
    """Its path may begin as the package's does."""
    users, ours = f"{PACKAGE}_programs/train.py", f"{PACKAGE}/world/api.py"
    frames = [(users, 3, "main", ""), (contextlib.__file__, 9, "inner", ""), (ours, 5, "barrier_all", "")]
    assert exit_report._user_line(traceback.StackSummary.from_list(frames)) == f"{users}:3, in main"


def test_a_line_of_the_librarys_own_kernels_is_named_where_there_is_no_line_of_the_users() -> None:
    file = str(Path(location.__file__).parents[1] / "kernels" / "anything.py")
    namespace: dict[str, Any] = {"sys": sys, "find": location.line_of_frame, "found": []}
    exec(compile("\ndef kernel(): found.append(find(sys._getframe()))", file, "exec"), namespace)
    thread = threading.Thread(target=namespace["kernel"])  # whose other frames are Python's
    thread.start()
    thread.join()
    namespace["kernel"]()
    alone, called = namespace["found"]
    assert alone == (file, 2)
    assert called is not None and called[0] == __file__


def test_a_place_without_a_file_is_unknown() -> None:
    assert str(Place("", 0, "tl.load")) == "an unknown place"


def test_an_example_inside_the_package_is_a_users_program() -> None:
    """An installed package holds the examples, and messages name their lines as those of a source tree's."""
    example, ours = f"{PACKAGE}/examples/01_ring_put.py", f"{PACKAGE}/world/api.py"
    assert not is_ours(example) and not is_library(example) and is_ours(ours)
    frames = [(example, 30, "main", ""), (ours, 5, "barrier_all", "")]
    assert exit_report._user_line(traceback.StackSummary.from_list(frames)) == f"{example}:30, in main"
    assert location._of_kernel([(ours, 5), (example, 30)]) == (example, 30)
    assert waiting_kernels.is_inside(ours) and not waiting_kernels.is_inside(example)
