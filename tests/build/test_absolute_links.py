"""What an index of packages shows of the README has links that work there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGE = """See [the docs](docs/language.md), [a part](docs/ops.md#put), [others](https://example.com/a), [below](#end).
![a plot](docs/images/plot.svg)
[over two
lines](docs/building.md)
```python
kernel[grid](out)
```
A [[0056](decisions/0056.md)]
"""
EXPECTED = """See [the docs](https://host/o/r/blob/HEAD/docs/language.md), \
[a part](https://host/o/r/blob/HEAD/docs/ops.md#put), [others](https://example.com/a), [below](#end).
![a plot](https://host/o/r/raw/HEAD/docs/images/plot.svg)
[over two
lines](https://host/o/r/blob/HEAD/docs/building.md)
```python
kernel[grid](out)
```
A [[0056](https://host/o/r/blob/HEAD/decisions/0056.md)]
"""


def test_relative_links_become_absolute(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(PAGE)
    script = REPOSITORY / "scripts" / "absolute_links.py"
    subprocess.run([sys.executable, script, page, "https://host/o/r/"], check=True)
    assert page.read_text() == EXPECTED
