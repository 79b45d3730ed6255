"""Memory that is not there, that is not there any more, or that is both ends of a copy."""

from __future__ import annotations

import triton
import triton.language as tl
from harness import case, flags, main, out

import triton_dist
import triton_dist.language as dl


@triton.jit
def one_put(dst, src, nbytes, pe):
    dl.putmem(dst, src, nbytes, pe)  # put_onto_itself
    dl.quiet()


@case("overlap")
def put_onto_itself(world, bug):
    x = triton_dist.zeros(32)
    one_put[(1,)](x[4 if bug else 16 :], x, 64, world.pe)


@triton.jit
def one_get(dst, src, nbytes, pe):
    dl.getmem(dst, src, nbytes, pe)  # get_onto_itself


@case("overlap")
def get_onto_itself(world, bug):
    x = triton_dist.zeros(32)
    one_get[(1,)](x, x[4 if bug else 16 :], 64, world.pe)


@triton.jit
def one_broadcast(dst, src):
    dl.broadcast(dl.TEAM_WORLD, dst, src, 16, 0)  # broadcast_overlap


@case("overlap")
def broadcast_overlap(world, bug):
    x = triton_dist.zeros(32)
    one_broadcast[(1,)](x[8 if bug else 16 :], x)


@triton.jit
def one_alltoall(dst, src):
    dl.alltoall(dl.TEAM_WORLD, dst, src, 8)  # alltoall_in_place


@case("overlap")
def alltoall_in_place(world, bug):
    x = triton_dist.zeros(32)
    one_alltoall[(1,)](x if bug else x[16:], x)


@triton.jit
def one_fcollect(dst, src):
    dl.fcollect(dl.TEAM_WORLD, dst, src, 8)  # fcollect_overlap


@case("overlap")
def fcollect_overlap(world, bug):
    x = triton_dist.zeros(32)
    one_fcollect[(1,)](x, x[4 if bug else 8 * world.pe :])


@triton.jit
def one_reduce(dst, src):
    dl.sum_reduce(dl.TEAM_WORLD, dst, src, 16)  # reduce_overlap


@case("overlap")
def reduce_overlap(world, bug):
    x = triton_dist.zeros(32)
    one_reduce[(1,)](x[4 if bug else 0 :], x)


@triton.jit
def strided_onto_itself(x, FAR: tl.constexpr):
    dl.iput(x + FAR, x, 1, 2, 8, dl.my_pe())  # iput_onto_itself
    dl.quiet()


@case("overlap")
def iput_onto_itself(world, bug):
    strided_onto_itself[(1,)](triton_dist.zeros(32), 4 if bug else 16)


@triton.jit
def far_iput(x, y, STRIDE: tl.constexpr):
    dl.iput(x, y, STRIDE, 1, 8, 1 - dl.my_pe())  # iput_outside
    dl.quiet()


@case("outside", fatal=True)
def iput_outside(world, bug):
    far_iput[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), 3 if bug else 2)


@triton.jit
def blocks_onto_itself(x, FAR: tl.constexpr):
    dl.ibput(x + FAR, x, 4, 4, 2, 4, dl.my_pe())  # ibput_onto_itself
    dl.quiet()


@case("overlap")
def ibput_onto_itself(world, bug):
    blocks_onto_itself[(1,)](triton_dist.zeros(32), 5 if bug else 6)


@triton.jit
def far_ibget(x, y, STRIDE: tl.constexpr):
    dl.ibget(x, y, 4, STRIDE, 4, 3, 1 - dl.my_pe())  # ibget_outside


@case("outside", fatal=True)
def ibget_outside(world, bug):
    far_ibget[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), 7 if bug else 6)


@triton.jit
def far_get(x, y):
    dl.getmem(x, y, 64, 1 - dl.my_pe())  # get_outside


@case("outside", fatal=True)
def get_outside(world, bug):
    far_get[(1,)](out(), triton_dist.zeros(8 if bug else 16))


@triton.jit
def far_signal(x, at):
    dl.signal_op(x + at, 1, dl.SIGNAL_SET, 1 - dl.my_pe())  # signal_outside
    dl.signal_wait_until(x + at, dl.CMP_EQ, 1)


