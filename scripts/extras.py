"""Print the requirements of extras of pyproject.toml, one a line: ``python scripts/extras.py dev cuda13``."""

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib


def main() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for extra in sys.argv[1:]:
        print(*project["optional-dependencies"][extra], sep="\n")


if __name__ == "__main__":
    main()
