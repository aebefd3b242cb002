"""Scripts of the examples as modules, so that tests reach their parts.

Whenever a test runs a script of `examples/reproduce`, its tables are summarized as `experiments.toml` asks: the quick
versions that tests run anyway are those of `python -m examples.reproduce --quick`.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

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

    load("reproduce/ages.py")  # which the next one imports
    experiments = load("reproduce/experiments.py")

    def load_and_check(name: str) -> ModuleType:
        module = load(name)
        if hasattr(module, "main"):
            check_tables(module, experiments)
        return module

    yield load_and_check
    for name in loaded:
        sys.modules.pop(name, None)


def check_tables(script: ModuleType, experiments: ModuleType) -> None:
    """Make the `main` of a script check that the tables that it returns have what the list of experiments asks for."""
    listed = [each for each in experiments.read_list()["experiments"].values() if each["script"] == script.__name__]
    command = hasattr(script.main, "callback")
    run = script.main.callback if command else script.main

    @functools.wraps(run)
    def checked(*args: Any, **options: Any) -> Any:
        found = run(*args, **options)
        tables = experiments.as_tables(found)
        for experiment in listed:
            returned = [spec for spec in experiment["tables"] if spec["table"] in tables]
            rows = [row for table in experiments.summaries(returned, tables) for row in table["rows"]]
            assert not returned or any(isinstance(cell, float) for row in rows for cell in row)
        return found

    if command:
        script.main.callback = checked
    else:
        script.main = checked
