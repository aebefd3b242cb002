"""Conformal checks: intervals that are right, too short by a known factor, and what a guarantee needs."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from kpp.explanations import Explanation
from kpp_gpec import NaiveGP, conformal_check, widen

KEY = jax.random.key(0)
NOISE, KNOWN, HELD_OUT = 0.25, 150, 400


@pytest.fixture(scope="module")
def explanations():
    """Explanations drawn from the prior that is fitted, seen with noise; the first ones are the background's."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, size=(KNOWN + HELD_OUT, 1)) * [1.0, 0.0]
    gram = np.exp(-(cdist(x, x) ** 2) / 2)
    root = np.linalg.cholesky(gram + 1e-9 * np.eye(len(x)))
    return x, root @ rng.normal(size=(len(x), 2)) + np.sqrt(NOISE) * rng.normal(size=(len(x), 2))


def explain(x, values, claimed):
    return Explanation.create(values, 0.0, values.sum(axis=1), x, variance=np.full(values.shape, claimed))


def check(explanations, claimed, **options):
    x, values = explanations
    naive = NaiveGP("lime", x[:KNOWN], lengthscale=1.0, variance=1.0, standardize=False)
    fitted = naive.fit(lambda rows: rows[:, 0], explanation=explain(x[:KNOWN], values[:KNOWN], claimed))
    held_out = explain(x[KNOWN:], values[KNOWN:], claimed)
    return fitted, held_out, conformal_check(fitted, held_out, rng_key=KEY, **options)


@pytest.mark.slow
@pytest.mark.parametrize("probability", [pytest.param(0.5, marks=pytest.mark.slow), 0.9])
def test_intervals_of_the_right_law_hold_what_they_promise(explanations, probability):
    _, _, found = check(explanations, NOISE, probability=probability)
    error = 4 * np.sqrt(probability * (1 - probability) / HELD_OUT)
    np.testing.assert_allclose(found.coverage, probability, atol=error)
    # The factor is the quantile of 200 errors over that of the Gaussian: at 0.9 it is within 20 % of 1, at 0.5 of 30 %.
    np.testing.assert_allclose(found.factor, 1.0, atol=0.3)
    assert found.coverage.dims == ("feature",) and (found.num_calibration, found.num_test) == (200, 200)


@pytest.mark.slow
def test_intervals_too_short_by_a_factor_are_widened_by_it(explanations):
    """With a noise of a ninth of what it is they are three times too short, but for the small variance of f."""
    fitted, held_out, found = check(explanations, NOISE / 9)
    assert (found.coverage < 0.5).all()
    np.testing.assert_allclose(found.factor, 3.0, atol=0.8)
    error = 4 * np.sqrt(0.9 * 0.1 * (1 / 200 + 1 / 200))  # of the quantile and of the count
    np.testing.assert_allclose(found.conformal_coverage, 0.9, atol=error)
    wide, narrow = widen(fitted.assess(held_out), found), fitted.assess(held_out)
    np.testing.assert_allclose(wide.variance, narrow.variance * found.factor**2)
    np.testing.assert_allclose(wide.variance_parts.sum("part"), wide.variance)
    assert wide.attrs["conformal"] == {"probability": 0.9, "rows": 200}
    bounds = wide.interval(0.9)
    means = fitted.explain(held_out.data.values).values
    # The intervals of the widened law around the means are those that were tested.
    half = (bounds.sel(bound="upper") - bounds.sel(bound="lower")) / 2
    inside = (abs(held_out.values - means) <= half).mean("instance")
    np.testing.assert_allclose(inside, 0.9, atol=error)


@pytest.mark.slow
def test_the_factor_is_the_rank_that_the_guarantee_asks_for(explanations):
    """Of 9 errors, the ceil(10 * 0.9) = 9th, that is the largest."""
    x, values = explanations
    fitted, _, _ = check(explanations, NOISE)
    rows = slice(KNOWN, KNOWN + 10)
    found = conformal_check(fitted, explain(x[rows], values[rows], NOISE), rng_key=KEY, calibration_share=0.9)
    law = fitted.law(x[rows])
    scores = np.abs(values[rows] - law.mean[..., 0]) / np.sqrt(law.variance[..., 0] + NOISE)
    chosen = np.asarray(jax.random.permutation(KEY, 10))[:9]
    np.testing.assert_allclose(found.factor * 1.6448536269514722, scores[chosen].max(axis=0), rtol=1e-9)


@pytest.mark.slow
def test_certain_and_wrong_has_no_finite_factor():
    x = np.linspace(-1.0, 1.0, 12)[:, None] * [1.0, 0.0]
    naive = NaiveGP("lime", x, lengthscale=1.0, variance=1.0, standardize=False)
    fitted = naive.fit(lambda rows: rows[:, 0], explanation=explain(x, 0 * x, 1e-4))
    assessed = fitted.explain(x)
    found = conformal_check(fitted, explain(x, x + 1.0, 0.0), rng_key=KEY, probability=0.5)
    broken = found._replace(factor=found.factor * np.inf)
    with pytest.raises(ValueError, match="no finite factor"):
        widen(assessed, broken)
    other = found._replace(factor=found.factor.assign_coords(feature=["a", "b"]))
    with pytest.raises(ValueError, match="must have the features of `explanation`"):
        widen(assessed, other)


def test_bad_arguments_are_refused(explanations):
    x, values = explanations
    fitted, held_out, _ = check(explanations, NOISE)
    with pytest.raises(ValueError, match="`explanation` must have at least 9 rows to calibrate"):
        conformal_check(fitted, held_out[:12], rng_key=KEY)
    with pytest.raises(ValueError, match="`probability` must be between 0 and 1"):
        conformal_check(fitted, held_out, rng_key=KEY, probability=1.0)
    with pytest.raises(TypeError, match="`rng_key`"):
        conformal_check(fitted, held_out, rng_key=3)
