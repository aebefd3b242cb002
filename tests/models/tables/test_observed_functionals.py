"""GPRegression with observed functionals: one dense joint Gaussian, finite differences, BaggGP, and bad input."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist
from numpyro.infer.util import log_density
from scipy import stats

import kpp
from kpp.data.bags import Bags
from kpp.embeddings import ConditionalMeanEmbedding, Embedded
from kpp.functionals import AbstractFunctional, Average, Combination, Gradient, Values
from kpp.games import Interventional, ShapleyValues
from kpp.gp import LinearMean
from kpp.kernels import RBF, Linear, Matern12
from kpp.testing import check_functional
from kpp_models import BaggGP, GPClassification, GPRegression, Observed
from oracles.joint_gaussian import condition_jointly

RNG = np.random.default_rng(0)
X, Y, Z, NEW = RNG.normal(size=(6, 2)), RNG.normal(size=6), RNG.normal(size=(3, 2)), RNG.normal(size=(4, 2))
WEIGHTS = RNG.normal(size=(2, 3))
KERNEL, NOISE, MEAN = RBF(0.9, 1.7), 0.1, 0.3
OBSERVED = (
    Observed(Gradient(Z, [1, 0]), RNG.normal(size=6), 0.05),
    Observed(Average(Z, WEIGHTS), [2.0, -1.0]),  # kept exactly
)
MAP = kpp.MAP(progress=False)
# The observations as rows of weights of values and derivatives at single points, for the oracle.
ATOMS = [(x, None) for x in X] + [(z, feature) for z in Z for feature in (1, 0)] + [(z, None) for z in Z]
ROWS = np.zeros((14, 15))
ROWS[:12, :12] = np.eye(12)
ROWS[12:14, 12:] = WEIGHTS
SEEN = np.concatenate([Y, *(one.values for one in OBSERVED)])
VARIANCES = np.repeat([NOISE, 0.05, 0.0], [6, 6, 2])


def oracle(keep=slice(None)):
    return condition_jointly(ATOMS, ROWS[keep], SEEN[keep], VARIANCES[keep], 0.9, 1.7, MEAN)


def fit_of(observed, kernel=KERNEL, x=X, y=Y, inference=MAP, mean=MEAN):
    model = GPRegression(kernel, NOISE, mean, observed=observed)
    return model.fit(jax.random.key(0), x, y, inference=inference, num_prior_samples=0)


@pytest.fixture(scope="module")
def fit():
    return fit_of(OBSERVED)


@pytest.mark.slow
def test_predictions_are_those_of_a_joint_gaussian(fit):
    """1e-10: both condition 14 numbers, in another order."""
    mean, covariance = oracle()[0]([(x, None) for x in NEW], np.eye(4))
    found = fit.predict(NEW, covariance=True)
    np.testing.assert_allclose(found["mean"].squeeze(), mean, atol=1e-10)
    np.testing.assert_allclose(found["latent_covariance"].squeeze(), covariance, atol=1e-10)
    np.testing.assert_allclose(fit.function()(NEW).squeeze(), mean, atol=1e-10)
    np.testing.assert_allclose(fit.function_posterior().covariance(NEW, NEW).squeeze(), covariance, atol=1e-10)


@pytest.mark.slow
def test_laws_of_functionals_are_those_of_a_joint_gaussian(fit):
    """Derivatives, and Shapley values by product kernels, whose factors have derivatives."""
    law = oracle()[0]
    slopes = fit.of(Gradient(NEW))
    mean, covariance = law([(x, feature) for x in NEW for feature in (0, 1)], np.eye(8))
    np.testing.assert_allclose(slopes.mean.squeeze(), mean, atol=1e-10)
    np.testing.assert_allclose(slopes.covariance.squeeze(), covariance, atol=1e-10)
    mixed = [(point, None) for z in Z for point in ((NEW[0, 0], z[1]), (z[0], NEW[0, 1]), tuple(z))]
    first = np.tile([0.5, -0.5, -0.5], 3) / 3
    rows = np.array([np.append(first, 0.5), np.append(first * np.tile([-1, -1, 1], 3), 0.5)])
    mean, covariance = law([*mixed, (NEW[0], None)], rows)
    found = fit.of(ShapleyValues(Interventional(Z), NEW[:1]))
    np.testing.assert_allclose(found.mean.squeeze(), mean, atol=1e-10)
    np.testing.assert_allclose(found.covariance.squeeze(), covariance, atol=1e-10)


@pytest.mark.slow
def test_evidence_and_leave_one_out_are_those_of_a_joint_gaussian(fit):
    found = log_density(fit.model.numpyro_model, (), fit.data, {})[0]
    np.testing.assert_allclose(found, oracle()[1], rtol=1e-12)
    densities = jax.jit(lambda data: fit.model.log_likelihood({}, data)["y"])(fit.data)
    for i, density in enumerate(np.asarray(densities)):
        mean, variance = oracle(np.arange(14) != i)[0]([(X[i], None)], np.eye(1))
        expected = stats.norm.logpdf(Y[i], mean[0], np.sqrt(variance[0, 0] + NOISE))
        np.testing.assert_allclose(density, expected, rtol=1e-9)


@pytest.mark.slow
def test_observed_derivatives_are_those_of_the_mean_and_totals_are_kept(fit):
    """Without noise the differences of the posterior mean are the observed derivatives, to the error of differences."""
    slopes = np.array([1.0, -2.0, 0.5])
    found = fit_of((Observed(Gradient(Z, [0]), slopes),))
    step = np.array([1e-5, 0.0])
    ends = [found.function()(Z + shift).squeeze() for shift in (step, -step)]
    np.testing.assert_allclose((ends[0] - ends[1]) / 2e-5, slopes, rtol=1e-7)
    kept = fit.of(Average(Z, WEIGHTS))
    np.testing.assert_allclose(kept.mean.squeeze(), [2.0, -1.0], atol=1e-10)
    np.testing.assert_allclose(kept.covariance.squeeze(), np.zeros((2, 2)), atol=1e-10)


@pytest.mark.nightly
def test_averages_over_bags_are_those_of_bagg_gp():
    """One of the bags enters as rows, the others as averages."""
    bags = Bags.create(np.concatenate([X, Z]), np.repeat([0, 1, 2, 3, 4], [1, 1, 3, 2, 2]))
    targets = RNG.normal(size=5)
    theirs = BaggGP(KERNEL, NOISE, MEAN, noise="per_bag")
    theirs = theirs.fit(jax.random.key(0), bags, targets, inference=MAP, num_prior_samples=0)
    weights = np.asarray(bags.spread(jnp.eye(5)).T)[2:]
    averages = Observed(Average(bags.points, weights), targets[2:], NOISE)
    ours = fit_of((averages,), x=bags.points[:2], y=targets[:2])
    mine, other = (each.predict(NEW, covariance=True) for each in (ours, theirs))
    for name in ("mean", "latent_covariance"):
        np.testing.assert_allclose(mine[name], other[name], atol=1e-10)
    evidences = [log_density(each.model.numpyro_model, (), each.data, {})[0] for each in (ours, theirs)]
    np.testing.assert_allclose(*evidences, rtol=1e-12)


@pytest.mark.nightly
def test_saved_explained_and_with_priors(fit, tmp_path):
    """A prior of a noise has a site; a saved fit predicts the same; what cannot be written or certified is refused."""
    observed = (dataclasses.replace(OBSERVED[0], noise_variance=dist.LogNormal(-3.0, 0.1)), OBSERVED[1])
    found = fit_of(observed, RBF(dist.LogNormal(0.0, 0.1), 1.7))
    assert set(found.draws) == {"kernel.lengthscale", "observed.0.noise_variance"}
    found.save(tmp_path / "fit.nc")
    loaded = kpp.Fit.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(loaded.predict(NEW)["mean"], found.predict(NEW)["mean"])
    explanation = kpp.explain(fit, NEW, background=Z)
    total = explanation.values.sum("feature") + explanation.base_values
    np.testing.assert_allclose(total, explanation.predictions.transpose(*total.dims), atol=1e-10)
    with pytest.raises(TypeError, match="a certificate needs a Gaussian process .* rows of a table alone"):
        kpp.certify(jax.random.key(0), fit, NEW)


class Doubled(AbstractFunctional):
    """Twice the value at a point, by somebody else."""

    point: jax.Array

    @property
    def num_values(self):
        return 1

    def apply(self, function):
        return 2 * function(self.point[None])


@pytest.mark.nightly
def test_other_functionals_and_means_and_kernels():
    """A functional without `adjoint` gives predictions and no function; means and kernels of finite rank are taken."""
    found = fit_of((Observed(Doubled(jnp.asarray(Z[0])), [1.0]),))
    np.testing.assert_allclose(found.predict(Z[:1])["mean"].squeeze(), 0.5, atol=1e-10)
    with pytest.raises(TypeError, match="Doubled has no `adjoint`.*`predict` gives its values"):
        found.function()
    with pytest.raises(TypeError, match="Doubled is not registered"):
        found.save("never.nc")
    difference = fit_of((Observed(Values(X[:2]) - Values(Z[:2]), [0.1, 0.2]),)).function()
    np.testing.assert_allclose((difference(X[:2]) - difference(Z[:2])).squeeze(), [0.1, 0.2], atol=1e-8)
    line = fit_of((Observed(Gradient(Z[:1]), [1.0, -2.0]),), Linear(1.0), mean=LinearMean([0.5, 0.5], 0.0))
    np.testing.assert_allclose(line.predict(NEW)["mean"].squeeze(), NEW @ [1.0, -2.0], atol=1e-8)


@pytest.mark.slow
def test_observed_expectations_are_kept_and_their_fit_is_a_function():
    embedding = ConditionalMeanEmbedding(
        kernel=RBF(1.1), input_kernel=RBF(0.6), inputs=Z[:, :1], points=Z, regularization=0.01
    )
    expectations = Embedded(embedding, np.array([[0.1], [0.5]]))
    found = fit_of((Observed(expectations, [1.0, -1.0]),))
    np.testing.assert_allclose(found.function()(NEW), found.predict(NEW)["mean"], atol=1e-12)
    np.testing.assert_allclose(found.of(expectations).mean.squeeze(), [1.0, -1.0], atol=1e-10)


@pytest.mark.nightly
def test_sections_of_derivatives_are_the_representer():
    functional = Combination((RNG.normal(size=(3, 6)) @ Gradient(Z), Values(Z)))
    coefficients = jnp.asarray(RNG.normal(size=(functional.num_values, 2)))
    function = functional.adjoint(KERNEL, coefficients)
    expected = functional.representer(KERNEL)(NEW) @ coefficients
    np.testing.assert_allclose(function(NEW), expected, atol=1e-12)
    check_functional(Values(NEW), kpp.RKHSFunction(function.kernel, function.points, function.coefficients[:, 0]))
    (term,) = function.kernel.product_terms()
    product = term.scale * np.prod(term.factors(NEW, function.points), axis=0)
    np.testing.assert_allclose(product, function.kernel(NEW, function.points), atol=1e-12)


BAD = {
    "other columns": (lambda: (Observed(Values(Z[:, :1]), np.zeros(3)),), ValueError, "`observed` .* with 2 columns"),
    "no such feature": (lambda: Gradient(Z, [2]), ValueError, r"`features` must hold positions from 0 to 1, got \[2\]"),
    "too few values": (lambda: Observed(Gradient(Z), np.zeros(3)), ValueError, r"`values` .* shape \(6,\), got .*3"),
    "NaN": (lambda: Observed(Values(Z), [0.0, np.nan, 1.0]), ValueError, "`values` must be finite, got 1 NaN"),
    "negative noise": (lambda: Observed(Values(Z), np.zeros(3), -1.0), ValueError, "`noise_variance` must be at least"),
    "no signs": (lambda: Observed(Values(Z), np.zeros(3), 1.0, True), ValueError, "`values` must hold signs, 1 or -1"),
    "exact signs": (
        lambda: Observed(Values(Z), np.ones(3), 0.0, True),
        ValueError,
        "`noise_variance` must be positive",
    ),
    "no functional": (lambda: Observed(Z, np.zeros(3)), TypeError, "functional"),
    "no observation": (lambda: Gradient(Z), TypeError, "observed"),
    "Shapley values": (
        lambda: Observed(ShapleyValues(Interventional(Z), Z[:1]), np.zeros(2)),
        TypeError,
        "`observed` must be functionals of values and derivatives, got ShapleyValues",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_observations_are_refused(case):
    make, error, message = BAD[case]
    with pytest.raises(error, match=message):
        GPRegression(KERNEL, NOISE, observed=make()).prepare(X, Y)


@pytest.mark.slow
def test_models_that_cannot_observe_functionals_refuse():
    with pytest.raises(ValueError, match="`observed` needs latent='exact', got latent='inducing'"):
        GPRegression(KERNEL, NOISE, latent="inducing", num_inducing=3, observed=OBSERVED)
    with pytest.raises(ValueError, match="`observed` needs latent='exact', got latent='iterative'"):
        GPRegression(KERNEL, NOISE, latent="iterative", observed=OBSERVED)
    with pytest.raises(TypeError, match="unexpected keyword argument 'observed'"):
        GPClassification(KERNEL, observed=OBSERVED)
    with pytest.raises(ValueError, match="a derivative needs a kernel .* got Matern12 with a kink"):
        GPRegression(Matern12(dist.LogNormal(0.0, 1.0)), NOISE, observed=OBSERVED).prepare(X, Y)


def monotone(x):
    return np.log(20 * x + 1) / 3


@pytest.mark.nightly
def test_positive_derivatives_make_draws_increase_and_errors_smaller():
    """15 rows of a monotone truth, noise .3, 10 data sets: the free process errs more; no draw falls by 1 %."""
    grid, at = np.linspace(0, 1, 20)[:, None], np.linspace(0, 1, 101)[:, None]
    signs = Observed(Gradient(grid, [0]), np.ones(20), 0.01, only_signs=True)
    errors, falls = [], []
    nuts = kpp.NUTS(num_warmup=100, num_samples=100, num_chains=1, target_accept=0.9, progress=False)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x = rng.uniform(size=(15, 1))
        y = monotone(x[:, 0]) + 0.3 * rng.normal(size=15)
        for observed, inference in (((), kpp.Laplace(num_samples=100, progress=False)), ((signs,), nuts)):
            priors = {"mean": dist.Normal(0.5, 1.0), "noise_variance": dist.LogNormal(-2.5, 1.0)}
            model = GPRegression(RBF(dist.LogNormal(-1.0, 0.7), dist.LogNormal(0.0, 1.0)), observed=observed, **priors)
            found = model.fit(jax.random.key(seed), x, y, inference=inference, num_prior_samples=0)
            predicted = found.predict(at)["mean"].mean(["chain", "draw"]).values
            errors.append(np.sqrt(np.mean((predicted - monotone(at[:, 0])) ** 2)))
        draws = found.of(Values(at)).sample(jax.random.key(seed)).reshape(-1, 101)
        falls.append((np.maximum.accumulate(draws, axis=1) - draws).max(axis=1))
    free, increasing = np.reshape(errors, (10, 2)).T
    print(f"errors {free.mean():.3f}, {increasing.mean():.3f}; largest fall {np.max(falls):.4f}")
    assert increasing.mean() < free.mean()
    assert np.mean(np.concatenate(falls) > 0.01) <= 0.01
