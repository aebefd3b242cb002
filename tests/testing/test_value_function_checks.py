"""Every check of value functions passes on an honest one and catches the violation planted for it."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.foundation.validation import is_concrete
from kpp.functions import RKHSFunction
from kpp.games import AbstractProductValueFunction, AbstractValueFunction
from kpp.kernels import RBF
from kpp.testing import check_value_function
from kpp.testing.suite import checks_of

RNG = np.random.default_rng(0)
FUNCTION = RKHSFunction(RBF(1.2), RNG.normal(size=(4, 2)), RNG.normal(size=4), intercept=0.3)
X = RNG.normal(size=(2, 2))
CHECKS = {check.__name__: check for check in checks_of(AbstractValueFunction)}


class Honest(AbstractValueFunction):
    """Absent features take a reference value; the planted ones change one thing."""

    reference: jax.Array = eqx.field(default=(0.2, -0.4), converter=jnp.asarray)

    def __call__(self, function, x, coalitions):
        coalitions = jnp.asarray(coalitions)
        if coalitions.dtype != bool or coalitions.shape[1:] != x.shape[1:]:
            raise ValueError("`coalitions` must be boolean, (c, d)")
        inputs = jnp.where(coalitions[:, None, :], jnp.asarray(x)[None], self.reference[None, None, :])
        values = function(inputs.reshape(-1, x.shape[1]))
        return values.reshape(*function.batch_shape, coalitions.shape[0], x.shape[0])

    def base(self, function):
        return function(self.reference[None])[..., 0]


class NotAValueFunction(eqx.Module):
    pass


class PointsFirst(Honest):
    def __call__(self, function, x, coalitions):
        return jnp.swapaxes(Honest.__call__(self, function, x, coalitions), -1, -2)


class Shrunk(Honest):
    def __call__(self, function, x, coalitions):
        return 0.5 * Honest.__call__(self, function, x, coalitions)


class OtherBase(Honest):
    def base(self, function):
        return jnp.asarray(0.0)


class Squared(Honest):
    def __call__(self, function, x, coalitions):
        return Honest.__call__(self, function, x, coalitions) ** 2


class Centered(Honest):
    def __call__(self, function, x, coalitions):
        values = Honest.__call__(self, function, x, coalitions)
        return values - jnp.mean(values)


class DrawsLast(Honest):
    def __call__(self, function, x, coalitions):
        values = Honest.__call__(self, function, x, coalitions)
        return jnp.moveaxis(values, (0, 1), (-2, -1)) if function.batch_shape else values


class TakesAnything(Honest):
    def __call__(self, function, x, coalitions):
        return Honest.__call__(self, function, x, np.ones((1, 2), dtype=bool))


class OtherFactors(Honest, AbstractProductValueFunction):
    """The factors of absent features, from which Shapley values are computed, are not those of the values."""

    wrong: jax.Array = eqx.field(default=(3.0, -3.0), converter=jnp.asarray)

    def references(self, num_features):
        return self.reference[None]

    def absent_factors(self, term, references, points):
        return self.wrong[:, None, None] * term.factors(references, points)


class DependsOnJit(Honest):
    def __call__(self, function, x, coalitions):
        values = Honest.__call__(self, function, x, coalitions)
        return values if is_concrete(values) else values + 1


class NaNLeaf(Honest):
    note: jax.Array = eqx.field(default_factory=lambda: jnp.array(jnp.nan))


class Doubling(Honest):
    def __init__(self, reference=(0.2, -0.4)):
        self.reference = 2.0 * jnp.asarray(reference)


PLANTED = {
    "derives_from_the_abstract_class": (NotAValueFunction, "does not derive from AbstractValueFunction"),
    "values_have_a_row_a_coalition": (PointsFirst, r"shape \(2, 4\), expected \(4, 2\)"),
    "full_coalition_is_the_prediction": (Shrunk, "differ by"),
    "empty_coalition_is_the_base": (OtherBase, "differ by"),
    "linear_in_the_function": (Squared, "differ by"),
    "coalitions_and_points_are_independent": (Centered, "differ by"),
    "draws_lead": (DrawsLast, "shape"),
    "refuses_coalitions_that_are_not_boolean": (TakesAnything, "coalitions with numbers is accepted"),
    "jit_changes_nothing": (DependsOnJit, "differ by"),
    "shapley_values_are_efficient": (OtherFactors, "differ by"),
    "shapley_values_are_linear": (Squared, "differ by"),
    "null_players_get_nothing": (OtherFactors, "the value of feature 0 and the nearest that it may have: differ by"),
    "symmetric_players_get_the_same": (OtherFactors, "of features 0 and 1 and its limit: differ by"),
    "survives_the_round_trip_as_a_pytree": (NaNLeaf, "a leaf of the pytree differs"),
    "survives_the_round_trip_through_a_spec": (Doubling, "differ by"),
}


def test_every_check_has_a_planted_violation():
    assert set(PLANTED) == set(CHECKS)


@pytest.mark.slow
def test_honest_value_function_passes():
    check_value_function(Honest(), FUNCTION, X)


def test_the_axioms_of_many_features_are_left_out():
    function = RKHSFunction(RBF(1.2), np.zeros((1, 11)), np.ones(1))
    for name in ("shapley_values_are_efficient", "null_players_get_nothing", "symmetric_players_get_the_same"):
        CHECKS[name](OtherFactors(), function, np.zeros((1, 11)))


@pytest.mark.slow
def test_right_factors_pass():
    check_value_function(OtherFactors(wrong=(1.0, 1.0)), FUNCTION, X)


@pytest.mark.parametrize("name", CHECKS)
def test_planted_violation_is_caught(name, register):
    broken, message = PLANTED[name]
    if name == "survives_the_round_trip_through_a_spec":
        register("value_functions", "doubling", broken)
    with pytest.raises(AssertionError, match=message):
        CHECKS[name](broken(), FUNCTION, X)
