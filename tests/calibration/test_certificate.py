"""Certificates: the true Shapley values have their law, left-out rows theirs, and a wrong model fails."""

from __future__ import annotations

import dataclasses
import math

import jax
import numpy as np
import pandas as pd
import pytest
from numpyro import distributions as dist
from scipy import stats

import kpp
from kpp.calibration.certificate import Certificate, Coverage, _in_priors, _Known, _left_out, _Repetition, _simulate
from kpp.kernels import RBF
from kpp_models import GPClassification, GPRegression

RNG = np.random.default_rng(0)
X, ROWS, BACKGROUND = RNG.normal(size=(8, 2)), RNG.normal(size=(3, 2)), RNG.normal(size=(4, 2))
Y = np.sin(X[:, 0]) + X[:, 1]
KERNEL, NOISE = RBF(0.9, variance=1.3), 0.2
PROGRAM = "/jax/core/compile/backend_compile_duration"
OPTIONS = {"background": BACKGROUND, "progress": False}


def fitted(model=None, y=Y):
    """The fit of a model, by default one whose hyperparameters are known."""
    model = GPRegression(KERNEL, noise_variance=NOISE) if model is None else model
    return model.fit(jax.random.key(0), X, y, inference=kpp.MAP(progress=False), num_prior_samples=0)


@pytest.fixture(scope="module")
def fit():
    return fitted()


def gram(a, b):
    """The kernel matrix of `KERNEL`, in NumPy."""
    return 1.3 * np.exp(-0.5 * np.sum((a[:, None] - b[None]) ** 2, axis=-1) / 0.9**2)


@pytest.mark.slow
def test_true_shapley_values_have_the_law_of_the_function_given_its_values(fit):
    """The oracle is the Gaussian law at all points that the game reads, given the values at the training rows."""
    truth = _simulate(jax.random.key(1), fit.model, {}, fit.data, ROWS, True)
    known = _Known(fit.schema, fit.data, truth.function)
    found = kpp.explain(known, ROWS, covariance="point", **OPTIONS)

    masks = np.array([[0, 0], [1, 0], [0, 1], [1, 1]], dtype=bool)
    imputed = np.where(masks[:, None, None], ROWS[:, None], BACKGROUND).reshape(-1, 2)  # (coalition, row, background)
    inverse = np.linalg.inv(gram(X, X) + 1.3e-10 * np.eye(8))
    # phi_1 = (v(1) - v() + v(12) - v(2)) / 2
    weights = 0.5 * np.array([[-1, 1, -1, 1], [-1, -1, 1, 1]])
    averages = np.kron(weights, np.kron(np.eye(3), np.full((1, 4), 0.25))).reshape(2, 3, -1)
    sections = averages @ gram(imputed, X)
    covariance = np.einsum("gpa,ab,hpb->pgh", averages, gram(imputed, imputed), averages)
    covariance -= np.einsum("gpa,ab,hpb->pgh", sections, inverse, sections)
    # The values at the rows are the mean of a function given its values there.
    values = np.asarray(truth.function.mean(X))
    np.testing.assert_allclose(found.values.values, (sections @ inverse @ values).T, atol=1e-6)
    np.testing.assert_allclose(found.dataset["covariance"].values, covariance, atol=1e-6)


@pytest.mark.slow
def test_rows_left_out_have_the_law_of_a_fit_without_them(fit):
    held = []
    for i in range(8):
        rest = np.arange(8) != i
        solve = np.linalg.solve(gram(X[rest], X[rest]) + NOISE * np.eye(7), gram(X[rest], X[i : i + 1])[:, 0])
        position = stats.norm.cdf(
            Y[i], solve @ Y[rest], math.sqrt(1.3 + NOISE - solve @ gram(X[rest], X[i : i + 1])[:, 0])
        )
        held.append(abs(position - 0.5) <= 0.3)
    assert 0 < np.mean(held) < 1
    (found,) = _left_out(fit, 0.6)
    assert found == Coverage("rows left out", np.mean(held), pytest.approx(math.sqrt(0.6 * 0.4 / 8)), 0.6)


def test_draws_outside_of_their_prior_are_counted(fit):
    """Of two lengthscales one has all of its draws in the central 99 %, the other one three of four."""
    model = GPRegression(RBF(dist.Exponential(1.0).expand([2])), noise_variance=NOISE)
    inside, outside = -math.log(0.99), -math.log(0.003)  # quantiles .01 and .997
    draws = np.array([[inside, inside], [inside, inside], [1.0, 1.0], [1.0, outside]])
    given = dataclasses.replace(fit, model=model, draws={"kernel.lengthscale": jax.numpy.asarray(draws[None])})
    (found,) = _in_priors(jax.random.key(0), given)
    assert found[1:] == (pytest.approx(7 / 8), pytest.approx(math.sqrt(0.99 * 0.01 / 2)), 0.99)


