"""Matches between a few items, seen from random sides, repeated and tied."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest


@pytest.fixture(scope="session")
def duels() -> SimpleNamespace:
    """60 matches of 6 items, so that most pairs meet repeatedly, in 2 contexts; y of 1, 0 and for ties .5."""
    rng = np.random.default_rng(0)
    first, second = np.array([rng.choice(6, 2, replace=False) for _ in range(60)]).T
    return SimpleNamespace(
        items=rng.normal(size=(6, 3)),
        first=first,
        second=second,
        y=rng.choice([1.0, 0.0, 0.5], 60),
        contexts=rng.choice([-1.0, 0.0, 2.0], (60, 1)) * np.array([[1.0, 0.0]]),
    )
