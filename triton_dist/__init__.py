"""OpenSHMEM for Triton: kernels that put, signal and wait between GPUs, or between processes on a machine without any.

    import triton_dist
    import triton_dist.language as dl

    with triton_dist.init() as world:
        x = triton_dist.zeros(1024, dtype=torch.float32)  # one on every PE
        kernel[(1,)](x, world.n_pes)  # a @triton.jit function that uses dl.putmem, dl.signal_op, ...

Importing this package makes sure that Triton has the compiler plugin, and prepares ``triton.jit`` for the kind of world
this process will be in (:func:`kind`); it starts nothing else.
"""

import sys

import _triton_dist_loader

if sys.argv[:1] == ["-m"] and "triton_dist.info" in sys.orig_argv:  # which must work where this package does not
    import _triton_dist_info

    sys.exit(_triton_dist_info.main(sys.orig_argv[sys.orig_argv.index("triton_dist.info") + 1 :]))

_triton_dist_loader.check()

from triton_dist import api  # noqa: E402
from triton_dist.api import *  # noqa: E402
from triton_dist.autotune import autotune  # noqa: E402
from triton_dist.bootstrap.failure_detector import BrokenWorldError  # noqa: E402
from triton_dist.compat.jit import jit  # noqa: E402
from triton_dist.world import World, interprets, kind  # noqa: E402
from triton_dist.world.non_member import NonMember  # noqa: E402
from triton_dist.world.teams import Team  # noqa: E402

__all__ = ["BrokenWorldError", "NonMember", "Team", "World", "autotune", "jit", "kind"]
__all__ += api.__all__

__version__ = _triton_dist_loader.version()


def _prepare_triton() -> None:
    """Kernels may be decorated as soon as this package is imported, so Triton must know by then how they will run."""
    if interprets():
        from triton_dist import environment
        from triton_dist.cpu import interpreter

        target = environment.get("TRITON_DIST_CHECK_COMPILE")
        interpreter.install(compilable=target is not None)
        if target is not None:
            from triton_dist import compile_check

            compile_check.install(target)
    else:
        from triton_dist.compiler import hooks
        from triton_dist.gpu import launch_check, module_state

        hooks.install()
        module_state.install()
        launch_check.install()


_prepare_triton()
