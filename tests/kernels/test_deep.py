"""Deep-feature kernels: the laws of kernels, NumPy's own network, priors on weights, and a fit that learns them."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from kpp.kernels import RBF, ApplyFn, DeepKernel, Linear, Matern52, network_priors, resolve_features
from kpp.priors import prior_sites
from kpp.testing import cases

gram = eqx.filter_jit(lambda kernel, x: kernel.gram(x))
X = np.random.default_rng(0).normal(size=(5, 3))
NETWORK = eqx.nn.MLP(3, 2, width_size=3, depth=1, activation=jnp.tanh, key=jax.random.key(1))


@pytest.mark.slow
@pytest.mark.parametrize("check", cases([DeepKernel]), ids=str)
def test_the_laws_of_kernels_hold(check):
    check()


def test_it_is_the_base_kernel_on_what_the_network_returns(tolerance):
    (w0, b0), (w1, b1) = [(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in NETWORK.layers]
    features = np.tanh(X @ w0.T + b0) @ w1.T + b1
    squares = ((features[:, None] - features[None]) ** 2).sum(-1)
    found = gram(DeepKernel(RBF(0.7, 1.3), NETWORK), X)
    np.testing.assert_allclose(found, 1.3 * np.exp(-squares / (2 * 0.49)), **tolerance())


@pytest.mark.parametrize("one", [lambda x: x[0] * x[1], lambda x: (x[0] * x[1])[None]], ids=["number", "vector"])
def test_a_plain_function_is_a_feature_map(one, tolerance):
    products = X[:, 0] * X[:, 1]
    found = gram(DeepKernel(Linear(), one), X)
    np.testing.assert_allclose(found, np.outer(products, products), **tolerance())


def test_points_may_be_any_pytree(tolerance):
    points = {"a": X[:, :1], "b": X[:, 1:]}
    kernel = DeepKernel(Matern52(0.9), lambda point: jnp.concatenate([point["a"], point["b"]]))
    np.testing.assert_allclose(gram(kernel, points), gram(Matern52(0.9), X), **tolerance())


def test_it_composes_with_other_kernels(tolerance):
    kernel = resolve_features(2.0 * DeepKernel(RBF(0.7), jnp.tanh).on(("a", "c")) + 1.0, ["a", "b", "c"])
    expected = 2.0 * gram(RBF(0.7), np.tanh(X[:, [0, 2]])) + 1.0
    np.testing.assert_allclose(gram(kernel, X), expected, **tolerance())


def test_weights_kept_apart_are_parameters(tolerance):
    def apply(params, x):  # the signature of Flax's and Haiku's
        return jnp.tanh(x @ params["dense"]["kernel"] + params["dense"]["bias"])

    params = {"dense": {"kernel": X[:3, :2], "bias": X[3, :2]}}
    kernel = DeepKernel(RBF(0.7), ApplyFn(apply, jax.tree.map(jnp.asarray, params)))
    expected = gram(RBF(0.7), np.tanh(X @ X[:3, :2] + X[3, :2]))
    np.testing.assert_allclose(gram(kernel, X), expected, **tolerance())
    priors = DeepKernel(RBF(0.7), ApplyFn(apply, network_priors(kernel.feature_map.params)))
    assert sorted(prior_sites("kernel", priors)) == [
        "kernel.feature_map.params.dense.bias",
        "kernel.feature_map.params.dense.kernel",
    ]


def test_flax_modules_work():
    linen = pytest.importorskip("flax.linen")
    module = linen.Dense(2)
    params = module.init(jax.random.key(0), X[0])
    kernel = DeepKernel(RBF(0.7), ApplyFn(module.apply, params))
    np.testing.assert_allclose(kernel.gram(X), RBF(0.7).gram(module.apply(params, X)), rtol=1e-5)


@pytest.mark.slow
def test_every_array_of_a_network_gets_a_prior_of_its_shape():
    kernel = DeepKernel(RBF(0.7), network_priors(NETWORK, lambda weight: weight.shape[-1] ** -0.5))
    found = prior_sites("kernel", kernel)
    assert {name: prior.event_shape for name, prior in found.items()} == {
        "kernel.feature_map.layers.0.weight": (3, 3),
        "kernel.feature_map.layers.0.bias": (3,),
        "kernel.feature_map.layers.1.weight": (2, 3),
        "kernel.feature_map.layers.1.bias": (2,),
    }
    weight = found["kernel.feature_map.layers.1.weight"].base_dist
    np.testing.assert_allclose(weight.scale, np.full((2, 3), 3**-0.5))
    np.testing.assert_array_equal(weight.loc, np.zeros((2, 3)))


def test_priors_may_stand_about_the_network_and_keep_those_there_are():
    halved = eqx.tree_at(lambda net: net.layers[0].bias, NETWORK, dist.HalfNormal(1.0).expand([3]))
    priors = network_priors(halved, 0.5, centered_at_start=True)
    assert isinstance(priors.layers[0].bias.base_dist, dist.HalfNormal)
    np.testing.assert_array_equal(priors.layers[1].weight.loc, NETWORK.layers[1].weight)


@pytest.mark.slow
def test_weights_are_learned_by_gradients_of_the_marginal_likelihood():
    """A function of one projection of three features: the network finds it, an RBF kernel on all three cannot."""
    x = np.random.default_rng(1).uniform(-2, 2, size=(40, 3))
    y = np.sin(2 * x @ np.array([1.0, -1.0, 0.5]))

    def loss(kernel):
        gram = kernel.gram(x) + 0.01 * jnp.eye(40)
        return (y @ jnp.linalg.solve(gram, y) + jnp.linalg.slogdet(gram)[1]) / 2

    @eqx.filter_jit
    def descend(kernel):
        def step(kernel, _):
            value, slope = eqx.filter_value_and_grad(loss)(kernel)
            return eqx.apply_updates(kernel, jax.tree.map(lambda g: -0.003 * jnp.clip(g, -10.0, 10.0), slope)), value

        return jax.lax.scan(step, kernel, length=300)[1]

    linear = eqx.nn.Linear(3, 1, use_bias=False, key=jax.random.key(2))
    values = descend(DeepKernel(RBF(1.0), linear))
    assert values[-1] < values[0] - 40  # nats; all three features in an RBF kernel gain less than half of it


MISTAKES = [
    (lambda: DeepKernel(RBF(), 3.0), TypeError, "`feature_map` must be a function of one point, got float"),
    (lambda: DeepKernel(RBF(), dist.Normal()), TypeError, "`feature_map` must be a function of one point, got Normal"),
    (lambda: DeepKernel(jnp.tanh, jnp.tanh), TypeError, "`kernel` must be a kernel"),
    (lambda: ApplyFn(3, {}), TypeError, "`apply` must be a function of the weights and a point, got int"),
    (lambda: DeepKernel(RBF(), lambda x: x[:, None]).gram(X), ValueError, r"of one point, of shape \(q,\), got shape"),
    (lambda: network_priors(NETWORK, -1.0), ValueError, "`scale` must be positive, got -1.0"),
    (lambda: network_priors(jnp.tanh), ValueError, "`network` must hold floating-point arrays"),
    (
        lambda: DeepKernel(RBF(), network_priors(NETWORK)).gram(X),
        TypeError,
        "`feature_map.layers.0.weight` is the prior Normal",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), MISTAKES)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
