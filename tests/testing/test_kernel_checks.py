"""Every check of kernels passes on an honest kernel and catches the violation planted for it."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.foundation.validation import is_concrete
from kpp.kernels import RBF, AbstractKernel, AbstractProductKernel
from kpp.kernels.parameters import parameter
from kpp.testing import check_kernel
from kpp.testing.suite import checks_of
from kpp.typing import Leaf

X = np.random.default_rng(0).normal(size=(4, 2))
CHECKS = {check.__name__: check for check in checks_of(AbstractProductKernel)}


def gaussian(kernel: Any, x1: Any, x2: Any) -> Any:
    return jnp.exp(-0.5 * jnp.square((x1 - x2) / kernel.lengthscale))


class Plain(AbstractKernel):
    """An honest kernel without factors; the planted ones change one thing."""

    lengthscale: Leaf = eqx.field(converter=parameter("lengthscale"), default=0.8)
    variance: Leaf = eqx.field(converter=parameter("variance"), default=2.0)

    def evaluate(self, x1, x2):
        return self.variance * jnp.prod(gaussian(self, x1, x2))


class Factored(AbstractProductKernel):
    """An honest product kernel."""

    lengthscale: Leaf = eqx.field(converter=parameter("lengthscale"), default=0.8)
    variance: Leaf = eqx.field(converter=parameter("variance"), default=2.0)

    @property
    def scale(self):
        return self.variance

    def evaluate_factors(self, x1, x2):
        return gaussian(self, x1, x2)


class NotAKernel(eqx.Module):
    def evaluate(self, x1, x2):
        return 1.0


class VectorValued(Plain):
    def evaluate(self, x1, x2):
        return gaussian(self, x1, x2)


class Lopsided(Plain):
    def evaluate(self, x1, x2):
        return jnp.exp(-jnp.square(x1[0] - 2 * x2[0]))


class Indefinite(Plain):
    def evaluate(self, x1, x2):
        return self.variance * jnp.sum(jnp.square(x1 - x2)) / self.lengthscale


class WrongDiagonal(Plain):
    def diagonal(self, x):
        return jnp.full(x.shape[0], 0.5 * self.variance)


class DependsOnTheBatch(Plain):
    def __call__(self, x1, x2):
        matrix = jax.vmap(lambda a: jax.vmap(lambda b: jnp.prod(gaussian(self, a, b)))(x2))(x1)
        return matrix / jnp.max(matrix) * self.variance + 0.1 * x2.shape[0]


class DependsOnJit(Plain):
    def __call__(self, x1, x2):
        matrix = jax.vmap(lambda a: jax.vmap(lambda b: self.evaluate(a, b))(x2))(x1)
        return matrix if is_concrete(x1) else 2 * matrix


class LooksAtItsValues(Plain):
    def evaluate(self, x1, x2):
        return float(self.variance) * jnp.prod(gaussian(self, x1, x2))


class NaNGradient(Plain):
    def evaluate(self, x1, x2):
        distance = jnp.sqrt(jnp.sum(jnp.square((x1 - x2) / self.lengthscale)))
        return self.variance * jnp.exp(-distance)


class WrongGradient(Plain):
    def evaluate(self, x1, x2):
        return jax.lax.stop_gradient(self.variance) * jnp.prod(gaussian(self, x1, x2))


class NumberForALeaf(AbstractKernel):
    variance: float = 2.0

    def evaluate(self, x1, x2):
        return self.variance * jnp.exp(-jnp.sum(jnp.square(x1 - x2)))


class AlwaysDouble(Plain):
    def evaluate(self, x1, x2):
        return (self.variance * jnp.prod(gaussian(self, x1, x2))).astype(jnp.float64)


class Hashable(Plain):
    def __hash__(self):
        return 3


class Silent(Plain):
    def __repr__(self):
        return "Silent()"


class Careless(AbstractKernel):
    """Holds its parameter where the base class does not look: in a method that it wraps itself."""

    variance: Leaf = eqx.field(converter=parameter("variance"), default=2.0)

    def evaluate(self, x1, x2):
        return jnp.exp(-jnp.sum(jnp.square(x1 - x2)))


Careless.__call__ = lambda self, x1, x2: jnp.ones((len(x1), len(x2)))  # type: ignore[method-assign]


class AmbiguousSites(AbstractKernel):
    parts: dict[str, Any] = eqx.field(default_factory=lambda: {"a": {"b": jnp.ones(())}, "a.b": jnp.ones(())})

    def evaluate(self, x1, x2):
        return self.parts["a.b"] * self.parts["a"]["b"] * jnp.exp(-jnp.sum(jnp.square(x1 - x2)))


class Doubling(Plain):
    def __init__(self, lengthscale=0.8, variance=2.0):
        self.lengthscale = 2.0 * jnp.asarray(lengthscale)
        self.variance = jnp.asarray(variance)


class OwnSum(Plain):
    def __add__(self, other):
        return self


class WrongSplit(Plain):
    def split_scale(self):
        return self.variance, self


class ScalesInside(Plain):
    def __rmul__(self, number):
        return ScalesInside(self.lengthscale, number * self.variance)


class WrongTerms(Plain):
    def product_terms(self):
        return (RBF(self.lengthscale, self.variance), RBF(1.0))


class WrongFeatures(Plain):
    def finite_features(self, x):
        return x


class FactorsLast(Factored):
    def factors(self, x1, x2):
        return jnp.zeros((x1.shape[0], x2.shape[0], x1.shape[1]))


class ScaleTwice(Factored):
    def evaluate_factors(self, x1, x2):
        return self.variance * gaussian(self, x1, x2)

    def evaluate(self, x1, x2):
        return self.variance * jnp.prod(gaussian(self, x1, x2))


class SaysNonnegative(Factored):
    nonnegative = True

    def evaluate_factors(self, x1, x2):
        return -gaussian(self, x1, x2)


class KeepsTheOthers(Factored):
    def restrict(self, mask):
        return Factored.restrict(self, ~jnp.asarray(mask))


class KeepsTheScale(Factored):
    def restrict(self, mask):
        return self.variance * Factored.restrict(self, mask)


class RestrictsToAKernel(Factored):
    def restrict(self, mask):
        return RBF(self.lengthscale) + RBF(self.lengthscale)


class Slices(Factored):
    def restrict(self, mask):
        kept = tuple(np.flatnonzero(mask).tolist())
        return Factored.restrict(self, np.isin(np.arange(2), kept))


class DropsCoefficients(Plain):
    def combine_sections(self, x, points, coefficients):
        return jnp.sum(self(x, points), axis=1)


class UnfoldsToAnother(Plain):
    def unfold(self, points, coefficients):
        return Plain(self.lengthscale, 3.0), points, coefficients


PLANTED = {
    "derives_from_the_abstract_class": (NotAKernel, "NotAKernel does not derive from AbstractKernel"),
    "evaluates_to_a_scalar": (VectorValued, r"`evaluate` returns shape \(2,\)"),
    "symmetric": (Lopsided, "differ by"),
    "positive_semi_definite": (Indefinite, "the lowest eigenvalue is -"),
    "gram_and_diagonal_agree_with_call": (WrongDiagonal, "diagonal of k.*: differ by"),
    "batches_agree_with_single_points": (DependsOnTheBatch, "differ by"),
    "jit_changes_nothing": (DependsOnJit, "with and without jit: differ by"),
    "vmap_over_kernels": (LooksAtItsValues, "traced array with shape"),
    "gradients_are_finite_at_zero_distance": (NaNGradient, "the gradient in lengthscale is not finite"),
    "gradients_are_finite_differences": (WrongGradient, "the derivative is .*, the difference"),
    "survives_the_round_trip_as_a_pytree": (NumberForALeaf, "every leaf must be an array.*'float'"),
    "keeps_the_dtype_of_the_points": (AlwaysDouble, "dtype float64 for points of dtype float32"),
    "unhashable": (Hashable, "is accepted"),
    "repr_shows_values": (Silent, "repr does not show leaf 0"),
    "refuses_to_evaluate_priors": (Careless, r"k\(x, x\) with a prior in variance is accepted"),
    "sample_replaces_priors": (AmbiguousSites, "same site"),
    "survives_the_round_trip_through_a_spec": (Doubling, "differ by"),
    "adds_and_multiplies": (OwnSum, r"k \+ k and twice k: differ by"),
    "scale_times_the_rest_is_the_kernel": (WrongSplit, "differ by"),
    "scaling_inside_or_outside_changes_nothing": (ScalesInside, "the scales of 2.5"),
    "product_terms_sum_to_the_kernel": (WrongTerms, "differ by"),
    "finite_features_give_the_kernel": (WrongFeatures, "differ by"),
    "functions_are_combinations_of_sections": (DropsCoefficients, "differ by"),
    "unfolding_changes_no_value": (UnfoldsToAnother, "differ by"),
    "factors_have_one_matrix_a_feature": (FactorsLast, r"shape \(4, 4, 2\), expected \(2, 4, 4\)"),
    "factors_times_scale_are_the_value": (ScaleTwice, "differ by"),
    "restriction_keeps_the_chosen_factors": (KeepsTheOthers, "differ by"),
    "empty_restriction_is_one": (KeepsTheScale, "differ by"),
    "factors_known_as_nonnegative_are_not_negative": (SaysNonnegative, "but a factor is -1"),
    "restriction_is_a_product_kernel": (RestrictsToAKernel, "`restrict` returns Sum"),
    "restriction_takes_traced_masks": (Slices, "traced array with shape|TracerArrayConversion"),
}


def test_every_check_has_a_planted_violation():
    assert set(PLANTED) == set(CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize("honest", [Plain, Factored])
def test_honest_kernels_pass(honest):
    check_kernel(honest(), X)


@pytest.mark.slow_variants(
    "batches_agree_with_single_points",
    "gradients_are_finite_at_zero_distance",
    "jit_changes_nothing",
    "product_terms_sum_to_the_kernel",
    "restriction_keeps_the_chosen_factors",
    "survives_the_round_trip_through_a_spec",
    "gradients_are_finite_differences",
    "adds_and_multiplies",
)
@pytest.mark.parametrize("name", CHECKS)
def test_planted_violation_is_caught(name, register):
    broken, message = PLANTED[name]
    if name == "survives_the_round_trip_through_a_spec":
        register("kernels", "Doubling", broken)
    with pytest.raises(Exception, match=message):
        CHECKS[name](broken(), X)


@pytest.mark.slow
def test_failures_are_reported_together_with_their_laws():
    with pytest.raises(AssertionError) as failure:
        check_kernel(Lopsided(), X)
    text = str(failure.value)
    assert text.startswith("Lopsided(")
    assert "  symmetric: k(x, x') = k(x', x).\n    k(x1, x2) and the transpose of k(x2, x1): differ by" in text
    assert "positive_semi_definite" in text
