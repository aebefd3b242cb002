"""GPRegression by conjugate gradients: the exact model up to the tolerance, and clear refusals of what it lacks."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density

import kpp
from kpp.gp import GaussianLikelihood, GaussianProcessMarginal, IterativeSettings, LinearMean, condition
from kpp.gp.toolkit import IterativeSystem, condition_iteratively, iterative_log_density
from kpp.inference import ConvergenceError
from kpp.kernels import RBF, Categorical
from kpp.runtime import memory
from kpp.storage.serialization import from_spec, to_spec
from kpp_models import GPRegression
from oracles.kernels import rbf

RNG = np.random.default_rng(6)
X, NEW = RNG.uniform(-2, 2, size=(40, 2)), RNG.uniform(-2, 2, size=(5, 2))
Y = 0.4 + np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * RNG.normal(size=40)
ROWS = RNG.uniform(0.01, 0.3, size=40)
KERNEL = RBF([0.9, 1.4], 1.3)
TIGHT = IterativeSettings(rank=8, num_probes=4, tolerance=1e-11)
FIXED = kpp.MAP(progress=False)
# The residuals are at most 1e-11 of the right-hand sides, and the condition numbers are some hundreds.
TOLERANCE = {"rtol": 1e-8, "atol": 1e-9}


def fit(model, x=X, y=Y, inference=FIXED, **options):
    return model.fit(jax.random.key(0), x, y, inference=inference, num_prior_samples=0, **options)


def both(kernel=KERNEL, noise_variance=0.05, mean=0.4, row_variances=None, settings=TIGHT):
    exact = GPRegression(kernel, noise_variance, mean, row_variances)
    return exact, dataclasses.replace(exact, latent="iterative", iterative=settings)


CASES = {
    "one variance": {},
    "a variance for each row": {"row_variances": ROWS},
    "a prior mean function": {"mean": LinearMean(jnp.array([0.2, 0.5]), 0.1)},
}


@pytest.mark.nightly_variants("a prior mean function")
@pytest.mark.slow
@pytest.mark.slow_variants("a variance for each row", "a prior mean function")
@pytest.mark.parametrize("case", CASES)
def test_predictions_are_those_of_the_exact_model(case):
    expected, found = (fit(model).predict(NEW, covariance=True) for model in both(**CASES[case]))
    assert set(found.data_vars) == set(expected.data_vars)
    for name in expected.data_vars:
        np.testing.assert_allclose(found[name], expected[name], **TOLERANCE)


@pytest.mark.slow
def test_variances_without_covariances_and_the_function_are_those_of_the_exact_model():
    expected, found = (fit(model) for model in both())
    for name in ("mean", "latent_variance"):
        np.testing.assert_allclose(found.predict(NEW)[name], expected.predict(NEW)[name], **TOLERANCE)
    np.testing.assert_allclose(found.function()(NEW), expected.function()(NEW), **TOLERANCE)
    np.testing.assert_allclose(found.function().coefficients, expected.function().coefficients, **TOLERANCE)


@pytest.mark.slow
def test_many_new_points_are_solved_in_blocks(monkeypatch):
    found = fit(both()[1])
    together = found.predict(NEW)
    monkeypatch.setattr("kpp.gp.iterative.process._MAX_ENTRIES", 80)  # two points at a time
    posterior = found.model.posterior({}, found.data)
    law = posterior.moments(jnp.asarray(NEW))
    np.testing.assert_allclose(law.mean, together["mean"].squeeze(), **TOLERANCE)
    np.testing.assert_allclose(law.variance, together["latent_variance"].squeeze(), **TOLERANCE)


@pytest.mark.slow
def test_categories_need_no_averages_of_their_levels():
    """The landmarks are rows, so that a kernel which is defined at levels only can be evaluated at them."""
    levels = np.column_stack([X[:, 0], np.arange(40) % 3])
    kernel = RBF(0.9).on(0) * Categorical(correlation=0.3).on(1)
    expected, found = (fit(model, levels).predict(levels[:5]) for model in both(kernel))
    np.testing.assert_allclose(found["mean"], expected["mean"], **TOLERANCE)


PRIORS = {
    "kernel": RBF(dist.LogNormal(0.0, 0.5), dist.LogNormal(0.0, 0.5)),
    "noise_variance": dist.LogNormal(-2.0, 1.0),
}


@pytest.mark.nightly_variants("MAP", "Laplace")
@pytest.mark.slow
@pytest.mark.parametrize("inference", [FIXED, kpp.Laplace(num_samples=200, progress=False)], ids=["MAP", "Laplace"])
def test_fits_converge_and_are_near_the_exact_ones(inference):
    """With half of the rows as landmarks and 200 probes, the estimated evidence is within 0.05 of the exact one."""
    settings = IterativeSettings(rank=20, num_probes=200, tolerance=1e-8)
    expected, found = (fit(model, inference=inference) for model in both(**PRIORS, settings=settings))
    for name in expected.draws:
        np.testing.assert_allclose(found.draws[name].mean(), expected.draws[name].mean(), rtol=0.05)
    assert found.attrs["gradient_norm"] < 1e-4 or inference is not FIXED


def processes(rank, num_probes=4, kernel=KERNEL):
    """The process by conjugate gradients, and the exact covariance K + D and kernel matrix."""
    likelihood = GaussianLikelihood(jnp.asarray(Y), 0.05, jnp.asarray(ROWS))
    settings = IterativeSettings(rank=rank, num_probes=num_probes, tolerance=1e-11)
    gram = rbf(X, X, np.array([0.9, 1.4]), 1.3)
    return condition_iteratively(kernel, jnp.asarray(X), likelihood, 0.4, settings), gram + np.diag(0.05 + ROWS), gram


def test_with_all_rows_as_landmarks_the_approximate_laws_are_exact():
    found, matrix, gram = processes(rank=40)
    exact = condition(KERNEL, jnp.asarray(X), GaussianLikelihood(jnp.asarray(Y), 0.05, jnp.asarray(ROWS)), 0.4)
    for part, expected in zip(found.held_out(), exact.held_out(), strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-6, atol=1e-8)
    law, covariance = found.at_points(), gram - gram @ np.linalg.solve(matrix, gram)
    np.testing.assert_allclose(law.root.T @ law.root + np.diag(law.rest), covariance, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(law.mean, 0.4 + gram @ np.linalg.solve(matrix, Y - 0.4), **TOLERANCE)
    for name in ("mean", "variance"):
        expected = getattr(exact.posterior(), name)(NEW)
        np.testing.assert_allclose(getattr(found.posterior(), name)(NEW), expected, rtol=1e-6, atol=1e-8)


def test_with_few_landmarks_precisions_have_standard_errors_and_variances_are_at_least_exact():
    found, matrix, gram = processes(rank=12, num_probes=50)
    precisions, errors = found.precisions()
    # 40 numbers within five standard errors of 400 probes, and most of them within two.
    scores = np.abs(precisions - np.diagonal(np.linalg.inv(matrix))) / errors
    assert scores.max() < 5 and np.mean(scores < 2) > 0.8
    cross = rbf(NEW, X, np.array([0.9, 1.4]), 1.3)
    exact = 1.3 - np.einsum("pn,pn->p", cross, np.linalg.solve(matrix, cross.T).T)
    posterior = found.posterior()
    assert (posterior.variance(NEW) >= exact - 1e-10).all()
    assert (posterior.variance(NEW) < exact + 0.1).all()  # of a prior variance of 1.3
    np.testing.assert_allclose(posterior.mean(NEW), 0.4 + cross @ np.linalg.solve(matrix, Y - 0.4), **TOLERANCE)
    law, covariance = found.at_points(), gram - gram @ np.linalg.solve(matrix, gram)
    np.testing.assert_allclose(law.variance, np.diagonal(covariance), atol=5 * (0.05 + ROWS.max()) ** 2 * errors.max())
    total = np.einsum("qn,qn->n", law.root, law.root) + law.rest
    assert (total >= law.variance - 1e-12).all()


@pytest.mark.slow
def test_a_fit_has_leave_one_out_and_draws_and_explanations_with_a_law():
    settings = IterativeSettings(rank=20, num_probes=25, tolerance=1e-8)
    expected, found = (fit(model) for model in both(settings=settings))
    exact = expected.idata["log_likelihood"]["y"].values
    # Half of the rows are landmarks and there are 200 probes: the standard errors are some 0.02 of the precisions.
    assert np.abs(found.idata["log_likelihood"]["y"].values - exact).mean() < 0.03
    assert found.idata["posterior_predictive"]["y"].shape == (1, 1, 40)
    explanation = kpp.explain(found, NEW, background=X)
    assert explanation.attrs["uncertainty"] == "full"  # all hyperparameters are given
    draws = found.sample_predictive(jax.random.key(1), NEW, 3)
    assert draws.shape == (3, 5)
    assert np.isfinite(draws).all()


@pytest.mark.nightly
def test_without_targets_the_prior_is_left_out(caplog):
    model = both(**PRIORS)[1]
    found = model.fit(jax.random.key(0), X, Y, inference=kpp.MAP(num_restarts=0, progress=False))
    assert not hasattr(found.idata, "prior")
    assert "a draw of the observations needs a root of the kernel matrix" in caplog.text


@pytest.mark.slow
def test_systems_that_are_not_solved_are_errors():
    hopeless = IterativeSettings(rank=1, max_steps=2)
    with pytest.raises(ConvergenceError, match=r"`tolerance` 1e-06 within `max_steps` = 2 steps for 40 rows: raise"):
        condition_iteratively(KERNEL, jnp.asarray(X), GaussianLikelihood(jnp.asarray(Y), 0.05), settings=hopeless)
    found = fit(both()[1])
    with pytest.raises(ConvergenceError, match="conjugate gradients did not reach"):
        dataclasses.replace(found, model=both(settings=hopeless)[1]).predict(NEW)
    with pytest.raises(ConvergenceError, match="none of 1 starts reached a mode"):
        fit(both(**PRIORS, settings=hopeless)[1], inference=kpp.MAP(num_restarts=0, progress=False))


@pytest.mark.nightly
def test_with_all_rows_as_landmarks_the_density_and_its_derivatives_are_those_of_the_exact_model():
    """Value, gradient, and the change of the gradient in one direction."""
    settings = IterativeSettings(rank=40, num_probes=1, tolerance=1e-11)
    values = {"kernel.lengthscale": jnp.array(0.9), "kernel.variance": jnp.array(1.3), "noise_variance": jnp.array(0.1)}

    def derivatives(model):
        prepared, data, _ = model.prepare(X, Y)

        def density(sites):
            return log_density(prepared.numpyro_model, (), data, sites)[0]

        return jax.jit(lambda sites: (density(sites), jax.jvp(jax.grad(density), (sites,), (sites,))))(values)

    expected, found = map(derivatives, both(**PRIORS, settings=settings))
    jax.tree.map(lambda ours, exact: np.testing.assert_allclose(ours, exact, **TOLERANCE), found, expected)


@pytest.mark.slow
def test_a_model_and_its_fit_can_be_saved(tmp_path):
    for model in (both(**PRIORS)[1], both()[1]):
        copy = from_spec(to_spec(model), "models")
        assert copy.iterative == TIGHT
    found = fit(model)
    found.save(tmp_path / "fit.nc")
    loaded, again = (each.predict(NEW, covariance=True)["mean"] for each in (found, kpp.Fit.load(tmp_path / "fit.nc")))
    np.testing.assert_allclose(again, loaded, rtol=1e-12)


MISTAKES = {
    "settings without their method": (lambda: GPRegression(KERNEL, 0.1, iterative=TIGHT), "`iterative` goes with"),
    "no noise": (lambda: GPRegression(KERNEL, 0.0, latent="iterative"), "`noise_variance` must be"),
    "inducing points": (lambda: GPRegression(KERNEL, 0.1, latent="iterative", num_inducing=3), "`num_inducing` or"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_refused(mistake):
    make, message = MISTAKES[mistake]
    with pytest.raises(ValueError, match=message):
        make()


def test_rows_that_do_not_fit_as_a_matrix_are_not_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 10**9)
    x, y = np.zeros((30_000, 1)), np.zeros(30_000)
    exact, found = both(RBF(0.9))
    with pytest.raises(ValueError, match=r"needs at least .*; use latent='inducing' .* points, latent='iterative', or"):
        exact.prepare(x, y)
    found.prepare(x, y)
    with pytest.raises(ValueError, match="numbers"):
        dataclasses.replace(found, iterative=IterativeSettings(rank=5000)).prepare(x, y)


@pytest.mark.nightly  # thousands of evaluations
def test_chains_have_the_exact_posterior():
    """With all rows as landmarks nothing is estimated; the means of 200 draws differ by Monte Carlo errors."""
    settings = IterativeSettings(rank=40, num_probes=1, tolerance=1e-8)
    inference = kpp.NUTS(num_warmup=100, num_samples=200, num_chains=1, progress=False)
    expected, found = (fit(model, inference=inference).draws for model in both(**PRIORS, settings=settings))
    for name in expected:
        theirs, ours = (np.log(np.ravel(draws[name])) for draws in (expected, found))
        assert abs(ours.mean() - theirs.mean()) < 0.5 * theirs.std()


@pytest.fixture(scope="module")
def two_thousand():
    rng = np.random.default_rng(12)
    x = rng.uniform(-2, 2, size=(2000, 4))
    return x, np.sin(2 * x[:, 0]) + np.cos(x[:, 1] * x[:, 2]) + 0.3 * rng.normal(size=2000)


@pytest.mark.nightly  # dense matrices of 2000 rows
def test_two_thousand_rows_have_the_dense_predictions(two_thousand):
    x, y = two_thousand
    new = RNG.uniform(-2, 2, size=(30, 4))
    models = both(RBF(1.5), 0.09, settings=IterativeSettings(rank=200, tolerance=1e-9))
    expected, found = (fit(model, x, y).predict(new) for model in models)
    for name in ("mean", "latent_variance"):
        # The residuals are at most 1e-9 of the right-hand sides; the condition number is some hundreds.
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, atol=1e-7)


@pytest.mark.nightly  # dense matrices of 2000 rows
def test_two_thousand_rows_have_the_dense_evidence_and_gradient(two_thousand):
    """The mean of 20 seeds is within 4 standard errors, which are below 1e-3 of the evidence."""
    x, y = map(jnp.asarray, two_thousand)

    def parts(theta):
        return RBF(jnp.exp(theta[:4]), jnp.exp(theta[4])), jnp.exp(theta[5])

    def dense(theta):
        kernel, noise = parts(theta)
        return GaussianProcessMarginal(0.0, kernel.gram(x), noise).log_prob(y)

    def estimate(theta, probes):
        return iterative_log_density(IterativeSystem.create(parts(theta)[0], x, parts(theta)[1], settings), y, probes)

    settings = IterativeSettings(rank=200)
    theta = jnp.array([0.4, 0.4, 0.4, 0.4, 0.0, -2.4])
    expected = jnp.append(*jax.jit(jax.value_and_grad(dense))(theta))
    every = jax.jit(jax.value_and_grad(estimate))
    seeds = [IterativeSettings(seed=seed).probes(2000, x.dtype) for seed in range(20)]
    draws = np.stack([jnp.append(*every(theta, probes)) for probes in seeds])
    error = draws.std(axis=0, ddof=1) / np.sqrt(20)
    assert error[0] < 1e-3 * abs(expected[0])
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - expected), 4 * error)
