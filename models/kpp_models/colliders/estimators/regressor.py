"""Projection of any regressor onto the constraints of independences of the target."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import RegressorMixin
from sklearn.ensemble import RandomForestRegressor

from kpp.metrics import ProjectionGain
from kpp_models.colliders.estimators.function import ProjectedEstimator, ProjectedFunction, ProjectionPlan
from kpp_models.colliders.estimators.projection import BaselineRegression, fit_baselines
from kpp_models.colliders.estimators.rows import Rows, fit_predictor, predict_mean, read_targets

_QUANTILE = 1.959964  # the normal quantile at 0.975, for intervals of level 0.95


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)  # compared and printed by scikit-learn
class ProjectedRegressor(RegressorMixin, ProjectedEstimator):
    r"""A regressor, projected so that it obeys independences of the target.

    Where Y is independent of A given B, so that :math:`E[f(X) \mid A, B] = f_0(B) = E[Y \mid B]` for
    :math:`f(x) = E[Y \mid X = x]`, any estimate h of f is brought nearer to f by

    .. math:: h(x) - E[h(X) - f_0(B) \mid A = a, B = b].

    The conditional expectation is a regression on (A, B) of values of h, so that rows without labels can be used for
    it. In the collider partition of a causal graph, A are the spouses and B the parents of Y. If B is not empty, and
    the same in all statements, and the estimator is not `prefit`, it is fitted to :math:`Y - f_0(B)` and h is
    :math:`f_0` plus this fit. Without a collider the result is that of the estimator alone.

    Args:
        estimator: The regressor; a random forest by default. With `prefit` it is used unchanged: a fitted scikit-learn
            regressor, a `kpp.Fit` or a callable that takes rows and returns their predictions.
        collider: Where the independences come from: a `kpp.causal.CausalDAG` with `outcome`; a
            `kpp.causal.ColliderPartition`; a `kpp.causal.Independence` or a sequence of these. Features are columns of
            a data frame, or positions of columns. None for an ordinary regression.
        outcome: The node of the graph that is the target.
        conditional: The regression on (A, B): "linear", "kernel-ridge", "forest" or a scikit-learn regressor.
        baseline: The regression of Y on B, as `conditional`; the mean of Y if B is empty.
        prefit: Whether the estimator is already fitted. `gain_` does not account for the data of that fit, so the rows
            given here should be different ones.
        several: How several statements are imposed: "in-turn", one after the other until nothing changes, or
            "jointly", by one additive regression on all conditions, for which `conditional` must be linear in features
            and all statements must have the same B.
        check: Whether to test on the labeled rows, at the level 0.01, whether the statements hold for the mean of Y,
            and to warn if one is rejected.
        gain_folds: The number of folds by which `gain_` is estimated, each of which takes another fit of the estimator;
            None leaves it out.
        tol: "in-turn" stops when a cycle changes the function by less than this, in units of its standard deviation.
        max_cycles: The largest number of cycles; there is a warning if they do not suffice.
        random_state: The seed of the default estimator, of "forest" and "kernel-ridge", of tests and of folds.

    Attributes:
        estimator_: The predictor that is projected.
        statements_: The statements, each a `Statement` with the positions of columns.
        baselines_: For each statement :math:`f_0`.
        projection_: The function that is subtracted; None without a collider.
        gain_: A `kpp.metrics.ProjectionGain`, the reduction of the mean squared error by the projection, estimated on
            rows that neither the estimator nor the projection has seen; None without a collider.
        independence_tests_: For each statement a `kpp.embeddings.MeanIndependenceTest`.
        n_features_in_: The number of columns.
        feature_names_in_: The names of the columns of a data frame.

    References:
        Bouabid, Fawkes and Sejdinovic, Returning The Favour: When Regression Benefits From Probabilistic Causal
        Knowledge, 2023, algorithms 1 and 4, Propositions 4.1 and 5.1.
    """

    gain_folds: int | None = 5

    def fit(self, X: object, y: object, X_unlabeled: object = None) -> ProjectedRegressor:
        """Fit the estimator and its projection.

        Args:
            X: The features of labeled rows, an array (n, d) or a data frame of numbers.
            y: Their targets, (n,).
            X_unlabeled: The features of further rows, (m, d), for the conditional regression.

        Returns:
            The estimator itself.

        Raises:
            ValueError: If the data, or the columns that `collider` names, are invalid.
            TypeError: If `estimator` or a regression has the wrong type.
            kpp.causal.ColliderError: If the graph has no collider partition of the outcome.
        """
        rows, y = read_targets(self, X, y)
        plan, further = self._plan(rows, y[:, None], X_unlabeled)
        self._keep(self._fit_function(plan, rows, y, further))
        self.estimator_ = self._function.plain.predictor
        self.gain_ = None
        if plan.statements and self.gain_folds is not None:
            self.gain_ = _cross_fitted_gain(
                lambda *data: self._fit_function(plan, *data), rows, y, further, self.gain_folds, plan.random
            )
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = self.collider is not None  # rows at which its values are invalid
        return tags

    def predict(self, X: object) -> Float[np.ndarray, " n"]:
        """Return the projected predictions at rows (n, d), (n,)."""
        return self._values(X)[:, 0]

    def _fit_function(self, plan: ProjectionPlan, rows: Rows, y: np.ndarray, further: Rows) -> ProjectedFunction:
        estimator = RandomForestRegressor(random_state=self._seed) if self.estimator is None else self.estimator
        baselines = fit_baselines(plan.statements, rows.table, y[:, None], plan.baseline)
        shared = not self.prefit and len({baseline.given for baseline in baselines}) == 1
        start = baselines[0] if shared and baselines[0].given else None
        targets = y if start is None else y - start(rows.table)[:, 0]
        plain = PlainRegression(fit_predictor(estimator, self.prefit, rows, targets), start)
        return plan.project(plain, baselines, rows, further)


@dataclasses.dataclass(frozen=True)
class PlainRegression:
    """The predictions of the estimator before the projection.

    `start` is the function that was subtracted from the targets before the fit; None for nothing.
    """

    predictor: Any
    start: BaselineRegression | None

    def __call__(self, rows: Rows) -> Float[np.ndarray, "n 1"]:
        """Return the predictions at rows, as a column."""
        found = predict_mean(self.predictor, rows)[:, None]
        return found if self.start is None else found + self.start(rows.table)


def _cross_fitted_gain(
    fit: Callable[[Rows, np.ndarray, Rows], ProjectedFunction],
    rows: Rows,
    y: Float[np.ndarray, " n"],
    further: Rows,
    num_folds: int,
    random: np.random.RandomState,
) -> ProjectionGain:
    r"""Estimate the reduction of the mean squared error of a regression h by subtracting e.

    .. math::

        E[(Y - h)^2] - E[(Y - h + e)^2] = E[2 (h - f_0) e - e^2] - 2 E[(Y - f_0) e]

    The first term is averaged over all rows, the second over the labeled ones, each row by the h, e and baseline
    :math:`f_0` of the folds without it. The second is 0 for the true baseline; it corrects the bias from an estimated
    one. Each fit is one to labeled rows, their targets, and the `further` rows without labels. With one estimate of e
    the largest possible gain cannot be estimated, so `largest_gain` equals the gain; see `kpp.metrics.projection_gain`.

    References:
        Bouabid, Fawkes and Sejdinovic, Returning The Favour, 2023, Propositions 4.1 and 5.1, for :math:`e = E[h \mid C]
        - f_0`; Angelopoulos et al., Prediction-powered inference, 2023, for the two averages.
    """
    if num_folds < 2:
        raise ValueError(f"`gain_folds` must be at least 2, or None, got {num_folds}")
    num_folds = min(num_folds, len(rows))
    of_all, of_labeled = [np.empty(len(rows)), np.empty(len(further))], np.empty(len(rows))
    folds = (np.array_split(random.permutation(len(part)), num_folds) for part in (rows, further))
    for fold, further_fold in zip(*folds, strict=True):
        function = fit(rows.without(fold), np.delete(y, fold), further.without(further_fold))
        excess, taken, start = _parts_at(function, rows.take(fold))
        of_all[0][fold] = 2 * excess * taken - taken**2  # 2 (h - f_0) e - e^2
        of_labeled[fold] = 2 * (y[fold] - start) * taken  # 2 (Y - f_0) e, of mean 0 for the true f_0
        if len(further_fold):
            excess, taken, _ = _parts_at(function, further.take(further_fold))
            of_all[1][further_fold] = 2 * excess * taken - taken**2
    total = len(rows) + len(further)
    gain = float(np.concatenate(of_all).mean() - of_labeled.mean())
    influence = of_all[0] / total - of_labeled / len(rows)
    variance = len(rows) * influence.var(ddof=1)  # of a sum over independent rows
    if len(further) > 1:
        variance += len(further) * of_all[1].var(ddof=1) / total**2
    error = float(np.sqrt(variance))
    return ProjectionGain(gain, error, (gain - _QUANTILE * error, gain + _QUANTILE * error), gain)


def _parts_at(function: ProjectedFunction, rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return h - f_0, e and f_0 at rows."""
    assert function.projection is not None  # for the type checker: statements exist
    start = function.baselines[0](rows.table)[:, 0]
    return function.plain(rows)[:, 0] - start, function.projection(rows.table)[:, 0], start
