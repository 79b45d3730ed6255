"""Two hosts, as far as one machine shows: network namespaces of their own, with a cable between them."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

__all__ = ["SUBNET", "ip", "two_hosts"]

SUBNET = "198.18.77"  # kept for tests of networks


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextmanager
def two_hosts() -> Iterator[list[str]]:
    """Two namespaces, joined by a cable."""
    tag = uuid.uuid4().hex[:6]
    names = [f"td{tag}{side}" for side in "ab"]
    try:
        for name in names:
            ip("netns", "add", name)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces cannot be made here: {getattr(error, 'stderr', error)}".strip())
    try:
        cable = [f"v{tag}{side}" for side in "ab"]
        ip("link", "add", cable[0], "type", "veth", "peer", "name", cable[1])
        for i, (name, end) in enumerate(zip(names, cable, strict=True), 1):
            ip("link", "set", end, "netns", name)
            ip("-n", name, "addr", "add", f"{SUBNET}.{i}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
