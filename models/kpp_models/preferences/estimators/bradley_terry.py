"""The model of Bradley and Terry: one strength per item, which does not depend on its features."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from kpp.data.estimators import read_arrays
from kpp_models.preferences.estimators.pair_rows import read_labels, read_weights
from kpp_models.preferences.estimators.penalized_logistic import fit_logistic
from kpp_models.tables.estimators.fitted import BinaryClassifier


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)  # compared and printed by scikit-learn
class BradleyTerry(BinaryClassifier, BaseEstimator):
    r"""Matches decided by the difference of two strengths.

    .. math:: P(a \text{ beats } b) = \sigma(s_a - s_b), \qquad
        \max_s \sum_i w_i \log P(y_i) - \frac\gamma2 \|s\|^2

    Items are identified by their numbers, so an item without matches gets the average strength. A tie counts as half a
    win and half a loss; `match_rows` writes `kpp.preferences.Matches` in this form.

    Args:
        penalty: :math:`\gamma`. 0 gives maximum likelihood. It exists only if every group of items has both won and
            lost matches with the others.
        num_items: The number of items; by default the largest number in `X` plus 1.

    Attributes:
        classes_: The two classes; the second means that the first item won.
        strengths_: s, the strengths, (n,), which sum to 0.

    References:
        Bradley and Terry, Rank analysis of incomplete block designs, Biometrika, 1952. Hunter, MM algorithms for
        generalized Bradley-Terry models, Annals of Statistics, 2004, assumption 1.
    """

    penalty: Any = 1.0
    num_items: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BradleyTerry:
        """Fit the strengths.

        Args:
            X: The numbers of the two items of each match, (N, 2), from 0.
            y: Labels of two classes, (N,), the higher one if the first item won.
            sample_weight: The weight of each match, (N,); 1 by default.

        Returns:
            The estimator itself.

        Raises:
            ValueError: If X does not hold pairs of different items, y does not have two classes, `penalty` is negative,
                or the maximum of the likelihood does not exist.
        """
        X, y = read_arrays(self, X, y, numeric=False)
        if not self.penalty >= 0:
            raise ValueError(f"`penalty` must be at least 0, got {self.penalty!r}")
        self.classes_, won = read_labels(y)
        X = _whole(X)
        num_items = int(X.max()) + 1 if self.num_items is None else self.num_items
        self._check(X, num_items)
        weight = read_weights(sample_weight, X)
        if self.penalty == 0:
            _refuse_unbounded(X, won, weight, num_items)
        rows = np.repeat(np.arange(len(X)), 2)  # of a design whose rows are e_a - e_b
        design = coo_array((np.tile([1.0, -1.0], len(X)), (rows, X.ravel())), shape=(len(X), num_items)).tocsr()
        self.strengths_ = fit_logistic(design, weight * won, weight * ~won, float(self.penalty))
        return self

    def decision_function(self, X: Any) -> Float[np.ndarray, " N"]:
        """Return the differences of strengths, the log-odds that first items win, (N,)."""
        check_is_fitted(self)
        X = _whole(read_arrays(self, X, reset=False))
        self._check(X, len(self.strengths_))
        return self.strengths_[X[:, 0]] - self.strengths_[X[:, 1]]

    @staticmethod
    def _check(X: np.ndarray, num_items: int) -> None:
        if X.shape[1] != 2 or X.min() < 0 or X.max() >= num_items:
            raise ValueError(
                f"`X` must hold the numbers of two items per row, from 0 to {num_items - 1}, got shape {X.shape} and "
                f"numbers from {X.min()} to {X.max()}"
            )
        if (X[:, 0] == X[:, 1]).any():
            raise ValueError(f"`X` must hold different items, got item {X[X[:, 0] == X[:, 1]][0, 0]} with itself")


def _whole(X: np.ndarray) -> np.ndarray:
    """Return the numbers of items as integers, or raise ValueError if they are not whole."""
    if (X % 1 != 0).any():
        raise ValueError(f"`X` must hold the numbers of items, which are whole, got {X[X % 1 != 0][0]:g}")
    return X.astype(np.int64)


def _refuse_unbounded(X: np.ndarray, won: np.ndarray, weight: np.ndarray, num_items: int) -> None:
    """Raise ValueError if the maximum-likelihood strengths are infinite or not identified."""
    winner, loser = np.where(won, X.T, X.T[::-1])
    seen = weight > 0
    beaten = coo_array((np.ones(seen.sum()), (winner[seen], loser[seen])), shape=(num_items, num_items))
    count, _ = connected_components(beaten, directed=True, connection="strong")
    if count > 1:
        raise ValueError(
            f"`penalty` must be above 0 for these matches: they fall into {count} groups of items of which some have "
            "won or lost all matches with others, or met none, so that no finite strengths have the largest likelihood"
        )
