"""The explainer "rkhs-shap"."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from kpp import AbstractExplainer, Explanation, Fit, RKHSFunction
from kpp.causal import CausalDAG, CausalOrder
from kpp.causal.toolkit import as_order
from kpp.explanations import AbstractPointsExplainer, Inputs
from kpp.explanations.toolkit import (
    LawOfDraws,
    describe_estimate,
    describe_key,
    describe_uncertainty,
    describe_value_function,
    freeze_groups,
    is_fit,
    representatives,
    solve_in_blocks,
)
from kpp.foundation.validation import count, one_of, positive
from kpp.games import (
    AbstractImputation,
    AbstractProductValueFunction,
    AbstractValueFunction,
    Interventional,
    Observational,
    ShapleyEstimate,
    asymmetric_shapley_values,
    direct_and_indirect_effects,
    estimate_shapley,
    interaction_values,
    landmark_error,
)
from kpp.games.toolkit import check_effects, choose_method
from kpp.kernels import RBF
from kpp.runtime.threads import num_cores, one_blas_thread
from kpp.typing import AnyArray, RngKey
from kpp_rkhs_shap.law import affordable_laws, covariance_of_values, posterior_of
from kpp_rkhs_shap.projected_law import Target

# Instances per batch: for value functions that share computations between instances, and for a covariance; and the
# largest number of entries of a table of values when all coalitions are enumerated; each core works on such a table.
_INSTANCES, _COVARIANCES, _MAX_ENTRIES = 1024, 8, 2**25
# Quadrature shares nothing between instances: a batch holds a multiple of the first number. There are at least
# as many batches as the second, because the first batch runs alone and the cores should end at the same time.
_MULTIPLE, _BATCHES = 8, 64
# An observational game with landmarks is compared with the exact one at this number of points, and with these options.
_CHECKED, _CHECK = 10, {"num_rows": 500, "num_coalitions": 10}
# The parts of values, in the order of their covariance.
_EFFECTS = ("direct", "indirect")
_CHOICES = {
    "method": ("auto", "quadrature", "enumeration", "least-squares", "permutation"),
    "interactions": (None, "SII", "STII"),
    "covariance": ("auto", None, "point", "joint"),
    "covariance_at": ("mean", "draws"),
    "scale": ("latent", "probability"),
}


class RKHSShap(AbstractPointsExplainer):
    r"""Shapley values of a function of an RKHS, exact whenever an exact method applies.

    .. math:: \phi_j = \sum_{S \not\ni j} \frac{|S|!\,(d-1-|S|)!}{d!} \bigl(v(S \cup j) - v(S)\bigr)

    Values of product kernels are computed by quadrature and are exact for any number of features; other games are
    enumerated up to 14 players and sampled beyond, with standard errors. The draws of a posterior are explained one by
    one, so that the values have a posterior, too. For a Gaussian process this is the whole posterior, of the
    hyperparameters and of the function given them, wherever the covariance of the values is affordable. The attribute
    ``uncertainty`` of the explanation says what the draws hold; see `kpp.explanations.toolkit.describe_uncertainty`.

    Args:
        value_function: The game: the value of a coalition of features.
        method: "quadrature", "enumeration", "least-squares", "permutation", or "auto" for the cheapest exact one, or
            "least-squares" if there is none; see `kpp.games.estimate_shapley`.
        num_coalitions: How many coalitions the sampling methods may value.
        tolerance: The largest standard error that the sampling methods may have, in the unit of the predictions.
            They value more and more coalitions until then, up to `num_coalitions` or by default 32768. The attributes
            of the explanation say whether it was reached.
        groups: Features that form one player: a mapping from the name of a player to names or positions of features.
            Features that are not mentioned are players of their own.
        order: A causal graph or order of the players (see `kpp.causal.as_graph`). Then the values are asymmetric
            Shapley values: averages over the orders in which causes come first, exact (see
            `kpp.games.asymmetric_shapley_values`).
        effects: Whether to split each value into its direct and its indirect effect, for a value function that fills in
            absent features beside the present ones, such as "causal", and up to 14 players. They are in
            ``explanation.effects``, and add up to the values in each draw; see
            `kpp.games.direct_and_indirect_effects`.
        interactions: The index of the exact interactions of all pairs to add: "SII" or "STII"; None for no
            interactions.
        covariance: What is done with the covariance of the values under the posterior of a Gaussian process, for which
            the value function must be an imputation. "auto" draws the values from their law: one draw for each draw of
            the hyperparameters, and 200 if there is only one. Of few rows each draw has its own covariance, of more
            rows that of the nearest of up to 8 draws, for some games of a projection (see `kpp_rkhs_shap.law`). The
            attribute ``covariance_at`` says which. "point" and "joint" leave the
            values at their means and add the covariance, "joint" across points too. None does neither.
        covariance_at: For "point" and "joint": "mean" computes the covariance once, at the mean of the hyperparameters,
            and uses it for every draw; "draws" computes it for each draw.
        scale: "latent", or "probability" for the probabilities of a fitted classifier. They do not come from an
            RKHS, so their game is enumerated or sampled, by an imputation.
        batch_size: How many references (background points) are worked on at once by the methods for product games.
        instances_at_once: How many instances are worked on at once; by default what fits into memory.
        progress: Whether to show progress bars.

    Example:
        >>> from kpp_rkhs_shap import RKHSShap
        >>> RKHSShap(kpp.games.Interventional(x), progress=False).explain(fit, x[:2])
        Explanation(chain: 1, draw: 200, instance: 2, feature: 2)
          features: x0, x1
          explainer='rkhs-shap', value_function='interventional', method='enumeration', exact=True, uncertainty='full'

    References:
        Chau, Hu, Gonzalez and Sejdinovic, RKHS-SHAP: Shapley values for kernel methods, 2022; Chau, Muandet and
        Sejdinovic, Explaining the uncertain: stochastic Shapley values for Gaussian process models, 2023.
    """

    value_function: AbstractValueFunction
    method: str = eqx.field(static=True, default="auto")
    num_coalitions: int | None = eqx.field(static=True, default=None)
    tolerance: float | None = eqx.field(static=True, default=None)
    groups: Any = eqx.field(static=True, default=None, converter=freeze_groups)
    order: CausalDAG | CausalOrder | None = eqx.field(static=True, default=None, converter=as_order)
    effects: bool = eqx.field(static=True, default=False)
    interactions: str | None = eqx.field(static=True, default=None)
    covariance: str | None = eqx.field(static=True, default="auto")
    covariance_at: str = eqx.field(static=True, default="mean")
    scale: str = eqx.field(static=True, default="latent")
    batch_size: int | None = eqx.field(static=True, default=None)
    instances_at_once: int | None = eqx.field(static=True, default=None)
    progress: bool = eqx.field(static=True, default=True)

    requires: ClassVar = "rkhs_function"
    additive: ClassVar = True

    def __check_init__(self) -> None:
        for name, choices in _CHOICES.items():
            one_of(getattr(self, name), name, choices)
        if self.covariance in ("point", "joint") and self.scale != "latent":
            raise ValueError(f"`covariance` belongs to the latent scale, where a law is Gaussian; got {self.scale!r}")
        if self.order is not None and self.interactions is not None:
            raise ValueError(
                "`order` gives asymmetric Shapley values, which have no `interactions`, got "
                f"interactions={self.interactions!r}"
            )
        if self.effects:
            check_effects(self.value_function, self.order)
        for name in ("num_coalitions", "batch_size", "instances_at_once"):
            if getattr(self, name) is not None:
                count(getattr(self, name), name)
        if self.tolerance is not None:
            positive(self.tolerance, "tolerance")

    @one_blas_thread()
    def explain_inputs(self, inputs: Inputs, *, rng_key: RngKey | None = None) -> Explanation:
        """Explain predictions.

        A random key is required where coalitions are sampled. Draws of the values take the key 0 if there is none.
        """
        arrays, estimate = self._values(inputs, rng_key)
        record = {"explainer": "rkhs-shap", **describe_value_function(self.value_function), "scale": self.scale}
        record |= describe_estimate(estimate, rng_key) | self._link(inputs)
        if self.interactions is not None:
            record["interactions"] = self.interactions
        if self.order is not None:
            record["order"] = str(self.order)
        record |= self._error_in_low_rank(inputs)
        law = self._law(inputs) if self.covariance == "auto" else None
        if law is not None:
            arrays, key = self._draw(law, inputs, arrays, rng_key)
            record |= law.record(inputs.predictor) | {"rng_key": key}
        elif self.covariance in ("point", "joint"):
            arrays["covariance"], at = self._covariance(inputs)
            record |= describe_uncertainty(inputs.predictor, has_law=True)
            record |= {"covariance": self.covariance, "covariance_at": at}
        effects = {name: arrays.pop(name) for name in _EFFECTS}
        if self.effects:
            arrays["effects"] = effects
        return inputs.explanation(record, draws=True if law is not None else None, **arrays)

    def _link(self, inputs: Inputs) -> dict[str, str]:
        """Return the link by which the latent values that are explained become the probability of a label."""
        model = getattr(inputs.predictor, "model", None)
        link = getattr(getattr(model, "likelihood", model), "link", None)
        return {"link": link} if isinstance(link, str) and self.scale == "latent" else {}

    def _error_in_low_rank(self, inputs: Inputs) -> dict[str, float]:
        """Return the error of the values of an observational game with landmarks, from a few points and coalitions."""
        game, (_, num_features) = self.value_function, inputs.x.shape
        if not isinstance(game, Observational) or game.landmarks is None or self.scale != "latent" or num_features < 2:
            return {}
        function: Any = inputs.function
        if inputs.batch_shape:
            function = function.take_draws([0])
        found = landmark_error(game, function, inputs.x[:_CHECKED], **_CHECK, rng_key=jax.random.key(0))
        return {"landmark_error": found.relative}

    def _law(self, inputs: Inputs) -> LawOfDraws | None:
        """Return the law of the values, if there is one and it is affordable."""
        if self.scale != "latent" or not isinstance(self.value_function, AbstractImputation):
            return None
        assert isinstance(inputs.function, RKHSFunction), "`requires` says so"
        drawn = representatives(inputs.predictor, inputs.function)
        if drawn is None:
            return None
        return affordable_laws(
            self.value_function,
            drawn,
            inputs.x,
            Target(inputs.players, self.order, self.effects),
            instances_at_once=self.instances_at_once or _COVARIANCES,
            progress=self.progress,
        )

    def _draw(
        self, law: LawOfDraws, inputs: Inputs, arrays: dict[str, Any], rng_key: RngKey | None
    ) -> tuple[dict[str, Any], list[int]]:
        """Return the arrays with draws of the values, and the numbers of the key."""
        key = jax.random.key(0) if rng_key is None else rng_key
        means = {"predictions": inputs.predictions, **arrays}
        if self.effects:  # the law is that of the parts of the values
            means["values"] = np.concatenate([np.asarray(arrays[name]) for name in _EFFECTS], axis=-1)
        # Another stream than the one of sampled coalitions.
        drawn = law.draw(means, inputs.batch_shape, jax.random.fold_in(key, 1))
        if self.effects:
            parts = np.split(drawn["values"], 2, axis=-1)
            drawn |= {"values": sum(parts), **dict(zip(_EFFECTS, parts, strict=True))}
        return drawn, describe_key(key)

    def _values(self, inputs: Inputs, rng_key: RngKey | None) -> tuple[dict[str, Any], ShapleyEstimate]:
        """Return values, errors, interactions, base values and predictions on the chosen scale."""
        if self.scale == "latent":
            return self._values_of(inputs.function, inputs, rng_key)
        if not isinstance(self.value_function, AbstractImputation):
            raise TypeError(
                "`scale` 'probability' needs a value function that is an AbstractImputation, which takes any function, "
                f"got {type(self.value_function).__name__}"
            )
        # The draws are computed together, as outputs of one function.
        probability = ProbabilityOfDraws(inputs.predictor, inputs.batch_shape)
        arrays, estimate = self._values_of(probability, inputs, rng_key)
        arrays["predictions"] = probability(inputs.x)
        named = {name: None if array is None else probability.lead_with_draws(array) for name, array in arrays.items()}
        return named, estimate

    def _values_of(
        self, function: Callable[..., Any], inputs: Inputs, rng_key: RngKey | None
    ) -> tuple[dict[str, Any], ShapleyEstimate]:
        """Return values, errors, interactions and base values of a function."""

        def solve(part: Callable[..., Any], rows: Float[Array, "b d"]) -> tuple[ShapleyEstimate, dict[str, Array]]:
            if self.order is not None:
                return asymmetric_shapley_values(self.value_function, part, rows, self.order, groups=inputs.players), {}
            options: dict[str, Any] = {"groups": inputs.players, "batch_size": self.batch_size}
            sampling: dict[str, Any] = {"num_coalitions": self.num_coalitions, "tolerance": self.tolerance}
            sampling |= {"method": self.method, "rng_key": rng_key}
            estimate = estimate_shapley(self.value_function, part, rows, **sampling, **options)
            others: dict[str, Array] = {}
            if self.interactions is not None:
                exact = self.method if self.method in ("quadrature", "enumeration") else "auto"
                options |= {"index": self.interactions, "method": exact}
                others["interactions"] = interaction_values(self.value_function, part, rows, **options)
            if self.effects:
                found = direct_and_indirect_effects(
                    check_effects(self.value_function), part, rows, groups=inputs.players
                )
                others |= found._asdict()
            return estimate, others

        size = self.instances_at_once or self._instances_at_once(function, inputs)
        estimate, others = solve_in_blocks(
            solve, function, inputs.x, instances_at_once=size, progress=self.progress, threads=num_cores()
        )
        arrays = {
            "values": estimate.values,
            "standard_errors": estimate.standard_errors,
            "interactions": others.get("interactions"),
            **{name: others.get(name) for name in _EFFECTS},
            "base_values": self.value_function.base(function),
        }
        return arrays, estimate

    def _covariance(self, inputs: Inputs) -> tuple[Float[np.ndarray, "..."], str]:
        """Return the covariance of the values, and whether it is for the mean of the draws or for each draw."""
        posterior = posterior_of(inputs.predictor, self.covariance_at)
        covariance = covariance_of_values(
            self.value_function,
            posterior,
            inputs.x,
            Target(inputs.players, self.order),
            joint=self.covariance == "joint",
            draws=inputs.batch_shape,
            instances_at_once=self.instances_at_once or _COVARIANCES,
            progress=self.progress,
        )
        if posterior.output_covariance is not None:  # each output has the covariance of its own values
            covariance = np.diagonal(covariance, axis1=-2, axis2=-1)
        return covariance, "draws" if posterior.batch_shape else "mean"

    def _instances_at_once(self, function: Callable[..., Any], inputs: Inputs) -> int:
        if isinstance(self.value_function, AbstractProductValueFunction):
            if not self._is_by_quadrature(function, inputs):
                return _INSTANCES
            multiples = inputs.x.shape[0] // (_MULTIPLE * _BATCHES)
            return min(_MULTIPLE * max(1, multiples), _INSTANCES)
        draws = int(np.prod(getattr(function, "draws", getattr(function, "batch_shape", ()))))
        return max(1, min(_INSTANCES, _MAX_ENTRIES // (draws * 2 ** min(inputs.players.num_players, 14))))

    def _is_by_quadrature(self, function: Callable[..., Any], inputs: Inputs) -> bool:
        """Return whether the values come from quadrature, whose cost is that of the instances."""
        if not (isinstance(function, RKHSFunction) and function.has_product_parts):
            return False
        if self.method not in ("auto", "quadrature"):
            return False
        num_points, num_features = inputs.x.shape
        players = inputs.players.num_players
        chosen = choose_method(
            self.value_function, function, num_points, num_features, self.method, num_players=players
        )
        return chosen == "quadrature"

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
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


class ProbabilityOfDraws:
    """The probabilities of a fitted classifier, with one output per draw (chain, draw) and class, if there are many."""

    def __init__(self, fit: Any, draws: tuple[int, ...]) -> None:
        if not is_fit(fit):
            raise TypeError(
                "`scale` 'probability' needs a kpp.Fit of a classifier, whose `predict` gives a probability for each "
                f"draw; `predictor` is a {type(fit).__name__}"
            )
        if isinstance(fit, Fit):  # without a progress bar, because it is called many times
            inference = dataclasses.replace(fit.inference, progress=False)  # type: ignore[call-arg]  # all have it
            fit = dataclasses.replace(fit, inference=inference)
        self.fit, self.draws = fit, draws

    def __call__(self, x: Float[AnyArray, "n d"]) -> Float[np.ndarray, "n draws"]:
        """Return the probabilities at points (n, d)."""
        predicted = self.fit.predict(np.asarray(x))
        found = [name for name in ("probability", "class_probability") if name in predicted]
        if not found:
            raise TypeError(f"`scale` 'probability' needs a classifier; `predictor` predicts {list(predicted)}")
        return predicted[found[0]].transpose("instance", "chain", "draw", ...).values.reshape(len(x), -1)

    def lead_with_draws(self, array: ArrayLike) -> np.ndarray:
        """Return an array (..., draws times classes) as (chain, draw, ..., classes), without an axis of one class."""
        array = np.asarray(array)
        num_classes = array.shape[-1] // math.prod(self.draws)
        split = array.reshape(*array.shape[:-1], *self.draws, num_classes)
        led = np.moveaxis(split, range(-1 - len(self.draws), -1), range(len(self.draws)))
        return led if num_classes > 1 else led[..., 0]
