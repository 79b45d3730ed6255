"""Kill one PE at a random moment of a whole program, again and again, and say how each of the others ended.

    kill.py KILLS SEED [N_PES]

The PEs are forked from this process, which has imported everything: what is tested begins with init(). They meet as
under mpirun, so PE 0 holds the store, and is killed like the others. One line of JSON a run: some that nobody disturbs,
then as many as it takes until KILLS victims were caught alive, then one more that nobody disturbs.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

N = 64
ROUNDS = 4
PATIENCE_SECONDS = 600  # for PEs that never end; these are killed, and have the status -99


@triton.jit
def pass_on(inbox, outbox, arrived, i, N: tl.constexpr):
    dl.putmem_signal(inbox, outbox, N * 4, arrived, i, dl.SIGNAL_SET, (dl.my_pe() + 1) % dl.n_pes())
    token = dl.signal_wait_until(arrived, dl.CMP_GE, i)
    offsets = tl.arange(0, N)
    tl.store(outbox + offsets, tl.load(dl.consume_token(inbox, token) + offsets))


def program() -> None:
    with triton_dist.init() as world:
        outbox = triton_dist.full(N, world.pe, dtype=torch.float32)
        inbox = triton_dist.zeros(N)
        arrived = triton_dist.zeros(1, dtype=torch.int64)
        for i in range(1, ROUNDS + 1):
            pass_on[(1,)](inbox, outbox, arrived, i, N=N)
            triton_dist.barrier_all()
        triton_dist.free(inbox)
        assert int(outbox[0]) == (world.pe - ROUNDS) % world.n_pes


def start(pe: int, n_pes: int, run: str, output: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.environ |= {
        "OMPI_COMM_WORLD_RANK": str(pe),
        "OMPI_COMM_WORLD_SIZE": str(n_pes),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(pe),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(n_pes),
        "PMIX_NAMESPACE": run,
    }
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    status = 1
    try:
        program()
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)  # the parent's own end is not this process's


def run(n_pes: int, name: str, victim: int, moment: float) -> dict[str, Any]:
    """One program; PE ``victim`` is killed after ``moment`` seconds, unless it is -1."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, str(pe)) for pe in range(n_pes)]
        begin = time.monotonic()
        pids = [start(pe, n_pes, name, outputs[pe]) for pe in range(n_pes)]
        if victim >= 0:
            time.sleep(max(0.0, begin + moment - time.monotonic()))
            os.kill(pids[victim], signal.SIGKILL)
        killed = time.monotonic()
        ends: dict[int, tuple[int, float]] = {}
        while len(ends) < n_pes and time.monotonic() - killed < PATIENCE_SECONDS:
            for pe in set(range(n_pes)) - ends.keys():
                pid, status = os.waitpid(pids[pe], os.WNOHANG)
                if pid:
                    ends[pe] = os.waitstatus_to_exitcode(status), time.monotonic()
            time.sleep(0.005)
        for pe in set(range(n_pes)) - ends.keys():
            os.kill(pids[pe], signal.SIGKILL)
            os.waitpid(pids[pe], 0)
            ends[pe] = -99, time.monotonic()
        return {
            "victim": victim,
            "moment": round(moment, 4),
            "seconds": round(max(end for _, end in ends.values()) - (killed if victim >= 0 else begin), 3),
            "statuses": [ends[pe][0] for pe in range(n_pes)],
            "outputs": [output.read_text() if output.exists() else "" for output in outputs],
        }


def main() -> None:
    kills, seed, n_pes = int(sys.argv[1]), sys.argv[2], int((sys.argv[3:] or ["3"])[0])
    draw = random.Random(seed)
    undisturbed = [run(n_pes, f"{seed} whole {i}", -1, 0.0) for i in range(2)]
    for result in undisturbed:
        print(json.dumps(result))
    length = min(result["seconds"] for result in undisturbed)
    # For PEs that wait for one that was killed before it had said that it is there.
    os.environ["TRITON_DIST_INIT_TIMEOUT"] = f"{max(6, 20 * length):g}"
    caught = tries = 0
    while caught < kills:
        tries += 1
        result = run(n_pes, f"{seed} {tries}", draw.randrange(n_pes), draw.uniform(0, length))
        caught += result["statuses"][result["victim"]] == -signal.SIGKILL
        print(json.dumps(result), flush=True)
    print(json.dumps(run(n_pes, f"{seed} end", -1, 0.0)), flush=True)


if __name__ == "__main__":
    main()
