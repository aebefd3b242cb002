"""Value functions whose absent features are replaced independently of the present ones, or removed from the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.foundation.validation import as_points, check_type
from kpp.functions import RKHSFunction
from kpp.games.players.players import Coalitions, CoalitionTable, Instances, as_coalitions
from kpp.games.values.abstract import AbstractProductValueFunction, AbstractValueFunction
from kpp.games.values.imputation import AbstractImputation, equal_weights, imputed_values
from kpp.games.values.product_games import example_functions, product_values
from kpp.kernels import AbstractProductKernel
from kpp.runtime.batching import sum_arrays
from kpp.typing import AnyArray, PointFunction, Points, RngKey


class Interventional(AbstractProductValueFunction, AbstractImputation):
    r"""Absent features are replaced by the features of background points, independently of the present features.

    .. math:: v(S) = \frac1m \sum_{b=1}^m f(x_S, z_{b, S^c})

    Args:
        background: The background points z, (m, d). Their mean prediction is the base value.

    Example:
        >>> game = kpp.games.Interventional(background=x)
        >>> kpp.explain(fit, x[:1], value_function=game, covariance=None).mean().values.round(2).values
        array([[ 0.27, -0.03]])

    References:
        Janzing, Minorics and Bloebaum, Feature relevance quantification in explainable AI: a causal problem, 2020;
        Chau, Hu, Gonzalez and Sejdinovic, RKHS-SHAP, 2022, eq. (6).
    """

    background: Float[AnyArray, "m d"] = eqx.field(converter=lambda value: as_points(value, "background"))

    def __call__(self, function: PointFunction, x: object, coalitions: object) -> CoalitionTable:
        x = as_points(x, num_features=self.background.shape[1])
        coalitions = as_coalitions(coalitions, x.shape[1])
        if isinstance(function, RKHSFunction) and function.has_product_parts:
            return product_values(self, function, x, jnp.asarray(coalitions))
        return imputed_values(self, function, x, coalitions)

    def imputation_weights(self, function: object, x: Instances, coalitions: Coalitions) -> Float[Array, "c p m"]:
        return equal_weights(x, coalitions, self.background.shape[0])

    def references(self, num_features: int) -> Float[Array, "m d"]:
        return as_points(self.background, "background", num_features=num_features)

    def absent_factors(
        self, term: AbstractProductKernel, references: Float[Array, "b d"], points: Points
    ) -> Float[Array, "d b n"]:
        return term.factors(references, points)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractValueFunction, RKHSFunction, Any]]:
        for function, x in example_functions(rng_key):
            yield cls(function.points[:3] + 0.1), function, x


class Baseline(AbstractProductValueFunction):
    r"""Absent features' kernel factors become 1, as if every point of the function agreed with x there.

    .. math:: v(S) = \sigma^2 \sum_i \alpha_i \prod_{j \in S} k_j(x_j, X_{ij})

    The base value is :math:`\sigma^2 \sum_i \alpha_i`, plus the intercept.

    Example:
        >>> kpp.explain(fit, x[:1], value_function="baseline", covariance=None).values.round(1).values
        array([[[[0. , 0.5]]]])
    """

    def __call__(self, function: Any, x: object, coalitions: object) -> CoalitionTable:
        check_type(function, "function", ("RKHSFunction",))
        _check_factors(function)
        x = as_points(x)
        coalitions = as_coalitions(coalitions, x.shape[1])
        return product_values(self, function, x, jnp.asarray(coalitions))

    def base(self, function: Any) -> Float[Array, "*draws *outputs"]:
        _check_factors(function)
        return _sum_coefficients(function)

    def references(self, num_features: int) -> Float[Array, "m d"]:
        return jnp.zeros((1, num_features))

    def absent_factors(
        self, term: AbstractProductKernel, references: Float[Array, "b d"], points: Points
    ) -> Float[Array, "d b n"]:
        return jnp.ones((references.shape[1], references.shape[0], points.shape[0]), dtype=points.dtype)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractValueFunction, RKHSFunction, Any]]:
        for function, x in example_functions(rng_key):
            yield cls(), function, x


def _check_factors(function: RKHSFunction) -> None:
    if function.spanned is not function:
        raise TypeError(
            "`Baseline` replaces kernel factors, and a function that was added, such as a prior mean, "
            "has none; use Interventional or Observational"
        )


@eqx.filter_jit
def _sum_coefficients(function: RKHSFunction) -> Float[Array, "..."]:
    """Return the sum of the coefficients times the scale of each term, plus the intercept."""

    def of_draw(draw: RKHSFunction) -> Array:
        scale = sum_arrays(jnp.asarray(term.scale) for term in draw.kernel.product_terms())
        return scale * jnp.sum(draw.coefficients, axis=0) + draw.intercept

    return function.map_draws(of_draw)
