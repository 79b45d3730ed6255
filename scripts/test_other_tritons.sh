#!/usr/bin/env bash
# Runs the smoke set with every other supported Triton whose plugin is built: `make plugins` first. It covers what depends on
# Triton's version: the plugin's loading, the seam to Triton's internals, the lowering of every op, machine code, the kernels
# in Gluon, the CPU world.
#
#   scripts/test_other_tritons.sh PYTHON [PYTEST ARGUMENTS…]       PYTHON has the extra dev
#
# Each Triton gets an environment in build/downloads, whose other packages are those of PYTHON.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
shift
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
here=$("$python" -c 'import importlib.metadata; print(importlib.metadata.version("triton"))')
smoke=(tests/lowering tests/loading tests/test_triton_api.py tests/build/test_check_run.py tests/compiler/test_ptx.py
  tests/compiler/test_errors.py tests/kernels/test_hopper_gemms.py)

status=0
for plugin in triton_dist/_C/libtriton_dist_plugin-*.so; do
  version=${plugin##*plugin-} version=${version%.so}
  [[ $version != "$here" ]] || continue
  environment=$PWD/build/downloads/environment-with-triton-$version
  if [[ ! -e $environment/ready ]]; then
    rm -rf "$environment"
    "$python" -m venv --without-pip "$environment"
    site=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
    find "$packages" -mindepth 1 -maxdepth 1 ! -name triton ! -name 'triton-*' -exec ln -s -t "$site" {} +
    "$python" -m pip install -q --no-deps --no-cache-dir --target "$site" "triton==$version"
    touch "$environment/ready"
  fi
  echo "== Triton $version"
  "$environment/bin/python" -m pytest -q -n0 "${smoke[@]}" "$@" || status=$?
  "$environment/bin/python" -m triton_dist.demo || status=$?
done
exit $status
