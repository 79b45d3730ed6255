"""Words that say themselves that they have arrived: of two boxes in turn, each is emptied too late for its next use.

A box is emptied with the message after its own. Of three boxes it is used again with the one after that, which nobody
sends before having seen this one; of two, with this one, which may come before the box is empty.
"""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BOXES = 2 if sys.argv[1] == "bug" else 3


@triton.jit
def exchange(boxes, result, number, BOXES: tl.constexpr):
    at = tl.arange(0, 16)
    box, last = boxes + number % BOXES * 16 + at, boxes + (number + BOXES - 1) % BOXES * 16 + at
    tl.store(dl.symm_at(box, 1 - dl.my_pe()), number + 1)  # one
    tl.store(last, 0)  # other
    words = tl.load(box, volatile=True)
    while tl.min(words) == 0:
        words = tl.load(box, volatile=True)
    tl.store(result + at, words)


with triton_dist.init() as world:
    boxes, result = triton_dist.zeros(BOXES * 16, dtype=torch.int32), torch.zeros(16, dtype=torch.int32)
    for number in range(8):
        exchange[(1,)](boxes, result, number, BOXES)
        assert (result == number + 1).all(), result
