"""The baselines of aggregate models against dense formulas, and where they coincide with each other and with CMP."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpyro.infer.util import log_density
from scipy import stats

import kpp
from kpp import Bags
from kpp.kernels import RBF
from kpp_models import CMP, BaggGP, CentroidGP, GPRegression, VBagg, mediate
from kpp_models.aggregates.operators.conditional_mean import Places
from oracles.kernels import rbf

NOISE, MEAN = 0.3, 0.7
KERNEL = RBF(jnp.array([0.8, 1.5]), 1.7)
MAP = kpp.MAP(num_restarts=0, progress=False)


@pytest.fixture(scope="module")
def bags():
    """Six bags of 1 to 4 points, given in no order, whose covariates are not sorted either."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(6), [1, 4, 2, 3, 2, 2]))
    return Bags.create(rng.normal(size=(14, 2)), labels, np.array([0.5, -1.0, 2.0, 0.1, -0.3, 1.1])[:, None])


@pytest.fixture(scope="module")
def targets():
    return np.random.default_rng(1).normal(size=6)


@pytest.fixture(scope="module")
def x_test():
    return jnp.asarray(np.random.default_rng(2).normal(size=(14, 2)))


@pytest.fixture(scope="module")
def dense(bags, targets, x_test):
    """Condition f on the bags by NumPy, with the matrix that averages: mean, covariance, log evidence."""

    def condition(noise, points=None, average=None):
        points = np.asarray(bags.points) if points is None else points
        if average is None:
            average = (np.arange(6)[:, None] == np.asarray(bags.index)) / np.asarray(bags.sizes)[:, None]
        kernel = lambda a, b: rbf(a, b, np.asarray(KERNEL.lengthscale), 1.7)  # noqa: E731
        total = average @ kernel(points, points) @ average.T + np.diag(noise)
        cross = kernel(np.asarray(x_test), points) @ average.T
        gain = np.linalg.solve(total, cross.T).T
        mean = MEAN + gain @ (targets - MEAN)
        covariance = kernel(np.asarray(x_test), np.asarray(x_test)) - gain @ cross.T
        return mean, covariance, stats.multivariate_normal(np.full(6, MEAN), total).logpdf(targets)

    return condition


def moments(model, x, y, x_test, **options):
    """Return mean, covariance and log evidence (or bound) of a model without priors."""
    model, data, _ = model.prepare(x, y, **options)

    def run(data, x_test):
        found = model.predictive({}, data, x_test, covariance=True)
        evidence = log_density(model.numpyro_model, (), data, {})[0]
        return found["mean"], found["latent_covariance"], evidence

    return jax.jit(run)(data, x_test)


@pytest.fixture(scope="module")
def exact(bags, targets, x_test):
    """The moments of BaggGP, a function of the kind of noise."""
    return functools.cache(lambda noise: moments(BaggGP(KERNEL, NOISE, MEAN, noise=noise), bags, targets, x_test))


def assert_same(found, expected, tolerance):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.slow_variants("per_point")
@pytest.mark.parametrize("noise", ["per_point", pytest.param("per_bag", marks=pytest.mark.slow)])
def test_bagg_gp_is_dense_conditioning(noise, bags, exact, dense):
    """Per point, the noise of a bag's mean is that of one point divided by the bag's size; rounding only differs."""
    sizes = np.asarray(bags.sizes) if noise == "per_point" else np.ones(6)
    assert_same(exact(noise), dense(NOISE / sizes), 1e-10)


@pytest.mark.slow
def test_noise_on_the_field_is_noise_per_point(bags, targets, x_test, exact):
    """Where no point is in two bags, white noise on f is the noise that is divided by the sizes."""
    on_field = BaggGP(KERNEL, 0.0, MEAN, high_resolution_variance=NOISE)
    assert_same(moments(on_field, bags, targets, x_test), exact("per_point"), 1e-10)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (BaggGP(KERNEL, NOISE, high_resolution_variance=0.2), NOISE + 0.2),
        (BaggGP(KERNEL, NOISE, high_resolution_variance=0.2, noise="per_bag"), 0.2),
        (BaggGP(KERNEL, NOISE, high_resolution_variance=0.2, likelihood="poisson"), 0.2),
        (CMP(KERNEL, RBF(1.0), NOISE, 0.1, high_resolution_variance=0.2), 0.2),
    ],
)
def test_the_noise_of_a_place(model, expected):
    """By hand: noise per point belongs to each place; noise per bag, and a scale that counts ignore, do not."""
    np.testing.assert_allclose(model.place_variance, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(BaggGP(KERNEL, NOISE, MEAN), id="BaggGP", marks=pytest.mark.slow),
        pytest.param(CMP(KERNEL, RBF(1e-3), NOISE, 1e-10, MEAN), id="CMP", marks=pytest.mark.slow),
    ],
)
def test_single_points_are_gp_regression(model, bags, targets, x_test):
    """With bags of one point BaggGP is GP regression, and so is CMP once bags are unlike and unregularized.

    The bag kernel is 1 at equal covariates and exp(-5000) at the others, and the regularization 6e-10 perturbs the
    weights by as much.
    """
    points = bags.centroids()
    expected = moments(GPRegression(KERNEL, NOISE, MEAN), points, targets, x_test)
    single = Bags.of_single_points(points, bags.covariates)
    assert_same(moments(model, single, targets, x_test), expected, 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["exact", "shrinkage"])
