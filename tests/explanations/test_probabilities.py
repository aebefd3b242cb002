"""Total covariances and probabilities, against Monte Carlo, SciPy and closed forms."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.stats

from kpp.explanations import Explanation

# 40000 draws: a share misses by 5 standard errors of at most 0.0025 with probability 6e-7.
DRAWS, NEAR = 40_000, 5 * 0.5 / 200


def gaussian(mean, covariance, **options):
    """An explanation of one instance with a Gaussian law."""
    mean, covariance = np.asarray(mean, dtype=float)[None], np.asarray(covariance, dtype=float)[None]
    return Explanation.create(mean, 0.0, mean.sum(axis=1), mean, covariance=covariance, **options)


@pytest.mark.parametrize("outputs", [False, True])
def test_the_covariance_of_draws_is_numpy_s(make, outputs):
    explanation = make(True, outputs)
    total = explanation.total_covariance()
    assert total.dims == ("instance", "feature", "feature_other", *(["output"] if outputs else []))
    pooled = explanation.values.values.reshape(-1, *explanation.values.shape[2:])
    column = pooled[:, 1, :, 1] if outputs else pooled[:, 1]
    found = total.values[1, ..., 1] if outputs else total.values[1]
    np.testing.assert_allclose(found, np.cov(column.T, bias=True), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("law", ["within", "across"])
def test_draws_and_law_add_up_to_the_total_covariance(make, law):
    explanation = make(True, law=law)
    total = explanation.total_covariance()
    sizes = (5, 5, 3, 3) if law == "across" else (5, 3, 3)
    assert total.shape == sizes
    np.testing.assert_allclose(make(False, law=law).total_covariance(), make(False, law=law).covariance)
    expected, draws = explanation.covariance.values.mean(axis=(0, 1)), make(True).total_covariance().values
    own = np.einsum("iijk->ijk", total) if law == "across" else total.values
    inside = np.einsum("iijk->ijk", expected) if law == "across" else expected
    np.testing.assert_allclose(own, inside + draws, rtol=1e-12, atol=1e-14)
    spread = explanation.to_dataframe()["std"].to_numpy().reshape(5, 3)
    np.testing.assert_allclose(np.sqrt(np.einsum("ijj->ij", own)), spread, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_the_total_covariance_across_instances_is_that_of_samples(make):
    explanation = make(True, law="across")
    samples = explanation.sample(jax.random.key(0), 200).values.values.reshape(-1, 15)
    total = explanation.total_covariance().transpose("instance", "feature", "instance_other", "feature_other")
    total = total.values.reshape(15, 15)
    # 12000 draws: standard errors of a covariance are at most sqrt(2 / 12000) of the two standard deviations.
    scale = np.sqrt(np.outer(np.diag(total), np.diag(total)))
    assert (np.abs(np.cov(samples.T) - total) <= 5 * np.sqrt(2 / 12000) * scale + 1e-12).all()


def test_what_is_certain_or_has_variances_only_has_no_total_covariance(make):
    with pytest.raises(ValueError, match="no draws, variance or covariance"):
        make().total_covariance()
    with pytest.raises(ValueError, match="only variances"):
        make(True, law="variance").total_covariance()


UNCERTAIN = [(draws, law) for draws in (False, True) for law in (None, "variance", "within", "across") if draws or law]


@pytest.mark.parametrize(("draws", "law"), UNCERTAIN)
def test_the_probability_of_a_positive_contribution(make, draws, law):
    explanation = make(draws, law=law)
    found = explanation.probability_positive()
    assert found.dims == ("instance", "feature")
    values = explanation.values.values
    below = (values <= 0) if law is None else scipy.stats.norm.cdf(0.0, values, np.sqrt(explanation.variance) + 1e-300)
    expected = 1.0 - (below.mean(axis=(0, 1)) if draws else below)
    expected = np.where(np.abs(values).max(axis=(0, 1)) if draws else np.abs(values), expected, found)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    direction = explanation.probability_of_direction()
    uncertain = found.values > 0
    np.testing.assert_allclose(direction.values[uncertain], np.maximum(found, 1 - found).values[uncertain], rtol=1e-12)


def test_a_contribution_that_is_surely_zero_has_no_sign(make):
    explanation = make(True)  # the region of instances 0 and 4 has the code 0, so its contribution is 0 in all draws
    assert explanation.probability_positive().values[[0, 4], 2].tolist() == [0.0, 0.0]
    assert explanation.probability_of_direction().values[[0, 4], 2].tolist() == [0.0, 0.0]
    certain = gaussian([0.0, -1.0], np.zeros((2, 2)))
    assert certain.probability_of_direction().values.tolist() == [[0.0, 1.0]]


LAWS = {
    "independent": ([0.3, -0.2], [[1.0, 0.0], [0.0, 0.25]]),
    "correlated": ([0.5, 0.4], [[1.0, 0.6], [0.6, 0.5]]),
    "opposed": ([0.1, 0.7], [[0.3, -0.35], [-0.35, 0.5]]),
    "centered": ([0.0, 0.0], [[1.0, 0.3], [0.3, 2.0]]),
    "singular": ([0.4, -0.1], [[1.0, 2.0], [2.0, 4.0]]),
    "one is fixed": ([0.4, 0.5], [[1.0, 0.0], [0.0, 0.0]]),
}


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("name", LAWS)
def test_a_gaussian_law_says_which_feature_matters_more(name, absolute):
    mean, covariance = LAWS[name]
    found = float(gaussian(mean, covariance).probability_greater("x0", "x1", absolute=absolute)[0])
    draws = np.random.default_rng(0).multivariate_normal(mean, covariance, DRAWS)
    draws = np.abs(draws) if absolute else draws
    assert found == pytest.approx((draws[:, 0] > draws[:, 1]).mean(), abs=NEAR)
    other = float(gaussian(mean, covariance).probability_greater("x1", "x0", absolute=absolute)[0])
    assert found + other == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("name", ["independent", "correlated", "opposed", "centered"])
def test_absolute_contributions_are_compared_to_the_accuracy_of_quadrature(name):
    mean, covariance = LAWS[name]
    change = np.array([[1.0, -1.0], [1.0, 1.0]])
    law = scipy.stats.multivariate_normal(change @ mean, change @ covariance @ change.T)
    mirrored = scipy.stats.multivariate_normal(-(change @ mean), change @ covariance @ change.T)
    expected = law.cdf([0.0, 0.0]) + mirrored.cdf([0.0, 0.0])
    found = gaussian(mean, covariance).probability_greater("x0", "x1")
    assert float(found[0]) == pytest.approx(expected, abs=1e-8)  # SciPy's integration is good to about 1e-8


def test_without_any_spread_numbers_are_compared():
    explanation = gaussian([-2.0, 1.0, 2.0], np.zeros((3, 3)))
    assert explanation.probability_greater("x0", "x1").item() == 1.0
    assert explanation.probability_greater("x0", "x1", absolute=False).item() == 0.0
    assert explanation.probability_greater("x0", "x2").item() == 0.0  # a tie counts for neither
    assert explanation.probability_greater("x2", "x0").item() == 0.0


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("dim", [None, "instance"])
def test_draws_are_counted(make, absolute, dim):
    explanation = make(True, outputs=True)
    found = explanation.probability_greater("age", "bmi", absolute=absolute, dim=dim)
    values = np.abs(explanation.values.values) if absolute else explanation.values.values
    values = values if dim is None else values.mean(axis=2)
    expected = (values[..., 0, :] > values[..., 1, :]).mean(axis=(0, 1))
    assert found.dims == (("output",) if dim else ("instance", "output"))
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize("absolute", [False, True])
def test_the_mixture_is_what_its_samples_say(make, absolute):
    explanation = make(True, law="within")
    samples = explanation.sample(jax.random.key(0), 500)
    found = explanation.probability_greater("age", "bmi", absolute=absolute)
    counted = samples.probability_greater("age", "bmi", absolute=absolute)
    assert float(abs(found - counted).max()) < 5 * 0.5 / np.sqrt(30_000)


@pytest.mark.slow_variants("across")
@pytest.mark.parametrize("law", ["within", "across"])
def test_means_over_instances_take_their_covariance_into_account(make, law):
    explanation = make(law=law)
    found = explanation.probability_greater("age", "bmi", absolute=False, dim="instance")
    samples = explanation.sample(jax.random.key(2), DRAWS)
    counted = samples.probability_greater("age", "bmi", absolute=False, dim="instance")
    assert float(found) == pytest.approx(float(counted), abs=NEAR)
    with pytest.raises(ValueError, match=r"call `sample\(rng_key, n\)` first"):
        explanation.probability_greater("age", "bmi", dim="instance")
    assert 0.0 < float(samples.probability_greater("age", "bmi", dim="instance")) < 1.0


WRONG = [
    (("age", "bmj"), {}, "did you mean 'bmi'"),
    (("age", "age"), {}, "must be different features"),
    (("age", "bmi"), {"dim": "feature"}, "`dim` must be None or 'instance', got 'feature'"),
]


@pytest.mark.parametrize(("names", "options", "message"), WRONG)
def test_bad_comparisons_are_refused(make, names, options, message):
    with pytest.raises(ValueError, match=message):
        make(True).probability_greater(*names, **options)


def test_comparing_needs_draws_or_a_covariance(make):
    with pytest.raises(ValueError, match="only variances"):
        make(law="variance").probability_greater("age", "bmi")
    for method in ("probability_positive", "probability_of_direction"):
        with pytest.raises(ValueError, match="nothing is uncertain"):
            getattr(make(), method)()
