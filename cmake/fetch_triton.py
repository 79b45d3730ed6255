"""Unpack what a plugin is built against of one version of Triton into a folder, without installing it.

    fetch_triton.py VERSION FOLDER      then: cmake -DTRITON_DIR=FOLDER/triton

pip downloads the wheel for the Python that runs this and verifies its checksum; its cache is not used, and of the wheel
only the library, the version and the headers are kept.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

UNPACKED = ("triton/__init__.py", "triton/_C/libtriton.so", "triton/include/")


def fetch(version: str, folder: Path) -> None:
    """Leave the parts of Triton ``version`` in ``folder``; nothing is done if they are there."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        options = ["--quiet", "--no-cache-dir", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", temporary, f"triton=={version}"]
        if subprocess.run(command).returncode != 0:
            raise SystemExit(f"The wheel of Triton {version} cannot be downloaded: pip's message is above.")
        (wheel,) = Path(temporary).glob("*.whl")
        unfinished = Path(temporary, "unpacked")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unfinished, [name for name in archive.namelist() if name.startswith(UNPACKED)])
        shutil.move(unfinished, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    fetch(arguments.version, arguments.folder)


if __name__ == "__main__":
    main()
