"""The example of rented bikes: values that add up, and what each kind says about a cause that the model ignores."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("reproduce/bike_sharing.py")


@pytest.mark.nightly
def test_values_of_each_kind(script):
    days = script.simulate_days(np.random.default_rng(0))
    rows = days[script.FEATURES].to_numpy()

    def model(x):
        x = np.asarray(x)
        return 5.0 * x[:, 0] + 100.0 * x[:, 3]  # the trend and the temperature

    background, x = rows[::20], rows[[100, 300]]
    values, errors = script.explain(model, background, x)
    assert values.keys() == errors.keys() == script.PUBLISHED_VALUES.keys()
    for found in values.values():
        np.testing.assert_allclose(found.sum(axis=1), model(x) - model(background).mean(), rtol=1e-9)
    cosyear = script.FEATURES.index("cosyear")
    np.testing.assert_allclose(values["marginal"][:, cosyear], 0.0, atol=1e-4)
    assert np.all(np.abs(values["causal"][:, cosyear]) > 50)
    # The temperature has a cause, which gets all that it brings about, only if it comes first.
    assert np.all(np.abs(values["asymmetric causal"])[:, cosyear] > np.abs(values["causal"][:, cosyear]))


@pytest.mark.nightly
def test_the_tables_are_printed_and_returned(script, capsys):
    tables = script.main(["--num-explained", "4"])
    assert set(tables["errors"]["kind"]) == set(script.PUBLISHED_VALUES)
    assert set(tables["days"]["day"]) <= set(script.SIMILAR_DAYS)
    assert "Mean squared errors" in capsys.readouterr().out
