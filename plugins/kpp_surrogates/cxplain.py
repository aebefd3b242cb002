"""The explainer "cxplain"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kpp import AbstractExplainer, Explanation
from kpp.data.tables import Schema
from kpp.explanations import AbstractPointsExplainer, Inputs, output_names
from kpp.explanations.toolkit import describe_key, freeze_groups, group_points
from kpp.foundation.validation import check_same_rows, count, one_of, positive
from kpp.games import as_players
from kpp.games.toolkit import Players
from kpp.networks import MLP, UNet
from kpp.networks.toolkit import read_image_shape, train_ensemble
from kpp.typing import AnyArray, RngKey
from kpp_surrogates import causal_targets
from kpp_surrogates.converters import as_background, categorical_positions, freeze_features, required_key

# The width of a normal law's central 95 % interval, in standard deviations.
_WIDTH, _PROBABILITY = 3.92, 0.95

_Architecture = tuple[Callable[..., Any], tuple[Any, ...]]


def _as_widths(hidden: int | Iterable[int]) -> tuple[int, ...]:
    """Convert the field `hidden`: the widths of the layers, or the width of one layer."""
    return tuple(hidden) if np.iterable(hidden) else (hidden,)


def _as_shape(image_shape: Any) -> tuple[int, ...] | None:
    """Convert the field `image_shape`."""
    if image_shape is None:
        return None
    if not np.iterable(image_shape) or isinstance(image_shape, str):
        raise TypeError(f"`image_shape` must be None or (height, width[, channels]), got {image_shape!r}")
    return tuple(count(size, "image_shape") for size in image_shape)


class CXPlain(AbstractPointsExplainer):
    r"""A network that predicts the importance of each feature for a model, with uncertainty.

    At background points each feature is removed and the increase of the model's loss is recorded. The network learns
    the increases as shares of their sum. With softmax outputs :math:`\hat a`, its own loss is

    .. math::

        -\sum_i \sum_j \omega_{ij} \log \hat a_j(x_i), \qquad
        \omega_{ij} = \frac{\max(0, \Delta_{ij})}{\sum_k \max(0, \Delta_{ik})}

    Several networks learn from bootstrap samples of the background. The values are their medians, and the variance is
    :math:`(w / 3.92)^2`, w being the width of their central 95 % interval. The spread of the networks leaves out the
    error that all of them share: 90 % intervals held the share of a feature in some 40 % of simulated cases.

    Importances are not signed and do not add up to the prediction. A model with several outputs has one loss, so its
    outputs share the importances; for a posterior with draws the mean prediction is explained.

    Args:
        background: Points that the networks learn from, (m, d).
        y: The targets at the background: a number per row, or a label per row if the model has several outputs. With
            None the targets are the model's own predictions. The values then measure the influence on the predictions;
            with given targets, the influence on their accuracy.
        loss: "squared", or "log" for probabilities, minus the log-probability of the truth (the cross-entropy).
        replacement: The value of a removed feature: "zero", or "mean" for its mean, for categories the most frequent
            one.
        groups: Features that are removed together, a mapping from a name to names or positions of features.
        categorical: Names or positions of features that hold codes of categories; they are one-hot inputs of the
            network. Columns whose levels are known from a fit or an estimator need not be named.
        num_bootstraps: How many networks, at least 2.
        hidden: The widths of their hidden layers; with `image_shape` the features at each level of the U-Nets.
        image_shape: For images in rows of pixels: (height, width), or (height, width, channels) with the channels of a
            pixel side by side. The networks are then U-Nets (`kpp.networks.UNet`), which learn at all pixels what
            they see at one; the output of a group is the mean over its members. None for fully connected networks.
        num_epochs: The number of passes over their samples.
        batch_size: The most points in one step.
        learning_rate: The first step size of Adam.
        progress: Whether to show a bar.

    References:
        Schwab and Karlen, CXPlain: Causal explanations for model interpretation under uncertainty, 2019: section 3, and
        for the U-Net section 4.2.
    """

    background: Float[AnyArray, "m d"] = eqx.field(converter=as_background)
    y: Any = None
    loss: str = eqx.field(static=True, default="squared")
    replacement: str = eqx.field(static=True, default="zero")
    groups: Any = eqx.field(static=True, default=None, converter=freeze_groups)
    categorical: Any = eqx.field(static=True, default=(), converter=freeze_features)
    num_bootstraps: int = eqx.field(static=True, default=10)
    hidden: tuple[int, ...] = eqx.field(static=True, default=(24, 24), converter=_as_widths)
    image_shape: Any = eqx.field(static=True, default=None, converter=_as_shape)
    num_epochs: int = eqx.field(static=True, default=200)
    batch_size: int = eqx.field(static=True, default=64)
    learning_rate: float = eqx.field(static=True, default=0.005)
    progress: bool = eqx.field(static=True, default=True)

    requires: ClassVar = "callable"
    additive: ClassVar = False

    def __check_init__(self) -> None:
        one_of(self.loss, "loss", causal_targets.LOSSES)
        one_of(self.replacement, "replacement", causal_targets.REPLACEMENTS)
        count(self.num_bootstraps, "num_bootstraps", 2)  # or 1 if all values are equal
        for name in ("num_epochs", "batch_size"):
            count(getattr(self, name), name)
        for width in self.hidden:
            count(width, "hidden")
        positive(self.learning_rate, "learning_rate")
        if self.y is not None:
            check_same_rows(len(self.background), len(self.y), "background", "y")

    def fit(self, predictor: object, *, rng_key: RngKey) -> FittedCXPlain:
        """Learn how to explain a model.

        Args:
            predictor: A function from points (p, d) to predictions, a fitted estimator, or a `kpp.Fit`.
            rng_key: A JAX random key.

        Returns:
            The networks, which explain any points at once.

        Raises:
            TypeError: If the predictor is not a function.
            ValueError: If the predictions and `y` do not fit the loss, or a feature is unknown.
        """
        inputs = self.read_inputs(predictor, self.background)
        return self._learn(inputs.function, inputs.schema, rng_key)

    def explain_inputs(self, inputs: Inputs, *, rng_key: RngKey | None = None) -> Explanation:
        """Fit to the background, and explain: values that sum to about 1 at each point, and their variance."""
        return self._learn(inputs.function, inputs.schema, rng_key).explain(inputs.rows)

    def _learn(self, function: Callable[..., Any], schema: Schema, rng_key: RngKey | None) -> FittedCXPlain:
        """Train the networks on the background, columns named by a schema."""
        key, order = jax.random.split(required_key(rng_key, "cxplain"))
        background = schema.read(self.background, "background")
        groups = None if self.groups is None else dict(self.groups)
        players = as_players(groups, background.shape[1], schema.feature_names)
        inputs = _Inputs.create(background, categorical_positions(self.categorical, schema))
        predictions = causal_targets.mean_predictions(function, background)
        truth = causal_targets.as_truth(self.y, predictions, output_names(function))
        fill = causal_targets.replacements(self.replacement, background, set(inputs.levels))
        increases = causal_targets.increases_of_loss(
            function, background, truth, loss=self.loss, fill=fill, players=players
        )
        rows, networks = _members(key, self.num_bootstraps, len(background), *self._architecture(inputs, players))
        data = inputs(background), causal_targets.normalized(increases)
        options = {name: getattr(self, name) for name in ("num_epochs", "batch_size", "learning_rate", "progress")}
        trained = train_ensemble(order, networks, _cross_entropy, data, rows=rows, label="cxplain", **options)
        return FittedCXPlain(trained.network, function, inputs, players, schema, background, self._record(rng_key))

    def _architecture(self, inputs: _Inputs, players: Players) -> _Architecture:
        """Return how to build a network: a function, and its arguments after the key."""
        if self.image_shape is None:
            return MLP, ((inputs.width, *self.hidden, players.num_players),)
        if inputs.levels:
            raise ValueError(f"`categorical` must be empty with `image_shape`, got the columns {sorted(inputs.levels)}")
        return _of_pixels, (read_image_shape(self.image_shape, inputs.width), self.hidden, players.groups)

    def _record(self, rng_key: RngKey | None) -> dict[str, Any]:
        """Return the record in explanations of how they were made."""
        return {
            "explainer": "cxplain",
            "loss": self.loss,
            "replacement": self.replacement,
            "truth": "predictions" if self.y is None else "labels",
            "bootstraps": self.num_bootstraps,
            "background_size": len(self.background),
            "uncertainty": "spread of the networks only",
            "rng_key": describe_key(rng_key),
        }

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
        background, x = jax.random.normal(rng_key, (24, 3)), jax.random.normal(rng_key, (2, 3)) + 0.3
        small: dict[str, Any] = {"num_bootstraps": 3, "hidden": (4,), "num_epochs": 3}
        yield cls(background, **small), _example_mean, x
        options: dict[str, Any] = {"loss": "log", "replacement": "mean", "groups": {"pair": [0, 2]}, **small}
        yield cls(background, np.arange(24) % 2, **options), _example_classes, x
        yield cls(background, groups={"pair": [0, 2]}, image_shape=(1, 3), **small), _example_mean, x


class FittedCXPlain(eqx.Module):
    """The networks of `CXPlain`, trained for one model. `CXPlain.fit` returns it.

    Args:
        networks: The networks, their arrays leading with the bootstrap samples.
        function: The model.
        inputs: The conversion of points to inputs of the networks.
        players: The features or groups of them.
        schema: The names of the features.
        background: The points that the networks have learned from, (m, d).
        record: The record of how the networks were trained.
    """

    networks: Any
    function: Any
    inputs: _Inputs
    players: Players = eqx.field(static=True)
    schema: Schema = eqx.field(static=True)
    background: Float[AnyArray, "m d"]
    record: dict[str, Any] = eqx.field(static=True)

    def importances(self, x: object) -> Float[np.ndarray, "s p g"]:
        """Return the importances by each of the s networks at p points; they sum to 1 over the g features."""
        points = self.schema.read(x)
        return np.asarray(_importances(self.networks, self.inputs(points)))

    def explain(self, x: object) -> Explanation:
        """Explain the predictions at p points, (p, d) or a data frame.

        Returns:
            The explanation: medians of the networks, and the variance by their 95 % interval.
        """
        points = self.schema.read(x)
        members = self.importances(points)
        tail = (1 - _PROBABILITY) / 2
        lower, values, upper = np.quantile(members, [tail, 0.5, 1 - tail], axis=0)
        predictions = causal_targets.mean_predictions(self.function, points)
        shown = group_points(points, self.players, self.schema, [self.background])
        return Explanation.create(
            _for_each_output(values, predictions),
            0.0,
            predictions,
            shown.data,
            schema=shown.schema,
            output_names=output_names(self.function) if predictions.ndim == 2 else None,
            variance=_for_each_output(((upper - lower) / _WIDTH) ** 2, predictions),
            groups=shown.groups,
            attrs=self.record,
        )


class _Inputs(eqx.Module):
    """Points as inputs of a network: numbers in standard units, categories one-hot."""

    location: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    levels: dict[int, tuple[float, ...]] = eqx.field(static=True)

    @classmethod
    def create(cls, x: Float[np.ndarray, "n d"], categorical: set[int]) -> _Inputs:
        """Learn means, scales and levels."""
        scale = x.std(axis=0)
        levels = {j: tuple(np.unique(x[:, j]).tolist()) for j in sorted(categorical)}
        return cls(x.mean(axis=0), np.where(scale > 1e-12 * (1 + np.abs(x).max(axis=0)), scale, 1.0), levels)

    @property
    def width(self) -> int:
        """The number of inputs."""
        return len(self.location) + sum(len(levels) - 1 for levels in self.levels.values())

    def __call__(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n q"]:
        """Return the inputs at points."""
        standard = (x - self.location) / self.scale
        columns = [
            x[:, [j]] == np.array(self.levels[j])[None] if j in self.levels else standard[:, [j]]
            for j in range(x.shape[1])
        ]
        return np.concatenate(columns, axis=1).astype(float)


def _cross_entropy(network: Callable[[Array], Array], batch: tuple[Array, Array]) -> Array:
    inputs, targets = batch
    return -jnp.mean(jnp.sum(targets * jax.nn.log_softmax(jax.vmap(network)(inputs)), axis=1))


def _of_pixels(
    rng_key: RngKey, image_shape: tuple[int, int, int], channels: tuple[int, ...], groups: tuple[tuple[int, ...], ...]
) -> _GroupMeans:
    return _GroupMeans(UNet(rng_key, image_shape, channels), groups)


class _GroupMeans(eqx.Module):
    """A network of images, with one output per group: the mean over the outputs of its members."""

    network: UNet
    groups: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __call__(self, x: Float[AnyArray, " d"]) -> Float[Array, " g"]:
        found = self.network(x)
        members = np.concatenate([np.asarray(group) for group in self.groups])
        sizes = np.array([len(group) for group in self.groups])
        owners = np.repeat(np.arange(len(sizes)), sizes)
        return jax.ops.segment_sum(found[members], owners, len(sizes)) / sizes


@eqx.filter_jit
def _members(
    rng_key: RngKey, num_bootstraps: int, n: int, build: Callable[..., Any], options: tuple[Any, ...]
) -> tuple[Array, Any]:
    """Return the bootstrap rows and the initial weights of every network."""
    sample, start = jax.random.split(rng_key)
    rows = jax.random.randint(sample, (num_bootstraps, n), 0, n)  # with replacement: the bootstrap
    return rows, eqx.filter_vmap(lambda key: build(key, *options))(jax.random.split(start, num_bootstraps))


@eqx.filter_jit
def _importances(networks: PyTree, inputs: AnyArray) -> Array:
    return eqx.filter_vmap(lambda network, x: jax.nn.softmax(jax.vmap(network)(x)), in_axes=(eqx.if_array(0), None))(
        networks, inputs
    )


def _for_each_output(values: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    return values if predictions.ndim == 1 else np.repeat(values[..., None], predictions.shape[1], axis=-1)


def _example_mean(x: AnyArray) -> Array:
    return jnp.tanh(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]


def _example_classes(x: AnyArray) -> Array:
    probability = jax.nn.sigmoid(2 * jnp.asarray(x)[:, 0])
    return jnp.stack([1 - probability, probability], axis=1)
