#!/usr/bin/env bash
# Compiles every op with the device library of each supported NVSHMEM, for the GPUs that its wheel has bitcode for. No GPU is
# needed; what is downloaded, some 100 MB a version, is taken away again but for headers and bitcode.
#
#   scripts/nvshmem_versions.sh PYTHON FOLDER [VERSION…]       PYTHON has the extra dev; VERSION: cu13-3.8.0 …
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 folder=$2
shift 2
versions=("$@")
((${#versions[@]})) || versions=(cu12-3.4.5 cu12-3.8.0 cu13-3.4.5 cu13-3.5.21 cu13-3.6.5 cu13-3.7.2 cu13-3.8.0)

mkdir -p "$folder"
for version in "${versions[@]}"; do
  home=$folder/$version/nvidia/nvshmem
  if [[ ! -d $home ]]; then
    download=$(mktemp -d -p "$folder")
    "$python" -m pip download -q --no-deps --no-cache-dir --dest "$download" "nvidia-nvshmem-${version%%-*}==${version#*-}"
    "$python" - "$download" "$folder/$version" <<'END'
import sys, zipfile
from pathlib import Path

[wheel] = Path(sys.argv[1]).glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    kept = [name for name in archive.namelist() if "/nvshmem/include/" in name or name.endswith(".bc")]
    archive.extractall(sys.argv[2], kept)
END
    rm -r "$download"
  fi
  echo "== NVSHMEM $version: $(ls "$home"/lib)"
  NVSHMEM_HOME=$home "$python" -m pytest -q -n0 tests/compiler/test_nvshmem_versions.py
done
