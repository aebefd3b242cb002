"""What the proofs of the conformance checks share."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kpp
from kpp import registry


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """`register(kind, name, cls)` registers a class through a plugin made for the test."""

    def plant(kind: str, name: str, cls: type) -> None:
        def hook() -> dict[str, type]:
            return {name: cls}

        module = types.ModuleType("planted_plugin")
        setattr(module, f"register_{kind}", kpp.hookimpl(specname=f"register_{kind}")(hook))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        info = tmp_path / "planted-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n", encoding="utf-8")
        (info / "entry_points.txt").write_text("[kpp]\nplanted = planted_plugin\n", encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        registry.refresh()

    yield plant
    registry.refresh()


@pytest.fixture(scope="session")
def caught() -> Callable[..., str]:
    """`caught(check, *example)` runs a check that must fail by a plain assertion, and returns what it says."""

    def run(check: Callable[..., None], *example: object) -> str:
        with pytest.raises(AssertionError) as failure:
            check(*example)
        return str(failure.value)

    return run
