"""HilbertSpace: it is the kernel within its published accuracy, with the peer's functions, and says where it is not."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.hsgp.approximation import hsgp_matern, hsgp_squared_exponential
from scipy.special import ive

import kpp
from kpp.features import HilbertSpace
from kpp.kernels import RBF, AbstractKernel, Linear, Matern, Matern12, Matern32, Matern52, Periodic
from kpp_models import GPRegression

RNG = np.random.default_rng(2)
X = {d: RNG.uniform(-1.0, 1.0, size=(30, d)) * [1.0, 3.0, 0.5][:d] + [0.0, 5.0, -1.0][:d] for d in (1, 2, 3)}
SCALES = np.array([0.5, 2.0, 0.4])
MATERN = {Matern12: 0.5, Matern32: 1.5, Matern52: 2.5}


@eqx.filter_jit
def grams(approximate, kernel, x):
    return approximate.gram(x), kernel.gram(x)


@eqx.filter_jit
def gram(kernel, x):
    return kernel.gram(x)


@eqx.filter_jit
def features(kernel, x):
    return kernel.feature_map(x)


@pytest.mark.slow_variants("RBF-3", "Matern52-1", "Matern52-2", "Matern52-3", "Matern32-1", "Matern32-3")
@pytest.mark.parametrize("d", X)
@pytest.mark.parametrize("base", [RBF, Matern52, Matern32])
def test_it_is_the_kernel_for_lengthscales_of_its_range(base, d):
    kernel = base(SCALES[:d], 1.7)
    approximate = HilbertSpace.over(X[d], kernel, (SCALES[:d], SCALES[:d]))
    # The rule promises a total variation distance of the covariance functions below 1 %, for one feature (section 4.4);
    # errors of several features add up.
    np.testing.assert_allclose(*grams(approximate, kernel, X[d]), atol=0.03 * d * 1.7)


@pytest.mark.parametrize("base", [RBF, Matern12, Matern32, Matern52])
def test_more_functions_and_a_wider_box_give_the_kernel(base):
    kernel, x = base(0.6, 1.3), X[1]
    approximate = HilbertSpace(kernel, 4000, 8.0)
    # A Matern12 kernel lacks the tail of its density beyond the last frequency w = 4000 pi / 16, at most 2 / (pi w l).
    tolerance = 4e-3 if base is Matern12 else 1e-5
    np.testing.assert_allclose(*grams(approximate, kernel, x), atol=tolerance)


@pytest.mark.slow_variants("Matern32", "Matern52", "RBF")
@pytest.mark.parametrize("base", [RBF, *MATERN])
def test_functions_and_variances_are_those_of_numpyro(base):
    x, boundary, num_basis = X[2] - [0.0, 5.0], [1.5, 4.0], [5, 7]
    kernel = HilbertSpace(base(0.8, 1.3), num_basis, boundary)

    @jax.jit
    def peer():
        if base is RBF:
            return hsgp_squared_exponential(x, 1.3, 0.8, boundary, num_basis, non_centered=True)
        return hsgp_matern(x, MATERN[base], 1.3, 0.8, boundary, num_basis, non_centered=True)

    weights = RNG.normal(size=35)
    with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.substitute(data={"beta": jnp.asarray(weights)}):
        expected = peer()
    np.testing.assert_allclose(features(kernel, x) @ weights, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_any_smoothness_is_that_of_the_closed_form():
    general, closed = (HilbertSpace(base, 9, 4.0) for base in (Matern(0.8, variance=1.3, nu=1.5), Matern32(0.8, 1.3)))
    np.testing.assert_allclose(features(general, X[1]), features(closed, X[1]), rtol=1e-12)


@pytest.mark.slow
def test_a_lengthscale_for_each_feature_is_a_change_of_units():
    x = X[3] - [0.0, 5.0, -1.0]
    ours = HilbertSpace(Matern32(SCALES, 1.3), 4, 3.5 * np.ones(3))
    expected = HilbertSpace(Matern32(1.0, 1.3), 4, 3.5 / SCALES)
    np.testing.assert_allclose(gram(ours, x), gram(expected, x / SCALES), rtol=1e-10)


@pytest.mark.slow_variants("0.3-40", "5.0-6", "1.0-12")
@pytest.mark.parametrize(("lengthscale", "num_basis"), [(1.0, 12), (0.3, 40), (5.0, 6)])
def test_periodic_has_the_coefficients_of_bessel_functions(lengthscale, num_basis):
    kernel = Periodic(lengthscale, variance=1.4, period=0.7)
    approximate, x = HilbertSpace(kernel, num_basis), X[1]
    np.testing.assert_allclose(*grams(approximate, kernel, x), atol=1e-8)
    order = np.arange(num_basis)
    coefficients = 1.4 * np.where(order > 0, 2.0, 1.0) * ive(order, lengthscale**-2)
    squares = np.square(np.asarray(features(approximate, np.zeros((1, 1))))[0, :num_basis])
    np.testing.assert_allclose(squares, coefficients, atol=1e-14)


@pytest.mark.slow
def test_periodic_multiplies_features():
    kernel = Periodic(np.array([1.0, 2.0]), variance=1.4, period=np.array([0.7, 3.0]))
    np.testing.assert_allclose(*grams(HilbertSpace(kernel, (14, 10)), kernel, X[2]), atol=1e-8)


KERNELS = {
    "rbf": lambda scale: HilbertSpace(RBF(scale, 1.3), 12, 2.0),
    "matern": lambda scale: HilbertSpace(Matern32(scale, 1.3), 12, 2.0),
    "periodic": lambda scale: HilbertSpace(Periodic(scale, variance=1.3, period=0.9), 9),
}


@pytest.mark.slow_variants("periodic", "rbf", "matern")
@pytest.mark.parametrize("case", KERNELS)
def test_derivatives_are_differences(case):
    @jax.jit
    def value(scale):
        return jnp.sum(jnp.sin(jnp.arange(30.0))[None] @ KERNELS[case](scale).gram(X[1]))

    step = 1e-5
    found = jax.jit(jax.grad(value))(0.7)
    np.testing.assert_allclose(found, (value(0.7 + step) - value(0.7 - step)) / (2 * step), rtol=1e-7, atol=1e-8)


def test_range_of_lengthscales_is_that_for_which_it_was_chosen():
    shortest, longest = np.array([0.3, 1.0]), np.array([1.5, 4.0])
    for kernel in (RBF(1.0), Matern32(1.0), Matern52(1.0), Periodic(1.0)):
        approximate = HilbertSpace.over(X[2], kernel, (shortest, longest))
        low, high = approximate.lengthscale_range(X[2])
        assert np.all(low <= shortest)
        assert np.all(high >= longest * (1 - 1e-12))
    narrow = HilbertSpace(RBF(1.0), 10, [1.01, 9.9])
    np.testing.assert_array_equal(narrow.lengthscale_range(X[2])[1] > 0, [False, True])


@pytest.mark.nightly
def test_a_fit_equals_that_of_the_kernel_and_is_saved(tmp_path):
    x = np.sort(RNG.uniform(-1.0, 1.0, size=(60, 1)), axis=0)
    y = np.sin(4 * x[:, 0]) + 0.1 * RNG.normal(size=60)
    prior = dist.LogNormal(-0.5, 0.3)
    new = np.linspace(-1, 1, 9)[:, None]

    def fitted(kernel: AbstractKernel) -> kpp.Fit:
        model, inference = GPRegression(kernel, dist.HalfNormal(0.5)), kpp.MAP(progress=False)
        return model.fit(jax.random.key(0), x, y, inference=inference, num_prior_samples=0)

    exact = fitted(RBF(prior))
    approximate = fitted(HilbertSpace.over(x, RBF(prior), (0.25, 1.5)))
    found = np.asarray(approximate.draws["kernel.kernel.lengthscale"])
    low, high = approximate.model.kernel.lengthscale_range(x)
    assert np.all((low < found) & (found < high))
    # The kernels differ by at most 1 %, and the predictions of 60 points by a small part of the noise.
    np.testing.assert_allclose(
        approximate.predict(new)["mean"].mean(("chain", "draw")),
        exact.predict(new)["mean"].mean(("chain", "draw")),
        atol=0.02,
    )
    approximate.save(tmp_path / "fit.nc")
    np.testing.assert_array_equal(
        kpp.Fit.load(tmp_path / "fit.nc").predict(new)["mean"], approximate.predict(new)["mean"]
    )
    with pytest.raises(ValueError, match=r"1 of 1 points are outside of the box of HilbertSpace.*`HilbertSpace.over`"):
        approximate.predict(np.array([[9.0]]))


WITH_RBF = functools.partial(HilbertSpace, RBF(1.0))
BAD = {
    "another kernel": (lambda: HilbertSpace(Linear(1.0), 4, 1.0), TypeError, "`kernel` must be RBF.*got Linear"),
    "no box": (lambda: WITH_RBF(4), ValueError, "`boundary`.*RBF needs one"),
    "a box for a periodic kernel": (lambda: HilbertSpace(Periodic(1.0), 4, 1.0), ValueError, "Periodic needs no box"),
    "a negative box": (lambda: WITH_RBF(4, -1.0), ValueError, "`boundary`.*positive|greater than 0"),
    "a matrix": (
        lambda: WITH_RBF(4, np.ones((2, 2))),
        ValueError,
        r"`boundary`.*\(d,\), got shape \(2, 2\)",
    ),
    "no function": (lambda: WITH_RBF(0, 1.0), ValueError, "`num_basis` must be at least 1, got 0"),
    "too many": (lambda: WITH_RBF((99, 99, 99), 1.0), ValueError, "`num_basis`.*at most 100000"),
    "two variances": (
        lambda: HilbertSpace(RBF(1.0, np.ones(2)), 4, 3.0)(np.ones((2, 2)), np.ones((2, 2))),
        ValueError,
        r"`variance` must be one number, got shape \(2,\)",
    ),
    "two variances of a periodic kernel": (
        lambda: HilbertSpace(Periodic(1.0, variance=np.ones(2)), 4).feature_map(np.ones((2, 2))),
        ValueError,
        r"`variance` must be one number, got shape \(2,\)",
    ),
    "three lengthscales for two features": (
        lambda: HilbertSpace(Matern32(np.ones(3)), 4, 3.0).feature_map(np.ones((2, 2))),
        ValueError,
        r"`lengthscale`.*\(3,\)",
    ),
    "three periods for two features": (
        lambda: HilbertSpace(Periodic(1.0, period=np.ones(3)), 4).feature_map(np.ones((2, 2))),
        ValueError,
        r"`period`.*\(3,\)",
    ),
    "four features": (
        lambda: WITH_RBF(3, 9.0)(np.ones((2, 4)), np.ones((2, 4))),
        ValueError,
        "at most 3",
    ),
    "numbers for two features": (
        lambda: WITH_RBF((3, 4), 9.0).gram(X[1]),
        ValueError,
        "are for 2 features",
    ),
    "no rule": (lambda: HilbertSpace.over(X[1], Matern12(1.0), (1.0, 2.0)), TypeError, "no rule for.*Matern12"),
    "descending": (
        lambda: HilbertSpace.over(X[1], RBF(1.0), (2.0, 1.0)),
        ValueError,
        "`lengthscales` must be.*ascending",
    ),
    "points outside": (lambda: WITH_RBF(4, 0.1).gram(X[1]), ValueError, "outside of the box"),
    "rows outside": (
        lambda: GPRegression(WITH_RBF(4, 0.5), 0.1).fit(jax.random.key(0), X[1], X[1][:, 0]),
        ValueError,
        "outside of the box",
    ),
    "rows outside of a factor": (
        lambda: GPRegression((RBF(1.0) * WITH_RBF(4, 0.5)).on([0]), 0.1).prepare(X[2], X[2][:, 0]),
        ValueError,
        "outside of the box|`kernel` is not defined",
    ),
    "rows outside of a part": (
        lambda: GPRegression(WITH_RBF(4, 0.5).on([0]) + 1.0, 0.1).prepare(X[2], X[2][:, 0]),
        ValueError,
        "outside of the box",
    ),
}


@pytest.mark.slow_variants("two variances", "three lengthscales for two features", "two variances of a periodic kernel")
@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call()
