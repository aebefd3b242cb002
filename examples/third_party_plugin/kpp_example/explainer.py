"""A new explainer: the change of a prediction when one feature is set to a reference value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

import kpp
from kpp.explanations import resolve
from kpp.kernels import RBF
from kpp.validation import as_targets


class Occlusion(kpp.AbstractExplainer):
    r"""The change of the prediction when one feature takes its reference value.

    .. math:: \phi_j(x) = f(x) - f(x_1, \dots, r_j, \dots, x_d)

    Args:
        reference: r, one value per feature, (d,).
    """

    reference: jax.Array

    requires: ClassVar = "callable"
    additive: ClassVar = False

    def __init__(self, reference: Any) -> None:
        self.reference = as_targets(reference, name="reference")

    def explain(self, predictor: Any, x: Any, *, rng_key: Any = None) -> kpp.Explanation:
        function, points, schema = resolve(predictor, x, self.requires)
        if self.reference.shape != (schema.num_features,):
            raise ValueError(
                f"`reference` must have shape ({schema.num_features},), one value per feature, "
                f"got shape {self.reference.shape}"
            )
        draws = getattr(function, "batch_shape", ())
        predictions = function(points)
        occluded = [function(points.at[:, j].set(self.reference[j])) for j in range(schema.num_features)]
        values = jnp.stack([predictions - other for other in occluded], axis=len(draws) + 1)
        base = function(self.reference[None, :])
        return kpp.Explanation.create(
            values,
            jnp.squeeze(base, axis=len(draws)),
            predictions,
            points,
            schema=schema,
            draws=bool(draws),
            attrs={"explainer": "occlusion", "exact": True},
        )

    @classmethod
    def examples(cls, rng_key: jax.Array) -> Iterator[tuple[Occlusion, Any, jax.Array]]:
        """Yield (explainer, predictor, x): a plain function, and an RKHS function with draws."""
        x = jax.random.normal(rng_key, (3, 2))
        yield cls([0.5, -0.5]), lambda points: jnp.sin(points[:, 0]) * points[:, 1], x
        coefficients = jax.random.normal(rng_key, (1, 2, 5))
        points = jax.random.normal(rng_key, (5, 2))
        yield cls([0.0, 0.0]), kpp.RKHSFunction.over_draws(RBF(1.0), points, coefficients, batch_shape=(1, 2)), x
