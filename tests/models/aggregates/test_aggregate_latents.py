"""Likelihoods other than the Gaussian in models of aggregates: densities and conditioning against dense formulas."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import optimize, stats

import kpp
from kpp.data.bags import Bags
from kpp.inference.base import CalledWith, Site, inspect_sites
from kpp.kernels import RBF
from kpp_models import CMP, aggregate_posterior
from oracles.kernels import rbf

SIZES = np.array([1, 4, 2, 3])
REGULARIZATION, PRIOR_MEAN = 0.02, 0.4
EXPOSURE, COUNTS = np.array([3.0, 1.0, 8.0]), np.array([6.0, 0.0, 13.0])
# A nugget of 1e-10 of the variances is added before aggregates are factorized.
NUGGET = {"rtol": 1e-7, "atol": 1e-8}


class Dense:
    """Points, places, and the joint prior of the field and three aggregates, in NumPy."""

    def __init__(self):
        rng = np.random.default_rng(5)
        self.points, self.x = rng.normal(size=(10, 2)), rng.normal(size=(5, 2))
        self.inducing = rng.normal(size=(4, 2))
        self.covariates, self.places = np.linspace(-1.0, 1.0, 4)[:, None], np.array([[-0.8], [0.1], [0.9]])
        self.bags = Bags.create(self.points, np.repeat(np.arange(4), SIZES), self.covariates)
        average = np.repeat(np.eye(4), SIZES, axis=1) / SIZES[:, None]
        ridge = SIZES.sum() * REGULARIZATION * np.diag(1.0 / SIZES)
        operator = np.linalg.solve(rbf(self.covariates, self.covariates) + ridge, rbf(self.covariates, self.places))
        self.spread = average.T @ operator  # from the values at all points to the aggregates, (10, 3)
        self.kernel = lambda a, b: rbf(a, b, 0.8, 1.5)
        self.mean = PRIOR_MEAN * self.spread.sum(0)
        self.covariance = self.spread.T @ self.kernel(self.points, self.points) @ self.spread
        self.root = np.linalg.cholesky(self.covariance)
        self.cross = self.kernel(self.x, self.points) @ self.spread  # (5, 3)
        factor = np.linalg.cholesky(self.kernel(self.inducing, self.inducing))
        self.low_rank = np.linalg.solve(factor, self.kernel(self.inducing, self.points) @ self.spread)  # (4, 3)
        self.unexplained = np.diag(self.covariance) - (self.low_rank**2).sum(0)


@pytest.fixture(scope="module")
def dense():
    return Dense()


def model_of(**options):
    return CMP(RBF(0.8, 1.5), RBF(1.0), 0.3, REGULARIZATION, mean=PRIOR_MEAN, **options)


def prepared(dense, y=COUNTS, exposure=None, **options):
    model, data, _ = model_of(**options).prepare(dense.bags, y, covariates=dense.places, exposure=exposure)
    return model, data


def density_of(model, data, sites):
    return log_density(model.numpyro_model, (), data, sites)[0]


@pytest.mark.slow
def test_drawn_aggregates_have_the_density_and_the_field_of_dense_conditioning(dense):
    model, data = prepared(dense, exposure=EXPOSURE, likelihood="poisson")
    white = np.array([0.3, -1.2, 0.7])

    @jax.jit
    def evaluate(white):
        sample = {"latent_whitened": white}
        pointwise = model.log_likelihood(sample, data)["y"]
        return density_of(model, data, sample), pointwise, model.predictive(sample, data, jnp.asarray(dense.x))

    density, pointwise, field = evaluate(white)
    above = dense.root @ white
    likelihood = stats.poisson.logpmf(COUNTS, EXPOSURE * np.exp(dense.mean + above))
    np.testing.assert_allclose(pointwise, likelihood, **NUGGET)
    np.testing.assert_allclose(density, likelihood.sum() + stats.norm.logpdf(white).sum(), **NUGGET)
    gain = np.linalg.solve(dense.covariance, dense.cross.T).T
    np.testing.assert_allclose(field["mean"], PRIOR_MEAN + gain @ above, **NUGGET)
    np.testing.assert_allclose(field["latent_variance"], 1.5 - (gain * dense.cross).sum(1), **NUGGET)


@pytest.fixture(scope="module")
def inducing_values():
    return np.array([0.3, -1.2, 0.7, 0.1])


@pytest.mark.slow
def test_inducing_values_have_the_bound_and_the_field_of_dense_conditioning(dense, inducing_values):
    options = {"likelihood": "poisson", "inducing_points": dense.inducing}
    model, data = prepared(dense, exposure=EXPOSURE, **options)
    few, _ = prepared(dense, exposure=EXPOSURE, minibatch=2, **options)
    subsets = jnp.array(list(itertools.combinations(range(3), 2)))

    @jax.jit
    def evaluate(white):
        sample = {"inducing_whitened": white}
        of_some = jax.vmap(lambda rows: density_of(few, data, {**sample, "instance": rows}))(subsets)
        return density_of(model, data, sample), of_some, model.predictive(sample, data, jnp.asarray(dense.x))

    density, of_some, field = evaluate(inducing_values)
    mean = dense.mean + dense.low_rank.T @ inducing_values
    rate = EXPOSURE * np.exp(mean + dense.unexplained / 2)
    expected = COUNTS * (mean + np.log(EXPOSURE)) - rate - np.array([np.log(720.0), 0.0, np.log(6227020800.0)])
    np.testing.assert_allclose(density, expected.sum() + stats.norm.logpdf(inducing_values).sum(), **NUGGET)
    # A subset is as likely as any other: the mean over all of them is what the estimate is on average.
    np.testing.assert_allclose(np.mean(of_some), density, rtol=1e-12)
    assert np.ptp(of_some) > 1.0
    k_ww, k_xw = dense.kernel(dense.inducing, dense.inducing), dense.kernel(dense.x, dense.inducing)
    gain = np.linalg.solve(np.linalg.cholesky(k_ww), k_xw.T).T
    np.testing.assert_allclose(field["mean"], PRIOR_MEAN + gain @ inducing_values, **NUGGET)
    np.testing.assert_allclose(field["latent_variance"], 1.5 - (gain**2).sum(1), **NUGGET)


@pytest.mark.slow
def test_nearly_gaussian_noise_gives_the_collapsed_posterior(dense):
    # The density of the latent values is then quadratic: a step of Newton finds its mode, the Hessian its spread.
    # Student's t at 1e8 degrees of freedom differs from the normal by about 1e-7, and so does what follows.
    z, site = np.array([0.5, -0.4, 1.1]), "inducing_whitened"
    nearly, data = prepared(dense, z, likelihood="student_t", degrees_of_freedom=1e8, inducing_points=dense.inducing)
    exact, _ = prepared(dense, z, inducing_points=dense.inducing)

    @jax.jit
    def evaluate(x):
        def density(white):
            return density_of(nearly, data, {site: white})

        zero = jnp.zeros(4)
        covariance = jnp.linalg.inv(-jax.hessian(density)(zero))
        mode = covariance @ jax.grad(density)(zero)
        given = nearly.predictive({site: mode}, data, x)
        slope = jax.jacobian(lambda white: nearly.predictive({site: white}, data, x)["mean"])(mode)
        spread = jnp.sum((slope @ covariance) * slope, axis=1)
        return given["mean"], given["latent_variance"] + spread, exact.predictive({}, data, x)

    mean, variance, expected = evaluate(jnp.asarray(dense.x))
    np.testing.assert_allclose(mean, expected["mean"], atol=1e-5)
    np.testing.assert_allclose(variance, expected["latent_variance"], atol=1e-5)


@pytest.mark.slow
def test_subsamples_are_for_stochastic_inference_only(dense):
    model, data = prepared(dense, likelihood="poisson", inducing_points=dense.inducing, minibatch=2)
    assert inspect_sites(model.numpyro_model, data)["y"] == Site("y", "observed", (3,), ("instance",))
    sizes = []
    for subsample in (False, True):
        run = handlers.trace(handlers.seed(CalledWith(model.numpyro_model, subsample=subsample), 0))
        jax.eval_shape(lambda data, run=run: sizes.append(run.get_trace(data)["y"]["value"].shape), data)
    assert sizes == [(3,), (2,)]


@pytest.mark.nightly
def test_fits_by_subsamples_describe_all_targets(dense, tmp_path):
    labels = np.array([1.0, 0.0, 1.0])
    model = model_of(likelihood="bernoulli", inducing_points=dense.inducing, minibatch=2)
    inference = kpp.SVI(guide="multivariate_normal", num_steps=30, num_samples=4, progress=False)
    fit = model.fit(
        jax.random.key(0), dense.bags, labels, covariates=dense.places, inference=inference, num_prior_samples=5
    )
    np.testing.assert_array_equal(fit.idata.observed_data["y"], labels)
    assert fit.draws["inducing_whitened"].shape == (1, 4, 4)
    assert fit.idata.log_likelihood["y"].shape == fit.idata.posterior_predictive["y"].shape == (1, 4, 3)
    assert fit.idata.prior_predictive["y"].shape == (1, 5, 3)
    assert set(np.unique(fit.idata.posterior_predictive["y"])) <= {0.0, 1.0}
    found = aggregate_posterior(fit, dense.places)
    assert found.attrs["operator"] == "counts as known: operator_variance is 0"
    chance = found["response_mean"].values
    # The mean of a sigmoid is nearer to 1/2 than the sigmoid of the mean.
    assert (np.abs(chance - 0.5) < np.abs(1.0 / (1.0 + np.exp(-found["mean"].values)) - 0.5)).all()
    fit.save(tmp_path / "fit.nc")
    again = kpp.Fit.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(again.predict(dense.x)["mean"], fit.predict(dense.x)["mean"])


def test_models_without_inducing_points_have_no_minibatches():
    with pytest.raises(ValueError, match="`minibatch` must be None unless the model has inducing points"):
        model_of(likelihood="poisson", minibatch=2)


@pytest.mark.nightly
def test_samplers_find_the_posterior_of_the_aggregates(dense):
    model = model_of(likelihood="poisson")

    def negative(white):
        rate = EXPOSURE * np.exp(dense.mean + dense.root @ white)
        return -stats.poisson.logpmf(COUNTS, rate).sum() - stats.norm.logpdf(white).sum()

    def fit_by(inference):
        fit = model.fit(
            jax.random.key(1),
            dense.bags,
            COUNTS,
            covariates=dense.places,
            exposure=EXPOSURE,
            inference=inference,
            num_prior_samples=0,
        )
        return fit, np.asarray(fit.draws["latent_whitened"]).reshape(-1, 3)

    # Importance sampling from a widened normal law about the mode: 2e5 draws leave errors below 0.5 % of a deviation.
    mode = optimize.minimize(negative, np.zeros(3), tol=1e-10).x
    rate = EXPOSURE * np.exp(dense.mean + dense.root @ mode)
    covariance = np.linalg.inv(np.eye(3) + dense.root.T @ (rate[:, None] * dense.root))
    proposal = stats.multivariate_normal(mode, 1.5 * covariance)
    draws = proposal.rvs(200_000, random_state=0)
    counts = stats.poisson.logpmf(COUNTS, EXPOSURE * np.exp(dense.mean + draws @ dense.root.T)).sum(1)
    weights = np.exp(counts + stats.norm.logpdf(draws).sum(1) - proposal.logpdf(draws))
    mean = np.average(draws, axis=0, weights=weights)
    deviation = np.sqrt(np.average((draws - mean) ** 2, axis=0, weights=weights))

    _, found = fit_by(kpp.MAP(num_restarts=0, progress=False))
    np.testing.assert_allclose(found[0], mode, atol=1e-4)  # where the search stops
    _, found = fit_by(kpp.Laplace(num_samples=4000, progress=False))
    np.testing.assert_allclose(np.cov(found.T), covariance, atol=0.1)  # four standard errors
    fit, found = fit_by(kpp.NUTS(num_chains=2, num_warmup=300, num_samples=1500, progress=False))
    # 3000 draws, nearly independent: four standard errors.
    np.testing.assert_allclose(found.mean(0), mean, atol=4 * deviation.max() / np.sqrt(2000))
    np.testing.assert_allclose(found.std(0), deviation, rtol=0.08)
    replicates = fit.idata.posterior_predictive["y"].values.reshape(-1, 3)
    rates = EXPOSURE * np.exp(dense.mean + found @ dense.root.T)
    np.testing.assert_allclose(replicates.mean(0), rates.mean(0), rtol=0.1)
