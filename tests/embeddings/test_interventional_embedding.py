"""InterventionalMeanEmbedding against reference vectors, sums over samples written out, and structural models."""

from __future__ import annotations

import equinox as eqx
import numpy as np
import pytest

from kpp.embeddings import (
    BackDoor,
    ConditionalMeanEmbedding,
    FrontDoor,
    InterventionalMeanEmbedding,
    NoAdjustment,
    select_regularization,
)
from kpp.features import RandomFourier
from kpp.kernels import RBF

KINDS = ("none", "backdoor", "frontdoor")


@pytest.fixture(scope="module")
def vectors(root):
    return np.load(root / "tests" / "data" / "bayesimp.npz")


def adjustment(kind, vectors):
    kernel, z = RBF(vectors["in_lz"]), vectors["in_Z"]
    if kind == "none":
        return NoAdjustment()
    return BackDoor(kernel, z) if kind == "backdoor" else FrontDoor(kernel, z, vectors["in_lamz"] / len(z))


@eqx.filter_jit
def parts(adjustment, kernel, x, query):
    gram, intervention = adjustment.gram(kernel, x), adjustment.intervention(kernel, x)
    elements = adjustment.intervention(kernel, x)
    cross, prior = elements.cross(query), elements.prior(query, query[:2])
    return gram, cross, prior, intervention.sections()


@eqx.filter_jit
def values(embedding, at, query):
    return embedding.weights(query), embedding.evaluate(at, query)


@pytest.mark.slow_variants("frontdoor", "backdoor")
@pytest.mark.parametrize("kind", [pytest.param("none", marks=pytest.mark.slow), *KINDS[1:]])
def test_reference_vectors(kind, vectors):
    x, query, adjusted = vectors["in_X"], vectors["in_Xq"], adjustment(kind, vectors)
    kernel, outcome_kernel = RBF(vectors["in_lx"]), RBF(vectors["in_ly"])
    gram, cross, prior, (transfer, level, inner) = parts(adjusted, kernel, x, query)
    expected = [vectors[f"out_{kind}_{name}"] for name in ("K", "Phi", "F", "G")]
    sections, queries = np.asarray(kernel(x, query)), np.asarray(kernel(query, query))
    for found, wanted in (
        (gram, expected[0]),
        (cross, expected[1]),
        (prior, expected[2][:, :2]),
        (transfer @ sections, expected[1]),
        (level * queries + sections.T @ inner @ sections, expected[2]),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-10)
    at, ridge = vectors["in_Yt"], vectors["in_lam"] / len(x)
    embedding = InterventionalMeanEmbedding(
        kernel=outcome_kernel,
        treatment_kernel=kernel,
        treatment=x,
        points=vectors["in_Y"],
        regularization=ridge,
        adjustment=adjusted,
    )
    weights, evaluated = values(embedding, at, query)
    np.testing.assert_allclose(cross.T @ weights, expected[3], rtol=1e-7, atol=1e-10)
    regularized = np.asarray(outcome_kernel.gram(at)) + vectors["in_lamf"] * np.eye(len(at))
    mean = evaluated @ np.linalg.solve(regularized, vectors["in_t"])
    np.testing.assert_allclose(mean, vectors[f"out_{kind}_imp_mean"], rtol=1e-7, atol=1e-10)


@pytest.mark.slow
def test_averages_are_sums_over_the_sample(vectors, tolerance):
    # The definitions: phi(x) is the mean over z of k(x, .) k(z, .), or a mean over x' of conditional means over z.
    x, z, query = (vectors[f"in_{name}"] for name in ("X", "Z", "Xq"))
    kernel, other = RBF(vectors["in_lx"]), RBF(vectors["in_lz"])
    k, kq, m = (np.asarray(a) for a in (kernel.gram(x), kernel(x, query), other.gram(z)))
    n, p = kq.shape
    mediated = np.linalg.solve(k + vectors["in_lamz"] * np.eye(n), kq)
    for kind, expected in (
        ("backdoor", [[sum(kq[i, q] * m[i, j] for j in range(n)) / n for q in range(p)] for i in range(n)]),
        (
            "frontdoor",
            [
                [sum(k[i, h] * m[i, j] * mediated[j, q] for h in range(n) for j in range(n)) / n for q in range(p)]
                for i in range(n)
            ],
        ),
    ):
        np.testing.assert_allclose(parts(adjustment(kind, vectors), kernel, x, query)[1], expected, **tolerance())


