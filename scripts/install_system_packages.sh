#!/usr/bin/env bash
# Installs what the build and the tests take from Debian or Ubuntu, and only what is missing: with nothing missing it asks
# neither the network nor for a password.
#
#   scripts/install_system_packages.sh [PYTHON]
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}

# The LLVM of the oldest Triton that the plugin can be built for: its clang compiles the device library for all. CMake
# unpacks the headers of a newer one by itself (cmake/fetch_llvm.sh).
llvm=$(sed -n 's/.*"llvm": "\([0-9]*\)".*/\1/p' cmake/supported_triton.json | head -n 1)

is_installed() { [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

wanted=(cmake ninja-build ccache g++ zlib1g-dev libzstd-dev)
wanted+=("libmlir-$llvm-dev" "mlir-$llvm-tools" "llvm-$llvm-dev" "llvm-$llvm-tools" "clang-$llvm" "clang-format-$llvm")
needed="${wanted[*]}, and a Python 3.10 or newer with its headers and venv"

if ! command -v dpkg-query >/dev/null; then
  echo "This is no Debian or Ubuntu; please see to it that these, or their like, are here: $needed." >&2
  exit 0 # CMake names what it misses
fi

missing=()
for package in "${wanted[@]}"; do
  is_installed "$package" || missing+=("$package")
done
# A Python that did not come from apt brings these itself.
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
"$python" -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null || missing+=(python3-dev)
if ((${#missing[@]} == 0)); then
  exit 0
fi

echo "== Installing ${missing[*]}"
as_root=()
if (($(id -u) != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "These packages are missing; as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
"${as_root[@]}" apt-get -q update
for package in "${missing[@]}"; do
  if [[ -z $(apt-cache madison "$package") ]]; then
    echo "This distribution has no $package. LLVM's own packages do (see https://apt.llvm.org):" >&2
    echo "  wget https://apt.llvm.org/llvm.sh && sudo bash llvm.sh $llvm" >&2
    echo "Then run this again." >&2
    exit 1
  fi
done
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends "${missing[@]}"
