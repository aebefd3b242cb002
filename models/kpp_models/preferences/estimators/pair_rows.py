"""Matches as rows for scikit-learn: the features of both items side by side, or their numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight

from kpp.foundation.validation import refuse_not_numbers
from kpp.preferences import Matches


class MatchRows(NamedTuple):
    """Matches as rows, one per outcome of a pair, with the number of matches as weight.

    Attributes:
        features: The features of the first item, then those of the second, (N, 2 d).
        numbers: The numbers of the two items, (N, 2).
        y: 1 if the first item won, 0 if it lost, (N,).
        sample_weight: The number of matches, (N,); a tie counts half for both outcomes.
    """

    features: Float[np.ndarray, "N d2"]
    numbers: Int[np.ndarray, "N 2"]
    y: Int[np.ndarray, " N"]
    sample_weight: Float[np.ndarray, " N"]


def match_rows(matches: Matches) -> MatchRows:
    """Write matches as rows for scikit-learn's classifiers.

    Args:
        matches: The matches; contexts are left out.

    Returns:
        The rows.

    Example:
        >>> from kpp_models.estimators import match_rows
        >>> rows = match_rows(matches)
        >>> rows.y
        array([1, 0, 0, 0, 0, 0])
    """
    matches.refuse_teams("match_rows")
    wins, losses, ties = (np.asarray(part) for part in (matches.wins, matches.losses, matches.ties))
    pairs = np.asarray(matches.pairs)
    weight = np.concatenate([wins + ties / 2, losses + ties / 2])
    y = np.repeat([1, 0], len(pairs))
    numbers = np.concatenate([pairs, pairs])
    seen = weight > 0
    features = np.asarray(matches.items)[numbers[seen]].reshape(int(seen.sum()), -1)
    return MatchRows(features, numbers[seen], y[seen], weight[seen])


def refuse_odd(X: np.ndarray) -> None:
    """Raise ValueError unless rows hold two items with the same number of columns."""
    if X.shape[1] % 2:
        raise ValueError(
            f"`X` must hold the features of both items side by side, an even number of columns, got shape {X.shape}, "
            f"n_features = {X.shape[1]}"
        )


def read_weights(sample_weight: Any, X: np.ndarray) -> Float[np.ndarray, " N"]:
    """Return the weights of rows, 1 by default, or raise ValueError if they are not numbers, or negative."""
    refuse_not_numbers(sample_weight, "sample_weight")
    return _check_sample_weight(sample_weight, X, ensure_non_negative=True)


def read_labels(y: Any) -> tuple[np.ndarray, Bool[np.ndarray, " N"]]:
    """Return the two sorted classes, and whether each label is the second one, which means that the first item won."""
    check_classification_targets(y)
    classes, code = np.unique(y, return_inverse=True)
    needed = "`y` must hold two classes, the lower for a first item that lost"
    if len(classes) == 1:
        raise ValueError(f"{needed}, got only one class, {classes[0]!r}")
    if len(classes) > 2:  # the first sentence is the one that scikit-learn expects
        kind = type_of_target(y)
        raise ValueError(f"Only binary classification is supported. The type of the target is {kind}; {needed}")
    return classes, code.ravel() == 1
