"""The targets of CXPlain: the increase of the loss of a model when a feature is removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from kpp.foundation.validation import refuse_masked
from kpp.games.toolkit import Players
from kpp.runtime.batching import call_in_chunks

LOSSES = ("squared", "log")
REPLACEMENTS = ("zero", "mean")

# Probabilities are kept this far from 0 and 1, so that the log loss is finite.
_SMALLEST = 1e-7


def increases_of_loss(
    function: Callable[[Any], Any],
    x: Float[np.ndarray, "n d"],
    truth: Float[np.ndarray, "n k"],
    *,
    loss: str,
    fill: Float[np.ndarray, " d"],
    players: Players,
) -> Float[np.ndarray, "n g"]:
    r"""Return the increase of the loss of each prediction without each feature, (n, g), not negative.

    .. math:: \Delta_{ij} = \max\{0,\; \ell(y_i, f(x_i \text{ with } x_{ij} := z_j)) - \ell(y_i, f(x_i))\}

    The loss is "squared", the sum over outputs of squares, or "log", minus the log-probability of the truth y. `fill`
    holds the values z that represent absence; the players are removed one at a time. Raises ValueError if the loss is
    "log" and a prediction or a truth is not a probability.

    References:
        Schwab and Karlen, CXPlain: Causal explanations for model interpretation under uncertainty, 2019, eqs. (1), (2).
    """
    measure = _squared if loss == "squared" else _log
    complete = measure(truth, _columns(mean_predictions(function, x)))
    increases = np.empty((len(x), players.num_players))
    for player, features in enumerate(players.groups):
        masked = x.copy()
        masked[:, list(features)] = fill[list(features)]
        increases[:, player] = measure(truth, _columns(mean_predictions(function, masked))) - complete
    return np.maximum(increases, 0.0)


def normalized(increases: Float[np.ndarray, "n g"]) -> Float[np.ndarray, "n g"]:
    """Return rows normalized to sum to 1; a row of zeros becomes uniform."""
    sums = increases.sum(axis=1, keepdims=True)
    return np.where(sums > 0, increases / np.where(sums > 0, sums, 1.0), 1 / increases.shape[1])  # no feature matters


def mean_predictions(function: Callable[[Any], Any], x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n *outputs"]:
    """Return the predictions of a function, averaged over its draws if it has any."""
    values, axis = call_in_chunks(function, x)
    return np.asarray(values, dtype=float).mean(axis=tuple(range(axis)))


def replacements(kind: str, x: Float[np.ndarray, "n d"], categorical: set[int]) -> Float[np.ndarray, " d"]:
    """Return the values for absent features, (d,): 0, or the mean, for categories the most frequent one."""
    if kind == "zero":
        return np.zeros(x.shape[1])
    fill = x.mean(axis=0)
    for j in categorical:
        codes, counts = np.unique(x[:, j], return_counts=True)
        fill[j] = codes[np.argmax(counts)]
    return fill


def as_truth(
    y: object, predictions: Float[np.ndarray, "n *outputs"], names: tuple[str, ...] | None
) -> Float[np.ndarray, "n k"]:
    """Return the targets of the loss, (n, k); labels as rows of zeros with a single 1.

    `y` holds for one output a number per row, (n,), for k outputs a label per row, (n,), or k numbers per row, (n, k),
    and None stands for the predictions themselves. The possible labels are `names`, or 0 to k - 1. Raises ValueError if
    the shape does not fit, a label is unknown or a number is not finite.
    """
    shown = _columns(predictions)
    if y is None:
        return shown
    refuse_masked(y, "y")
    labels = np.asarray(y)
    if labels.shape == (len(shown),) and shown.shape[1] > 1:
        return _one_hot(labels, names or tuple(str(k) for k in range(shown.shape[1])))
    if labels.shape not in (predictions.shape, shown.shape):
        raise ValueError(f"`y` must have shape {predictions.shape} or one label per row, got shape {labels.shape}")
    if labels.dtype.kind not in "biuf" or not np.isfinite(labels.astype(float)).all():
        raise ValueError(f"`y` must hold finite numbers for predictions of shape {predictions.shape}")
    return labels.astype(float).reshape(shown.shape)


def _one_hot(labels: np.ndarray, names: tuple[str, ...]) -> Float[np.ndarray, "n k"]:
    if labels.dtype.kind == "f" and (labels == labels.astype(int)).all():
        labels = labels.astype(int)
    text = labels.astype(str)
    unknown = sorted(set(text.tolist()) - set(names))
    if unknown:
        raise ValueError(f"`y` has the unknown labels {unknown}; the outputs are {list(names)}")
    return (text[:, None] == np.array(names)[None]).astype(float)


def _columns(predictions: np.ndarray) -> np.ndarray:
    return predictions.reshape(len(predictions), -1)


def _squared(truth: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    return np.square(truth - predictions).sum(axis=1)


def _log(truth: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    for name, values in (("y", truth), ("function", predictions)):
        if values.min() < -_SMALLEST or values.max() > 1 + _SMALLEST:
            raise ValueError(
                f"`loss` 'log' needs probabilities, but `{name}` gives {values.min():g} to {values.max():g}; "
                "take `loss` 'squared'"
            )
    likely = np.log(np.clip(predictions, _SMALLEST, 1 - _SMALLEST))
    if truth.shape[1] > 1:
        return -(truth * likely).sum(axis=1)
    unlikely = np.log(np.clip(1 - predictions, _SMALLEST, 1 - _SMALLEST))
    return -(truth * likely + (1 - truth) * unlikely)[:, 0]
