"""The explainer "rkhs-shap"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from threadpoolctl import threadpool_limits

from kpp import AbstractExplainer, Explanation, GPPosterior, RKHSFunction
from kpp.batching import in_blocks
from kpp.explanations import (
    describe_estimate,
    describe_value_function,
    freeze_groups,
    group_points,
    resolve,
)
from kpp.games import (
    AbstractImputation,
    AbstractProductValueFunction,
    AbstractValueFunction,
    Interventional,
    Players,
    ShapleyEstimate,
    as_players,
    estimate_shapley,
    interaction_values,
)
from kpp.kernels import RBF
from kpp.typing import RngKey
from kpp_rkhs_shap.probability import ProbabilityOfDraws
from kpp_rkhs_shap.shapley_covariance import covariance_of_values, posterior_of

__all__ = ["RKHSShap"]

# Instances at once: for value functions that share work between instances, for a covariance, and the entries of a
# table of values where all coalitions are enumerated.
_INSTANCES, _COVARIANCES, _MAX_ENTRIES = 1024, 8, 2**26
_CHOICES = {
    "interactions": (None, "SII", "STII"),
    "covariance": (None, "point", "joint"),
    "covariance_at": ("mean", "draws"),
    "scale": ("latent", "probability"),
}


class RKHSShap(AbstractExplainer):
    r"""Shapley values of a function of an RKHS, exact wherever that can be had.

    .. math:: \phi_j = \sum_{S \not\ni j} \frac{|S|!\,(d-1-|S|)!}{d!} \bigl(v(S \cup j) - v(S)\bigr)

    Where a product kernel's values come from a quadrature, they are exact for any number of features; other games are
    enumerated up to 14 players and sampled beyond, with standard errors. The draws of a posterior are explained one by
    one, so that the values are a posterior, too; the Gaussian law that they have in each draw is added on request.

    Args:
        value_function: The game: what a coalition of features is worth.
        method: "quadrature", "enumeration", "least-squares", "permutation", or "auto" for the cheapest exact one, or
            "least-squares" if there is none; see `kpp.games.estimate_shapley`.
        num_coalitions: How many coalitions the sampling methods may value.
        groups: Features that play as one: a mapping from the name of a player to names or positions of features.
            Features that are not mentioned play for themselves.
        interactions: Whether to add the interactions of all pairs, exact ones: "SII" or "STII".
        covariance: Whether to add the covariance of the values under the posterior of a Gaussian process: of each
            "point", or "joint" for that across points too. Needs a value function that is an imputation.
        covariance_at: "mean" computes it once, at the mean of the hyperparameters, and gives it to every draw; "draws"
            for each draw.
        scale: "latent", or "probability" for the probabilities of a fitted classifier. They are no function of an RKHS,
            so their game is enumerated or sampled, by an imputation.
        batch_size: How many references (background points) are worked on at once by the methods for product games.
        instances_at_once: How many instances are worked on at once; by default what fits into memory.
        progress: Whether to show progress bars.

    References:
        Chau, Hu, Gonzalez and Sejdinovic, RKHS-SHAP: Shapley values for kernel methods, 2022; Chau, Muandet and
        Sejdinovic, Explaining the uncertain: stochastic Shapley values for Gaussian process models, 2023.
    """

    value_function: AbstractValueFunction
    method: str = eqx.field(static=True, default="auto")
    num_coalitions: int | None = eqx.field(static=True, default=None)
    groups: Any = eqx.field(static=True, default=None, converter=freeze_groups)
    interactions: str | None = eqx.field(static=True, default=None)
    covariance: str | None = eqx.field(static=True, default=None)
    covariance_at: str = eqx.field(static=True, default="mean")
    scale: str = eqx.field(static=True, default="latent")
    batch_size: int | None = eqx.field(static=True, default=None)
    instances_at_once: int | None = eqx.field(static=True, default=None)
    progress: bool = eqx.field(static=True, default=True)

    requires: ClassVar = "rkhs_function"
    additive: ClassVar = True

    def __check_init__(self) -> None:
        """Refuse options that are none of the choices, or exclude each other."""
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"`{name}` must be one of {choices}, got {getattr(self, name)!r}")
        if self.covariance is not None and self.scale != "latent":
            raise ValueError(f"`covariance` belongs to the latent scale, where a law is Gaussian; got {self.scale!r}")
        if self.instances_at_once is not None and self.instances_at_once < 1:
            raise ValueError(f"`instances_at_once` must be at least 1, got {self.instances_at_once}")

    def explain(self, predictor: Any, x: Any, *, rng_key: RngKey | None = None) -> Explanation:
        """Explain the predictions at p points.

        Args:
            predictor: A `kpp.Fit`, a `kpp.GPPosterior` or a `kpp.RKHSFunction`, with draws (chain, draw) or without.
            x: The points to explain, (p, d), or a data frame.
            rng_key: A JAX random key; needed only where coalitions are sampled.

        Returns:
            The explanation. Its attributes record the game and its options, the method, and the nodes or coalitions it
            took.

        Raises:
            TypeError: If the predictor is no RKHS function, an option asks for more than it or the game has, or
                something must be sampled without a key.
            ValueError: If `x`, or an option, is not as said.
        """
        mean = predictor.mean if isinstance(predictor, GPPosterior) else predictor
        function, points, schema = resolve(mean, x, self.requires)
        groups = None if self.groups is None else dict(self.groups)
        players = as_players(groups, points.shape[1], schema.feature_names)
        shown = group_points(points, players, schema, self._known_points(function))
        # The matrices are many and small: threads of BLAS and those of XLA would wait for each other.
        with threadpool_limits(1, user_api="blas"):
            arrays, record = self._solve(predictor, function, points, players, rng_key)
        return Explanation.create(
            **arrays,
            data=shown.data,
            schema=shown.schema,
            groups=shown.groups,
            draws=bool(function.batch_shape),
            attrs=record,
        )

    def _known_points(self, function: RKHSFunction) -> list[Any]:
        """Return what tells whether columns are one-hot: the points of the function and the background."""
        background = getattr(self.value_function, "background", None)
        points = function.points.reshape(-1, function.points.shape[-1])
        return [points] if background is None else [points, background]

    def _solve(
        self, predictor: Any, function: RKHSFunction, x: Float[Array, "p d"], players: Players, rng_key: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arrays of the explanation, and what it records of them."""
        record = {"explainer": "rkhs-shap", **describe_value_function(self.value_function), "scale": self.scale}
        if self.scale == "latent":
            arrays, estimate = self._values(function, x, players, rng_key)
        else:
            arrays, estimate = self._values_of_probability(predictor, function, x, players, rng_key)
        record |= describe_estimate(estimate, rng_key)
        if self.interactions is not None:
            record["interactions"] = self.interactions
        if self.covariance is not None:
            posterior = posterior_of(predictor, self.covariance_at)
            arrays["covariance"] = covariance_of_values(
                self.value_function,
                posterior,
                x,
                players,
                joint=self.covariance == "joint",
                draws=function.batch_shape,
                instances_at_once=self.instances_at_once or _COVARIANCES,
                progress=self.progress,
            )
            record |= {"covariance": self.covariance, "covariance_at": "draws" if posterior.batch_shape else "mean"}
        return arrays, record

    def _values(
        self, function: Any, x: Float[Array, "p d"], players: Players, rng_key: Any
    ) -> tuple[dict[str, Any], ShapleyEstimate]:
        """Return values, errors, interactions, base values and predictions of a function."""

        def solve(part: Any, rows: Array) -> tuple[ShapleyEstimate, Any]:
            options: dict[str, Any] = {"groups": players, "batch_size": self.batch_size}
            estimate = estimate_shapley(
                self.value_function,
                part,
                rows,
                method=self.method,
                num_coalitions=self.num_coalitions,
                rng_key=rng_key,
                **options,
            )
            if self.interactions is None:
                return estimate, None
            exact = self.method if self.method in ("quadrature", "enumeration") else "auto"
            index = self.interactions
            return estimate, interaction_values(self.value_function, part, rows, index=index, method=exact, **options)

        size = self.instances_at_once or self._instances_at_once(function, players)
        estimate, interactions = in_blocks(
            solve, function, x, instances_at_once=size, label="explain", progress=self.progress
        )
        arrays = {
            "values": estimate.values,
            "standard_errors": estimate.standard_errors,
            "interactions": interactions,
            "base_values": self.value_function.base(function),
            "predictions": function(x),
        }
        return arrays, estimate

    def _values_of_probability(
        self, predictor: Any, function: RKHSFunction, x: Float[Array, "p d"], players: Players, rng_key: Any
    ) -> tuple[dict[str, Any], ShapleyEstimate]:
        """Return the same of the probabilities of a fitted classifier, whose draws are computed together as outputs."""
        if not isinstance(self.value_function, AbstractImputation):
            raise TypeError(
                "`scale` 'probability' needs a value function that is an AbstractImputation, which takes any function, "
                f"got {type(self.value_function).__name__}"
            )
        probability = ProbabilityOfDraws(predictor, function.batch_shape)
        arrays, estimate = self._values(probability, x, players, rng_key)
        return {
            name: None if array is None else probability.lead_with_draws(array) for name, array in arrays.items()
        }, estimate

    def _instances_at_once(self, function: Any, players: Players) -> int:
        if isinstance(self.value_function, AbstractProductValueFunction):
            return _INSTANCES
        draws = int(np.prod(getattr(function, "draws", getattr(function, "batch_shape", ()))))
        return max(1, min(_INSTANCES, _MAX_ENTRIES // (draws * 2 ** min(players.num_players, 14))))

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
        """Yield explainers with a function and points: both exact methods, a sampled one, outputs, draws, groups."""
        points, x = jax.random.normal(rng_key, (6, 4)), jax.random.normal(rng_key, (2, 4)) + 0.3
        coefficients = jnp.sin(jnp.arange(12.0))
        kernel = RBF(lengthscale=jnp.array([0.7, 1.0, 1.4, 0.9]), variance=1.2)
        function = RKHSFunction(kernel, points, coefficients[:6], 0.4)
        draws = RKHSFunction.over_draws(kernel, points, coefficients.reshape(1, 2, 6), 0.4, batch_shape=(1, 2))
        outputs = RKHSFunction(kernel + 0.5, points, coefficients.reshape(6, 2))
        game = Interventional(points[:4])
        yield cls(game), function, x
        yield cls(game, method="quadrature", batch_size=2), draws, x
        yield cls(game, method="enumeration"), outputs, x
        yield cls(game, groups={"pair": [0, 2]}, method="quadrature"), function, x
        yield cls(game, method="least-squares", num_coalitions=10), function, x
