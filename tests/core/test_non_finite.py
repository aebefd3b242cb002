"""NaN and infinity are refused by kernels, functions and embeddings that are called directly; traced code is free."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kpp
from kpp import registry
from kpp.embeddings import ConditionalMeanEmbedding, MeanEmbedding
from kpp.foundation import validation
from kpp.kernels import RBF

KEY = jax.random.key(0)
BAD = {"NaN": (np.nan, "1 NaN"), "infinity": (-np.inf, "1 infinite")}
X = np.linspace(-1.0, 1.0, 8).reshape(4, 2)


def spoiled(points, value):
    """The points with one value of the first array of floats replaced."""
    leaves, structure = jax.tree.flatten(jax.tree.map(np.array, points))
    first = next(j for j, leaf in enumerate(leaves) if leaf.dtype.kind == "f" and leaf.size)
    leaves[first].reshape(-1)[-1] = value
    return jax.tree.unflatten(structure, leaves)


@pytest.mark.slow_variants("tanimoto-NaN")
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", registry.kernels())
def test_every_kernel_refuses_them(name, bad):
    value, message = BAD[bad]
    kernel, x = next(iter(registry.get("kernels", name).examples(KEY)))
    wrong = spoiled(x, value)
    for argument, call in {
        "x": lambda: kernel.gram(wrong),
        "x1": lambda: kernel(wrong, x),
        "x2": lambda: kernel(x, wrong),
    }.items():
        with pytest.raises(ValueError, match=f"`{argument}` must be finite, got .*{message}"):
            call()
    with pytest.raises(ValueError, match="must be finite"):
        kernel.diagonal(x=wrong)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", registry.embeddings())
def test_every_embedding_refuses_them(name, bad):
    value, message = BAD[bad]
    embedding, query = next(iter(registry.get("embeddings", name).examples(KEY)))
    with pytest.raises(ValueError, match=f"`x` must be finite, got .*{message}"):
        embedding.evaluate(spoiled(embedding.points, value), query)
    if query is not None:
        for call in (embedding.weights, lambda wrong: embedding.evaluate(embedding.points, wrong)):
            with pytest.raises(ValueError, match=f"`query` must be finite, got .*{message}"):
                call(spoiled(query, value))


@pytest.mark.parametrize("bad", BAD)
def test_functions_and_constructors_refuse_them(bad):
    value, message = BAD[bad]
    wrong, function = spoiled(X, value), kpp.RKHSFunction(RBF(), X, np.ones(4))
    for argument, call in {
        "x": lambda: function(wrong),
        "points": lambda: kpp.RKHSFunction(RBF(), wrong, np.ones(4)),
        "coefficients": lambda: kpp.RKHSFunction(RBF(), X, spoiled(np.ones(4), value)),
        "intercept": lambda: kpp.RKHSFunction(RBF(), X, np.ones(4), value),
        "points ": lambda: MeanEmbedding(RBF(), wrong),
        "inputs": lambda: ConditionalMeanEmbedding(
            kernel=RBF(), input_kernel=RBF(), inputs=wrong, points=X, regularization=0.1
        ),
        "points  ": lambda: ConditionalMeanEmbedding(
            kernel=RBF(), input_kernel=RBF(), inputs=X, points=wrong, regularization=0.1
        ),
    }.items():
        with pytest.raises(ValueError, match=f"`{argument.strip()}` must be finite, got .*{message}.*shape"):
            call()


def test_traced_points_are_free():
    assert np.isnan(jax.jit(lambda x: RBF().gram(x))(spoiled(X, np.nan))).any()


def test_the_check_of_known_arrays_compiles_nothing(compilations):
    x = jax.device_put(np.ones((317, 3)))
    before = len(compilations)
    validation.refuse_non_finite({"a": x, "b": np.arange(3)}, "x")
    assert len(compilations) == before


def test_a_large_array_of_an_accelerator_is_reduced_there(monkeypatch):
    class Away:
        platform = "gpu"

    x = spoiled(np.ones((300, 300)), np.nan)
    monkeypatch.setattr(type(jnp.ones(())), "devices", lambda self: {Away()})
    with pytest.raises(ValueError, match="`x` must be finite, got 1 NaN"):
        validation.refuse_non_finite(jnp.asarray(x), "x")
    jax.jit(lambda: validation.refuse_non_finite(jnp.ones((300, 300)), "x"))()
