"""Fits of the models of effects: what they refuse, and, in the slow suite, what they hold and find."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import kpp
from kpp.kernels import RBF, Matern32
from kpp_models import (
    IME,
    BayesIMP,
    CausalLink,
    InterventionData,
    SamplingEffect,
    argmin_posterior,
    contrast,
    off_policy_value,
)

QUICK = kpp.MAP(num_restarts=0, progress=False)
PRIOR = dist.LogNormal(-2.0, 1.0)


def sample(n, seed=0):
    """A confounded sample (x, z, y) as data frames."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    x = z + rng.normal(size=n)
    y = np.sin(x) - 0.5 * z + 0.1 * rng.normal(size=n)
    return pd.DataFrame({"dose": x}), pd.DataFrame({"level": y}), pd.DataFrame({"age": z})


def fit_with(noise_variance):
    x, y, z = sample(12)
    rng = np.random.default_rng(1)
    mediators = pd.DataFrame({"other": np.zeros(9), "level": rng.normal(size=9)})
    t = mediators["level"].to_numpy() ** 2 + 0.1 * rng.normal(size=9)
    link = CausalLink(RBF(1.0).on(("dose",)), None, noise_variance, "backdoor", RBF(1.5).on(("age",)))
    data = InterventionData.create(x, y, z)
    return BayesIMP(link, 0.05).fit(
        jax.random.key(0), data, t, mediators=mediators, inference=QUICK, num_prior_samples=0
    )


@pytest.fixture(scope="module")
def fit():
    return fit_with(0.05)


GRID = pd.DataFrame({"dose": [-1.0, 0.0, 1.0, 8.0]})


@pytest.fixture(scope="module")
def predicted(fit):
    return fit.predict(GRID, covariance=True).isel(chain=0, draw=0)


@pytest.mark.slow
def test_parts_are_named_and_sum_to_the_variance(predicted):
    parts = ["variance_data1", "variance_data2", "variance_interaction"]
    total = sum(predicted[name] for name in parts)
    # Sums of the same numbers in another order.
    np.testing.assert_allclose(total, predicted["latent_variance"], rtol=1e-12)
    np.testing.assert_allclose(total, np.diag(predicted["latent_covariance"]), rtol=1e-6)
    assert predicted["variance_data1"][3] > 3 * predicted["variance_data1"][1]  # no dose near 8


@pytest.mark.nightly
def test_evidence_moves_the_noise_away_from_its_prior():
    fit = fit_with(PRIOR)
    assert abs(float(fit.draws["links.0.noise_variance"][0, 0]) - np.exp(-3.0)) > 0.01  # the prior's mode
    assert set(fit.draws) == {"links.0.noise_variance"}
    assert "y" in fit.idata["observed_data"]
    assert "links.0.embedding" in fit.idata["constant_data"]  # observed, and not predicted
    assert fit.idata["log_likelihood"]["y"].sizes["instance"] == 9


@pytest.mark.slow
def test_contrast_is_that_of_the_joint_posterior(fit, predicted):
    found = contrast(fit, GRID.iloc[:2], GRID.iloc[2:]).isel(chain=0, draw=0)
    signs = np.array([[1, 0, -1, 0], [0, 1, 0, -1]])
    np.testing.assert_allclose(found["mean"], signs @ predicted["mean"].values, rtol=1e-9)
    expected = np.diag(signs @ predicted["latent_covariance"].values @ signs.T)
    np.testing.assert_allclose(found["latent_variance"], expected, rtol=1e-6)  # differences of like numbers


