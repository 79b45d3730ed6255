"""What mlir-tblgen's classes of ops take from the package of bindings that they are used with.

Importing this module imports that package.
"""

from __future__ import annotations

import importlib

from triton_dist.mlir_bindings import package

__all__ = [
    "cext",
    "equally_sized_accessor",
    "get_default_loc_context",
    "get_op_results_or_values",
    "register_attribute_builder",
    "segmented_accessor",
]

_common = importlib.import_module(f"{package()}.dialects._ods_common")

cext = _common._cext
equally_sized_accessor = _common.equally_sized_accessor
get_default_loc_context = _common.get_default_loc_context
get_op_results_or_values = _common.get_op_results_or_values
segmented_accessor = _common.segmented_accessor
register_attribute_builder = importlib.import_module(f"{package()}.ir").register_attribute_builder
