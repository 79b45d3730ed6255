#!/usr/bin/env bash
# Builds what is published, into dist/: the source distribution, and of that the one wheel, which has a plugin for every
# supported Triton and is for every Python. auditwheel names the oldest glibc that it runs with; libtriton.so comes from
# Triton's wheel.
#
#   [REPOSITORY=URL] scripts/build_wheels.sh PYTHON [CMAKE DEFINITIONS…]       PYTHON has the extras dev and wheels
#
# With a URL the links of the README lead there: an index of packages, which shows it, has no files for them.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
shift

repository=$PWD
mkdir -p dist
temporary=$(mktemp -d -p "$PWD/dist")
trap 'rm -rf "$temporary"' EXIT
definitions=(-C cmake.define.ALSO_FOR_TRITON=all)
for definition in "$@"; do
  definitions+=(-C "cmake.define.${definition#-D}")
done

"$python" -m build --no-isolation --sdist --outdir "$temporary/files" .
mkdir "$temporary/sources"
tar -xf "$temporary"/files/*.tar.gz -C "$temporary/sources"
cd "$temporary"/sources/*/
if [[ ${REPOSITORY:-} ]]; then
  "$python" scripts/absolute_links.py README.md "$REPOSITORY"
fi
"$python" -m build --no-isolation --sdist --outdir "$temporary/published" .
# Commands and paths below the sources are those of `make plugins`, so ccache has what that compiled, and what that
# downloaded is here.
ln -s "$(dirname "$(dirname "$python")")" .venv
mkdir -p build/downloads
for downloaded in "$repository"/build/downloads/{llvm,triton}-*; do
  [[ ! -e $downloaded ]] || cp -al "$downloaded" build/downloads
done
python=$PWD/.venv/bin/$(basename "$python") PATH="$PWD/.venv/bin:$PATH"
export CXX="${CXX:-c++}" CC="${CC:-cc}"
"$python" -m build --no-isolation --wheel --outdir "$temporary/built" -C build-dir=build "${definitions[@]}" .
"$python" -m auditwheel repair --exclude libtriton.so --wheel-dir "$temporary/published" "$temporary"/built/*.whl
cd "$repository"
rm -f dist/triton_dist-*
mv "$temporary"/published/* dist
ls -l dist
