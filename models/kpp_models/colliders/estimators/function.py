"""A predictor with its projection, and the base of the estimators that fit one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from kpp.data.estimators import without_generator
from kpp_models.colliders.estimators.projection import BaselineRegression, Projection, fit_projection
from kpp_models.colliders.estimators.regressions import Seed, as_regression
from kpp_models.colliders.estimators.rows import Rows, read_new_rows, read_unlabeled
from kpp_models.colliders.estimators.statements import Statement, check_statements, read_statements


@dataclasses.dataclass(frozen=True)
class ProjectedFunction:
    """Values of q functions of the features, projected.

    `plain` returns the values before the projection, (n, q), and each baseline the conditional mean that a statement
    requires, :math:`f_0`. `projection` is the part that is subtracted; None without statements.
    """

    plain: Any
    baselines: tuple[BaselineRegression, ...]
    projection: Projection | None

    def __call__(self, rows: Rows) -> Float[np.ndarray, "n q"]:
        """Return the projected values at rows."""
        values = self.plain(rows)
        return values if self.projection is None else values - self.projection(rows.table)


@dataclasses.dataclass(frozen=True)
class ProjectionPlan:
    """The arguments that all estimators share, after reading: the statements to impose, and the regressions.

    `conditional` is the conditional regression, `baseline` that on the given columns, and the options are those of
    `fit_projection`. `random` is the source of the seeds of tests and folds.
    """

    statements: tuple[Statement, ...]
    conditional: Any
    baseline: Any
    options: dict[str, Any]
    random: np.random.RandomState

    def evaluate(self, plain: Callable[[Rows], np.ndarray], *lots: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Return the features of one or more sets of rows, (n, d), and the values of functions there, (n, q)."""
        parts = [rows for rows in lots if len(rows)]
        return np.concatenate([part.table for part in parts]), np.concatenate([plain(part) for part in parts])

    def project(
        self, plain: Callable[[Rows], np.ndarray], baselines: tuple[BaselineRegression, ...], *lots: Rows
    ) -> ProjectedFunction:
        """Project functions by their values at one or more sets of rows."""
        if not self.statements:
            return ProjectedFunction(plain, (), None)
        table, values = self.evaluate(plain, *lots)
        projection = fit_projection(self.statements, table, values, baselines, self.conditional, **self.options)
        return ProjectedFunction(plain, baselines, projection)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)  # compared and printed by scikit-learn
class ProjectedEstimator(BaseEstimator):
    """An estimator with the parameters of `ProjectionPlan`, whose fit is a `ProjectedFunction`."""

    # scikit-learn's own checks give -1 for every argument, so constructors are exempt from checks of types at run time.
    __no_type_check__ = True

    estimator: object = dataclasses.field(default=None, kw_only=False)
    collider: object = None
    outcome: str | None = None
    conditional: object = "linear"
    baseline: object = "linear"
    prefit: bool = False
    several: str = "in-turn"
    check: bool = True
    tol: float = 1e-4
    max_cycles: int = 100
    random_state: Seed = None

    @property
    def _seed(self) -> Seed:
        return without_generator(self.random_state)

    def _plan(self, rows: Rows, targets: Float[np.ndarray, "n q"], X_unlabeled: object) -> tuple[ProjectionPlan, Rows]:
        """Read the parameters and the rows without labels, and test the statements on functions of the target."""
        further = read_unlabeled(self, X_unlabeled, rows)
        names = getattr(self, "feature_names_in_", None)
        random = check_random_state(self._seed)
        plan = ProjectionPlan(
            read_statements(self.collider, self.outcome, self.n_features_in_, names),
            as_regression(self.conditional, "conditional", random),
            as_regression(self.baseline, "baseline", random, of_classes=is_classifier(self)),
            {name: getattr(self, name) for name in ("several", "tol", "max_cycles")},
            random,
        )
        self.statements_ = plan.statements
        self.independence_tests_ = check_statements(plan.statements, rows.table, targets, random) if self.check else ()
        return plan, further

    def _keep(self, function: ProjectedFunction) -> None:
        self._function = function
        self.baselines_, self.projection_ = function.baselines, function.projection

    def _values(self, X: object) -> Float[np.ndarray, "n q"]:
        """Return the projected values at rows (n, d), (n, q)."""
        check_is_fitted(self)
        return self._function(read_new_rows(self, X))
