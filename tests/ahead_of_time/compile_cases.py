"""Run triton-dist-compile in this process, once for each list of arguments on stdin; print status and stderr as JSON.

A process of its own, since kernels are made for the compiler here, and one for all cases, since Triton's import lasts.
"""

import contextlib
import io
import json
import sys

import _triton_dist_compile


def _case(arguments: list[str]) -> tuple[object, str]:
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            status: object = _triton_dist_compile.main(arguments)
        except SystemExit as ended:
            status = ended.code
    return status, errors.getvalue()


if __name__ == "__main__":
    print(json.dumps([_case(arguments) for arguments in json.load(sys.stdin)]))
