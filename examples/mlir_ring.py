"""A ring in MLIR, without Triton's language: build it with MLIR's Python bindings, verify it, and compile it.

    python examples/mlir_ring.py [--output FOLDER]

Each PE puts `nbytes` of `src` to `dst` on the next PE and adds 1 to the next PE's signal, then waits for its own. The
program needs no GPU. With --output the files for triton_dist.ahead_of_time.load are kept (docs/ahead-of-time.md).
"""

import argparse
import importlib

from triton_dist import mlir
from triton_dist.mlir.dialects import shmem
from triton_dist.mlir_bindings import package

ir = importlib.import_module(f"{package()}.ir")  # from mlir import ir, from jaxlib.mlir import ir, …
arith = importlib.import_module(f"{package()}.dialects.arith")
llvm = importlib.import_module(f"{package()}.dialects.llvm")


def ring() -> ir.Module:
    """@ring(dst, src, signal, nbytes): a kernel of one program."""
    i32, i64 = ir.IntegerType.get_signless(32), ir.IntegerType.get_signless(64)
    pointer = ir.Type.parse("!llvm.ptr<1>")
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        signature = ir.Type.parse("!llvm.func<void (ptr<1>, ptr<1>, ptr<1>, i64)>")
        attributes = {"sym_name": ir.StringAttr.get("ring"), "function_type": ir.TypeAttr.get(signature)}
        attributes |= {"nvvm.kernel": ir.UnitAttr.get(), "linkage": ir.Attribute.parse("#llvm.linkage<external>")}
        function = ir.Operation.create("llvm.func", attributes=attributes, regions=1)
    body = function.regions[0].blocks.append(pointer, pointer, pointer, i64)
    dst, src, signal, nbytes = body.arguments
    with ir.InsertionPoint(body):
        one = arith.ConstantOp(i32, ir.IntegerAttr.get(i32, 1)).result
        arrived = arith.ConstantOp(i64, ir.IntegerAttr.get(i64, 1)).result
        behind = arith.AddIOp(shmem.my_pe(i32), one).result
        next_pe = arith.RemSIOp(behind, shmem.n_pes(i32)).result
        add, block = shmem.SignalUpdate.Add, shmem.ThreadScope.Block
        shmem.putmem_signal(dst, src, nbytes, signal, arrived, add, next_pe, block)
        shmem.signal_wait_until(i64, signal, shmem.Cmp.Ge, arrived)
        llvm.ReturnOp()
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", help="a folder for the kernel's files")
    output = parser.parse_args().output
    with ir.Context() as context, ir.Location.unknown():
        mlir.register(context)
        module = ring()
        mlir.verify(module)
        kernel = mlir.compile(module, "cuda:90", num_warps=4, output=output)
    print(f"PASS mlir_ring: {package()}, kernel {kernel.manifest.kernel}, {len(kernel.cubin)} bytes")
    print(next(line for line in kernel.ptx.splitlines() if ".entry" in line))


if __name__ == "__main__":
    main()
