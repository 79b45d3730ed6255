"""Classes and functions that build the ops of the shmem dialect, and its enums.

A module like those in ``mlir.dialects``, for the package of bindings that :func:`triton_dist.mlir_bindings.package`
tells. For each op ``shmem.my_pe`` there is a class ``MyPeOp`` and a function ``my_pe``. They take the type of the
result, if there is one, and then operands and attributes in the order of C's arguments, which is that of the op's
entry in ``ShmemOps.td``. An attribute is a member of an enum (``shmem.Cmp.Ge``) or an i32 attribute.
"""

from triton_dist._C.shmem_op_classes import *
from triton_dist._C.shmem_op_classes import _Dialect
