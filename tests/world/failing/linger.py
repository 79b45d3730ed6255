"""Touch the heap, start a child, and stay until killed."""

from __future__ import annotations

import subprocess
import time

import triton_dist

with triton_dist.init():
    triton_dist.zeros(10_000_000)
    subprocess.Popen(["sleep", "1000"])
    print("ready")
    time.sleep(1000)
