"""Put a checked plugin beside the Python package, with a JSON file of the same name that says what it was built for.

The name holds the version of Triton, so plugins for several versions lie side by side. The start-up hook
(``_triton_dist_loader.py``) reads that file before it shows Triton the plugin. It is taken away first and written last,
so that it never stands for another plugin than the one beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
from pathlib import Path


def publish(plugin: Path, folder: Path, facts: dict[str, str]) -> None:
    """Copy ``plugin`` into ``folder`` and describe it there: ``facts``, and a hash that tells builds apart."""
    folder.mkdir(parents=True, exist_ok=True)
    published = folder / f"{plugin.stem}-{facts['triton']}{plugin.suffix}"
    info = folder / f"{plugin.stem}-{facts['triton']}.json"
    info.unlink(missing_ok=True)
    # A process may have the old file mapped: replace it, never write into it.
    unfinished = folder / f"{published.name}.{os.getpid()}"
    shutil.copyfile(plugin, unfinished)
    unfinished.replace(published)
    description = facts | {"sha256": hashlib.sha256(plugin.read_bytes()).hexdigest()}
    info.write_text(json.dumps(description, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plugin", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("facts", nargs="*", metavar="KEY=VALUE")
    arguments = parser.parse_args()
    publish(arguments.plugin, arguments.folder, dict(fact.split("=", 1) for fact in arguments.facts))


if __name__ == "__main__":
    main()
