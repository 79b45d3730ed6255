"""The checks of grids of PEs with all of their cases, of which ``moe_grids.py``, whose PEs are as many, takes some."""

from __future__ import annotations

from harness import main as run
from moe_grids import (
    check_moe_grid_layers_and_gradients,
    check_moe_grid_of_replicated_tokens,
    check_moe_replicated_tokens,
)

__all__ = [
    "check_moe_grid_layers_and_gradients",
    "check_moe_grid_of_replicated_tokens",
    "check_moe_replicated_tokens",
]

if __name__ == "__main__":
    run(globals())
