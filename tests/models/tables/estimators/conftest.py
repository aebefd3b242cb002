"""Small data sets with names, and fast versions of all estimators."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest


@pytest.fixture(scope="session")
def table() -> tuple[pd.DataFrame, np.ndarray]:
    """Sixteen rows with two columns of numbers and noisy targets, far from 0."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"age": 50 + 10 * rng.normal(size=16), "dose": rng.uniform(0, 2, size=16)})
    return frame, 20 + np.sin(frame["age"].to_numpy() / 8) + frame["dose"].to_numpy() + 0.1 * rng.normal(size=16)


@pytest.fixture(scope="session")
def labels(table) -> np.ndarray:
    """One of two texts for each row."""
    return np.where(table[1] + np.sin(np.arange(16.0)) > np.median(table[1]), "yes", "no")
