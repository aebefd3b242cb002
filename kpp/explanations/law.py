"""The law of contributions under the posterior of a Gaussian process, and draws from it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from kpp.explanations.predictors import describe_uncertainty
from kpp.linalg.toolkit import symmetric_root
from kpp.runtime.random import numpy_generator
from kpp.typing import RngKey

# The draws of a posterior that has only one draw of the hyperparameters.
_NUM_DRAWS = 200


@dataclasses.dataclass(frozen=True)
class Law:
    r"""The Gaussian law of the deviations of Shapley values from their means under one draw of the hyperparameters.

    Args:
        root: A root of the covariance, (p, g, r): deviations are its products with r standard normal numbers.
        num_references: The number of references of the covariance.
        is_joint: Whether all points share the r numbers, so that their values are drawn together; otherwise each point
            has r numbers of its own.
        left_out: The share of the prior variance that the covariance lacks because the process was projected onto
            finitely many features; None if it was not.
        outputs: A root of the covariance between P outputs, which multiplies that of the values; None for one output.

    Attributes:
        affordable_products: The largest number of products of kernel factors that explainers spend on a covariance
            without being asked to: some 25 seconds on two cores.
    """

    affordable_products: ClassVar[float] = 4e10

    root: Float[np.ndarray, "p g r"]
    num_references: int
    is_joint: bool
    left_out: float | None = None
    outputs: Float[np.ndarray, "P P"] | None = None

    @classmethod
    def of_covariance(cls, covariance: Float[np.ndarray, "..."], num_references: int) -> Law:
        """Return the law with a covariance: of each point, (p, g, g), or of all points together, (p, p, g, g)."""
        if covariance.ndim == 3:
            return cls(symmetric_root(covariance), num_references, is_joint=False)
        num_points, num_players = covariance.shape[0], covariance.shape[-1]
        size = num_points * num_players
        root = symmetric_root(np.moveaxis(covariance, 1, 2).reshape(size, size))
        return cls(root.reshape(num_points, num_players, size), num_references, is_joint=True)

    @property
    def covariance(self) -> Float[np.ndarray, "..."]:
        """The covariance of the values of each point, (p, g, g), or of all together, (p, p, g, g), without outputs."""
        pattern = "pgr,qhr->pqgh" if self.is_joint else "pgr,phr->pgh"
        return np.einsum(pattern, self.root, self.root, optimize=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one draw of the values, (p, g[, P])."""
        return self.root.shape[:2] + (() if self.outputs is None else self.outputs.shape[:1])

    def deviations(self, num: int, generator: np.random.Generator) -> Float[np.ndarray, "num p g *P"]:
        """Draw the deviations of the values from their means, `num` times."""
        if self.outputs is not None:
            single, num_outputs = dataclasses.replace(self, outputs=None), len(self.outputs)
            drawn = single.deviations(num * num_outputs, generator).reshape(num, num_outputs, *single.shape)
            return np.moveaxis(drawn, 1, -1) @ self.outputs.T
        num_points, num_players, rank = self.root.shape
        size = (rank,) if self.is_joint else (num_points, rank)
        noise = generator.standard_normal((num, *size)).astype(self.root.dtype)
        if not self.is_joint:
            return np.einsum("pij,...pj->...pi", self.root, noise)
        return (noise @ self.root.reshape(-1, rank).T).reshape(num, num_points, num_players)


@dataclasses.dataclass(frozen=True)
class LawOfDraws:
    """The law of the values under each draw of the hyperparameters, of which some may share one.

    Args:
        laws: Some laws.
        of_draw: The position of the law of each draw.
    """

    laws: tuple[Law, ...]
    of_draw: Int[np.ndarray, " draws"]

    def record(self, predictor: object) -> dict[str, Any]:
        """Return the attributes of an explanation of a predictor whose values are drawn from this law.

        Among them is ``covariance_at``: "draws" if each draw has a covariance of its own, "8 draws" if 8 draws stand
        for all, "mean" if one covariance does.
        """
        first, num = self.laws[0], len(self.laws)
        record = {
            **describe_uncertainty(predictor, has_law=True),
            "instances_drawn": "together" if first.is_joint else "independently",
            "covariance_at": "draws" if num == len(self.of_draw) else "mean" if num == 1 else f"{num} draws",
            "covariance_background_size": first.num_references,
        }
        lacks = [law.left_out for law in self.laws if law.left_out is not None]
        return record | {"variance_left_out": max(lacks)} if lacks else record

    def draw(self, arrays: dict[str, Any], draws: tuple[int, ...], rng_key: RngKey) -> dict[str, Any]:
        """Replace means of values by draws.

        Args:
            arrays: Arrays of an explanation, led by draws: `values` and `predictions` change, the others are repeated.
            draws: The shape of the draws, (chain, draw) or ().
            rng_key: A JAX random key.

        Returns:
            The arrays with one draw of the values for each draw; `_NUM_DRAWS` draws if there is only one.
        """
        shape = draws or (1, 1)
        if math.prod(shape) == 1:
            shape = (1, _NUM_DRAWS)
        spread = {
            name: None if array is None else np.broadcast_to(array, (*shape, *np.shape(array)[len(draws) :]))
            for name, array in arrays.items()
        }
        deviations = self._deviations(math.prod(shape), rng_key).reshape(*shape, *self.laws[0].shape)
        values, predictions = spread["values"] + deviations, spread["predictions"] + deviations.sum(axis=3)
        return spread | {"values": values, "predictions": predictions}

    def _deviations(self, num: int, rng_key: RngKey) -> Float[np.ndarray, "num p g *P"]:
        generator, of_draw = numpy_generator(rng_key), np.broadcast_to(self.of_draw, num)
        deviations = np.empty((num, *self.laws[0].shape), self.laws[0].root.dtype)
        for position, law in enumerate(self.laws):
            own = of_draw == position
            deviations[own] = law.deviations(int(own.sum()), generator)
        return deviations