FEATURES = RandomFourier(np.array([[0.4], [1.1]]), 0.8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel", [RBF(0.9), pytest.param(FEATURES, marks=pytest.mark.slow)], ids=["dense", "features"]
)
def test_without_adjustment_it_is_the_conditional_embedding(kernel, vectors):
    x, y, query = vectors["in_X"], vectors["in_Y"], vectors["in_Xq"]
    found = values(
        InterventionalMeanEmbedding(
            kernel=RBF(0.7), treatment_kernel=kernel, treatment=x, points=y, regularization=0.02
        ),
        vectors["in_Yt"],
        query,
    )
    expected = values(
        ConditionalMeanEmbedding(kernel=RBF(0.7), input_kernel=kernel, inputs=x, points=y, regularization=0.02),
        vectors["in_Yt"],
        query,
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_distance_between_interventions(vectors, tolerance):
    kernel, x, at = RBF(vectors["in_lx"]), vectors["in_X"], vectors["in_Yt"]
    outcome_kernel, ridge = RBF(vectors["in_ly"]), vectors["in_lam"] / len(x)
    adjusted = adjustment("backdoor", vectors)
    embedding = InterventionalMeanEmbedding(
        kernel=outcome_kernel,
        treatment_kernel=kernel,
        treatment=x,
        points=vectors["in_Y"],
        regularization=ridge,
        adjustment=adjusted,
    )
    weights, _ = values(embedding, at, vectors["in_Xq"])
    distances = eqx.filter_jit(lambda one, query: one.mmd_squared(one, query, query))(embedding, vectors["in_Xq"])
    difference = np.asarray(weights[:, 0] - weights[:, 2])
    expected = difference @ np.asarray(outcome_kernel.gram(vectors["in_Y"])) @ difference
    np.testing.assert_allclose(distances[0, 2], expected, **tolerance())


@pytest.mark.slow
def test_regularization_can_be_selected(vectors):
    kernel, x = RBF(vectors["in_lx"]), vectors["in_X"]
    adjusted = adjustment("backdoor", vectors)
    embedding = InterventionalMeanEmbedding(
        kernel=RBF(vectors["in_ly"]),
        treatment_kernel=kernel,
        treatment=x,
        points=vectors["in_Y"],
        regularization=0.1,
        adjustment=adjusted,
    )
    chosen = select_regularization(embedding, [1e-3, 1e-1])
    gram, outputs = np.asarray(adjusted.gram(kernel, x)), np.asarray(RBF(vectors["in_ly"]).gram(vectors["in_Y"]))
    for value, loss in zip((1e-3, 1e-1), chosen.losses, strict=True):
        losses = []
        for i in range(6):
            rest = np.delete(np.arange(6), i)
            residual = np.ones(6)
            residual[rest] = -np.linalg.solve(gram[np.ix_(rest, rest)] + 6 * value * np.eye(5), gram[rest, i])
            losses.append(residual @ outputs @ residual)
        np.testing.assert_allclose(loss, np.mean(losses), rtol=1e-9)


def sample(n, seed):
    """Draw from two linear Gaussian models in which the effect of x on E[y] is 0.9 x.

    In the first a -> x, a -> b -> y and x -> y: adjust for a, for b, or for both. In the second u -> x, u -> y with u
    unseen, and x -> m -> y: m is a front door.
    """
    rng = np.random.default_rng(seed)
    noise = iter(rng.normal(size=(7, n, 1)))
    a, u = next(noise), next(noise)
    b = 0.8 * a + 0.6 * next(noise)
    x = 0.7 * a + 0.7 * next(noise)
    y = 0.9 * x + 0.8 * b + 0.3 * next(noise)
    hidden_x = 0.7 * u + 0.7 * next(noise)
    m = 0.9 * hidden_x + 0.5 * next(noise)
    hidden_y = m + 0.8 * u + 0.3 * rng.normal(size=(n, 1))
    kernel = RBF(2.0)
    return {
        "none": (x, y, NoAdjustment()),
        "a": (x, y, BackDoor(kernel, a)),
        "b": (x, y, BackDoor(kernel, b)),
        "both": (x, y, BackDoor(kernel, np.hstack([a, b]))),
        "frontdoor": (hidden_x, hidden_y, FrontDoor(kernel, m, 1e-3)),
        "none, hidden": (hidden_x, hidden_y, NoAdjustment()),
    }


@pytest.mark.nightly
def test_effects_are_near_and_valid_sets_agree():
    """In 800 rows, for the mean error of three samples; for confounded ones no sample is large enough."""
    query = np.linspace(-1.0, 1.0, 5)[:, None]
    effect = eqx.filter_jit(lambda embedding, y: embedding.expectation(y, query))
    errors = {}
    for seed in range(3):
        effects = {}
        for name, (x, y, adjusted) in sample(800, seed).items():
            embedding = InterventionalMeanEmbedding(
                kernel=RBF(2.0),
                treatment_kernel=RBF(2.0),
                treatment=x,
                points=y,
                regularization=1e-3,
                adjustment=adjusted,
            )
            effects[name] = np.asarray(effect(embedding, y[:, 0]))
            errors.setdefault(name, []).append(np.sqrt(np.mean((effects[name] - 0.9 * query[:, 0]) ** 2)))
        for name in ("b", "both"):
            np.testing.assert_allclose(effects[name], effects["a"], atol=0.15)
    for name in ("a", "b", "both", "frontdoor"):
        assert np.mean(errors[name]) < 0.08
    for name in ("none", "none, hidden"):
        assert np.mean(errors[name]) > 0.3


def test_mistakes_are_named(vectors):
    x, y = vectors["in_X"], vectors["in_Y"]
    embedding = InterventionalMeanEmbedding(
        kernel=RBF(1.0), treatment_kernel=RBF(1.0), treatment=x, points=y, regularization=0.1
    )
    with pytest.raises(ValueError, match="`query` must hold"):
        embedding.weights()
    with pytest.raises(ValueError, match="`regularization` must be at least 0, got -1"):
        InterventionalMeanEmbedding(
            kernel=RBF(1.0), treatment_kernel=RBF(1.0), treatment=x, points=y, regularization=-1.0
        )
    with pytest.raises(ValueError, match="`regularization` must be at least 0, got -1"):
        FrontDoor(RBF(1.0), x, -1.0)
    with pytest.raises(ValueError, match="`treatment` and `points` must hold at least one row"):
        InterventionalMeanEmbedding(
            kernel=RBF(1.0), treatment_kernel=RBF(1.0), treatment=x[:0], points=y[:0], regularization=0.1
        )
    with pytest.raises(ValueError, match="`treatment` and `points` must have the same number of rows, got 6 and 5"):
        InterventionalMeanEmbedding(
            kernel=RBF(1.0), treatment_kernel=RBF(1.0), treatment=x, points=y[:5], regularization=0.1
        )
    for wrong, name in ((BackDoor(RBF(1.0), y[:5]), "covariates"), (FrontDoor(RBF(1.0), y[:5], 0.1), "mediators")):
        with pytest.raises(
            ValueError, match=f"`treatment` and `{name}` must have the same number of rows, got 6 and 5"
        ):
            InterventionalMeanEmbedding(
                kernel=RBF(1.0), treatment_kernel=RBF(1.0), treatment=x, points=y, regularization=0.1, adjustment=wrong
            )
        with pytest.raises(ValueError, match=f"`{name}` must have the same number of rows"):
            wrong.gram(RBF(1.0), x)
