"""Classifiers of pairs of items: logistic regression on differences, and any classifier made symmetric."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, clone
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.utils.validation import check_is_fitted

from kpp.data.estimators import read_arrays
from kpp_models.preferences.data import orient_rows, swap_rows
from kpp_models.preferences.estimators.pair_rows import read_labels, read_weights, refuse_odd
from kpp_models.preferences.estimators.penalized_logistic import fit_logistic
from kpp_models.tables.estimators.fitted import BinaryClassifier


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)  # compared and printed by scikit-learn
class PairwiseLogisticRegression(BinaryClassifier, BaseEstimator):
    r"""Matches decided by a linear utility.

    .. math:: P(x \text{ beats } x') = \sigma\bigl(w^\top (x - x')\bigr), \qquad
        \max_w C \sum_i \log P(y_i) - \tfrac12 \|w\|^2

    It equals `PairwiseClassifier` with scikit-learn's `LogisticRegression` and the same C.

    Args:
        C: The inverse of the penalty, positive.

    Attributes:
        classes_: The two classes; the second means that the first item won.
        coef_: w, (d,).
    """

    C: Any = dataclasses.field(default=1.0, kw_only=False)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PairwiseLogisticRegression:
        """Fit the utility.

        Args:
            X: The features of the first item, then those of the second, (N, 2 d).
            y: Labels of two classes, (N,), the higher one if the first item won.
            sample_weight: The weight of each match, (N,); 1 by default.

        Returns:
            The estimator itself.

        Raises:
            ValueError: If the number of columns is odd, y does not have two classes, or C is not positive.
        """
        X, y = read_arrays(self, X, y, numeric=False)
        refuse_odd(X)
        if not self.C > 0:
            raise ValueError(f"`C` must be positive, got {self.C!r}")
        weight = read_weights(sample_weight, X)
        self.classes_, won = read_labels(y)
        self.coef_ = fit_logistic(_differences(X), weight * won, weight * ~won, 1 / self.C)
        return self

    def decision_function(self, X: Any) -> Float[np.ndarray, " N"]:
        """Return the log-odds that first items win, (N,)."""
        check_is_fitted(self)
        return np.sum(_differences(read_arrays(self, X, reset=False)) * self.coef_, axis=1)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)  # compared and printed by scikit-learn
class PairwiseClassifier(BinaryClassifier, BaseEstimator):
    r"""Any classifier of two items side by side, fitted to every match in both orders and averaged over both.

    .. math:: P(x \text{ beats } x') = \tfrac12 \bigl[p(x, x') + 1 - p(x', x)\bigr]

    The probabilities of a pair and of the exchanged pair are complementary exactly, without rounding errors.

    Args:
        estimator: A classifier with `predict_proba`; by default scikit-learn's Gaussian-process classifier with one
            RBF kernel on both items, its hyperparameters chosen by Laplace's evidence (PAIR-GP).

    Attributes:
        classes_: The two classes; the second means that the first item won.
        estimator_: The fitted classifier of 2 d columns.

    References:
        Chau, Gonzalez and Sejdinovic, Learning inconsistent preferences with Gaussian processes, 2022, section 3.3.
    """

    estimator: Any = dataclasses.field(default=None, kw_only=False)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PairwiseClassifier:
        """Fit the classifier to the matches and their mirror images; see `PairwiseLogisticRegression.fit`.

        Weights are for classifiers that take them.
        """
        X, y = read_arrays(self, X, y, numeric=False)
        refuse_odd(X)
        self.classes_, won = read_labels(y)
        plain = GaussianProcessClassifier(ConstantKernel() * RBF()) if self.estimator is None else self.estimator
        weights = {}
        if sample_weight is not None:
            weights["sample_weight"] = np.tile(read_weights(sample_weight, X), 2)
        both = np.concatenate([X, swap_rows(X)])
        self.estimator_ = clone(plain).fit(both, np.concatenate([won, ~won]).astype(int), **weights)
        return self

    def predict_proba(self, X: Any) -> Float[np.ndarray, "N 2"]:
        """Return the probabilities that first items lose and win, (N, 2)."""
        check_is_fitted(self)
        oriented, signs = orient_rows(read_arrays(self, X, reset=False))
        both = np.concatenate([oriented, swap_rows(oriented)])
        there, back = np.split(np.asarray(self.estimator_.predict_proba(both))[:, 1], 2)
        excess = signs * (there - back) / 2
        return np.stack([0.5 - excess, 0.5 + excess], axis=1)


def _differences(X: np.ndarray) -> Float[np.ndarray, "N d"]:
    first, second = np.split(X, 2, axis=1)
    return first - second
