"""Classifiers of pairs of items: logistic regression on differences of features or strengths, and any classifier."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy.linalg
from jaxtyping import Float
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, log_expit
from sklearn.base import BaseEstimator, clone
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.utils.validation import check_is_fitted

from kpp.data.estimators import read_arrays
from kpp_models.preferences.data import orient_rows, swap_rows
from kpp_models.preferences.estimators.pair_rows import read_labels, read_weights, refuse_odd
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


_MAX_STEPS = 100
_TOLERANCE = 1e-10  # the tolerance of the largest change of a coefficient


def fit_logistic(
    design: Any, wins: Float[np.ndarray, " m"], losses: Float[np.ndarray, " m"], penalty: float
) -> Float[np.ndarray, " q"]:
    r"""Return the coefficients w, (q,), of a logistic regression without an intercept, by Newton's method.

    .. math:: \min_w \sum_i \bigl[u_i \log(1 + e^{-z_i}) + v_i \log(1 + e^{z_i})\bigr] + \frac\gamma2 \|w\|^2,
        \qquad z = D w

    The design D is an array or a sparse matrix (m, q).
    `wins` and `losses` say how often each row had the outcomes 1 and 0, (m,) each. At the penalty 0 the result is the
    solution of smallest norm, if a finite solution exists. Raises ValueError if Newton's method does not converge, for
    example because the minimum is not attained.
    """

    def objective(w: np.ndarray) -> float:
        z = design @ w
        return float(wins @ log_expit(z) + losses @ log_expit(-z) - penalty / 2 * w @ w)

    coefficients, dense = np.zeros(design.shape[1]), isinstance(design, np.ndarray)
    for _ in range(_MAX_STEPS):
        z = design @ coefficients
        gradient = design.T @ (wins * expit(-z) - losses * expit(z)) - penalty * coefficients
        curvature = (wins + losses) * expit(z) * expit(-z)
        weighted = curvature[:, None] * design if dense else design.multiply(curvature[:, None])
        hessian = (design.T @ weighted) if dense else (design.T @ weighted).toarray()
        if penalty > 0:
            step = scipy.linalg.solve(hessian + penalty * np.eye(len(hessian)), gradient, assume_a="pos")
        else:  # singular: a constant added to all strengths changes nothing
            step = scipy.linalg.lstsq(hessian, gradient)[0]
        sizes = 0.5 ** np.arange(20)
        present = objective(coefficients)
        slack = 100 * np.finfo(float).eps * (1 + abs(present))  # rounding errors near the maximum must not halve steps
        size = next((size for size in sizes if objective(coefficients + size * step) >= present - slack), sizes[-1])
        coefficients = coefficients + size * step
        if np.abs(step).max() <= _TOLERANCE * (1 + np.abs(coefficients).max()):
            return coefficients
    raise ValueError(
        f"the logistic regression of `y` has not converged in {_MAX_STEPS} steps of Newton's method; its coefficients "
        f"have grown to {np.abs(coefficients).max():.1e}: penalize them more"
    )
