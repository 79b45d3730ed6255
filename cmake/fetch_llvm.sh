#!/usr/bin/env bash
# Unpacks the headers and tools of one version of MLIR and LLVM into a folder, without root and without installing them.
#
#   cmake/fetch_llvm.sh VERSION FOLDER      then: FOLDER/usr/lib/llvm-VERSION/lib/cmake/mlir
#
# A Debian release has the LLVM of its time; Debian unstable has the current ones. So the packages come from unstable of
# the mirror that this machine's apt uses, and apt verifies their signatures. Their programs need a newer C library than
# the machine has, so those that the build runs, the TableGens, run with the C library of their own release.
# The version is the major one: within it LLVM keeps its interfaces, and check_abi.py compares what was built.
set -euo pipefail
version=$1 folder=$2

fail() {
  echo "LLVM $version cannot be fetched: $*" >&2
  exit 1
}

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || fail "this is no Debian"
mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
  sed -nE 's|^([^ ]+/debian)/? [a-z]+$|\1|p' | head -n 1)
[[ $mirror ]] || fail "apt has no mirror of Debian among its sources"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[[ -e $keyring ]] || fail "$keyring is missing (apt-get install debian-archive-keyring)"

rm -rf "$folder" "$folder.unfinished"
mkdir -p "$folder.unfinished"
root=$(cd "$folder.unfinished" && pwd)
apt_state=$(mktemp -d) # apt wants to own it, and reads it as a user of its own
trap 'rm -rf "$apt_state"' EXIT
chmod 755 "$apt_state"
mkdir -p "$apt_state"/{lists/partial,cache/archives/partial,debs}
echo "deb [signed-by=$keyring] $mirror sid main" >"$apt_state/sources.list"
apt=(apt-get -qq -o "Dir::Etc::SourceList=$apt_state/sources.list" -o Dir::Etc::SourceParts=/dev/null
  -o "Dir::State::Lists=$apt_state/lists" -o "Dir::Cache=$apt_state/cache" -o Dir::State::Status=/dev/null
  -o APT::Sandbox::User=root -o Acquire::Retries=3)
"${apt[@]}" update || fail "$mirror could not be asked"
packages=("libmlir-$version-dev" "mlir-$version-tools" "libmlir-$version" "llvm-$version" "llvm-$version-dev" "libllvm$version")
libraries=(libc6 libstdc++6 libgcc-s1 zlib1g libzstd1 libz3-4 libtinfo6 libffi8) # of the TableGens
(cd "$apt_state/debs" && "${apt[@]}" download "${packages[@]}" "${libraries[@]}") ||
  fail "Debian unstable has no such packages: ${packages[*]}"

for package in "$apt_state"/debs/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --exclude='*.a'
done
# Nothing is linked with static libraries, no other program is run: CMake only looks whether they are there.
grep -rhoE '\$\{_IMPORT_PREFIX\}/[^"; ]+' "$root/usr/lib/llvm-$version/lib/cmake" | sort -u | cut -d/ -f2- |
  while read -r file; do
    file=$root/usr/lib/llvm-$version/$file
    [[ -e $file ]] || { mkdir -p "$(dirname "$file")" && touch "$file"; }
  done

bin=$root/usr/lib/llvm-$version/bin
for tool in mlir-tblgen llvm-tblgen; do
  mv "$bin/$tool" "$bin/$tool.program"
  cat >"$bin/$tool" <<'END'
#!/bin/sh
bin=$(dirname "$0")
usr=$bin/../../..
machine=$(basename "$(dirname "$(ls -d "$usr"/lib/*/libc.so.6)")")
exec "$usr/lib/$machine"/ld-linux-*.so.* --library-path "$bin/../lib:$usr/lib/$machine" "$0.program" "$@"
END
  chmod +x "$bin/$tool"
  "$bin/$tool" --version >/dev/null || fail "its $tool does not run"
done
mv "$folder.unfinished" "$folder"
