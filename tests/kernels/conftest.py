"""One table of kernels and one set of points, so that all properties share their compilations."""

from __future__ import annotations

from types import SimpleNamespace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.kernels import (
    RBF,
    AbstractKernel,
    Categorical,
    Constant,
    Linear,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Polynomial,
    ProductKernel,
    RationalQuadratic,
)


class Third(AbstractKernel):
    """A third party's kernel: one method, a parameter without converter, nothing else."""

    width: object = 1.5

    def evaluate(self, x1, x2):
        return jnp.exp(-jnp.sum(jnp.square(jnp.tanh(x1) - jnp.tanh(x2))) / self.width)


ARD = jnp.array([0.5, 1.0, 3.0])
KERNELS = {
    "rbf": RBF(0.7, 1.3),
    "rbf_ard": RBF(ARD),
    "matern12": Matern12(ARD, 1.3),
    "matern32": Matern32(0.7, 1.3),
    "matern52": Matern52(ARD),
    "matern": Matern(ARD, variance=1.3, nu=0.8),
    "rational_quadratic": RationalQuadratic(ARD, variance=1.3, alpha=0.8),
    "periodic": Periodic(ARD, variance=1.3, period=jnp.array([1.0, 2.0, 0.5])),
    "linear": Linear(ARD),
    "polynomial": Polynomial(3, ARD, 0.7, offset=0.5),
    "constant": Constant(0.7),
    "categorical": Categorical(jnp.array([0.0, 0.3, 1.0]), 1.3),
    "sum": RBF(ARD) + Linear(ARD) + 0.3,
    "product": RBF(ARD, 1.3) * Periodic(2.0, variance=0.5, period=1.7),
    "product_not_factorizing": Linear(0.5) * Matern52(2.0),
    "scaled": 2.0 * RBF(0.7, 1.5),
    "product_kernel": ProductKernel((RBF(0.7, 2.0), Matern12(1.5, 0.5), 3.0 * (Linear(0.5) + 1.0))),
    "one_feature": Matern32(0.7, 2.0).on(1),
    "two_features": RBF(ARD[:2], 1.3).on((2, 0)),
    "sum_of_selections": 0.5 * (RBF(0.7).on((0, 1)) * Matern52(1.0, 1.3).on(2)) + Periodic(1.0).on(0),
    "restricted": RBF(ARD, 1.3).restrict(np.array([True, False, True])),
    "third_party": Third(jnp.asarray(1.5)),
}


# A squared distance, a distance, a sum of products of selected features, and a kernel without a way of its own. The
# conformance checks run on the classes of the others.
QUICK = ("rbf_ard", "matern12", "sum_of_selections", "third_party")
# Of their way there is another kernel in the table, and the conformance checks run on their classes.
SIMILAR = ("rbf", "matern32", "matern52", "linear", "constant", "scaled", "two_features")


def table(names):
    chosen = [name for name in names if name not in SIMILAR]
    return [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in chosen]


@pytest.fixture(params=table(KERNELS))
def kernel(request):
    """Each kernel of the table; in the default suite one per way of computing values."""
    return KERNELS[request.param]


@pytest.fixture(params=list(KERNELS))
def every_kernel(request):
    """Each kernel of the table, for tests that compile nothing."""
    return KERNELS[request.param]


def has_terms(kernel):
    try:
        return bool(kernel.product_terms())
    except TypeError:
        return False


@pytest.fixture(params=table(name for name, kernel in KERNELS.items() if has_terms(kernel)))
def sum_of_products(request):
    """Each kernel of the table that is a product kernel or a sum of some; in the default suite as for `kernel`."""
    return KERNELS[request.param]


@pytest.fixture(scope="session")
def x():
    """Six points of three features; two of them are equal, and two agree in two features."""
    points = np.random.default_rng(0).normal(size=(6, 3))
    points[1] = points[0]
    points[3, :2] = points[2, :2]
    return points


@pytest.fixture(scope="session")
def third_party():
    """The class of a kernel that defines `evaluate` and nothing else."""
    return Third


@pytest.fixture(scope="session")
def arrays_of():
    """Split a kernel into its array leaves and a function that puts such leaves back."""

    def split(kernel):
        arrays, static = eqx.partition(kernel, eqx.is_inexact_array)
        return arrays, lambda leaves: eqx.combine(leaves, static)

    return split


@pytest.fixture(scope="session")
def weights():
    """Weights that make a number of a matrix of six by six, for derivatives."""
    return np.random.default_rng(1).normal(size=(6, 6))


@pytest.fixture(scope="session")
def compiled():
    """The methods of a kernel, compiled: fewer compilations than operation by operation, and shared by the tests."""
    matrices = eqx.filter_jit(lambda kernel, x: (kernel(x[:4], x), kernel.gram(x), kernel.diagonal(x)))
    factors = eqx.filter_jit(lambda kernel, x1, x2: kernel.factors(x1, x2))
    return SimpleNamespace(
        call=eqx.filter_jit(lambda kernel, x1, x2: kernel(x1, x2)),
        gram=eqx.filter_jit(lambda kernel, x: kernel.gram(x)),
        matrices=lambda kernel, x: tuple(map(np.asarray, matrices(kernel, x))),
        factors=lambda kernel, x1, x2: np.asarray(factors(kernel, x1, x2)),
        restricted=eqx.filter_jit(lambda kernel, mask, x1, x2: kernel.restrict(mask)(x1, x2)),
        evaluate=eqx.filter_jit(lambda kernel, a, b: kernel.evaluate(a, b)),
    )
