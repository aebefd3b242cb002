"""Training reaches what can be known in closed form, in one compilation, alone and side by side."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import Ridge

from kpp.networks import MLP, train
from kpp.networks.toolkit import train_ensemble

TRACES = []


def squared(network, batch):
    x, y = batch
    TRACES.append(x.shape)
    return 0.5 * jnp.mean((jax.vmap(network)(x)[:, 0] - y) ** 2)


@pytest.fixture(scope="module")
def ensemble():
    """Three linear networks, stacked."""
    return eqx.filter_vmap(lambda key: MLP(key, (3, 1)))(jax.random.split(jax.random.key(2), 3))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    return x, x @ [1.0, -2.0, 0.5] + 0.3 + 0.1 * rng.normal(size=40)


OPTIONS = {"num_epochs": 1500, "batch_size": 40, "learning_rate": 0.03, "progress": False}


@pytest.mark.slow_variants("0.0", "0.5")
@pytest.mark.parametrize("l2", [0.0, 0.5])
def test_a_linear_network_reaches_the_ridge_solution(data, l2):
    network = train(jax.random.key(0), MLP(jax.random.key(1), (3, 1)), squared, data, l2=l2, **OPTIONS).network
    expected = Ridge(alpha=len(data[0]) * l2).fit(*data)
    # Full batches and a learning rate that falls to 0: Adam ends at the minimum up to rounding of its steps.
    np.testing.assert_allclose(np.asarray(network.layers[0].weight)[0], expected.coef_, atol=1e-7)
    np.testing.assert_allclose(np.asarray(network.layers[0].bias)[0], expected.intercept_, atol=1e-7)


@pytest.mark.slow
def test_members_of_an_ensemble_learn_from_their_own_rows(data, ensemble):
    rows = np.random.default_rng(1).integers(40, size=(3, 40))
    trained = train_ensemble(jax.random.key(0), ensemble, squared, data, rows=rows, l2=0.1, **OPTIONS)
    assert trained.losses.shape == (3, 1500)
    weights = np.asarray(trained.network.layers[0].weight)[:, 0]
    for member, sample in enumerate(rows):
        expected = Ridge(alpha=4.0).fit(data[0][sample], data[1][sample])
        np.testing.assert_allclose(weights[member], expected.coef_, atol=1e-7)


@pytest.mark.slow
def test_training_is_compiled_once_for_all_epochs_rates_and_penalties(data):
    options = {"num_epochs": 37, "batch_size": 16, "progress": False}
    network = MLP(jax.random.key(1), (3, 4, 1), beta=2.0)
    train(jax.random.key(0), network, squared, data, **options)
    before = len(TRACES)
    train(jax.random.key(5), network, squared, data, l2=0.3, learning_rate=0.02, **options)
    assert len(TRACES) == before
    assert TRACES[-1] == (14, 3)  # 40 rows in 3 equal batches, 2 rows seen twice


@pytest.mark.slow
def test_minibatches_lower_the_loss_and_keys_decide(data):
    options = {"num_epochs": 37, "batch_size": 16, "progress": False}
    network = MLP(jax.random.key(1), (3, 4, 1), beta=2.0)
    first, again, other = (
        np.asarray(train(jax.random.key(seed), network, squared, data, learning_rate=0.03, **options).losses)
        for seed in (0, 0, 1)
    )
    assert first[-1] < 0.05 * first[0]
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.slow_variants("None")
@pytest.mark.parametrize("beta", [None, 1.0, 30.0])
def test_the_network_is_what_its_formula_says(beta):
    network = MLP(jax.random.key(0), (3, 5, 2), beta=beta)
    x = np.array([0.3, -1.0, 2.0])
    (w1, b1), (w2, b2) = ((np.asarray(layer.weight), np.asarray(layer.bias)) for layer in network.layers)
    hidden = w1 @ x + b1
    hidden = np.maximum(hidden, 0) if beta is None else np.log1p(np.exp(beta * hidden)) / beta
    np.testing.assert_allclose(network(jnp.asarray(x)), w2 @ hidden + b2, rtol=1e-12)


@pytest.mark.slow
def test_networks_of_equinox_are_trained_too(data):
    network = eqx.nn.MLP(3, 1, 4, 1, key=jax.random.key(0))
    trained = train(jax.random.key(0), network, squared, data, num_epochs=40, learning_rate=0.03, progress=False)
    losses = np.asarray(trained.losses)
    assert losses[-1] < 0.5 * losses[0]
    assert trained.network(jnp.zeros(3)).shape == (1,)


@pytest.mark.slow_variants("options0-`num_epochs` must be at least 1, got 0")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_epochs": 0}, "`num_epochs` must be at least 1, got 0"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"learning_rate": -1.0}, "`learning_rate` must be positive"),
        ({"l2": -1.0}, "`l2` must be at least 0"),
    ],
)
def test_bad_options_are_refused(data, options, message):
    with pytest.raises(ValueError, match=message):
        train(jax.random.key(0), MLP(jax.random.key(1), (3, 1)), squared, data, progress=False, **options)


@pytest.mark.slow
def test_bad_shapes_are_refused(data, ensemble):
    network = MLP(jax.random.key(1), (3, 1))
    with pytest.raises(ValueError, match="`data` must be arrays with one length of the leading axis"):
        train(jax.random.key(0), network, squared, (data[0], data[1][:-1]), progress=False)
    with pytest.raises(ValueError, match="`rows` must be from 0 to 39, got 0 to 40"):
        train_ensemble(jax.random.key(0), ensemble, squared, data, rows=[[0, 40], [1, 2], [3, 4]], progress=False)
    with pytest.raises(ValueError, match="`sizes` must be at least two positive widths"):
        MLP(jax.random.key(0), (3,))
    with pytest.raises(ValueError, match="`beta` must be positive, got 0.0"):
        MLP(jax.random.key(0), (3, 1), beta=0.0)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_is_refused(data):
    x, y = data
    with pytest.raises(ValueError, match="the loss must stay finite"):
        train(jax.random.key(0), MLP(jax.random.key(1), (3, 1)), squared, (x * 1e200, y), **OPTIONS)
