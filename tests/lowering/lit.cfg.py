"""How lit runs the tests of the lowering: through the real plugin in the stock Triton. Started by pytest."""

import os
from importlib.metadata import version

import lit.formats

config.name = "shmem-lowering"  # noqa: F821  # lit hands `config` in
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".mlir"]  # noqa: F821
config.test_source_root = os.path.dirname(__file__)  # noqa: F821
config.test_exec_root = os.environ["TRITON_DIST_LIT_OUTPUT"]  # noqa: F821
config.environment.update(os.environ)  # noqa: F821
# The type of a tensor descriptor is !tt.tensordesc<tensor<16x16xf32>> in Triton 3.7, and lacks `tensor` since.
DESCRIPTORS = "" if version("triton").startswith("3.7.") else "s/tensordesc<tensor</tensordesc</g; s/>>/>/g"
config.substitutions += [  # noqa: F821
    ("%triton-dist-opt", os.environ["TRITON_DIST_LIT_OPT"]),
    ("%this-tritons-descriptors", f"'{DESCRIPTORS}'"),
    ("FileCheck", os.environ["TRITON_DIST_LIT_FILECHECK"]),
]
