#!/usr/bin/env bash
# Builds what is published, into dist/: the source distribution, and the one wheel, which has a plugin for every supported
# Triton and is for every Python. auditwheel names the oldest glibc that it runs with; libtriton.so comes from Triton's wheel.
#
#   scripts/build_wheels.sh PYTHON [CMAKE DEFINITIONS…]       PYTHON has the extras dev and wheels
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
shift

mkdir -p dist
built=$(mktemp -d -p dist)
trap 'rm -rf "$built"' EXIT
definitions=(-C cmake.define.ALSO_FOR_TRITON=all)
for definition in "$@"; do
  definitions+=(-C "cmake.define.${definition#-D}")
done

"$python" -m build --no-isolation --sdist --outdir dist .
"$python" -m build --no-isolation --wheel --outdir "$built" -C build-dir=build/wheel "${definitions[@]}" .
PATH="$(dirname "$python"):$PATH" "$python" -m auditwheel repair --exclude libtriton.so --wheel-dir dist "$built"/*.whl
ls -l dist
