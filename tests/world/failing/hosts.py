"""Print this PE's number on its host; with an argument, PE 0 waits for PEs that sleep. ``rendezvous``: only that."""

from __future__ import annotations

import sys
import time

import triton_dist

if sys.argv[1:] == ["rendezvous"]:
    from triton_dist.bootstrap.discovery import discover

    launch = discover()
    print("met", launch.exchange("hello", f"PE {launch.pe}"), flush=True)
    if launch.pe:
        launch.store.set("done", "")
    else:
        launch.await_keys(["done"], "leave the others, whose store it has")
    launch.detector.end()
    sys.exit()
with triton_dist.init() as world:
    launch = world._launch
    triton_dist.barrier_all()
    print(f"here {launch.local_pe} of {launch.n_local_pes}", flush=True)
    if len(sys.argv) > 1:
        if world.pe == 0:
            launch.exchange("never", "")
        time.sleep(1000)
