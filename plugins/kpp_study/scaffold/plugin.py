"""A new plugin: a copy of the template with its own names.

The template is a complete plugin called `kpp-example`, in the folder `template` of this package. Its Python files end
in `.template`, so that no tool takes them for modules of kpp.
"""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import re
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path

from kpp.foundation.distribution import DISTRIBUTION

_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_OWN = re.compile(r"\b(kpp[-_])?example\b")  # not the method `examples`
_ENDING = ".template"


def write_plugin(name: str, output: str | Path | None = None) -> Path:
    """Write the template of a plugin with its own names, such as "my-waves", into a new folder, and return that.

    By default it is "kpp-" and the name, in the current folder; it must not exist, or be empty. Raises ValueError if it
    has entries, or the name is invalid.
    """
    check_plugin_name(name)
    folder = Path(_renamed("kpp-example", name) if output is None else output)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"`output` must be a new or empty folder, but {str(folder)!r} exists")
    for path, text in _template(importlib.resources.files("kpp_study.scaffold") / "template"):
        file = folder / _renamed(path.removesuffix(_ENDING), name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_renamed(text, name), encoding="utf-8")
    return folder


def check_plugin_name(name: str) -> None:
    """Raise ValueError unless a plugin can have a name; the message suggests one that it can have."""
    if name.startswith(("kpp-", "kpp_")):
        raise ValueError(f"`name` must not begin with 'kpp', which is added: write {name[4:]!r}, got {name!r}")
    if not _NAME.fullmatch(name):
        near = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")
        raise ValueError(
            "`name` must consist of lower-case letters and digits, with single hyphens between words, and begin with a "
            f"letter; got {name!r}" + (f", try {near!r}" if near else "")
        )
    distribution = importlib.metadata.distribution(DISTRIBUTION)
    taken = {entry.name for entry in distribution.entry_points if entry.group == "kpp"}
    if name.replace("-", "_") in taken:
        raise ValueError(f"`name` must not be that of a plugin of kpp ({', '.join(sorted(taken))}), got {name!r}")


def _template(folder: Traversable, path: str = "") -> Iterator[tuple[str, str]]:
    """Iterate over the files of the template: the path with slashes, and the text."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _template(entry, f"{path}{entry.name}/")
        else:
            yield path + entry.name, entry.read_text(encoding="utf-8")


def _renamed(text: str, name: str) -> str:
    """Replace the names of the template: distribution `kpp-example`, package `kpp_example`, entry point `example`."""
    names = {"kpp-": f"kpp-{name.replace('_', '-')}", "kpp_": f"kpp_{name.replace('-', '_')}"}
    return _OWN.sub(lambda match: names.get(match[1], name.replace("-", "_")), text)
