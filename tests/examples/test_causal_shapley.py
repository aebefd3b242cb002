"""The picture of marginal, conditional, causal and asymmetric values: what it shows, on fewer days."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.slow
def test_kinds_of_values_part_where_they_should(load_script, tmp_path):
    script = load_script("gallery/causal_shapley.py")
    values, parts = script.explain_by_each(num_days=60, num_explained=10)
    season = values.loc["season"]
    assert season["marginal"] < 0.5 * season["causal"]  # of 60 days the model has not fully learned to ignore it
    assert season["asymmetric"] > season["causal"]  # the first cause gets the credit
    # The first has effects on the others. The last has none; the empty coalition is the background itself, and not its
    # Gaussian law, which leaves a small difference for a function that is not linear.
    assert parts.loc["season", "indirect"] > parts.loc["season", "direct"]
    np.testing.assert_allclose(parts.loc["humidity", "indirect"], 0.0, atol=0.02)
    script.draw(values, parts, tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_size > 10_000
