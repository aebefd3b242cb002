"""Embeddings whose adjustment is found in a causal graph, from the columns of a data frame."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from kpp.causal import CausalDAG, CausalError, NotCoveredError
from kpp.embeddings import (
    BackDoor,
    BayesianConditionalMeanEmbedding,
    FrontDoor,
    InterventionalMeanEmbedding,
    NoAdjustment,
)
from kpp.kernels import RBF

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.normal(size=(6, 6)), columns=["y", "x", "a", "b", "m", "note"])

GRAPHS = {
    "none": CausalDAG([("x", "y"), ("y", "a")]),
    "backdoor": CausalDAG([("a", "x"), ("a", "b"), ("b", "y"), ("x", "y")]),
    "frontdoor": CausalDAG([("x", "m"), ("m", "y")], bidirected=[("x", "y")]),
}


def found(kind, frame=FRAME, treatment="x", **options):
    return InterventionalMeanEmbedding.from_graph(GRAPHS[kind], frame, treatment, "y", regularization=0.1, **options)


def test_the_adjustment_is_that_of_the_graph():
    plain, backdoor, frontdoor = found("none"), found("backdoor"), found("frontdoor", adjusting_regularization=0.3)
    assert isinstance(plain.adjustment, NoAdjustment)
    assert isinstance(backdoor.adjustment, BackDoor)
    np.testing.assert_array_equal(backdoor.adjustment.covariates, FRAME[["b"]])  # the optimal set, not a
    assert isinstance(frontdoor.adjustment, FrontDoor)
    np.testing.assert_array_equal(frontdoor.adjustment.mediators, FRAME[["m"]])
    assert (float(frontdoor.adjustment.regularization), float(frontdoor.regularization)) == (0.3, 0.1)
    for embedding in (plain, backdoor, frontdoor):
        np.testing.assert_array_equal(embedding.treatment, FRAME[["x"]])
        np.testing.assert_array_equal(embedding.points, FRAME[["y"]])


def test_a_column_that_was_not_measured_is_not_adjusted_for():
    backdoor = found("backdoor", FRAME.drop(columns="b"))
    np.testing.assert_array_equal(backdoor.adjustment.covariates, FRAME[["a"]])


def test_kernels_are_given_or_of_the_median_heuristic():
    treatment = FRAME["x"].to_numpy()
    gaps = np.abs(treatment[:, None] - treatment[None, :])[np.triu_indices(6, 1)]
    embedding = found("backdoor", kernel=RBF(2.0), adjusting_kernel=RBF(3.0))
    np.testing.assert_allclose(embedding.treatment_kernel.lengthscale, [np.median(gaps)], rtol=1e-12)
    assert float(embedding.kernel.lengthscale) == 2.0
    assert float(embedding.adjustment.kernel.lengthscale) == 3.0


def test_the_bayesian_embedding_finds_the_same():
    bayesian = BayesianConditionalMeanEmbedding.from_graph(
        GRAPHS["frontdoor"], FRAME, "x", "y", width=2.0, noise_variance=0.2, adjusting_regularization=0.3
    )
    np.testing.assert_array_equal(bayesian.adjustment.mediators, FRAME[["m"]])
    assert float(bayesian.adjustment.regularization) == 0.3
    assert float(bayesian.noise_variance) == 0.2


def test_several_treatments_are_set_together():
    graph = CausalDAG([("x", "y"), ("b", "y"), ("a", "x"), ("a", "b"), ("a", "y")])
    embedding = InterventionalMeanEmbedding.from_graph(graph, FRAME, ["b", "x"], "y", regularization=0.1)
    np.testing.assert_array_equal(embedding.treatment, FRAME[["b", "x"]])
    np.testing.assert_array_equal(embedding.adjustment.covariates, FRAME[["a"]])
    assert embedding.treatment_kernel.lengthscale.shape == (2,)


def test_what_no_embedding_covers_is_refused_with_its_estimand():
    # m is a front door only given a: identified, but neither by a back door nor by a front door alone.
    graph = CausalDAG([("x", "m"), ("m", "y"), ("a", "x"), ("a", "m"), ("a", "y")], bidirected=[("x", "y")])
    with pytest.raises(NotCoveredError, match="P\\("):
        InterventionalMeanEmbedding.from_graph(graph, FRAME, "x", "y", regularization=0.1)
    graph = CausalDAG([("x", "y")], bidirected=[("x", "y")])
    with pytest.raises(CausalError):
        InterventionalMeanEmbedding.from_graph(graph, FRAME, "x", "y", regularization=0.1)


def test_mistakes_are_named():
    with pytest.raises(TypeError, match="`frame` must be a data frame"):
        found("none", FRAME.to_numpy())
    with pytest.raises(ValueError, match=r"`treatment` must be columns of `frame`, got \['dose'\]"):
        found("none", treatment="dose")
    with pytest.raises(ValueError, match="`frame`.*'x'"):
        found("none", FRAME.assign(x="high"))
