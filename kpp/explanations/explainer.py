"""The interface of explainers, and a base class for explainers of points that reads their inputs."""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

import dataclasses
import functools
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.data.tables import Schema, as_table, is_table
from kpp.explanations.explanation import Explanation
from kpp.explanations.functions.estimator_functions import EstimatorFunction, is_estimator, output_names
from kpp.explanations.grouped_points import GroupedPoints, group_points
from kpp.explanations.predictors import ReadPredictor, Requirement, check_features, describe_uncertainty, read_rows
from kpp.foundation.modules import AbstractModule
from kpp.foundation.validation import as_points
from kpp.functions import RKHSFunction
from kpp.games import as_players
from kpp.games.toolkit import Players
from kpp.runtime.batching import call_in_chunks
from kpp.typing import RngKey

Groups = Mapping[str, Any] | Sequence[tuple[str, Any]] | None


class AbstractExplainer(AbstractModule):
    """A method that computes how much each feature contributes to a prediction.

    A subclass is final, has its options as fields, and defines `explain`. It declares two class attributes:

    * ``requires``: what it needs of the predictor. "rkhs_function" is a `kpp.RKHSFunction` (with or without draws);
      "probabilities" a function from (p, d) to probabilities (p,) or (p, classes); "callable" any function from (p, d)
      to (p,) or (p, outputs), possibly led by draws; "pairs" an `RKHSFunction` on pairs of points (p, 2, d).
    * ``additive``: whether base value plus contributions equal the prediction. Only then is additivity tested.

    An explainer that values coalitions has a field ``value_function``, for which `kpp.explain` takes a registered name.
    """

    requires: eqx.AbstractClassVar[Requirement]
    additive: eqx.AbstractClassVar[bool]

    @abstractmethod
    def explain(self, predictor: object, x: object, *, rng_key: RngKey | None = None) -> Explanation:
        r"""Explain the predictions at p points.

        Laws: the rows of `x` are explained independently of each other, up to the randomness of `rng_key`; the same key
        gives the same explanation; and if ``additive``, for every instance, draw and output,

        .. math:: \mathrm{base} + \sum_{j=1}^d \phi_j = f(x).

        Args:
            predictor: A `kpp.Fit`, or a predictor of the kind in ``requires``. Begin with `kpp.explanations.resolve`,
                which reads both.
            x: The points to explain, (p, d) or a data frame.
            rng_key: A JAX random key; needed only by explainers that sample.

        Returns:
            The explanation, built by `Explanation.create`.

        Raises:
            TypeError: If the predictor is not of the kind in ``requires``.
            ValueError: If `x` does not fit the predictor.
        """


def as_explanation(value: object, explainer: AbstractExplainer) -> Explanation:
    """Return what an explainer, perhaps a stranger's, returned; raise TypeError if it is no explanation."""
    if not isinstance(value, Explanation):
        raise TypeError(f"`{type(explainer).__name__}` must return a kpp.Explanation, got {type(value).__name__}")
    return value


