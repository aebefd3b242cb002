"""Projection of any regressor onto the constraints of independences of the target."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import RegressorMixin
from sklearn.ensemble import RandomForestRegressor

from kpp_models.colliders.estimators.function import ProjectedEstimator, ProjectedFunction, ProjectionPlan
from kpp_models.colliders.estimators.gain import cross_fitted_gain
from kpp_models.colliders.estimators.projection import BaselineRegression, fit_baselines
from kpp_models.colliders.estimators.rows import Rows, fit_predictor, predict_mean, read_targets


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
        check: Whether to test on the labelled rows, at the level 0.01, whether the statements hold for the mean of Y,
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

    def fit(self, X: object, y: object, X_unlabelled: object = None) -> ProjectedRegressor:
        """Fit the estimator and its projection.

        Args:
            X: The features of labelled rows, an array (n, d) or a data frame of numbers.
            y: Their targets, (n,).
            X_unlabelled: The features of further rows, (m, d), for the conditional regression.

        Returns:
            The estimator itself.

        Raises:
            ValueError: If the data, or the columns that `collider` names, are invalid.
            TypeError: If `estimator` or a regression has the wrong type.
            kpp.causal.ColliderError: If the graph has no collider partition of the outcome.
        """
        rows, y = read_targets(self, X, y)
        plan, further = self._plan(rows, y[:, None], X_unlabelled)
        self._keep(self._fit_function(plan, rows, y, further))
        self.estimator_ = self._function.plain.predictor
        self.gain_ = None
        if plan.statements and self.gain_folds is not None:
            self.gain_ = cross_fitted_gain(
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
