"""The examples of the reference: which code shows how a name is used.

A short example is in the docstring of its name. Longer ones are in the files of docs/reference/examples. The tests run
both. In such a file a line with one ``#`` begins a group, whose code prepares all its examples. A line with ``##`` and
a name of the reference begins the example of this name; without code it stands for the example of the docstring. A
group whose title begins with "slow:" belongs to the slow tests.
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
    """A group of examples: its file and title, the code before them, and the examples by name, "" in docstrings."""

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
    """Return the code of each example, with the code before it; of those in docstrings the code before them."""
    return {name: f"{group.setup}\n{code}".strip() for group in groups() for name, code in group.examples.items()}


@functools.cache
def in_docstrings() -> frozenset[str]:
    """Return the names whose group has the code before the example of their docstring."""
    return frozenset(name for group in groups() for name, code in group.examples.items() if not code)


def before_docstrings() -> str:
    """Return the code that comes before the examples of docstrings."""
    (group,) = read(DOCSTRINGS)
    return group.setup
