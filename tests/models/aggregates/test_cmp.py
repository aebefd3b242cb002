"""The conditional mean process against reference vectors, dense conditioning in NumPy, and refits."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import kpp
from kpp.data.bags import Bags
from kpp.kernels import RBF
from kpp_models import CMP, GPRegression, aggregate_posterior

SIZES = np.array([1, 4, 2, 3])
QUICK = kpp.MAP(num_restarts=0, progress=False)
VECTORS = {"rtol": 1e-7, "atol": 1e-10}  # how exactly the reference vectors are to be met


@pytest.fixture(scope="module")
def vectors(root):
    return dict(np.load(root / "tests/data/cmp.npz"))


def model_of(vectors, **options):
    kernel, bag_kernel = RBF(vectors["in_lx"]), RBF(float(vectors["in_ly"]))
    return CMP(kernel, bag_kernel, float(vectors["in_s2"]), float(vectors["in_lam"]), **options)


def bags_of_points(vectors):
    return Bags.of_single_points(vectors["in_X"], vectors["in_Y"])


def bags_of_sizes(vectors):
    return Bags.create(vectors["in_bag_points"], np.repeat(np.arange(4), SIZES), vectors["in_Yb"])


@eqx.filter_jit
def evaluate(model, data, x):
    """Everything under one draw in one program."""
    trace = numpyro.handlers.trace(numpyro.handlers.seed(model.numpyro_model, 0)).get_trace(**data)
    density = trace["y"]["fn"].log_prob(data["y"])
    predicted = model.predictive({}, data, x, covariance=True)
    return {"operator": model.operator(data), "density": density, **predicted}


def found(model, bags, vectors, x):
    model, data, _ = model.prepare(bags, vectors["in_z"], covariates=vectors["in_Yt"])
    return evaluate(model, data, jnp.asarray(x))


@pytest.mark.slow_variants("")
@pytest.mark.parametrize("suffix", ["", pytest.param("_hr", marks=pytest.mark.slow)])
def test_exact_posterior_is_that_of_the_vectors(vectors, suffix):
    noise = float(vectors["in_hr2"]) if suffix else 0.0
    model = model_of(vectors, high_resolution_variance=noise)
    values = found(model, bags_of_points(vectors), vectors, vectors["in_Xq"])
    np.testing.assert_allclose(values["operator"], vectors["out_A"], **VECTORS)
    np.testing.assert_allclose(values["mean"], vectors["out_mean" + suffix], **VECTORS)
    np.testing.assert_allclose(values["latent_covariance"], vectors["out_cov" + suffix], **VECTORS)
    np.testing.assert_allclose(values["latent_variance"], np.diag(vectors["out_cov" + suffix]), **VECTORS)
    np.testing.assert_allclose(values["density"], vectors["out_evidence" + suffix], **VECTORS)
    np.testing.assert_allclose(values["noise_variance"], noise)


@pytest.mark.slow_variants("_hr")
@pytest.mark.parametrize("suffix", [pytest.param("", marks=pytest.mark.slow), "_hr"])
def test_variational_posterior_is_that_of_the_vectors(vectors, suffix):
    noise = float(vectors["in_hr2"]) if suffix else 0.0
    model = model_of(vectors, high_resolution_variance=noise, inducing_points=vectors["in_w"])
    values = found(model, bags_of_points(vectors), vectors, vectors["in_w"])
    # A nugget of 1e-10 at the inducing points, without which repeated ones could not be learned, shows in the bound.
    np.testing.assert_allclose(values["density"], vectors["out_elbo_opt" + suffix], rtol=1e-9)
    np.testing.assert_allclose(values["mean"], vectors["out_eta" + suffix], **VECTORS)
    np.testing.assert_allclose(values["latent_covariance"], vectors["out_Sig" + suffix], **VECTORS)


@pytest.mark.slow_variants("shrinkage-shrink")
@pytest.mark.parametrize(
    ("estimator", "name"), [("shrinkage", "shrink"), pytest.param("exact", "replicate", marks=pytest.mark.slow)]
)
def test_bags_of_unequal_sizes_are_those_of_the_vectors(vectors, estimator, name):
    model = model_of(vectors, high_resolution_variance=float(vectors["in_hr2"]), estimator=estimator)
    values = found(model, bags_of_sizes(vectors), vectors, vectors["in_Xq"])
    np.testing.assert_allclose(values["operator"], vectors[f"out_{name}_A"], **VECTORS)
    np.testing.assert_allclose(values["mean"], vectors[f"out_{name}_mean_hr"], **VECTORS)
    np.testing.assert_allclose(values["latent_covariance"], vectors[f"out_{name}_cov_hr"], **VECTORS)


@pytest.mark.slow
def test_estimators_agree_for_bags_of_equal_sizes(vectors, tolerance):
    bags = Bags.create(vectors["in_bag_points"][:8], np.repeat(np.arange(4), 2), vectors["in_Yb"])
    first, second = (
        found(model_of(vectors, estimator=name), bags, vectors, vectors["in_Xq"]) for name in ("exact", "shrinkage")
    )
    for name in ("operator", "mean", "latent_covariance", "density"):
        np.testing.assert_allclose(first[name], second[name], **tolerance())


@pytest.mark.slow
def test_collapsed_bound_with_all_points_is_the_evidence(vectors):
    exact = found(model_of(vectors), bags_of_points(vectors), vectors, vectors["in_Xq"])
    model = model_of(vectors, inducing_points=vectors["in_X"])
    bound = found(model, bags_of_points(vectors), vectors, vectors["in_Xq"])
    for name in ("mean", "latent_covariance", "density"):
        np.testing.assert_allclose(bound[name], exact[name], rtol=1e-8, atol=1e-8)


class Dense:
    """The joint Gaussian of field, aggregates and targets, written out with one row a point."""

    def __init__(self, vectors, options):
        bags = bags_of_sizes(vectors)
        average = (np.asarray(bags.index)[None, :] == np.arange(4)[:, None]) / SIZES[:, None]
        self.k = lambda a, b: np.asarray(RBF(vectors["in_lx"])(a, b))
        self.l = lambda a, b: np.asarray(RBF(float(vectors["in_ly"]))(a, b))
        self.points, self.options = np.asarray(bags.points), options
        lam = float(vectors["in_lam"])
        regularized = self.l(vectors["in_Yb"], vectors["in_Yb"])
        regularized = regularized + 10 * lam * np.diag(1 / SIZES)  # the exact estimator: n lambda / n_j
        self.inverse, self.bag_places = np.linalg.inv(regularized), vectors["in_Yb"]
        self.weights = lambda places: average.T @ self.inverse @ self.l(vectors["in_Yb"], places)

    def aggregates(self, first, second):
        noisy = self.k(self.points, self.points) + self.options["high_resolution_variance"] * np.eye(10)
        cross = self.l(first, self.bag_places) @ self.inverse @ self.l(self.bag_places, second)
        extra = self.options["operator_variance"] * (self.l(first, second) - cross)
        return self.weights(first).T @ noisy @ self.weights(second) + extra

    def field(self, x, places):
        return self.k(x, self.points) @ self.weights(places)

    def mean(self, places):
        return self.options["mean"] * self.weights(places).sum(axis=0)


@pytest.mark.slow
def test_posterior_of_aggregates_is_the_dense_one(vectors, tolerance):
    options = {"mean": 0.7, "high_resolution_variance": 0.2, "operator_variance": 0.3}
    dense, x, here, targets = (
        Dense(vectors, options),
        vectors["in_Xq"],
        np.linspace(-1, 1, 3)[:, None],
        vectors["in_Yt"],
    )
    covariance = dense.aggregates(targets, targets) + float(vectors["in_s2"]) * np.eye(5)
    residual = vectors["in_z"] - dense.mean(targets)
    gain, field_gain = (
        np.linalg.solve(covariance, cross.T).T for cross in (dense.aggregates(here, targets), dense.field(x, targets))
    )
    fit = model_of(vectors, **options).fit(
        jax.random.key(0),
        bags_of_sizes(vectors),
        vectors["in_z"],
        covariates=targets,
        inference=QUICK,
        num_prior_samples=0,
    )
    posterior = aggregate_posterior(fit, here, x=x, covariance=True).isel(chain=0, draw=0)
    assert posterior.attrs["operator"] == "uncertain"
    np.testing.assert_allclose(posterior["mean"], dense.mean(here) + gain @ residual, **tolerance())
    expected = dense.aggregates(here, here) - gain @ dense.aggregates(targets, here)
    np.testing.assert_allclose(posterior["latent_covariance"], expected, **tolerance())
    np.testing.assert_allclose(posterior["latent_variance"], np.diag(expected), **tolerance())
    expected = dense.field(x, here) - field_gain @ dense.aggregates(targets, here)
    np.testing.assert_allclose(posterior["field_covariance"], expected, **tolerance())
    predicted = fit.predict(x, covariance=True).isel(chain=0, draw=0)
    np.testing.assert_allclose(predicted["mean"], 0.7 + field_gain @ residual, **tolerance())
    expected = dense.k(x, x) - field_gain @ dense.field(x, targets).T
    np.testing.assert_allclose(predicted["latent_covariance"], expected, **tolerance())


@pytest.mark.slow
def test_pointwise_log_likelihood_is_that_of_refits_without_each_target(vectors, tolerance):
    bags, z, places = bags_of_sizes(vectors), vectors["in_z"], vectors["in_Yt"]
    model, data, _ = model_of(vectors).prepare(bags, z, covariates=places)
    found = eqx.filter_jit(lambda model, data: model.log_likelihood({}, data)["y"])(model, data)
    dense = Dense(vectors, {"mean": 0.0, "high_resolution_variance": 0.0, "operator_variance": 0.0})
    covariance = dense.aggregates(places, places) + float(vectors["in_s2"]) * np.eye(5)
    expected = []
    for left_out in range(5):
        rest = np.setdiff1d(np.arange(5), left_out)
        gain = np.linalg.solve(covariance[np.ix_(rest, rest)], covariance[rest, left_out])
        variance = covariance[left_out, left_out] - gain @ covariance[rest, left_out]
        expected.append(dist.Normal(gain @ z[rest], np.sqrt(variance)).log_prob(z[left_out]))
    np.testing.assert_allclose(found, expected, **tolerance(factor=10))


@pytest.mark.slow
def test_replicates_are_drawn_from_the_posterior_predictive(vectors):
    model, data, _ = model_of(vectors).prepare(bags_of_sizes(vectors), vectors["in_z"], covariates=vectors["in_Yt"])
    draws = jax.jit(jax.vmap(lambda key: model.replicate(key, {}, data)["y"]))(
        jax.random.split(jax.random.key(0), 4000)
    )
    dense = Dense(vectors, {"mean": 0.0, "high_resolution_variance": 0.0, "operator_variance": 0.0})
    latent, noise = dense.aggregates(vectors["in_Yt"], vectors["in_Yt"]), float(vectors["in_s2"])
    gain = np.linalg.solve(latent + noise * np.eye(5), latent)
    variance = np.diag(latent - latent @ gain) + noise
    # Five standard errors of a mean, and of a variance, of 4000 draws.
    np.testing.assert_allclose(draws.mean(axis=0), vectors["in_z"] @ gain, atol=5 * np.sqrt(variance.max() / 4000))
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=5 * np.sqrt(2 / 4000))


@pytest.mark.nightly
def test_priors_are_drawn_and_the_fit_survives_its_file(vectors, tmp_path):
    points = pd.DataFrame(vectors["in_bag_points"], columns=["east", "north"])
    covariates = pd.DataFrame({"height": vectors["in_Yb"][:, 0], "year": 0.0})
    bags = Bags.create(points, np.repeat(np.arange(4), SIZES), covariates)
    prior = dist.LogNormal(0.0, 0.3)
    model = CMP(
        RBF(prior.expand([2]), prior),
        RBF(prior).on(["height"]),
        dist.HalfNormal(1.0),
        dist.LogNormal(-3.0, 1.0),
        num_inducing=3,
    )
    inference = kpp.SVI(num_steps=3, num_samples=10, progress=False)
    fit = model.fit(jax.random.key(0), bags, vectors["in_z"][:4], inference=inference, num_prior_samples=0)
    assert {"kernel.lengthscale", "bag_kernel.kernel.lengthscale", "noise_variance", "regularization"} <= set(fit.draws)
    assert fit.idata["posterior"]["kernel.lengthscale"].dims == ("chain", "draw", "feature")
    assert fit.idata["log_likelihood"]["y"].shape == (1, 10, 4)
    fit.save(tmp_path / "fit.nc")
    loaded = kpp.Fit.load(tmp_path / "fit.nc")
    np.testing.assert_allclose(loaded.predict(points)["mean"], fit.predict(points)["mean"], rtol=1e-10)
    place = pd.DataFrame({"year": [0.0], "height": [0.5]})
    first, second = (aggregate_posterior(one, place)["mean"] for one in (fit, loaded))
    np.testing.assert_allclose(first, second, rtol=1e-10)
    assert first.shape == (1, 10, 1)


BAGS = Bags.create(np.arange(6.0).reshape(6, 1), np.repeat(np.arange(3), 2), np.arange(3.0)[:, None])
BARE = Bags.create(np.arange(6.0).reshape(6, 1), np.repeat(np.arange(3), 2))
Z, NARROW, WIDE = np.zeros(3), RBF(1.0), RBF(np.array([1.0, 2.0]))


def fit(bags=BAGS, y=Z, covariates=None, kernel=NARROW, bag_kernel=NARROW, noise=0.1, lam=0.1, **options):
    model = CMP(kernel, bag_kernel, noise, lam, **options)
    return model.fit(jax.random.key(0), bags, y, covariates=covariates, inference=QUICK, num_prior_samples=0)


MISTAKES = [
    (lambda: fit(y=np.zeros(2)), "`x` and `y` must have the same number of rows, got 3 and 2"),
    (lambda: fit(covariates=np.zeros((2, 1))), "`covariates` and `y` must have the same number of rows, got 2 and 3"),
    (lambda: fit(covariates=np.zeros((3, 2))), "`covariates` must have 1 columns"),
    (lambda: fit(covariates=np.full((3, 1), np.nan)), "`covariates` must be finite, got 3 NaN"),
    (lambda: fit(y=np.array([0.0, np.nan, 1.0])), "`y` must be finite, got 1 NaN"),
    (lambda: fit(bags=BARE), "`x` must have covariates"),
    (lambda: fit(kernel=WIDE), "`kernel` cannot be evaluated on `x`"),
    (lambda: fit(bag_kernel=WIDE), "`bag_kernel` cannot be evaluated on `covariates`"),
    (lambda: fit(bag_kernel=(RBF(1.0), RBF(1.0))), "one for each of the 1 sources, got 2"),
    (lambda: fit(noise=-1.0), "`noise_variance` must be at least 0"),
    (lambda: fit(lam=0.0), "`regularization` must be positive"),
    (lambda: fit(estimator="mean"), "`estimator` must be one of"),
    (lambda: fit(likelihood="gamma"), "`likelihood` must be"),
    (lambda: fit(num_inducing=0), "`num_inducing` must be"),
    (lambda: fit(num_inducing=7), "`num_inducing` must be"),
    (lambda: fit(num_inducing=2, bag_gram="cheap"), "`bag_gram` must be one of"),
    (lambda: fit(minibatch=2), "`minibatch` must be None unless the model has inducing points"),
    (lambda: fit(bags=[BAGS, BAGS], y=[Z]), "`y` must have one entry for each of the 2 sources, got 1"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow
def test_aggregates_need_a_place_that_the_model_knows():
    known = fit()
    with pytest.raises(ValueError, match="`covariates` must have 1 columns"):
        aggregate_posterior(known, np.zeros((1, 2)))
    with pytest.raises(ValueError, match="`source` must be between 0 and 0, got 1"):
        aggregate_posterior(known, np.zeros((1, 1)), source=1)
    other = GPRegression(NARROW, 0.1).fit(jax.random.key(0), np.zeros((3, 1)), Z, inference=QUICK)
    with pytest.raises(TypeError, match="`fit` must be of a model of aggregates"):
        aggregate_posterior(other, np.zeros((1, 1)))