@pytest.mark.slow
def test_the_same_key_gives_the_same_shares_and_compiles_nothing_again(fit, capfd, monkeypatch):
    """The second certificate begins with the data sets of the first, and runs others in threads."""
    first = kpp.certify(jax.random.key(2), fit, ROWS, data_sets=2, **OPTIONS)
    compiled, before, positions = [], [], _Repetition.positions
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))
    monkeypatch.setattr(
        _Repetition, "positions", lambda *arguments: before.append(compiled.count(PROGRAM)) or positions(*arguments)
    )
    second = kpp.certify(jax.random.key(2), fit, ROWS, data_sets=4, **OPTIONS)
    assert len(before) == 4
    assert compiled.count(PROGRAM) == before[0]  # the first certificate had all programs of a data set
    assert list(first.shares) == ["values of the function", "new observations", "Shapley values"]
    for name, share in first.shares.items():
        np.testing.assert_array_equal(second.shares[name][:2], share)
    assert capfd.readouterr().err == ""
    kpp.certify(jax.random.key(2), fit, ROWS, data_sets=2, **{**OPTIONS, "explainer": None, "progress": True})
    assert "kpp: a certificate from 2 data sets takes another 0.0 s" in capfd.readouterr().err


@pytest.mark.slow_variants("change5-whole posterior")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fit": "a fit"}, "`fit`"),
        ({"law": "likelihood"}, "`law`"),
        ({"law": "other rows"}, "`law` must be a fit to the rows"),
        ({"data_sets": 1}, "`data_sets`"),
        ({"level": 1.5}, "`level`"),
        ({"covariance": None}, "whole posterior"),
        ({"fit": "mean"}, "GPRegression"),
    ],
)
def test_what_can_not_be_certified_is_refused(fit, change, message):
    changes = {
        "a fit": Y,
        "mean": dataclasses.replace(fit, data={**fit.data, "x": {}}),
        "other rows": dataclasses.replace(fit, data={**fit.data, "x": fit.data["x"] + 1}),
    }
    arguments = {"fit": fit, "x": ROWS, **OPTIONS, **{key: changes.get(word, word) for key, word in change.items()}}
    with pytest.raises((TypeError, ValueError), match=message):
        kpp.certify(jax.random.key(0), arguments.pop("fit"), arguments.pop("x"), **arguments)


def test_a_share_passes_within_two_standard_errors_and_three_points():
    shares = {"values": np.array([0.7, 0.8, 0.9, 1.0]), "all": np.ones(4)}
    check = Coverage("rows left out", 0.5, 0.05, 0.9)
    found = Certificate(shares, [check], 0.9, "the posterior of this fit", 3.0)
    values, everything, left_out = found.rows
    assert values == ("values", pytest.approx(0.85), pytest.approx(math.sqrt(0.0125 / 4)), 0.9)
    # Of intervals that all hold, the error is that of one more that does not.
    assert everything == ("all", 1.0, pytest.approx(math.sqrt(0.2 * 0.8 / 4)), 0.9)
    assert [row.passes for row in found.rows] == [True, True, False]
    assert not found.passes
    assert "held 92% (3) of 90%, which is not as it should be: values 85% (6) of 90%" in found.sentence()
    assert "rows left out 50% (5) of 90%, too few" in repr(found)
    expected = pd.Series([0.85, 1.0, 0.5], index=["values", "all", "rows left out"], name="held")
    pd.testing.assert_series_equal(found.to_pandas()["held"], expected, check_names=False)
    assert dataclasses.replace(found, checks=[]).passes


@pytest.mark.slow
def test_a_wrong_model_fails(fit):
    """The law is that of a model with 20 times the noise; `examples/coverage` has right models and wrong priors."""
    noisy = dataclasses.replace(fit, model=GPRegression(KERNEL, noise_variance=20 * NOISE))
    wrong = kpp.certify(jax.random.key(3), fit, ROWS, data_sets=10, law=noisy, **OPTIONS)
    assert not wrong.passes
    assert wrong.to_pandas().loc["new observations", "held"] < 0.6


@pytest.mark.slow
def test_inducing_points_determine_the_truth():
    """With an inducing point at every row the function at the rows is that at these points, and so are the data."""
    model = GPRegression(KERNEL, noise_variance=1e-8, latent="inducing", inducing_points=X)
    model, data, _ = model.prepare(X, Y)
    truth = _simulate(jax.random.key(1), model, {}, data, ROWS, True)
    np.testing.assert_allclose(truth.y, truth.function.mean(X), atol=1e-3)


@pytest.mark.nightly
def test_a_classifier_is_certified_by_its_labels():
    fit = fitted(GPClassification(KERNEL), (Y > 0).astype(float))
    found = kpp.certify(jax.random.key(4), fit, ROWS, data_sets=4, law="prior", **OPTIONS)
    assert list(found.shares) == ["values of the function", "Shapley values"]
    (labels,) = found.checks
    assert labels.quantity == "labels of rows left out"
    assert 0.5 < labels.nominal < 1
    assert all(0.5 < np.mean(share) <= 1 for share in found.shares.values())


@pytest.mark.nightly
def test_a_right_model_passes_and_a_wrong_one_fails(fit):
    """The law is that of a model with 20 times the noise; `examples/coverage` has the power for priors."""
    right = kpp.certify(jax.random.key(3), fit, ROWS, data_sets=40, law="prior", **OPTIONS)
    assert all(row.passes for row in right.rows[:-1])
    noisy = fitted(GPRegression(KERNEL, noise_variance=20 * NOISE))
    wrong = kpp.certify(jax.random.key(3), fit, ROWS, data_sets=40, law=noisy, **OPTIONS)
    assert not wrong.passes
    assert wrong.to_pandas().loc["new observations", "held"] < 0.6
