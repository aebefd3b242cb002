"""The explainer "rkhs-shap"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from kpp import AbstractExplainer, Explanation, RKHSFunction, registry
from kpp.explanations import resolve
from kpp.games import (
    AbstractProductValueFunction,
    AbstractValueFunction,
    Interventional,
    choose_method,
    num_nodes,
    shapley_values,
)
from kpp.kernels import RBF
from kpp.typing import RngKey

__all__ = ["RKHSShap"]


class RKHSShap(AbstractExplainer):
    r"""Exact Shapley values of a function of an RKHS.

    .. math:: \phi_j = \sum_{S \not\ni j} \frac{|S|!\,(d-1-|S|)!}{d!} \bigl(v(S \cup j) - v(S)\bigr)

    Nothing is sampled: a product kernel's values come from a quadrature that is exact for any number of features, or
    from all :math:`2^d` coalitions where that is cheaper. The draws of a posterior are explained one by one, so that
    the values are a posterior, too.

    Args:
        value_function: The game: what a coalition of features is worth.
        method: "quadrature", "enumeration", or "auto" for the cheaper one.
        batch_size: How many references (background points) are worked on at once; by default what fits a processor's
            cache.

    References:
        Chau, Hu, Gonzalez and Sejdinovic, RKHS-SHAP: Shapley values for kernel methods, 2022.
    """

    value_function: AbstractValueFunction
    method: str = eqx.field(static=True, default="auto")
    batch_size: int | None = eqx.field(static=True, default=None)

    requires: ClassVar = "rkhs_function"
    additive: ClassVar = True

    def explain(self, predictor: Any, x: Any, *, rng_key: RngKey | None = None) -> Explanation:
        """Explain the predictions at p points.

        Args:
            predictor: A `kpp.Fit` or a `kpp.RKHSFunction`, with draws (chain, draw) or without.
            x: The points to explain, (p, d), or a data frame.
            rng_key: Not needed; nothing is random.

        Returns:
            The explanation. Its attributes record the game, the method and the nodes or coalitions it took.

        Raises:
            TypeError: If the predictor is no RKHS function, or its kernel is no product and has too many features.
            ValueError: If `x`, or an option, is not as said.
        """
        function, points, schema = resolve(predictor, x, self.requires)
        num_points, num_features = points.shape
        method = choose_method(self.value_function, function, num_points, num_features, self.method)
        values = shapley_values(self.value_function, function, points, method=method, batch_size=self.batch_size)
        return Explanation.create(
            values,
            self.value_function.base(function),
            function(points),
            points,
            schema=schema,
            draws=bool(function.batch_shape),
            attrs=self._record(method, num_features),
        )

    def _record(self, method: str, num_features: int) -> dict[str, Any]:
        record: dict[str, Any] = {
            "explainer": "rkhs-shap",
            "value_function": _name(self.value_function),
            "exact": True,
            "method": method,
        }
        if method == "quadrature":
            record["nodes"] = num_nodes(num_features)
        else:
            record["coalitions"] = 2**num_features
        if isinstance(self.value_function, AbstractProductValueFunction):
            record["background_size"] = self.value_function.references(num_features).shape[0]
        return record

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
        """Yield explainers with a function and points: both methods, several outputs, draws."""
        points, x = jax.random.normal(rng_key, (6, 3)), jax.random.normal(rng_key, (2, 3)) + 0.3
        coefficients = jnp.sin(jnp.arange(12.0))
        kernel = RBF(lengthscale=jnp.array([0.7, 1.0, 1.4]), variance=1.2)
        function = RKHSFunction(kernel, points, coefficients[:6], 0.4)
        draws = RKHSFunction.over_draws(kernel, points, coefficients.reshape(1, 2, 6), 0.4, batch_shape=(1, 2))
        outputs = RKHSFunction(kernel + 0.5, points, coefficients.reshape(6, 2))
        game = Interventional(points[:4])
        yield cls(game), function, x
        yield cls(game, method="quadrature", batch_size=2), draws, x
        yield cls(game, method="enumeration"), outputs, x


def _name(value_function: AbstractValueFunction) -> str:
    """Return the registered name of a value function, or else its class's."""
    cls = type(value_function)
    return registry.name_of("value_functions", cls) if cls in registry.value_functions().values() else cls.__name__
