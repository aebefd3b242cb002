"""Plugins of strangers: folders with a module and the metadata that an installer would write beside it."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kpp import registry


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """`install(distribution, entry_point, source)` makes a distribution with a module `<distribution>_plugin`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = []

    def write(distribution: str, entry_point: str, source: str) -> None:
        module = distribution.replace("-", "_") + "_plugin"
        modules.append(module)
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(source), encoding="utf-8")
        info = tmp_path / f"{distribution.replace('-', '_')}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[kpp]\n{entry_point} = {module}\n", encoding="utf-8")
        registry.refresh()

    yield write
    registry.refresh()
    for module in modules:
        sys.modules.pop(module, None)


@pytest.fixture
def record() -> Callable[[str, str], registry.PluginRecord]:
    """`record(name, distribution)`: what the registry knows of one plugin."""

    def find(name: str, distribution: str) -> registry.PluginRecord:
        return next(r for r in registry.plugins() if (r.name, r.distribution) == (name, distribution))

    return find
