"""Hyperparameters of many matches by the gradient of the held-out loss, against differences of refitted models."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.kernels import RBF, Contextual, GeneralizedPreferential, Linear, Preferential
from kpp.preferences import Matches
from kpp_models import PreferenceLogistic, PreferenceRidge
from kpp_models.preferences.held_out_gradient import held_out_gradient
from kpp_models.tables.machines.grid_search import put_values

KEY = jax.random.key(0)
RNG = np.random.default_rng(5)
ITEMS = RNG.normal(size=(30, 3))
FIRST = RNG.integers(0, 30, 300)
SECOND = (FIRST + RNG.integers(1, 30, 300)) % 30
# The third feature decides nothing.
CHANCE = 1 / (1 + np.exp(-3 * (ITEMS[FIRST] - ITEMS[SECOND]) @ [1.0, 0.5, 0.0]))
Y = (RNG.uniform(size=300) < CHANCE).astype(float)
MATCHES = Matches.create(ITEMS, FIRST, SECOND, Y)
KERNEL = 2.0 * GeneralizedPreferential(RBF(np.array([0.8, 1.0, 1.3])) + 0.5) + Preferential(RBF(0.7))
CONTEXTS = RNG.normal(size=(4, 2))[RNG.integers(0, 4, 300)]
MODELS = {
    "ridge": (PreferenceRidge(KERNEL, 0.01), MATCHES),
    "logistic": (PreferenceLogistic(KERNEL, 0.003), MATCHES),
    "contexts": (
        PreferenceLogistic(Contextual(GeneralizedPreferential(RBF(0.9)), Linear() + 0.3), 0.01),
        Matches.create(ITEMS, FIRST, SECOND, Y, CONTEXTS),
    ),
}


def values_of(model):
    leaves = jax.tree.leaves_with_path(model)
    return {jax.tree_util.keystr(path, simple=True, separator="."): jnp.asarray(leaf, float) for path, leaf in leaves}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_gradient_is_that_of_refitted_models(name):
    """Central differences along a random direction; their error is about 1e-8, for steps of 1e-4."""
    model, matches = MODELS[name]
    train, test = matches.split(KEY, 0.7)
    values = values_of(model)
    direction = {path: np.asarray(RNG.normal(size=np.shape(value))) for path, value in values.items()}

    def loss(step):
        moved = put_values(model, {path: value * np.exp(step * direction[path]) for path, value in values.items()})
        prepared, data, _ = moved.prepare(train)
        return float(prepared.loss(test, prepared.item_function(data)(test.inputs)))

    found, gradient = held_out_gradient(model, values, train, test)
    slope = sum(np.sum(gradient[path] * values[path] * direction[path]) for path in values)
    np.testing.assert_allclose(found, loss(0.0), rtol=1e-9)
    np.testing.assert_allclose(slope, (loss(1e-4) - loss(-1e-4)) / 2e-4, rtol=1e-5, atol=1e-8)


@pytest.mark.nightly
def test_the_descent_finds_the_feature_that_decides_nothing():
    model = PreferenceLogistic(GeneralizedPreferential(RBF(np.ones(3)) + 0.5), 0.01)
    paths = ["kernel.kernel.kernels.0.lengthscale", "regularization"]
    found = model.select_by_gradient(KEY, MATCHES, paths=paths, max_steps=15)
    assert found.scores.min() < 0.95 * found.scores[0]
    lengthscales = found.chosen[paths[0]]
    assert lengthscales[2] > 3 * lengthscales[:2].max()
    assert np.asarray(found.model.regularization) == found.chosen["regularization"]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["kernel.kernel.width"], "must name leaves of the model"),
        ([], "must name leaves of the model"),
        (["kernel.kernel.variance"], "must lead to positive numbers, got 0"),
    ],
)
def test_paths_that_lead_nowhere_are_refused(paths, message):
    model = PreferenceRidge(GeneralizedPreferential(RBF(1.0, 0.0)), 0.1)
    with pytest.raises(ValueError, match=message):
        model.select_by_gradient(KEY, MATCHES, paths=paths)
