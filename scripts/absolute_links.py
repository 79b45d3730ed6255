"""Make the links of a page absolute, as an index of packages needs them, which shows the README without the repository.

    python scripts/absolute_links.py README.md https://host/owner/repository

Links lead to the repository's newest files, images to their raw contents. The page is rewritten where it lies.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

RELATIVE = re.compile(r"(!?)(\[[^\[\]]*\])\((?![a-z+]+:|#|/)([^()\s]+)\)")


def absolute(page: str, repository: str) -> str:
    """The page's text with absolute links. Blocks of code stay as they are."""
    parts = re.split(r"(^```.*?^```$)", page, flags=re.MULTILINE | re.DOTALL)
    for i in range(0, len(parts), 2):
        parts[i] = RELATIVE.sub(lambda link: _absolute(link, repository.rstrip("/")), parts[i])
    return "".join(parts)


def _absolute(link: re.Match[str], repository: str) -> str:
    image, text, target = link.groups()
    return f"{image}{text}({repository}/{'raw' if image else 'blob'}/HEAD/{target})"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(absolute(file.read_text(), sys.argv[2]))
