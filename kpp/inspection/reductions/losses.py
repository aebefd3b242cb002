"""Losses of predictions, by name or as functions of a user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from kpp.data.labels import read_classes
from kpp.foundation.validation import as_targets, check_same_rows, one_of

#: A loss by name, or a function of targets (p,) and predictions (c, p[, outputs]) that returns losses (c, p).
Loss = str | Callable[..., Any]

NAMES = ("squared", "absolute", "log")
# The smallest probability in a logarithm.
_TINY = 1e-12
# The share of a step by which the derivative of a loss is found.
_STEP = 1e-4


def read_targets(
    y: object, loss: Loss, num_rows: int, outputs: int | None, classes: Sequence[Any] | None
) -> Float[np.ndarray, " p"]:
    """Return targets as numbers; for the loss "log" the codes of classes, those of the predictor if it knows them.

    Raises ValueError if there are not p targets, one is missing or not finite, or they do not fit the loss.
    """
    if callable(loss) or one_of(loss, "loss", NAMES) != "log":
        if outputs is not None and not callable(loss):
            raise ValueError(f"`loss` {loss!r} needs one number per prediction, got {outputs} outputs; take 'log'")
        return np.asarray(as_targets(y, num_rows))
    known = tuple(classes) if classes is not None else tuple(range(2 if outputs is None else outputs))
    labels = list(np.ravel(np.asarray(y, dtype=object)))
    plain = {str(label): label for label in known}
    if set(map(str, labels)) <= set(plain):  # estimators name their classes by text
        labels = [plain[str(label)] for label in labels]
    codes = np.asarray(read_classes(labels, known)[0])
    check_same_rows(num_rows, len(codes), "x", "y")
    return codes


def evaluate(loss: Loss, y: Float[np.ndarray, " p"], predictions: Float[np.ndarray, "c p *outputs"]) -> np.ndarray:
    """Return the losses of predictions, (c, p); probabilities must be in [0, 1], and a user's losses finite."""
    if loss == "squared":
        return (y - predictions) ** 2
    if loss == "absolute":
        return np.abs(y - predictions)
    if loss == "log":
        return -np.log(np.maximum(_probability_of_label(y, predictions), _TINY))
    assert callable(loss)
    losses = np.asarray(loss(y, predictions), dtype=float)
    if losses.shape != predictions.shape[:2] or not np.isfinite(losses).all():
        raise ValueError(
            f"`loss` must return one finite number per prediction, shape {predictions.shape[:2]} for targets of shape "
            f"{y.shape} and predictions of shape {predictions.shape}, got shape {losses.shape}"
        )
    return losses


def gain_of_step(
    loss: Loss, y: Float[np.ndarray, " p"], before: Float[np.ndarray, "c p *outputs"], step: Float[np.ndarray, "..."]
) -> np.ndarray:
    """Return by how much a step of predictions reduces the loss at first order, (c, p)."""
    if loss == "log":
        share = _probability_of_label(y, before)
        return (_probability_of_label(y, before + step) - share) / np.maximum(share, _TINY)
    return (evaluate(loss, y, before - _STEP * step) - evaluate(loss, y, before + _STEP * step)) / (2 * _STEP)


def _probability_of_label(y: Float[np.ndarray, " p"], predictions: Float[np.ndarray, "c p *outputs"]) -> np.ndarray:
    low, high = float(predictions.min()), float(predictions.max())
    if low < -1e-6 or high > 1 + 1e-6:
        raise ValueError(f"`loss` 'log' needs predictions that are probabilities, got from {low:.3g} to {high:.3g}")
    if predictions.ndim == 2:
        return np.where(y == 1, predictions, 1.0 - predictions)
    return predictions[:, np.arange(len(y)), y.astype(int)]