@pytest.mark.slow
def test_the_value_of_a_policy_is_the_mean_over_treatments_and_covariates(fit):
    # Without adjustment, dose and age are two treatments of one process, whose values at the rows are averaged.
    x, y, z = sample(12)
    both = pd.concat([x, z], axis=1)
    rows = {"shift": both.assign(dose=x["dose"] - 0.5), "rule": both.assign(dose=x["dose"].where(z["age"] > 0, 1.0))}
    link = CausalLink(RBF(1.0).on(("dose",)) * RBF(1.5).on(("age",)), None, 0.05)
    model, data, schema = BayesIMP(link, 0.05).prepare(
        InterventionData.create(both, y), fit.data["y"], mediators=np.asarray(fit.data["mediators"])
    )
    points = jnp.concatenate([schema.read(table, "x") for table in rows.values()])
    moments = eqx.filter_jit(lambda x: model.predictive({}, data, x, covariance=True))(points)
    shares = np.kron([[1, 0], [0, 1], [0.5, 0.5]], np.full((1, 12), 1 / 12))
    policies = {name: table[["dose"]] for name, table in rows.items()}
    policies["either"] = np.stack([table[["dose"]].to_numpy() for table in rows.values()])
    for reference in (None, "rule"):
        loads = shares if reference is None else shares - shares[1]
        found = off_policy_value(fit, policies, reference=reference).isel(chain=0, draw=0)
        assert found["policy"].values.tolist() == ["shift", "rule", "either"]
        # Sums of the same numbers in another order; variances are differences of numbers near 1.
        np.testing.assert_allclose(found["mean"], loads @ moments["mean"], rtol=1e-9, atol=1e-12)
        expected = np.diag(loads @ moments["latent_covariance"] @ loads.T)
        np.testing.assert_allclose(found["latent_variance"], expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(
    ("policies", "options", "message"),
    [
        (
            {"none": np.zeros((3, 1))},
            {},
            r"`policies\['none'\]` must have shape \(12, 1\) or \(l, 12, 1\), got \(3, 1\)",
        ),
        ({"two": np.zeros((2, 12, 2))}, {}, r"`policies\['two'\]` must have shape \(12, 1\)"),
        ({"hole": np.full((12, 1), np.nan)}, {}, r"`policies\['hole'\]`.*NaN"),
        ({}, {}, r"`policies` must hold the policy `reference`, got \[\] and None"),
        ({"zero": np.zeros((12, 1))}, {"reference": "one"}, r"`policies` must hold .*, got \['zero'\] and 'one'"),
    ],
)
def test_policies_that_do_not_fit_are_refused(fit, policies, options, message):
    with pytest.raises(ValueError, match=message):
        off_policy_value(fit, policies, **options)


@pytest.mark.slow
def test_policies_need_covariates_and_a_model_of_embeddings():
    link = CausalLink(RBF(1.0), None, 0.05, "frontdoor", RBF(1.0))
    data = InterventionData.create(*sample(12))
    fits = [
        model.fit(jax.random.key(0), data, np.arange(12.0), inference=QUICK, num_prior_samples=0)
        for model in (IME(link, 0.1), SamplingEffect(link, 0.1))
    ]
    with pytest.raises(ValueError, match="`fit` must have no adjustment or covariates"):
        off_policy_value(fits[0], {"zero": np.zeros((12, 1))})
    with pytest.raises(TypeError, match="`fit` must be of IME, .*, got SamplingEffect"):
        off_policy_value(fits[1], {"zero": np.zeros((12, 1))})


@pytest.mark.slow
def test_argmin_is_where_draws_are_lowest(fit):
    shares = argmin_posterior(jax.random.key(1), fit, GRID, 50)
    draws = fit.sample_predictive(jax.random.key(1), GRID, 50).values
    expected = np.bincount(draws.argmin(axis=1), minlength=4) / 50
    np.testing.assert_array_equal(shares, expected)
    highest = argmin_posterior(jax.random.key(1), fit, GRID, 50, maximize=True)
    np.testing.assert_array_equal(highest, np.bincount(draws.argmax(axis=1), minlength=4) / 50)


def link(**options):
    return CausalLink(**{"treatment_kernel": RBF(1.0), "outcome_kernel": RBF(1.0), "noise_variance": 0.1, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outcome_kernel": RBF(PRIOR)}, "`outcome_kernel` must hold numbers, got a prior"),
        ({"width": PRIOR}, "`width` must hold numbers, got a prior"),
        ({"adjustment": "sideways"}, "`adjustment` must be one of"),
        ({"adjustment": "backdoor"}, "`adjusting_kernel` must be a kernel for the adjustment 'backdoor'"),
        ({"adjusting_kernel": RBF(1.0)}, "`adjusting_kernel` must be None for the adjustment 'none'"),
        ({"noise_variance": 0.0}, "`noise_variance` must be positive"),
        ({"amplitude": -1.0}, "`amplitude` must be positive"),
    ],
)
def test_a_link_that_does_not_go_together_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        link(**options)


def data_of(n=6, adjusting=False):
    tables = sample(n)
    return InterventionData.create(*tables) if adjusting else InterventionData.create(*tables[:2])


@pytest.mark.parametrize(
    ("links", "data", "options", "message"),
    [
        (link(), data_of(adjusting=True), {}, "`adjusting` must go with the adjustment: got a table for 'none'"),
        (link(), [data_of(), data_of()], {}, "`x` must hold one data set for each of the 1 links, got 2"),
        ((link(), link()), [data_of(), data_of()], {}, "`treatment_kernel` must be given for the first link"),
        (link(treatment_kernel=None), data_of(), {}, "`treatment_kernel` must be given for the first link"),
        (link(), sample(6)[0], {}, "`x` must be kpp_models.InterventionData.* got DataFrame"),
        (link(), data_of(), {"mediators": np.zeros((6, 2))}, "`mediators` must have the 1 columns of the outcome"),
        (link(), data_of(), {"mediators": np.zeros((5, 1))}, "`mediators` and `y` must have the same number of rows"),
        (link(), data_of(), {"mediators": sample(6)[0]}, "`mediators` lacks the columns"),
        (link(outcome_kernel=Matern32(1.0)), data_of(), {}, "`outcome_kernel` must be an RBF for a Bayesian"),
        (link(landmarks=np.zeros((3, 2))), data_of(), {}, "`landmarks` must have 1 columns"),
    ],
)
def test_data_that_do_not_fit_are_refused(links, data, options, message):
    with pytest.raises(ValueError, match=message):
        BayesIMP(links, 0.1).prepare(data, np.arange(6.0), **options)


@pytest.mark.slow
def test_ridge_embeddings_take_any_kernel_of_the_outcome():
    model, _, _ = IME(link(outcome_kernel=Matern32(1.0)), 0.1).prepare(data_of(), np.arange(6.0))
    assert model.links[0].width is None


@eqx.filter_jit
def moments(model, data, x):
    return model.predictive({}, data, x, covariance=True)


@pytest.mark.nightly
def test_landmarks_converge_to_the_exact_moments():
    """On grids of 6, 12 and 24 landmarks over the measure; the bound holds for all moments at the finest."""
    rng = np.random.default_rng(2)
    y, places = rng.normal(size=(8, 1)), rng.normal(size=(5, 1))
    data = InterventionData.create(y + rng.normal(size=(8, 1)), y)
    x, t = jnp.array([[-1.0], [0.5]]), rng.normal(size=5)

    def of(landmarks):
        chosen = link(width=1.5, amplitude=1.0, landmarks=landmarks)
        return moments(*BayesIMP(chosen, 0.1).prepare(data, t, mediators=places)[:2], x)

    exact = of(None)
    errors = []
    for size in (6, 12, 24):
        found = of(np.linspace(-5.0, 5.0, size)[:, None])
        errors.append(max(float(jnp.abs(found[name] - exact[name]).max()) for name in exact))
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert errors[2] < 1e-5  # what the jitter of the landmarks' kernel matrix leaves


def structural(n, seed):
    """A linear structural model with a hidden confounder u: x -> m -> y, u -> x, u -> y; E[T | do(x)] = 0.48 x."""
    rng = np.random.default_rng(seed)
    u, x_noise, m_noise, y_noise = rng.normal(size=(4, n, 1))
    x = 0.7 * u + x_noise
    m = 0.8 * x + 0.7 * m_noise
    y = m - 0.9 * u + 0.2 * y_noise
    places = 1.5 * rng.normal(size=(n, 1))
    return x, m, y, u, places, 0.6 * places[:, 0] + 0.1 * rng.normal(size=n)


@pytest.mark.nightly
@pytest.mark.parametrize("model", [BayesIMP, IME])
def test_valid_adjustments_agree_with_each_other_and_with_the_truth(model):
    """Back door and front door approach 0.48 x as n grows; without adjustment the slope is half of that."""
    x_query = jnp.linspace(-1.0, 1.0, 5)[:, None]
    truth = 0.48 * np.asarray(x_query)[:, 0]
    tables = {"backdoor": 3, "frontdoor": 1, "none": None}

    def error(n, seed, name):
        sample = structural(n, seed)
        column = tables[name]
        table, kernel = (None, None) if column is None else (sample[column], RBF(2.0))
        chosen = CausalLink(RBF(2.0), RBF(3.0), 0.1, name, kernel, width=6.0)
        data = InterventionData.create(sample[0], sample[2], table)
        found = moments(*model(chosen, 0.01, 3.0).prepare(data, sample[5], mediators=sample[4])[:2], x_query)
        return np.abs(found["mean"] - truth).max()

    cases = [(50, "backdoor"), (50, "frontdoor"), *((800, name) for name in tables)]
    errors = {(n, name): np.mean([error(n, seed, name) for seed in range(4)]) for n, name in cases}
    assert errors[800, "backdoor"] < min(0.08, errors[50, "backdoor"])
    assert errors[800, "frontdoor"] < min(0.12, errors[50, "frontdoor"])
    assert errors[800, "none"] > 0.2


@pytest.mark.slow
def test_covariances_of_hundred_rows_are_positive_semi_definite():
    x, y, z = sample(100)
    rng = np.random.default_rng(4)
    places = rng.normal(size=(100, 1))
    chosen = CausalLink(RBF(1.0), None, 0.05, "backdoor", RBF(1.5))
    data = InterventionData.create(x, y, z)
    prepared = BayesIMP(chosen, 0.01).prepare(data, np.sin(places[:, 0]), mediators=places)[:2]
    covariance = moments(*prepared, jnp.linspace(-4.0, 4.0, 40)[:, None])["latent_covariance"]
    values = np.linalg.eigvalsh(covariance)
    assert values[0] > -1e-8 * values[-1]  # rounding, enlarged by the inverses of two singular kernel matrices


@pytest.mark.nightly
def test_nuts_mixes_on_hundred_rows():
    arviz = pytest.importorskip("arviz")
    x, y, z = sample(100)
    rng = np.random.default_rng(4)
    places = rng.uniform(-2, 2, size=(100, 1))
    t = np.sin(2 * places[:, 0]) + 0.1 * rng.normal(size=100)
    chosen = CausalLink(RBF(dist.LogNormal(0.0, 1.0)), None, PRIOR, "backdoor", RBF(dist.LogNormal(0.0, 1.0)))
    inference = kpp.NUTS(num_warmup=500, num_samples=1000, num_chains=2, progress=False)
    data = InterventionData.create(x, y, z)
    fit = BayesIMP(chosen, PRIOR, dist.LogNormal(0.0, 1.0)).fit(
        jax.random.key(0), data, t, mediators=places, inference=inference, num_prior_samples=0
    )
    rhat = arviz.rhat(fit.idata)
    worst = max(float(rhat[name].max()) for name in fit.draws)
    assert worst < 1.01
