"""Does the plugin fit the libtriton.so that it will run in? Run after every link; a plugin that fails is not published.

The plugin is compiled with the headers of one LLVM (a distribution's) and runs with the code of another (the
one inside libtriton.so). Two things show that they agree:

1. Every symbol that the plugin takes from its surroundings is there. A symbol that carries a version
   (``memcpy@GLIBC_2.14``) is the C or C++ library's and was settled at link time; all others must come from
   libtriton.so, which Triton would otherwise discover by aborting the process, or by jumping into nothing at
   the first call.
2. Every class with virtual functions that both sides know has the same number of them: its vtable has the same
   size in libtriton.so as in the plugin, and as in LLVM's own shared libraries, which stand for the headers. Of
   MLIR every such class is compared; of LLVM those that the plugin mentions (its code generators differ from
   month to month and are none of the plugin's business).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

VTABLE = "_ZTV"
SHOWN = 20  # of each kind of problem; the first ones tell the story


@dataclass(frozen=True)
class Symbols:
    """What one shared object takes and gives."""

    undefined: frozenset[str]
    defined: frozenset[str]
    vtables: dict[str, int]  # mangled name to size in bytes


def read_symbols(path: Path, nm: str, *, dynamic: bool = True) -> Symbols:
    """Read a shared object's dynamic symbols, or all of them (where hidden vtables are, too)."""
    command = [nm, "--print-size", *(["--dynamic"] if dynamic else []), str(path)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    undefined, defined, vtables = set(), set(), {}
    for line in output.splitlines():
        *address_and_size, kind, name = line.split()
        if kind == "U":
            undefined.add(name)
        elif address_and_size:
            name = name.partition("@")[0]
            defined.add(name)
            if name.startswith(VTABLE) and len(address_and_size) == 2:
                vtables[name] = int(address_and_size[1], 16)
    return Symbols(frozenset(undefined), frozenset(defined), vtables)


def missing_symbols(plugin: Symbols, libtriton: Symbols) -> list[str]:
    """The symbols without a version that the plugin needs and libtriton.so does not export."""
    return sorted(name for name in plugin.undefined if "@" not in name and name not in libtriton.defined)


def _mentioned(vtable: str, plugin_names: str) -> bool:
    """Whether a symbol of the plugin names the vtable's class, as _ZN3foo3Bar4workEv does for _ZTVN3foo3BarE."""
    return vtable.removeprefix(VTABLE).removeprefix("N").removesuffix("E") in plugin_names


def compared_vtables(plugin: Symbols, libtriton: Symbols, llvm: list[Symbols]) -> dict[str, tuple[int, int]]:
    """The vtables that both sides have and that matter to the plugin: name to size here and size in libtriton.so."""
    plugin_names = "\n".join(plugin.undefined | plugin.defined)
    ours: dict[str, int] = {}
    for library in llvm:
        for name, size in library.vtables.items():
            if "4mlir" in name or _mentioned(name, plugin_names):
                ours[name] = size
    ours |= plugin.vtables
    return {name: (ours[name], libtriton.vtables[name]) for name in sorted(ours.keys() & libtriton.vtables.keys())}


def demangled(names: list[str]) -> list[str]:
    """The names as C++ writes them, or as they are when the machine has no c++filt."""
    try:
        output = subprocess.run(["c++filt"], input="\n".join(names), check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return names
    return output.splitlines()


def report(headline: str, lines: list[str]) -> str:
    """A headline and the first of its lines."""
    shown = [f"  {line}" for line in lines[:SHOWN]]
    if len(lines) > SHOWN:
        shown.append(f"  … and {len(lines) - SHOWN} more")
    return "\n".join([headline, *shown])


def problems(plugin: Symbols, libtriton: Symbols, vtables: dict[str, tuple[int, int]]) -> list[str]:
    """What does not fit, as text."""
    found = []
    if missing := missing_symbols(plugin, libtriton):
        headline = f"Symbols that the plugin needs and libtriton.so does not export ({len(missing)}):"
        found.append(report(headline, demangled(missing)))
    if differing := {name: sizes for name, sizes in vtables.items() if sizes[0] != sizes[1]}:
        rows = [
            f"{name}: {here} bytes here, {there} in libtriton.so"
            for name, (here, there) in zip(demangled(list(differing)), differing.values(), strict=True)
        ]
        found.append(report(f"Shared vtables of different sizes ({len(differing)} of {len(vtables)}):", rows))
    return found


WHAT_TO_DO = """\
The plugin was not published. What to do:
  - a symbol of triton_dist is missing: its source file is not listed in lowering/lib/*/CMakeLists.txt;
  - an mlir or llvm symbol is missing, or a vtable differs: the LLVM headers do not match this Triton. Build with the
    LLVM that cmake/supported_triton.json names (Debian/Ubuntu: libmlir-NN-dev), or with Triton's own, by -DMLIR_DIR=
    and -DLLVM_DIR=;
  - all mlir symbols are missing: this Triton was built without TRITON_EXT_ENABLED; use its wheel."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nm", default="nm", help="the nm to run")
    parser.add_argument("--libtriton", type=Path, required=True)
    parser.add_argument("--plugin", type=Path, required=True)
    parser.add_argument("--llvm", type=Path, nargs="*", default=[], help="libMLIR.so and libLLVM.so, where they exist")
    arguments = parser.parse_args()

    libtriton = read_symbols(arguments.libtriton, arguments.nm)
    plugin = read_symbols(arguments.plugin, arguments.nm, dynamic=False)
    vtables = compared_vtables(plugin, libtriton, [read_symbols(path, arguments.nm) for path in arguments.llvm])
    if found := problems(plugin, libtriton, vtables):
        print("ABI check failed:", arguments.plugin, "against", arguments.libtriton, file=sys.stderr)
        print(*found, WHAT_TO_DO, sep="\n", file=sys.stderr)
        return 1
    print(f"ABI check passed: {len(plugin.undefined)} symbols needed, {len(vtables)} shared vtables agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
