"""One small study, run once; tests that need a finished study look at its results."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

STUDY = """
[study]
title = "A <small> study"
seed = 3

[data]
path = "rooms.csv"
target = "price & tax"

[model]
name = "GPRegression"
noise_variance = { prior = "HalfNormal", scale = 1.0 }

[model.kernel]
name = "Product"

[[model.kernel.kernels]]
name = "RBF"
on = ["area", "<script>alert('x')</script>"]
lengthscale = { prior = "LogNormal", loc = 0.0, scale = 1.0, expand = [2] }

[[model.kernel.kernels]]
name = "Categorical"
on = ["town"]

[inference]
name = "NUTS"
num_warmup = 60
num_samples = 60
num_chains = 2

[explainer]
name = "rkhs-shap"
value_function = "interventional"
instances = [0, 7, 19]
background = 12
max_draws = 20
"""


class Finished(NamedTuple):
    """A study that was run: its file, its data, its output folder, and what the command printed."""

    study: Path
    frame: pd.DataFrame
    folder: Path
    result: object


def rooms(num_rows: int = 30) -> pd.DataFrame:
    """A target that grows with the area, differs between towns, and is far from mean 0 and variance 1."""
    rng = np.random.default_rng(5)
    area = rng.uniform(20.0, 120.0, num_rows)
    hostile = rng.normal(size=num_rows)
    town = np.array(["Bern", "Rome"])[rng.integers(0, 2, num_rows)]
    price = 1000.0 + 12.0 * area + 200.0 * (town == "Rome") + 30.0 * rng.normal(size=num_rows)
    return pd.DataFrame({"area": area, "<script>alert('x')</script>": hostile, "town": town, "price & tax": price})


@pytest.fixture
def study_text() -> str:
    return STUDY


@pytest.fixture
def write_study(tmp_path):
    """Write a study file and its data into a folder of the test's own; edits are (old, new) pairs of text."""

    def write(*edits: tuple[str, str], frame: pd.DataFrame | None = None) -> Path:
        text = STUDY
        for old, new in edits:
            assert old in text, f"the edit of {old!r} changes nothing"
            text = text.replace(old, new, 1)
        (rooms() if frame is None else frame).to_csv(tmp_path / "rooms.csv", index=False)
        path = tmp_path / "study.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def frame() -> pd.DataFrame:
    return rooms()


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Finished:
    from kpp.__main__ import main

    folder = tmp_path_factory.mktemp("study")
    frame = rooms()
    frame.to_csv(folder / "rooms.csv", index=False)
    study = folder / "study.toml"
    study.write_text(STUDY, encoding="utf-8")
    output = folder / "new" / "results"
    result = CliRunner().invoke(main, ["run", str(study), "--output", str(output)])
    assert result.exit_code == 0, result.output + str(result.exception)
    return Finished(study, frame, output, result)
