#!/usr/bin/env bash
# Installs Open MPI and MPICH beside each other from Debian or Ubuntu, for the tests that start PEs with mpirun and those of
# CPU worlds over OpenSHMEM (openmpi-bin brings oshrun and liboshmem); without them these tests skip. Takes some ten
# seconds.
set -euo pipefail
as_root=()
(($(id -u) == 0)) || as_root=(sudo)
command -v mpirun.openmpi >/dev/null && command -v mpirun.mpich >/dev/null && exit 0
"${as_root[@]}" apt-get -q update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends openmpi-bin mpich
