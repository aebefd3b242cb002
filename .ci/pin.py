"""Merge what two environments hold into constraints.txt: `python .ci/pin.py OLD.txt NEW.txt > constraints.txt`.

OLD and NEW are the outputs of `pip freeze --exclude-editable` in fresh environments made by `pip install -e '.[dev]'`,
OLD on Python 3.11 and NEW on the newest Python. A package the two hold at different versions gets one line for each,
told apart by an environment marker. pip and setuptools belong to the virtual environment and are left alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

HEADER = """\
# The versions kpp is tested with: names and versions only, one file for Python 3.11 and for 3.12 and newer.
# Written by .ci/pin.py; CONTRIBUTING.md says how to renew it.
"""


LEFT_ALONE = {"pip", "setuptools", "wheel"}


def read_freeze(path: str) -> dict[str, str]:
    """Return name -> version of the lines `name==version` of a freeze file; names are lower-cased, `_` becomes `-`."""
    pairs = [line.split("==") for line in Path(path).read_text().splitlines() if "==" in line]
    return {name.strip().lower().replace("_", "-"): version.strip() for name, version in pairs}


def constraints(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """Return the lines of the constraints file, sorted by name."""
    lines = []
    for name in sorted((old.keys() | new.keys()) - LEFT_ALONE):
        before, after = old.get(name), new.get(name)
        if before and after and before != after:
            lines += [f'{name}=={before} ; python_version < "3.12"', f'{name}=={after} ; python_version >= "3.12"']
        else:
            lines.append(f"{name}=={before or after}")
    return lines


if __name__ == "__main__":
    print(HEADER + "\n".join(constraints(*map(read_freeze, sys.argv[1:3]))))
