"""The examples of the reference: which code shows how a name is used.

Names that users call most have an example in their docstring. Those of the others are in the files of
docs/reference/examples, which the tests run. In such a file a line with one ``#`` begins a group, whose code prepares
all its examples; a line with ``##`` and a name of the reference begins the example of this name. A group whose title
begins with "slow:" belongs to the slow tests.
"""

import functools
import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "reference" / "examples"
DOCSTRINGS = FOLDER / "docstrings.txt"  # what comes before the examples of docstrings
TITLE = re.compile(r"^(##?) (.*)$", re.MULTILINE)
SLOW = "slow: "


@dataclass(frozen=True)
class Group:
    """A group of examples: its file and title, the code before all of them, and the examples by name."""

    file: str
    title: str
    setup: str
    examples: dict[str, str]

    @property
    def is_slow(self) -> bool:
        """Whether the examples belong to the slow tests."""
        return self.title.startswith(SLOW)


def read(file: Path) -> list[Group]:
    """Return the groups of a file."""
    parts = TITLE.split(file.read_text(encoding="utf-8"))
    if parts[0].strip():
        raise ValueError(f"{file}: the first line must begin with #")
    groups: list[Group] = []
    for marks, title, code in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        if marks == "#":
            groups.append(Group(file.stem, title, code.strip(), {}))
        elif title in groups[-1].examples:
            raise ValueError(f"{file}: two examples of {title} in one group")
        else:
            groups[-1].examples[title] = code.strip()
    return groups


@functools.cache
def groups() -> list[Group]:
    """Return the groups of all files but the one for docstrings."""
    return [group for file in sorted(FOLDER.glob("*.txt")) if file != DOCSTRINGS for group in read(file)]


@functools.cache
def examples() -> dict[str, str]:
    """Return the code of each example, with the code before it, by the name in the reference."""
    return {name: f"{group.setup}\n{code}" for group in groups() for name, code in group.examples.items()}


def before_docstrings() -> str:
    """Return the code that comes before the examples of docstrings."""
    (group,) = read(DOCSTRINGS)
    return group.setup
