"""What the explainers of this package have in common: what they read, and blocks of instances that fit into memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from kpp.batching import call_in_chunks
from kpp.explanations import Explanation, GroupedPoints, group_points, output_names, resolve
from kpp.games import Players, as_players
from kpp.tables import Schema
from kpp.typing import RngKey
from kpp.validation import as_points, check_rng_key

__all__ = [
    "Task",
    "as_background",
    "as_optional_float",
    "check_choice",
    "check_count",
    "freeze_features",
    "record_key",
    "required_key",
]


@dataclasses.dataclass(frozen=True)
class Task:
    """A predictor, points, players and the background, read and checked.

    Args:
        function: The function that is explained.
        x: The points, (p, d).
        background: The background, (m, d).
        schema: The columns.
        players: The features, or groups of them, that are explained.
        shown: The points as the explanation shows them.
        predictions: The predictions, (p,), led by (chain, draw) if there are draws, with the outputs last.
        row_axis: The axis of the points there: 2 with draws, else 0.
    """

    function: Any
    x: Float[np.ndarray, "p d"]
    background: Float[np.ndarray, "m d"]
    schema: Schema
    players: Players
    shown: GroupedPoints
    predictions: Float[np.ndarray, "..."]
    row_axis: int

    @classmethod
    def read(cls, predictor: Any, x: Any, background: Any, groups: Any) -> Task:
        """Read what a user hands in.

        Args:
            predictor: A `kpp.Fit`, an RKHS function, an estimator or a function.
            x: The points, (p, d), or a data frame.
            background: The background, (m, d).
            groups: Frozen groups of features, or None.

        Raises:
            TypeError: If the predictor is none of these.
            ValueError: If the points, the background or the groups do not fit it.
        """
        function, points, schema = resolve(predictor, x, "callable")
        rows = np.asarray(points)
        background = np.asarray(as_points(background, "background", num_features=rows.shape[1]), dtype=rows.dtype)
        players = as_players(None if groups is None else dict(groups), rows.shape[1], schema.feature_names)
        shown = group_points(rows, players, schema, [background])
        predictions, axis = call_in_chunks(function, rows)
        return cls(function, rows, background, schema, players, shown, predictions.astype(rows.dtype), axis)

    @property
    def num_targets(self) -> int:
        """How many numbers are predicted for a point: draws times outputs."""
        return self.predictions.size // len(self.x)

    def predict(self, rows: Float[np.ndarray, "*shape d"]) -> Float[np.ndarray, "*shape r"]:
        """Return the predictions of rows, all draws and outputs in one last axis."""
        values, axis = call_in_chunks(self.function, rows.reshape(-1, rows.shape[-1]))
        values = np.moveaxis(values, axis, 0).astype(rows.dtype, copy=False)
        return values.reshape(*rows.shape[:-1], self.num_targets)

    def base(self) -> Float[np.ndarray, " r"]:
        """Return the mean predictions over the background."""
        return self.predict(self.background).mean(axis=0)

    def unfold(self, values: Float[np.ndarray, "*rest r"]) -> Float[np.ndarray, "..."]:
        """Return results whose last axis are the targets with draws first and outputs last."""
        draws, outputs = self.predictions.shape[: self.row_axis], self.predictions.shape[self.row_axis + 1 :]
        values = np.moveaxis(values, -1, 0)
        values = values.reshape((*draws, *outputs, *values.shape[1:]))
        return np.moveaxis(values, range(len(draws), len(draws) + len(outputs)), range(-len(outputs), 0))

    def explanation(self, attrs: dict[str, Any], **arrays: Any) -> Explanation:
        """Return the explanation that some arrays make, those of `Explanation.create`."""
        return Explanation.create(
            **arrays,
            predictions=self.predictions,
            data=self.shown.data,
            schema=self.shown.schema,
            groups=self.shown.groups,
            draws=self.row_axis > 0,
            output_names=output_names(self.function),
            attrs={"background_size": len(self.background), **attrs},
        )


def as_background(value: Any) -> Float[np.ndarray, "m d"]:
    """Convert the field `background` of an explainer."""
    return np.asarray(as_points(value, "background"))


def as_optional_float(value: Any) -> float | None:
    """Convert a number, and leave None."""
    return None if value is None else float(value)


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Refuse an option that is none of its choices.

    Raises:
        ValueError: If it is none.
    """
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {choices}, got {value!r}")


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Refuse a number that is no integer or too small.

    Raises:
        ValueError: If it is.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"`{name}` must be an integer of at least {least}, got {value!r}")


def freeze_features(features: Any) -> tuple[int | str, ...]:
    """Convert a field that names some features, by name or position, to a tuple."""
    return (features,) if isinstance(features, (int, str)) else tuple(features)


def required_key(rng_key: Any, explainer: str) -> RngKey:
    """Return the random key of an explainer that samples.

    Raises:
        TypeError: If there is none.
    """
    if rng_key is None:
        raise TypeError(f"`rng_key` must be given, since {explainer!r} samples; write `rng_key=jax.random.key(0)`")
    return check_rng_key(rng_key)


def record_key(rng_key: RngKey) -> list[int]:
    """Return the numbers of a random key, for the record."""
    typed = jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(rng_key) if typed else rng_key).tolist()