def test_cmp_with_unlike_bags_is_bagg_gp(estimator, bags, targets, x_test, exact):
    """The limit of a bag kernel that is a delta: 14e-10 of regularization is all that is left."""
    found = moments(CMP(KERNEL, RBF(1e-3), NOISE, 1e-10, MEAN, estimator=estimator), bags, targets, x_test)
    assert_same(found, exact("per_bag"), 1e-7)


@pytest.mark.slow
def test_vbagg_with_all_points_is_bagg_gp(bags, targets, x_test, exact):
    """The bound is the evidence; the nugget of 1e-10 on the inducing points is divided by the noise."""
    found = moments(VBagg(KERNEL, NOISE, MEAN, inducing_points=bags.points), bags, targets, x_test)
    assert_same(found, exact("per_point"), 1e-7)


@pytest.mark.slow
def test_vbagg_bounds_the_evidence_from_below(bags, targets, x_test, exact):
    bound = moments(VBagg(KERNEL, NOISE, MEAN, num_inducing=4), bags, targets, x_test)[2]
    assert exact("per_point")[2] - 20 < bound < exact("per_point")[2] - 1e-6


@pytest.mark.slow_variants("False")
@pytest.mark.parametrize("variational", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_centroid_gp_is_regression_on_centroids(variational, bags, targets, x_test, dense):
    """So is the variational one with all centroids for inducing points, but for their nugget."""
    expected = dense(np.full(6, NOISE), np.asarray(bags.centroids()), np.eye(6))
    model = CentroidGP(KERNEL, NOISE, MEAN, inducing_points=bags.centroids() if variational else None)
    assert_same(moments(model, bags, targets, x_test), expected, 1e-7 if variational else 1e-10)


@pytest.mark.slow
def test_mediation_is_regression_on_covariates_in_the_order_of_the_bags(bags):
    """Taking the bags in another order takes the pseudo-targets along; covariates are found by their names."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(rng.normal(size=(9, 2)), columns=["height", "year"])
    places = pd.DataFrame(rng.normal(size=(6, 2)), columns=frame.columns)
    named, y = Bags.create(bags.points, np.asarray(bags.index), places), rng.normal(size=9)
    on_height = RBF(0.9).on(("height",))
    found = mediate(jax.random.key(0), named, frame[["year", "height"]], y, on_height, NOISE, MAP, mean=MEAN)
    heights, known = places[["height"]].to_numpy(), frame[["height"]].to_numpy()
    weights = np.linalg.solve(rbf(known, known, 0.9) + NOISE * np.eye(9), y - MEAN)
    np.testing.assert_allclose(found, MEAN + rbf(heights, known, 0.9) @ weights, rtol=1e-10)
    order = np.array([3, 0, 5, 1, 4, 2])
    again = mediate(jax.random.key(0), named.take(order), frame, y, on_height, NOISE, MAP, mean=MEAN)
    np.testing.assert_allclose(again, found[order], rtol=1e-10)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: BaggGP(KERNEL, NOISE, noise="per_pixel"), r"`noise` must be one of \('per_point', 'per_bag'\)"),
        (lambda: BaggGP(KERNEL, -1.0), "`noise_variance` must be at least 0"),
        (lambda: VBagg(KERNEL, NOISE), "`num_inducing` or `inducing_points` must be given"),
        (lambda: VBagg(KERNEL, NOISE, num_inducing=3, minibatch=0), "`minibatch` must be at least 1"),
        (lambda: CentroidGP(KERNEL, NOISE, likelihood="gamma"), "`likelihood`"),
    ],
)
def test_bad_fields_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_bad_data_are_refused(bags, targets):
    with pytest.raises(ValueError, match="`x` and `y` must have the same number of rows, got 6 and 5"):
        BaggGP(KERNEL, NOISE).prepare(bags, targets[:5])
    unknown = Bags(bags.points, bags.index, bags.sizes)
    with pytest.raises(ValueError, match="`bags` must have covariates"):
        mediate(jax.random.key(0), unknown, np.zeros((2, 1)), np.zeros(2), RBF(1.0), NOISE)


def test_other_aggregates_are_a_type_error(bags, targets):
    model, data, _ = CentroidGP(KERNEL, NOISE).prepare(bags, targets)
    with pytest.raises(TypeError, match="CentroidGP has no aggregates other than its bags"):
        model.operator(data, Places(jnp.zeros((1, 1)), jnp.zeros(1, int)))
