"""Bad parameters and bad points get an error that names them, says what came and what is needed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.kernels import (
    RBF,
    AbstractKernel,
    Categorical,
    Constant,
    Linear,
    Matern12,
    Matern52,
    Periodic,
    Polynomial,
    ProductKernel,
    RationalQuadratic,
)
from kpp.kernels.checks import check_matrices, check_points

PARAMETERS = [
    (lambda: RBF(0.0), ValueError, r"`lengthscale` must be positive, got 0.0"),
    (lambda: RBF([1.0, -1.0]), ValueError, r"`lengthscale` must be positive, got \[ 1., -1.\]"),
    (lambda: Matern12(np.nan), ValueError, r"`lengthscale` must be positive, got nan"),
    (lambda: Matern52(variance=-1), ValueError, r"`variance` must be at least 0, got -1.0"),
    (lambda: RationalQuadratic(alpha=0.0), ValueError, r"`alpha` must be positive"),
    (lambda: Periodic(period=0.0), ValueError, r"`period` must be positive"),
    (lambda: Periodic(lengthscale=-1.0), ValueError, r"`lengthscale` must be positive"),
    (lambda: Linear(-0.5), ValueError, r"`variance` must be at least 0"),
    (lambda: Constant(-0.5), ValueError, r"`variance` must be at least 0"),
    (lambda: Categorical(1.5), ValueError, r"`correlation` must be between 0 and 1, got 1.5"),
    (lambda: Categorical(jnp.array([0.5, -0.1])), ValueError, r"`correlation` must be between 0 and 1"),
    (lambda: Polynomial(0), ValueError, r"`degree` must be at least 1, got 0"),
    (lambda: Polynomial(2.0), ValueError, r"`degree` must be an integer of at least 1, got 2.0"),
    (lambda: Polynomial(2, offset=-1.0), ValueError, r"`offset` must be at least 0"),
    (lambda: RBF("a"), TypeError, r"`lengthscale` must be a real number.*got str 'a'"),
    (lambda: RBF(None), TypeError, r"`lengthscale` must be a real number.*got NoneType"),
    (lambda: RBF(True), TypeError, r"`lengthscale` must be a real number.*got bool"),
    (lambda: RBF([[1.0], [1.0, 2.0]]), TypeError, r"`lengthscale` must be a real number.*got list"),
    (lambda: RBF(jnp.array([True])), TypeError, r"`lengthscale` must be a real number"),
]


@pytest.mark.parametrize(("build", "error", "message"), PARAMETERS)
def test_bad_parameters(build, error, message):
    with pytest.raises(error, match=message):
        build()


THREE = jnp.ones((4, 3))
SEVERAL = {
    "rbf": RBF(),
    "periodic": Periodic(),
    "linear": Linear(),
    "categorical": Categorical(),
    "sum": RBF() + 1.0,
    "constant": Constant(),
    "product_kernel": ProductKernel((RBF(), RBF(), RBF())),
    "selected": RBF().on((0, 1)),
}
POINTS = [
    (RBF(jnp.ones(2)), r"`lengthscale` has shape \(2,\), but the points have 3 features"),
    (
        Matern52(jnp.ones((2, 5, 3))),
        r"`lengthscale` must be one number or have shape \(3,\), got shape \(2, 5, 3\).*draws",
    ),
    (Periodic(period=jnp.ones(4)), r"`period` has shape \(4,\), but the points have 3 features"),
    (Linear(jnp.ones(2)), r"`variance` has shape \(2,\), but the points have 3 features"),
    (Categorical(jnp.zeros(2)), r"`correlation` has shape \(2,\), but the points have 3 features"),
    (Polynomial(2, jnp.ones(2)), r"`lengthscale` has shape \(2,\), but the points have 3 features"),
    (RBF(variance=jnp.ones(3)), r"`variance` must be one number, got shape \(3,\)"),
    (RationalQuadratic(alpha=jnp.ones(3)), r"`alpha` must be one number, got shape \(3,\)"),
    (Constant(jnp.ones(3)), r"`variance` must be one number, got shape \(3,\)"),
    (2.0 * RBF(jnp.ones(2)), r"`lengthscale` has shape \(2,\)"),
    (ProductKernel((RBF(), RBF())), r"`kernels` holds 2 kernels, but the points have 3 features"),
    (
        ProductKernel((RBF(jnp.ones(3)), RBF(), RBF())),
        r"`lengthscale` has shape \(3,\), but the points have 1 features",
    ),
]


@pytest.mark.parametrize(("kernel", "message"), POINTS, ids=[repr(kernel) for kernel, _ in POINTS])
def test_parameters_that_do_not_fit_the_points(kernel, message):
    for use in (lambda: kernel(THREE, THREE), lambda: kernel.gram(THREE), lambda: kernel.evaluate(THREE[0], THREE[1])):
        with pytest.raises(ValueError, match=message):
            use()


@pytest.mark.parametrize("name", SEVERAL)
def test_one_dimensional_points_are_refused_with_the_fix(name):
    kernel, line = SEVERAL[name], jnp.ones(3)
    for use in (
        lambda: kernel(line, line),
        lambda: kernel.gram(line),
        lambda: kernel.diagonal(line),
        lambda: kernel(THREE, line),
    ):
        with pytest.raises(ValueError, match=r"shape.*write `x1?2?\[:, None\]` for n points with one feature"):
            use()


@pytest.mark.parametrize("name", [name for name in SEVERAL if name != "constant"])
def test_points_of_different_features_are_refused(name):
    with pytest.raises(ValueError, match=r"features|same shape"):
        SEVERAL[name](THREE, THREE[:, :2])


@pytest.mark.parametrize("name", [name for name in SEVERAL if name != "constant"])
def test_points_of_another_kind_are_refused(name):
    with pytest.raises(ValueError, match=r"shape \(n, d\)|shape \(d,\)|arrays \(n, d\)"):
        SEVERAL[name](jnp.ones((4, 2, 3)), jnp.ones((4, 2, 3)))


@pytest.mark.parametrize("check", [check_points, check_matrices])
def test_trees_of_points_are_refused_where_an_array_is_needed(check):
    with pytest.raises(ValueError, match="points `x` must be one array of shape"):
        check(RBF(), (THREE, THREE), (THREE, THREE))


def test_an_abstract_kernel_cannot_be_built():
    with pytest.raises(TypeError, match="abstract"):
        AbstractKernel()


def test_examples_are_asked_for_by_name(third_party):
    with pytest.raises(NotImplementedError, match=r"Third must define the classmethod `examples\(rng_key\)`"):
        third_party.examples(jax.random.key(0))