@dataclasses.dataclass(frozen=True)
class Inputs:
    """A predictor, the points to explain, their columns, the players and the background.

    Args:
        predictor: The predictor as the user gave it: a `kpp.Fit`, a `kpp.GPPosterior`, an estimator, a function.
        function: The function that the explainer requires: an `RKHSFunction`, possibly with draws, or a callable.
        x: The points, (p, d).
        schema: The names of the columns and the levels of those that hold categories.
        players: The features, or groups of features, that are explained.
        background: The background points, (m, d), or None if the explainer has none.
        requires: What the explainer requires of the predictor.
        data: The rows that the explanation shows if they are not the points, (p, g).
        instance_names: The names of the points, or None.
    """

    predictor: Any
    function: RKHSFunction | Callable[..., Any]
    x: Float[Array, "p d"]
    schema: Schema
    players: Players
    background: Float[np.ndarray, "m d"] | None
    requires: Requirement
    data: Float[np.ndarray, "p g"] | None = None
    instance_names: Sequence[str] | None = None

    @classmethod
    def read(
        cls, predictor: object, x: object, requires: Requirement, *, background: object = None, groups: Groups = None
    ) -> "Inputs":
        """Read the arguments of a user.

        Args:
            predictor: A `kpp.Fit`, a `kpp.RKHSFunction`, a `kpp.GPPosterior`, a function, or where a "callable" is
                required a fitted estimator.
            x: The points, (p, d), or a data frame.
            requires: What the explainer requires of the predictor.
            background: The background, (m, d), or a data frame; the levels of its text are the codes of an estimator.
            groups: Groups of features that form one player each, as a mapping or as pairs of a name and features.

        Raises:
            TypeError: If the predictor is not what the explainer requires.
            ValueError: If the points, the background or the groups do not fit the predictor.
        """
        background = as_table(background, "background")
        if requires == "callable" and is_estimator(predictor):
            predictor = EstimatorFunction.create(predictor, background if is_table(background) else None, as_table(x))
        known = ReadPredictor.read(predictor, requires)
        rows, schema = read_rows(x, known.schema)
        check_features(known.function, rows)
        if is_table(background):
            background = schema.read(background, "background")
        reference = None
        if background is not None:
            reference = np.asarray(as_points(background, "background", num_features=rows.shape[1]), dtype=rows.dtype)
        players = as_players(None if groups is None else dict(groups), rows.shape[1], schema.feature_names)
        x = jnp.asarray(rows, rows.dtype)
        return cls(known.predictor, known.function, x, schema, players, reference, requires)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape (chain, draw) of the draws of an `RKHSFunction`, or ()."""
        return self.function.batch_shape if isinstance(self.function, RKHSFunction) else ()

    @functools.cached_property
    def rows(self) -> Float[np.ndarray, "p d"]:
        """The points as a NumPy array."""
        return np.asarray(self.x)

    @functools.cached_property
    def shown(self) -> GroupedPoints:
        """The points as the explanation shows them, one column per player."""
        others = [] if self.background is None else [self.background]
        if self.requires == "rkhs_function" and isinstance(self.function, RKHSFunction) and self.function.num_features:
            others.append(np.asarray(self.function.spanned.points).reshape(-1, self.function.num_features))
        return group_points(self.rows if self.data is None else self.data, self.players, self.schema, others)

    @functools.cached_property
    def predictions(self) -> Float[np.ndarray, "..."]:
        """The predictions, (p,), led by (chain, draw) if there are draws, with the outputs last."""
        return self._predictions[0]

    @property
    def row_axis(self) -> int:
        """The axis of the points in `predictions`: 2 with draws, else 0."""
        return self._predictions[1]

    @functools.cached_property
    def _predictions(self) -> tuple[np.ndarray, int]:
        predictions, axis = call_in_chunks(self.function, self.rows)
        return predictions.astype(self.rows.dtype), axis

    @property
    def num_targets(self) -> int:
        """How many numbers are predicted for a point: draws times outputs."""
        return self.predictions.size // len(self.rows)

    def predict(self, rows: Float[np.ndarray, "*shape d"]) -> Float[np.ndarray, "*shape r"]:
        """Return the predictions of rows, with all draws and outputs in one last axis."""
        values, axis = call_in_chunks(self.function, rows.reshape(-1, rows.shape[-1]))
        values = np.moveaxis(values, axis, 0).astype(rows.dtype, copy=False)
        return values.reshape(*rows.shape[:-1], self.num_targets)

    def mean_predictions(self) -> Float[np.ndarray, " r"]:
        """Return the mean predictions over the background.

        Raises:
            ValueError: If there is no background.
        """
        if self.background is None:
            raise ValueError("`background` must be given for a mean prediction over it, got None")
        return self.predict(self.background).mean(axis=0)

    def unfold(self, values: Float[np.ndarray, "*rest r"]) -> Float[np.ndarray, "..."]:
        """Return results whose last axis holds draws and outputs with the draws first and the outputs last."""
        draws, outputs = self.predictions.shape[: self.row_axis], self.predictions.shape[self.row_axis + 1 :]
        values = np.moveaxis(values, -1, 0)
        values = values.reshape((*draws, *outputs, *values.shape[1:]))
        return np.moveaxis(values, range(len(draws), len(draws) + len(outputs)), range(-len(outputs), 0))

    def explanation(self, attrs: Mapping[str, Any], *, draws: bool | None = None, **arrays: Any) -> Explanation:
        """Return an explanation of the points.

        If the values are those of posterior means of a Gaussian process, the attribute ``uncertainty`` says what their
        draws leave out; see `describe_uncertainty`.

        Args:
            attrs: How the values were found. An explainer whose draws hold more uncertainty sets ``uncertainty``.
            draws: Whether the arrays lead with (chain, draw); by default, if the function has draws.
            **arrays: The arrays of `Explanation.create`: at least values and base values; predictions only if they are
                not those of the function.
        """
        if "predictions" not in arrays:
            arrays["predictions"] = self.predictions
        if draws is None:
            draws = bool(self.batch_shape) or self.row_axis > 0
        record: dict[str, Any] = {} if self.background is None else {"background_size": len(self.background)}
        if arrays.get("covariance") is None and arrays.get("variance") is None:
            record |= describe_uncertainty(self.predictor, has_law=False, num_draws=math.prod(self.batch_shape))
        return Explanation.create(
            **arrays,
            data=self.shown.data,
            schema=self.shown.schema,
            instance_names=self.instance_names,
            groups=self.shown.groups,
            draws=draws,
            output_names=output_names(self.function) or output_names(self.predictor),
            attrs={**record, **attrs},
        )


class AbstractPointsExplainer(AbstractExplainer):
    """An explainer of points (p, d), which receives the users' inputs read and checked.

    A subclass defines `explain_inputs` in place of `explain`, and may have a field `groups`. Its background is the
    field ``background``, its own or that of its value function, if there is one. If its points have another form, such
    as pairs, it also defines `read_inputs`.
    """

    @abstractmethod
    def explain_inputs(self, inputs: Inputs, *, rng_key: RngKey | None = None) -> Explanation:
        """Explain predictions; the laws are those of `explain`.

        Args:
            inputs: The predictor, points, players and background.
            rng_key: A JAX random key, for explainers that sample.

        Returns:
            The explanation, best built by `Inputs.explanation`.
        """

    def explain(self, predictor: object, x: object, *, rng_key: RngKey | None = None) -> Explanation:
        """Explain the predictions at p points.

        Args:
            predictor: A `kpp.Fit`, a `kpp.RKHSFunction`, or a `kpp.GPPosterior`; an explainer that requires a
                "callable" takes any function from points to predictions, or a fitted estimator.
            x: The points to explain, (p, d), or a data frame.
            rng_key: A JAX random key, for explainers that sample.

        Returns:
            The explanation. Its attributes record the options and how the values were found.

        Raises:
            TypeError: If the predictor is not what the explainer requires, or an explainer that samples gets no key.
            ValueError: If `x`, or an option, does not fit the predictor.
        """
        return as_explanation(self.explain_inputs(self.read_inputs(predictor, x), rng_key=rng_key), self)

    def read_inputs(self, predictor: object, x: object) -> Inputs:
        """Read a predictor and points for this explainer."""
        groups = getattr(self, "groups", None)
        return Inputs.read(predictor, x, self.requires, background=self.reference_points, groups=groups)

    @property
    def reference_points(self) -> object:
        """The background of the explainer or of its value function, (m, d) or a data frame, or None."""
        owner = self if hasattr(self, "background") else getattr(self, "value_function", None)
        return getattr(owner, "background", None)
