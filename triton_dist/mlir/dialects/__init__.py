"""Dialects for MLIR's Python bindings, as the bindings' own ``dialects`` has them."""
