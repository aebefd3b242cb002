"""Linear functionals: their laws, each class against dense NumPy algebra, and the law of their numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import kpp
from kpp.embeddings import AbstractEmbedding, ConditionalMeanEmbedding, Embedded
from kpp.functionals import AbstractFunctional, Average, Combination, FunctionalLaw, Gradient, Values
from kpp.functionals.toolkit import PartialDependence
from kpp.kernels import RBF, AbstractKernel, Matern12
from kpp.testing import check_functional

RNG = np.random.default_rng(0)
POINTS, A, Z = RNG.normal(size=(6, 2)), RNG.normal(size=(3, 2)), RNG.normal(size=(4, 2))
WEIGHTS = RNG.normal(size=(2, 3))
KERNEL, NOISE = RBF(0.9, 1.7), 0.1


class Landmarks(AbstractEmbedding):
    kernel: RBF
    points: jax.Array

    def weights(self, query=None):
        return jnp.array([[0.2], [0.5], [-0.1], [0.3]])


CONDITIONAL = ConditionalMeanEmbedding(
    kernel=RBF(1.1), input_kernel=RBF(0.6), inputs=Z[:, :1], points=Z, regularization=0.01
)
FUNCTIONALS = {
    "values": Values(A),
    "average": Average(A, WEIGHTS),
    "mean": Average(A),
    "partial dependence": PartialDependence(A, 0, [0.3, -1.0]),
    "weighted partial dependence of both columns": PartialDependence(A, [1, 0], A[:2, ::-1], WEIGHTS[0]),
    "gradient": Gradient(A),
    "one derivative": Gradient(A, [1]),
    "conditional expectations": Embedded(CONDITIONAL, jnp.array([[0.1], [0.5]])),
    "landmarks": Embedded(Landmarks(KERNEL, jnp.asarray(Z))),
    "difference": Average(A, WEIGHTS) - Values(A[:2]),
    "sum": Gradient(A, [0]) + Values(A),
    "contrast": np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -2.0]]) @ Values(A),
    "stack": Combination((Values(A), Gradient(A[:1]))),
}


class Square(AbstractKernel):
    """(1 + x'z)^2, the inner product of six features."""

    def evaluate(self, x1, x2):
        return (1.0 + x1 @ x2) ** 2


def square_features(x):
    both = jnp.sqrt(2.0) * x
    return jnp.stack([jnp.ones(len(x)), *both.T, *(x**2).T, both[:, 0] * x[:, 1]], axis=1)


def sections(points):
    """The sections of the kernel at points, as the outputs of one function."""
    return kpp.RKHSFunction(KERNEL, points, jnp.eye(len(points)))


@pytest.fixture(scope="module")
def posterior():
    root = jnp.linalg.cholesky(jnp.linalg.inv(KERNEL.gram(POINTS) + NOISE * jnp.eye(6)))
    return kpp.GPPosterior(kpp.RKHSFunction(KERNEL, POINTS, jnp.arange(6.0), 0.3), root)


@pytest.mark.slow_variants(
    "conditional expectations",
    "partial dependence",
    "sum",
    "gradient",
    "weighted partial dependence of both columns",
    "average",
    "difference",
    "landmarks",
    "mean",
    "values",
)
@pytest.mark.nightly_variants("stack", "one derivative")
@pytest.mark.parametrize("name", FUNCTIONALS)
def test_the_laws_of_functionals(name, posterior):
    check_functional(FUNCTIONALS[name], posterior.mean)


@pytest.mark.slow_variants("conditional expectations")
@pytest.mark.parametrize("name", ["conditional expectations", "landmarks"])
def test_the_adjoint_of_an_embedding_is_its_representer_times_coefficients(name):
    """1e-12: the same sums in another order."""
    functional = FUNCTIONALS[name]
    coefficients = jnp.asarray(RNG.normal(size=(functional.num_values, 2)))
    expected = functional.representer(KERNEL)(A) @ coefficients
    np.testing.assert_allclose(functional.adjoint(KERNEL, coefficients)(A), expected, atol=1e-12)


def test_a_wrong_functional_is_found(posterior):
    """One that is not linear, and whose representer is that of other points."""

    class Squares(AbstractFunctional):
        points: jax.Array

        @property
        def num_values(self):
            return 3

        def apply(self, function):
            return function(self.points) ** 2

        def representer(self, kernel):
            return kpp.RKHSFunction(kernel, self.points + 1.0, jnp.eye(3))

    with pytest.raises(AssertionError, match=r"numbers of a sum(.|\n)*the representer and numbers of sections"):
        check_functional(Squares(jnp.asarray(A)), posterior.mean)


@pytest.mark.slow_variants(
    "stack",
    "one derivative",
    "gradient",
    "partial dependence",
    "sum",
    "weighted partial dependence of both columns",
    "difference",
)
@pytest.mark.parametrize("name", [name for name in FUNCTIONALS if name != "landmarks"])
def test_the_prior_covariance_is_that_of_the_features_of_a_kernel(name):
    """L k L' = (L phi)(L phi)' for a kernel of six features; embeddings of landmarks take no function but an RKHS's."""
    of_features = np.asarray(FUNCTIONALS[name].of(square_features))
    covariance = FUNCTIONALS[name].prior_covariance(Square())
    np.testing.assert_allclose(covariance, of_features @ of_features.T, rtol=1e-11, atol=1e-11)


@pytest.mark.nightly
def test_covariances_do_not_depend_on_the_order_of_the_functionals():
    """Rows of one class and columns of another are computed by the first or the second of them."""
    classes = [FUNCTIONALS[name] for name in ("average", "partial dependence", "gradient", "landmarks", "contrast")]
    covariance = np.asarray(Combination(tuple(classes)).prior_covariance(KERNEL))
    np.testing.assert_allclose(covariance, covariance.T, atol=1e-12)
    assert np.linalg.eigvalsh(covariance).min() > -1e-10
    start = 0
    for part in classes:
        stop = start + part.num_values
        np.testing.assert_allclose(covariance[start:stop, start:stop], part.prior_covariance(KERNEL), atol=1e-12)
        start = stop


@pytest.mark.slow
def test_the_posterior_is_that_of_a_joint_gaussian(posterior):
    """Conditioning the joint prior of the data and the numbers, by an ordinary solve."""
    stack = FUNCTIONALS["stack"]
    cross = np.asarray(stack.of(sections(POINTS)))
    gram = np.asarray(KERNEL.gram(POINTS)) + NOISE * np.eye(6)
    law = posterior.of(stack)
    expected = stack.prior_covariance(KERNEL) - cross @ np.linalg.solve(gram, cross.T)
    np.testing.assert_allclose(law.covariance, expected, atol=1e-11)
    np.testing.assert_allclose(law.mean, stack.of(posterior.mean), atol=1e-12)


@pytest.mark.slow
def test_derivatives_and_averages_by_hand(posterior):
    step = 1e-5
    ends = [posterior.mean(A + np.array(shift) * step) for shift in ([1, 0], [-1, 0], [0, 1], [0, -1])]
    slopes = np.stack([ends[0] - ends[1], ends[2] - ends[3]], axis=1) / (2 * step)
    np.testing.assert_allclose(Gradient(A).of(posterior.mean), slopes.ravel(), rtol=1e-7)
    np.testing.assert_allclose(Gradient(A, [1]).of(lambda x: x[:, 0] * x[:, 1]), A[:, 0], rtol=1e-12)
    np.testing.assert_allclose(Average(A, WEIGHTS).of(posterior.mean), WEIGHTS @ posterior.mean(A), rtol=1e-12)
    np.testing.assert_allclose(Average(A).of(lambda x: x), A.mean(axis=0)[None], rtol=1e-12)


@pytest.mark.slow
def test_draws_have_laws_of_their_own(posterior):
    """Two draws of a lengthscale; the first of them is alone in the other tests."""
    each = [posterior, kpp.GPPosterior(kpp.RKHSFunction(RBF(1.4, 1.7), POINTS, jnp.ones(6)), 0.1 * jnp.eye(6))]
    mean, root = jax.tree.map(lambda *leaves: jnp.stack(leaves)[None], *[(draw.mean, draw.root) for draw in each])
    mean = kpp.RKHSFunction(mean.kernel, POINTS, mean.coefficients, mean.intercept, (1, 2))
    stack = FUNCTIONALS["stack"]
    law, alone = kpp.GPPosterior(mean, root).of(stack), posterior.of(stack)
    np.testing.assert_allclose(law.mean[0, 0], alone.mean, atol=1e-11)
    np.testing.assert_allclose(law.covariance[0, 0], alone.covariance, atol=1e-11)
    reduced = 0.1 * np.asarray(stack.of(kpp.RKHSFunction(RBF(1.4, 1.7), POINTS, jnp.eye(6))))
    np.testing.assert_allclose(
        law.covariance[0, 1], stack.prior_covariance(RBF(1.4, 1.7)) - reduced @ reduced.T, atol=1e-11
    )


def test_a_mixture_has_the_quantiles_of_its_distribution():
    """Of one Gaussian those of SciPy; of two, the distribution function at the bounds is their level."""
    one = FunctionalLaw(jnp.array([1.0, -2.0]), jnp.diag(jnp.array([4.0, 0.0])))
    np.testing.assert_allclose(one.interval(0.9), [[norm.ppf(0.05, 1, 2), -2], [norm.ppf(0.95, 1, 2), -2]], atol=1e-12)
    np.testing.assert_allclose(one.probability_greater([2.0, -2.0]), [norm.sf(0.5), 0.0], atol=1e-15)
    means, sds = jnp.array([0.0, 3.0]), jnp.array([1.0, 0.5])
    two = FunctionalLaw(means[None, :, None], (sds**2)[None, :, None, None])
    low, high = two.interval(0.8)[:, 0]
    np.testing.assert_allclose(norm.cdf([[low], [high]], means, sds).mean(axis=1), [0.1, 0.9], atol=1e-12)
    assert two.to_dataset(jax.random.key(0))["draws"].dims == ("chain", "draw", "functional")


def test_a_band_holds_all_numbers_at_once():
    """Of q independent numbers the half width is the quantile with level p^(1/q): .01 is 4 errors of 40,000 samples."""
    law = FunctionalLaw(jnp.zeros(5), 4.0 * jnp.eye(5))
    half = law.band(jax.random.key(0), 0.9, num_samples=40_000)[1]
    np.testing.assert_allclose(norm.cdf(half / 2) - norm.sf(half / 2), 0.9 ** (1 / 5), atol=0.01)
    np.testing.assert_allclose(FunctionalLaw(jnp.ones(2), jnp.zeros((2, 2))).band(jax.random.key(0)), np.ones((2, 2)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Average(A, np.ones(4)), r"`weights` must have shape \(3,\) or \(q, 3\), got shape \(1, 4\)"),
        (lambda: Gradient(A, [2]), r"`features` must hold positions from 0 to 1, got \[2\]"),
        (lambda: Values(A) - Values(A[:2]), "`other` must have as many numbers as the functional, 3, got 2"),
        (lambda: np.ones((1, 2)) @ Values(A), r"`matrix` must have shape \(r, 3\), got shape \(1, 2\)"),
        (lambda: Values(np.array([[np.nan]])), "`points` must be finite"),
        (lambda: Gradient(A).check_space(kpp.RKHSFunction(Matern12(), POINTS, jnp.ones(6))), "Matern12 with a kink"),
    ],
)
def test_refuses(make, message):
    with pytest.raises(ValueError, match=message):
        make()
