"""Words that messages share."""

from __future__ import annotations

import numpy as np
import pytest

from kpp.foundation.wording import warn_at_edge


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"a": (1.0, [1.0, 2.0, 3.0]), "b": (2.0, np.array([3.0, 2.0, 1.0]))}, "(a = 1)"),
        ({"a": (0.5, [0.1, 0.2, 0.5]), "b": (3.0, [1.0, 2.0, 3.0])}, "(a = 0.5, b = 3)"),
        ({"a": (2.0, [1.0, 2.0, 3.0])}, ""),
        ({"a": (1.0, [1.0, 2.0])}, ""),
    ],
)
def test_a_best_value_at_the_edge_of_its_grid_is_named(chosen, said, caplog):
    warn_at_edge(chosen)
    assert ("at the edge of the grid" in caplog.text) == bool(said)
    assert said in caplog.text
