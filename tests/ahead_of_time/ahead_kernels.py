"""Kernels for triton-dist-compile."""

import triton
import triton.language as tl

import triton_dist.language as dl

NOT_A_KERNEL = 5


@triton.jit
def ring(out, signal, n, scale, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    next_pe = (dl.my_pe() + 1) % dl.n_pes()
    dl.signal_op(signal, 1, dl.SIGNAL_ADD, next_pe)
    seen = dl.signal_wait_until(signal, dl.CMP_GE, 1)
    tl.store(out + i, seen * scale, mask=i < n)


@triton.jit
def meet(out):
    dl.barrier_all()
    tl.store(out, dl.my_pe())


@triton.jit
def plain(out):
    tl.store(out, 1.0)


@triton.jit
def wrong(out):
    dl.signal_op(out, 1, dl.SIGNAL_ADD, 1.5)


@triton.autotune(configs=[triton.Config({})], key=[])
@triton.jit
def tuned(out):
    dl.barrier_all()
