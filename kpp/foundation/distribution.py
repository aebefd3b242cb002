"""The name under which kpp is installed, and what depends on it."""

from __future__ import annotations

import importlib.metadata

#: The `name` in pyproject.toml. The code says it nowhere else; the import name stays `kpp`.
DISTRIBUTION = "kpp"


def extra(name: str) -> str:
    """Return the command that installs an extra of kpp."""
    return f"pip install '{DISTRIBUTION}[{name}]'"


def versions(*packages: str) -> dict[str, str]:
    """Return the installed versions of kpp and of other packages."""
    names = {"kpp": DISTRIBUTION} | {name: name for name in packages}
    return {name: importlib.metadata.version(installed) for name, installed in names.items()}