@case("outside", fatal=True)
def signal_outside(world, bug):
    far_signal[(1,)](flags(4), 4 if bug else 3)


@triton.jit
def far_atomic(x, at):
    dl.atomic_add(x + at, 1, 1 - dl.my_pe())  # atomic_outside


@case("outside", fatal=True)
def atomic_outside(world, bug):
    far_atomic[(1,)](flags(4), -1 if bug else 3)


@triton.jit
def far_p(x, at):
    dl.p(x + at, 1, 1 - dl.my_pe())  # p_outside
    dl.quiet()


@case("outside", fatal=True)
def p_outside(world, bug):
    far_p[(1,)](flags(4), 5 if bug else 3)


@triton.jit
def far_load(x, result, n, MASKED: tl.constexpr):
    at = tl.arange(0, 16)
    tl.store(result + at, tl.load(dl.symm_at(x, 1) + at, mask=(at < n) if MASKED else None))  # load_outside


@case("outside", fatal=True)
def load_outside(world, bug):
    far_load[(1,)](triton_dist.zeros(10), out(), 10, not bug)


@triton.jit
def far_tl_atomic(x, n):
    at = tl.arange(0, 16)
    tl.atomic_add(dl.symm_at(x, 0) + at, 1.0, mask=at < n, scope="sys")  # tl_atomic_outside


@case("outside", fatal=True)
def tl_atomic_outside(world, bug):
    far_tl_atomic[(1,)](triton_dist.zeros(10), 11 if bug else 10)


@triton.jit
def far_fcollect(dst, src):
    dl.fcollect(dl.TEAM_WORLD, dst, src, 8)  # fcollect_outside


@case("outside", fatal=True)
def fcollect_outside(world, bug):
    far_fcollect[(1,)](triton_dist.zeros(8 if bug else 16), triton_dist.zeros(8))


@triton.jit
def far_descriptor(x, ROWS: tl.constexpr):
    there = tl.make_tensor_descriptor(dl.symm_at(x, 1 - dl.my_pe()), [ROWS, 16], [16, 1], [8, 16])
    there.store([4, 0], tl.full((8, 16), 3.0, tl.float32))  # descriptor_outside


@case("outside", fatal=True)
def descriptor_outside(world, bug):
    far_descriptor[(1,)](triton_dist.zeros(8, 16), 12 if bug else 8)


@triton.jit
def by_number(address):
    there = address.to(tl.pointer_type(tl.float32))
    tl.store(there + tl.arange(0, 16), 1.0)  # freed_in_a_kernel


@case("use-after-free", fatal=True)
def freed_in_a_kernel(world, bug):
    x = triton_dist.zeros(16)
    address = x.data_ptr()
    if bug:
        triton_dist.free(x)
    y = triton_dist.zeros(16)
    by_number[(1,)](address)
    del y


@case("use-after-free", fatal=True)
def freed_on_the_host(world, bug):
    x = triton_dist.zeros(16)
    there = triton_dist.peer(x, 1 - world.pe)
    if bug:
        triton_dist.free(x)
        y = triton_dist.zeros(16)
        there.fill_(1.0)  # freed_on_the_host
        del y


@case("use-after-free", fatal=True)
def dropped_in_a_kernel(world, bug):
    x = triton_dist.zeros(16)
    address = x.data_ptr()
    if bug:
        del x
        triton_dist.barrier_all()
    y = triton_dist.zeros(16)
    by_number_again[(1,)](address)
    del y


@triton.jit
def by_number_again(address):
    there = address.to(tl.pointer_type(tl.float32))
    tl.store(there + tl.arange(0, 16), 1.0)  # dropped_in_a_kernel


@case("race")
def same_place_of_one_pe(world, bug):
    x = triton_dist.zeros(16)
    shared[(1,)](x, bug)


@triton.jit
def shared(x, BUG: tl.constexpr):
    at = tl.arange(0, 8)
    tl.store(dl.symm_at(x, 0) + (at if BUG else at + 8 * dl.my_pe()), 1.0)  # same_place_of_one_pe


main()
