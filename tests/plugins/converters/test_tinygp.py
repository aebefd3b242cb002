"""Kernels of tinygp both ways, and its conditioned processes."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tinygp
from tinygp import kernels, transforms
from tinygp.kernels import quasisep
from tinygp.kernels.distance import L2Distance

import kpp
from kpp.kernels import (
    RBF,
    Categorical,
    Constant,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Polynomial,
    Preferential,
    ProductKernel,
    RationalQuadratic,
    Sum,
)
from kpp_converters import kernel_from_tinygp, kernel_to_tinygp

RNG = np.random.default_rng(0)
X, X_TEST = jnp.asarray(RNG.normal(size=(12, 3))), jnp.asarray(RNG.normal(size=(5, 3)))
Y = jnp.sin(X[:, 0]) + X[:, 1]
EUCLIDEAN = {"distance": L2Distance()}
SCALES = jnp.array([1.5, -0.7, 0.5])
LOWER = jnp.array([[1.5, 0.0, 0.0], [0.3, 0.7, 0.0], [-0.2, 0.1, 0.5]])

FOREIGN = {
    "Exp of several features": kernels.Exp(1.3),
    "Exp, Euclidean": kernels.Exp(1.3, **EUCLIDEAN),
    "ExpSquared": kernels.ExpSquared(1.3),
    "Matern32": kernels.Matern32(1.3, **EUCLIDEAN),
    "Matern52": kernels.Matern52(1.3, **EUCLIDEAN),
    "RationalQuadratic": kernels.RationalQuadratic(1.3, alpha=0.6, **EUCLIDEAN),
    "DotProduct": kernels.DotProduct(),
    "Polynomial": kernels.Polynomial(order=3, scale=1.3, sigma=0.6),
    "multiple": 2.0 * kernels.ExpSquared() * 0.7,
    "Subspace": transforms.Subspace(1, kernels.Matern32(0.7)),
    "ExpSineSquared": transforms.Subspace(2, kernels.ExpSineSquared(1.7, gamma=0.6)),
    "Linear": transforms.Linear(SCALES, kernels.Matern52(**EUCLIDEAN)),
    "Linear, DotProduct": transforms.Linear(SCALES, kernels.DotProduct() + kernels.Polynomial(order=2)),
    "Linear, Exp": transforms.Linear(SCALES, kernels.Exp()),
    "Linear, matrix": transforms.Linear(LOWER[:2], kernels.ExpSquared()),
    "Cholesky": transforms.Cholesky(SCALES, kernels.ExpSquared(0.8)),
    "Cholesky, matrix": transforms.Linear(SCALES, transforms.Cholesky(LOWER, kernels.ExpSquared())),
    "tree": 2.0 * kernels.ExpSquared() * transforms.Subspace(0, kernels.ExpSineSquared(gamma=2.0))
    + transforms.Linear(SCALES, transforms.Subspace(1, kernels.Matern32()) + kernels.Constant(0.3)),
}


def assert_same(first, second):
    np.testing.assert_allclose(first, second, rtol=1e-12, atol=1e-12)


def evaluate_all(kernel_groups, x1, x2):
    """The matrices of all kernels, by one program: one for each kernel would take much longer to compile."""
    return jax.jit(lambda: jax.tree.map(lambda k: k(x1, x2), kernel_groups, is_leaf=callable))()


@pytest.fixture(scope="module")
def foreign_matrices():
    pairs = {name: (kernel, kernel_from_tinygp(kernel, 3)) for name, kernel in FOREIGN.items()}
    return evaluate_all(pairs, X, X_TEST)


@pytest.mark.parametrize("name", FOREIGN)
def test_kernels_of_tinygp_have_the_same_values(name, foreign_matrices):
    assert_same(*foreign_matrices[name])


TIMES, LATER = jnp.sort(X[:, 0]), jnp.sort(X_TEST[:, 0])
QUASISEPARABLE = {
    "Exp": quasisep.Exp(1.3, sigma=0.7),
    "Matern32": quasisep.Matern32(1.3, sigma=0.7),
    "tree": 2.0 * quasisep.Matern52(1.3, sigma=0.7) + quasisep.Exp(0.4) * quasisep.Matern32(1.3),
}


def test_quasiseparable_kernels_have_the_same_values():
    foreign = evaluate_all(QUASISEPARABLE, TIMES, LATER)
    converted = {name: kernel_from_tinygp(kernel) for name, kernel in QUASISEPARABLE.items()}
    for name, matrix in evaluate_all(converted, TIMES[:, None], LATER[:, None]).items():
        assert_same(matrix, foreign[name])


ARD = jnp.array([0.7, 1.3, 2.0])
OURS = {
    "RBF": RBF(0.8, 1.3),
    "RBF, ARD": RBF(ARD),
    "Matern12": Matern12(ARD, 1.3),
    "Matern32": Matern32(0.8),
    "Matern52": Matern52(ARD),
    "RationalQuadratic": RationalQuadratic(ARD, variance=1.3, alpha=0.6),
    "Periodic": Periodic(0.8, variance=1.3, period=1.7),
    "Periodic, ARD": Periodic(ARD, variance=1.3, period=ARD + 0.1),
    "Periodic of one feature": Periodic(0.8, variance=1.3, period=1.7).on(1),
    "Linear": Linear(0.7),
    "Linear, ARD": Linear(ARD),
    "Polynomial": Polynomial(3, ARD, 1.3, 0.6),
    "Polynomial of one feature": Polynomial(2).on(1),
    "ProductKernel": ProductKernel((RBF(0.7), Matern52(1.5), Categorical(0.3))) * 2.0,
    "selection of two": Matern32(0.7).on((2, 0)),
    "tree": 2.0 * RBF(1.5).on(0) * Matern52(ARD) + Linear(0.4).on(2) + 0.3,
    "no counterpart": Categorical(0.3) + RBF(0.8),
}


@pytest.fixture(scope="module")
def our_matrices():
    foreign = {name: kernel_to_tinygp(kernel) for name, kernel in OURS.items()}
    trios = {name: (OURS[name], kernel, kernel_from_tinygp(kernel, 3)) for name, kernel in foreign.items()}
    return evaluate_all(trios, X, X_TEST)


@pytest.mark.parametrize("name", OURS)
def test_kernels_go_to_tinygp_and_back(name, our_matrices):
    ours, foreign, back = our_matrices[name]
    assert_same(foreign, ours)
    assert_same(back, ours)


def test_a_kernel_of_one_feature_takes_numbers_in_tinygp():
    kernel = RBF(0.8) + Polynomial(2) * Periodic(0.8) + Linear(jnp.ones(1)) + Categorical(0.3)
    values = eqx.filter_jit(lambda k: (kernel_to_tinygp(k)(TIMES, LATER), k(TIMES[:, None], LATER[:, None])))
    assert_same(*values(kernel))


def test_a_kernel_of_pairs_works_in_tinygp():
    kernel = Preferential(RBF(0.8))
    pairs = jnp.stack([X[:4], X[4:8]], axis=1)
    assert_same(*eqx.filter_jit(lambda k: (kernel_to_tinygp(k)(pairs, pairs), k.gram(pairs)))(kernel))


@pytest.mark.slow
def test_a_traced_kernel_is_converted_and_differentiated():
    def log_probability(lengthscale):
        kernel = kernel_to_tinygp(Sum((RBF(lengthscale), Constant(0.3))))
        return tinygp.GaussianProcess(kernel, X, diag=jnp.asarray(0.1)).log_probability(Y)

    log_probability = jax.jit(log_probability)
    step = 1e-5
    slope = (log_probability(1.3 + step) - log_probability(1.3 - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(log_probability)(1.3), slope, rtol=1e-7)


ONE = kernels.ExpSquared(0.8) + 0.3
PROCESSES = {
    "three features": (ONE, X, X_TEST, {}),
    "numbers": (ONE, TIMES, LATER, {"mean": 0.7}),
    "variances of rows": (ONE, X, X_TEST, {"diag": jnp.linspace(0.1, 0.5, 12)}),
    "dense noise": (ONE, X, X_TEST, {"noise": tinygp.noise.Dense(0.1 * jnp.eye(12) + 0.02)}),
    "a mean function": (ONE, X, X_TEST, {"mean": lambda x: x[0] * x[1]}),
    "a mean function of numbers": (ONE, TIMES, LATER, {"mean": jnp.sin}),
    "quasiseparable": (QUASISEPARABLE["tree"], TIMES, LATER, {"mean": 0.7, "diag": jnp.asarray(0.1)}),
}


@eqx.filter_jit  # operation by operation it takes seconds to compile
def condition(kernel, points, x, options):
    """Return the process at x, and the covariance of the function there, without what tinygp adds to it."""
    process = tinygp.GaussianProcess(kernel, points, **options).condition(Y, x).gp
    return process, process.kernel(x, x)


@eqx.filter_jit
def moments(posterior, x):
    return posterior.mean(x), posterior.covariance(x, x), posterior.variance(x)


@pytest.mark.slow_variants("quasiseparable", "variances of rows", "dense noise", "a mean function")
@pytest.mark.parametrize(("kernel", "points", "x", "options"), PROCESSES.values(), ids=PROCESSES)
def test_conditioned_processes_agree(kernel, points, x, options):
    process, covariance = condition(kernel, points, x, {"diag": jnp.asarray(0.1), **options})
    rows = x[:, None] if x.ndim == 1 else x
    mean, matrix, variance = moments(kpp.as_gp_posterior(process), rows)
    np.testing.assert_allclose(mean, process.loc, rtol=0, atol=1e-10)
    np.testing.assert_allclose(matrix, covariance, rtol=0, atol=1e-10)
    np.testing.assert_allclose(variance, np.diagonal(covariance), rtol=0, atol=1e-10)


@pytest.mark.slow
def test_a_component_of_a_sum_is_converted_as_tinygp_predicts_it():
    """With `kernel=`, the law is the one of a part of the function."""
    part = kernels.ExpSquared(0.8)

    @eqx.filter_jit
    def condition_on_all():
        prior = tinygp.GaussianProcess(part + 0.3, X, diag=jnp.asarray(0.1), mean=0.7)
        result = prior.condition(Y, X_TEST, kernel=part, include_mean=False)
        return result, result.gp.kernel(X_TEST)

    result, expected = condition_on_all()
    mean, _, variance = moments(kpp.as_gp_posterior(result), X_TEST)
    np.testing.assert_allclose(mean, result.gp.loc, rtol=0, atol=1e-10)
    np.testing.assert_allclose(variance, expected, rtol=0, atol=1e-10)


def with_kernel(kernel):
    """A conditioned process whose kernel is replaced, which compiles nothing new."""
    process, _ = condition(ONE, X, X_TEST, {"diag": jnp.asarray(0.1)})
    return eqx.tree_at(lambda process: process.kernel.kernel, process, kernel)


def twice():
    return tinygp.GaussianProcess(ONE, X, diag=jnp.asarray(0.1)).condition(Y).gp.condition(Y).gp


def of_pairs():
    process = tinygp.GaussianProcess(kernels.Constant(1.0), (X, Y), diag=jnp.asarray(0.1), mean_value=jnp.zeros(12))
    return process.condition(Y).gp


REFUSED = {
    "Matern32 with L1Distance of 3 features": lambda: with_kernel(kernels.Matern32()),
    "ExpSineSquared of 3 features": lambda: with_kernel(kernels.ExpSineSquared(gamma=1.0)),
    "kernel kernels.stationary.Cosine": lambda: with_kernel(kernels.Cosine()),
    "kernel kernels.base.Custom": lambda: with_kernel(kernels.Custom(lambda a, b: jnp.exp(-jnp.sum((a - b) ** 2)))),
    "kernel transforms.Transform": lambda: with_kernel(transforms.Transform(jnp.sin, kernels.ExpSquared())),
    "`order` of at least 1, got 0.5": lambda: with_kernel(kernels.Polynomial(order=0.5, sigma=9.0)),
    # Values are not needed to refuse these.
    r"must be an array \(n,\) or \(n, d\), got tuple": lambda: eqx.filter_eval_shape(of_pairs),
    "is not conditioned": lambda: eqx.filter_eval_shape(lambda: tinygp.GaussianProcess(ONE, X)),
    "conditioned twice": lambda: eqx.filter_eval_shape(twice),
}


@pytest.mark.parametrize(("message", "build"), REFUSED.items(), ids=REFUSED)
def test_what_has_no_counterpart_is_refused_by_name(message, build):
    with pytest.raises(ValueError, match=message):
        kpp.as_gp_posterior(build())


def test_something_else_of_tinygp_is_a_type_error():
    with pytest.raises(TypeError, match="tinygp.ExpSquared is not a GaussianProcess"):
        kpp.as_gp_posterior(kernels.ExpSquared())
