"""Every check of embeddings passes on an honest embedding and catches the violation planted for it."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.embeddings import AbstractEmbedding, AbstractEmpiricalEmbedding
from kpp.foundation.validation import is_concrete
from kpp.kernels import RBF
from kpp.testing import check_embedding
from kpp.testing.suite import checks_of

POINTS = np.random.default_rng(0).normal(size=(5, 2))
QUERY = np.random.default_rng(1).normal(size=(3, 2))
CHECKS = {check.__name__: check for check in checks_of(AbstractEmbedding)}


class Honest(AbstractEmpiricalEmbedding):
    """Weights that fall off with the distance from the query; the planted ones change one thing."""

    kernel: RBF = eqx.field(default_factory=lambda: RBF(0.9))
    points: Any = eqx.field(default_factory=lambda: jnp.asarray(POINTS))
    width: jax.Array = eqx.field(default=2.0, converter=jnp.asarray)

    def weights(self, query=None):
        distances = jnp.sum(jnp.square(self.points[:, None, :] - jnp.asarray(query)[None, :, :]), axis=-1)
        return jnp.exp(-distances / self.width) / self.points.shape[0]


class NotAnEmbedding(eqx.Module):
    def weights(self, query=None):
        return jnp.ones((5, 3))


class Transposed(Honest):
    def weights(self, query=None):
        return Honest.weights(self, query).T


class Normalized(Honest):
    def weights(self, query=None):
        weights = Honest.weights(self, query)
        return weights / jnp.sum(weights)


class OwnValues(Honest):
    def evaluate(self, x, query=None):
        return 2 * Honest.evaluate(self, x, query)


class OwnExpectation(Honest):
    def expectation(self, values, query=None):
        return Honest.expectation(self, values, query) + 1.0


class OneOutput(Honest):
    def expectation(self, values, query=None):
        return Honest.expectation(self, values[:, 0] if getattr(values, "ndim", 1) == 2 else values, query)


class OwnInner(Honest):
    def inner(self, other, query=None, other_query=None):
        return Honest.inner(self, other, query, other_query) + 1.0


class Unbiased(Honest):
    def mmd_squared(self, other, query=None, other_query=None):
        return Honest.mmd_squared(self, other, query, other_query) - 0.1


class DependsOnJit(Honest):
    def weights(self, query=None):
        weights = Honest.weights(self, query)
        return weights if is_concrete(query) else 2 * weights


class Doubling(Honest):
    def __init__(self, kernel=None, points=None, width=2.0):
        self.kernel = RBF(0.9) if kernel is None else kernel
        self.points = jnp.asarray(POINTS if points is None else points)
        self.width = 2.0 * jnp.asarray(width)


class NaNLeaf(Honest):
    note: Any = eqx.field(default_factory=lambda: jnp.array(jnp.nan))


PLANTED = {
    "derives_from_the_abstract_class": (NotAnEmbedding, "NotAnEmbedding does not derive from AbstractEmbedding"),
    "weights_have_one_column_a_query": (Transposed, r"shape \(3, 5\), expected \(5, 3\)"),
    "queries_are_independent": (Normalized, "the weights of the last query alone: differ by"),
    "evaluates_by_its_weights": (OwnValues, "weighted kernel sections: differ by"),
    "expectation_of_a_section_is_the_value": (OwnExpectation, "<k.x, .., mu> and mu.x.: differ by"),
    "expectation_of_values_is_the_weighted_sum": (OneOutput, r"the expectation of \(m, 2\) values: shape"),
    "inner_products_agree_with_evaluation": (OwnInner, "differ by"),
    "distance_to_itself_is_zero": (Unbiased, "differ by"),
    "jit_changes_nothing": (DependsOnJit, "differ by"),
    "survives_the_round_trip_as_a_pytree": (NaNLeaf, "a leaf of the pytree differs"),
    "survives_the_round_trip_through_a_spec": (Doubling, "differ by"),
}


def test_every_check_has_a_planted_violation():
    assert set(PLANTED) == set(CHECKS)


@pytest.mark.slow
def test_honest_embedding_passes():
    check_embedding(Honest(), jnp.asarray(QUERY))


@pytest.mark.slow_variants("queries_are_independent", "weights_have_one_column_a_query")
@pytest.mark.parametrize("name", CHECKS)
def test_planted_violation_is_caught(name, register):
    broken, message = PLANTED[name]
    if name == "survives_the_round_trip_through_a_spec":
        register("embeddings", "Doubling", broken)
    with pytest.raises(AssertionError, match=message):
        CHECKS[name](broken(), jnp.asarray(QUERY))
