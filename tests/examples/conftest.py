"""Scripts of the examples as modules, so that tests reach their parts."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def load_script(root: Path) -> Iterator[Callable[[str], ModuleType]]:
    """Load a script, given by its path below examples/, until the tests of the file are over."""
    loaded = []

    def load(name: str) -> ModuleType:
        path = root / "examples" / name
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module  # dataclasses look their own module up
        loaded.append(path.stem)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in loaded:
        del sys.modules[name]
