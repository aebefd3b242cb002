"""Prior means that are functions: the function of a fit is their sum with one of the RKHS, and is explained as such."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import kpp
from kpp import GPPosterior, NamedFunction
from kpp.conversion import rescale_outputs
from kpp.data import Schema
from kpp.data.bags import Bags
from kpp.features import Nystrom, compress
from kpp.functionals import Average, Gradient, Values
from kpp.games import Baseline, Interventional, Observational, ShapleyValues, estimate_shapley
from kpp.gp import GaussianLikelihood, IterativeSettings, LinearMean, PoissonLikelihood, condition
from kpp.inspection.reductions.reduction import draw_functions
from kpp.inspection.variances.function_indices import FiniteDraws
from kpp.kernels import RBF, Linear, Matern32
from kpp_models import CMP, GeneralizedGP, GPRegression, Observed, sample_function
from kpp_models.treatments.averaging.averages import average_by_inducing
from kpp_models.treatments.averaging.responses import draw_over_grid, make_grid
from oracles.kernels import rbf
from oracles.landmark_conditioning import landmark_values

RNG = np.random.default_rng(1)
X, NEW = RNG.normal(size=(12, 3)), RNG.normal(size=(4, 3))
Y = X @ [1.0, 0.5, 0.0] + np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=12)
KERNEL, NOISE = RBF(jnp.array([0.9, 1.4, 2.0]), 1.3), 0.1
TIMES = np.sort(RNG.uniform(0, 5, 12))[:, None]
MAP = kpp.MAP(progress=False)


class Bump(eqx.Module):
    """A mean in which the features interact, so that it has no exact method of its own."""

    size: jax.Array

    def __call__(self, x):
        return self.size * jnp.exp(-(x[:, 0] ** 2)) * (1 + x[:, -1])


MEANS = {
    "linear": lambda d: LinearMean(np.linspace(0.7, -0.4, d), 0.3),
    "module": lambda d: Bump(jnp.asarray(0.8)),
    "function": lambda d: lambda x: jnp.cos(x).sum(axis=1),
}


def table(x=X, y=Y, kernel=KERNEL, **options):
    return lambda mean: (GPRegression(kernel, NOISE, mean, **options), (x, y))


def bags(mean):
    points = Bags.create(X, np.repeat(np.arange(4), 3), np.linspace(-1.0, 1.0, 4)[:, None])
    return CMP(RBF(0.8), RBF(0.5), 0.1, 0.02, mean=mean), (points, Y[:4])


# How the function is found: by a matrix, by features, by inducing points, by conjugate gradients, in linear time, by
# Laplace's approximation, from derivatives and totals, and from bags.
MODELS = {
    "exact": (3, table()),
    "features": (3, table(kernel=Linear(jnp.ones(3)))),
    "inducing": (3, table(latent="inducing", num_inducing=5)),
    "iterative": (3, table(latent="iterative", iterative=IterativeSettings(rank=12, tolerance=1e-12))),
    "quasiseparable": (1, table(TIMES, kernel=Matern32(1.0), latent="quasiseparable")),
    "poisson": (3, lambda mean: (GeneralizedGP(KERNEL, PoissonLikelihood(), mean=mean), (X, np.arange(12) % 3))),
    "functionals": (3, table(observed=(Observed(Gradient(X[:2]), np.zeros(6), 0.1), Observed(Average(X), [3.0])))),
    "bags": (3, bags),
}


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("case", MODELS)
def test_the_function_has_the_moments_of_the_process(case, mean):
    dim, build = MODELS[case]
    model, arguments = build(MEANS[mean](dim))
    data, x = model.prepare(*arguments)[1], jnp.asarray(TIMES[:4] + 0.1 if dim == 1 else NEW)

    @jax.jit
    def compute(data):
        process = model.posterior({}, data)
        posterior = process.posterior()
        law = process.moments(x, covariance=True)
        return law.mean, law.covariance, process.function()(x), posterior.mean(x), posterior.covariance(x, x)

    expected, covariance, *found, variances = compute(data)
    # The two orders of computation differ by rounding; conjugate gradients stop at 1e-12 of the residual.
    for each in found:
        np.testing.assert_allclose(each, expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(variances, covariance, rtol=1e-7, atol=1e-8)


def conditioned(mean, kernel=KERNEL, y=Y):
    return eqx.filter_jit(
        lambda: condition(kernel, jnp.asarray(X), GaussianLikelihood(jnp.asarray(y), NOISE), mean).posterior()
    )()


@pytest.fixture(scope="module", params=MEANS)
def mean(request):
    return MEANS[request.param](3)


@pytest.fixture(scope="module")
def posterior(mean):
    return conditioned(mean)


def shapley(values):
    """Shapley values by the definition, of a function from sets of three players to values of points."""
    found = []
    for player in range(3):
        others, total = [other for other in range(3) if other != player], 0.0
        for size in range(3):
            for some in itertools.combinations(others, size):
                weight = math.factorial(size) * math.factorial(2 - size) / 6
                total = total + weight * (values({*some, player}) - values(set(some)))
        found.append(total)
    return np.stack(found, axis=-1)


GAMES = {
    "interventional": Interventional(X),
    "observational": Observational(X, 0.05),
    "landmarks": Observational(X, 0.05, landmarks=X[:6]),
}


@pytest.mark.parametrize("game", GAMES)
def test_shapley_values_are_those_of_the_sum(game, mean, posterior):
    game = GAMES[game]

    def total(x):
        return np.asarray(posterior.mean(x))

    def kernel(z, x, mask):
        return rbf(z, x, np.asarray(KERNEL.lengthscale)[mask])

    def values(players):
        mask = np.isin(np.arange(3), list(players))
        if isinstance(game, Interventional):
            return np.stack([total(np.where(mask, row, X)).mean() for row in NEW])
        landmarks = X if game.landmarks is None else np.asarray(game.landmarks)
        embedded = not isinstance(mean, LinearMean)  # as for every function whose kernel is not a product
        constant = float(posterior.mean.intercept)
        return landmark_values(total, constant, kernel, X, landmarks, NEW, [mask], 0.05, embedded=embedded)[0]

    if isinstance(game, Observational) and not isinstance(mean, LinearMean):
        game = dataclasses.replace(game, kernel=KERNEL)  # without product terms the game takes a kernel of its own
    found = estimate_shapley(game, posterior.mean, NEW).values
    # The matrix of the landmarks is known up to rounding, which the regularization does not bound.
    np.testing.assert_allclose(found, shapley(values), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("method", ["quadrature", "enumeration", "least-squares"])
def test_all_methods_agree_on_a_linear_mean(method):
    posterior, options = conditioned(MEANS["linear"](3)), {"rng_key": jax.random.key(0)}
    found = estimate_shapley(Interventional(X), posterior.mean, NEW, method=method, **options).values
    spanned = estimate_shapley(Interventional(X), posterior.mean.spanned, NEW, method="quadrature").values
    # The values of a linear function are its slopes times the distances from the mean of the background.
    np.testing.assert_allclose(found, spanned + np.linspace(0.7, -0.4, 3) * (NEW - X.mean(axis=0)), rtol=1e-9)


FUNCTIONALS = {
    "values": Values(NEW),
    "average": Average(X, RNG.normal(size=(2, 12))),
    "derivatives": Gradient(NEW),
    "shapley values": ShapleyValues(Interventional(X), NEW[:2]),
}


@pytest.mark.parametrize("name", FUNCTIONALS)
def test_the_mean_moves_functionals_and_leaves_their_covariance(name, mean, posterior):
    functional = FUNCTIONALS[name]
    centered = conditioned(0.0, y=Y - np.asarray(mean(jnp.asarray(X))))
    expected, found = centered.of(functional), posterior.of(functional)
    moved = (
        functional.apply(lambda x: mean(x))
        if name != "shapley values"
        else np.ravel(estimate_shapley(Interventional(X), lambda x: np.asarray(mean(jnp.asarray(x))), NEW[:2]).values)
    )
    np.testing.assert_allclose(found.mean, expected.mean + moved, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-8, atol=1e-10)


def test_a_linear_mean_is_explained_as_the_kernel_that_holds_it():
    exact = conditioned(0.0, KERNEL + Linear(jnp.full(3, 0.5)))
    slopes = 0.5 * np.asarray(exact.mean.coefficients) @ X  # of the linear part of the posterior mean
    function = kpp.RKHSFunction(KERNEL, X, exact.mean.coefficients) + LinearMean(slopes, 0.0)
    parts = estimate_shapley(Interventional(X), exact.mean, NEW).values
    np.testing.assert_allclose(estimate_shapley(Interventional(X), function, NEW).values, parts, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("draws", [(), (2, 3)])
def test_a_function_of_finite_rank_is_unfolded_with_its_mean(draws):
    coefficients = np.sin(np.arange(12.0 * math.prod(draws))).reshape(*draws, 12)
    one = kpp.RKHSFunction(Nystrom(KERNEL, X[:4]), X, coefficients[(0,) * len(draws)]) + MEANS["linear"](3)
    spanned = kpp.RKHSFunction.over_draws(one.spanned.kernel, X, coefficients, one.intercept, batch_shape=draws)
    function = one.with_spanned(spanned)
    unfolded = function.unfold()
    assert not function.has_product_parts and unfolded.has_product_parts
    np.testing.assert_allclose(unfolded(NEW), function(NEW), rtol=1e-10)
    np.testing.assert_allclose(function(NEW), np.asarray(spanned(NEW)) + NEW @ np.linspace(0.7, -0.4, 3), rtol=1e-10)


@pytest.fixture(scope="module")
def fit():
    mean = LinearMean(dist.Normal(0.0, 1.0).expand([3]), dist.Normal(0.0, 1.0))
    model = GPRegression(RBF(dist.LogNormal(0.0, 1.0).expand([3])), dist.HalfNormal(0.5), mean)
    return model.fit(jax.random.key(0), X, Y, inference=kpp.Laplace(num_samples=6, progress=False))


def test_a_fit_with_priors_in_its_mean_has_draws_of_the_sum(fit):
    predicted, function = fit.predict(NEW), fit.function()
    np.testing.assert_allclose(function(NEW), predicted["mean"], rtol=1e-9)
    np.testing.assert_allclose(fit.function_posterior().variance(NEW), predicted["latent_variance"], rtol=1e-7)
    np.testing.assert_allclose(function.take_draws([2])(NEW)[:, 0], function(NEW)[:, 2], rtol=1e-12)
    np.testing.assert_allclose(function.at_draw((0, 3))(NEW), function(NEW)[0, 3], rtol=1e-9)
    assert function.num_features == 3 and function.has_product_parts


def test_what_users_ask_of_a_fit_is_answered(fit):
    explanation = kpp.explain(fit, NEW)
    total = explanation.values.sum("feature") + explanation.base_values
    np.testing.assert_allclose(total.transpose(*explanation.predictions.dims), explanation.predictions, atol=1e-9)
    assert explanation.attrs["uncertainty"] == "full"


VALUES = np.array([-0.5, 1.0])
SET = np.stack([np.where(np.arange(3) == 0, value, NEW) for value in VALUES])  # NEW with each value in column 0


def drawn(posterior):
    draws = FiniteDraws.of(posterior, X[:5], NEW)
    columns = draws.draw(3, np.random.default_rng(0))
    function = kpp.RKHSFunction(draws.mean.kernel, draws.mean.points, columns, jnp.full(3, draws.mean.intercept))
    return function(NEW).T


def over_grid(posterior, *, is_grid):
    grid = make_grid(posterior.mean.spanned.points, NEW, 0, VALUES) if is_grid else None
    return eqx.filter_jit(draw_over_grid)(
        jax.random.key(0), posterior, jnp.asarray(NEW), 0, jnp.asarray(VALUES), grid, 2
    )


def by_inducing(posterior):
    rows, weights = jnp.asarray(NEW), jnp.asarray([[0.1, 0.2, 0.3, 0.4]])
    return average_by_inducing(posterior, rows, 0, jnp.asarray(VALUES), weights, rows)[0].mean[0]


# What is built on a posterior, (..., values), and the values of the prior mean that it holds.
BUILT = {
    "functions for sensitivity": (drawn, lambda mean: mean(NEW)),
    "functions for importance": (lambda p: draw_functions(p, jax.random.key(0), X, 3)(NEW), lambda mean: mean(NEW)),
    "compressed": (lambda p: compress(p.mean, X[:6]).function(NEW), lambda mean: mean(NEW)),
    "other units": (lambda p: rescale_outputs(p, -2.0, 1.0).mean(NEW), lambda mean: -2.0 * mean(NEW)),
    "responses over a grid": (functools.partial(over_grid, is_grid=True), lambda mean: mean(SET)),
    "responses by a covariance": (functools.partial(over_grid, is_grid=False), lambda mean: mean(SET)),
    "averages over many rows": (by_inducing, lambda mean: mean(SET) @ [0.1, 0.2, 0.3, 0.4]),
    "drawn functions": (
        lambda p: sample_function(jax.random.key(0), p, num_frequencies=9)(NEW),
        lambda mean: mean(NEW),
    ),
    "explained by name": (
        lambda p: kpp.explain(NamedFunction(p.mean, Schema(("a", "b", "c"))), NEW, progress=False).predictions.values,
        lambda mean: mean(NEW),
    ),
    "integrated gradients": (
        lambda p: kpp.explain(p.mean, NEW, background=X, explainer="integrated-gradients").values.sum("feature").values,
        lambda mean: mean(NEW) - mean(X.mean(axis=0, keepdims=True)),
    ),
    "an output": (lambda p: p.shared.variance(NEW), lambda mean: 0.0),
}


@pytest.mark.parametrize("name", BUILT)
def test_what_is_built_on_a_posterior_keeps_its_mean(name, mean, posterior):
    build, added = BUILT[name]
    without = GPPosterior(posterior.mean.spanned, posterior.root[:-1])

    def at(x):
        bias = mean.bias if isinstance(mean, LinearMean) else 0.0  # it is in the intercept of both
        return np.asarray(mean(jnp.asarray(x).reshape(-1, 3)) - bias).reshape(np.shape(x)[:-1])

    np.testing.assert_allclose(build(posterior), np.asarray(build(without)) + added(at), rtol=1e-7, atol=1e-8)


@pytest.mark.slow
def test_scores_and_certificates_take_a_mean(fit):
    alone = fit.function_posterior(at="mean").mean
    slopes = np.asarray(alone.kernel.function.points)[0]
    shares = kpp.sensitivity(alone.with_spanned(alone.spanned * 0.0), X)["first_order"].to_numpy().ravel()
    variances = slopes**2 * X.var(axis=0)
    np.testing.assert_allclose(shares, variances / variances.sum(), rtol=1e-9)
    assert kpp.importance(fit, X, Y)["importance"].notnull().all()


def test_products_of_absent_factors_have_no_place_for_a_mean(posterior):
    with pytest.raises(TypeError, match="`Baseline` replaces kernel factors, and a function that was added"):
        estimate_shapley(Baseline(), posterior.mean, NEW)


def test_a_function_with_a_mean_is_not_written_into_a_file(posterior, tmp_path):
    with pytest.raises(TypeError, match="WithFunction is not registered"):
        NamedFunction(posterior.mean, Schema(("a", "b", "c"))).save(tmp_path / "function.nc")


def test_functions_with_draws_are_added_draw_by_draw(fit):
    with pytest.raises(ValueError, match="a function can only be added to a function without draws"):
        fit.function() + LinearMean(jnp.ones(3), 0.0)
    with pytest.raises(TypeError, match="a function outside of the RKHS has no inner product"):
        function = fit.function().at_draw((0, 0))
        function.kernel(function.points, function.points)
