r"""The projection of a function onto those that obey statements on the target.

For one statement :math:`Y \perp A \mid B` and :math:`C = (A, B)`, with the baseline :math:`f_0(b) = E[Y \mid B = b]`,

.. math:: P h(x) = h(x) - e(c), \qquad e(c) = E[h(X) - f_0(B) \mid C = c]

is the function nearest to h with :math:`E[f(X) \mid C] = f_0(B)`. For several statements it is
:math:`h - \sum_s e_s(c_s)` with corrections that satisfy all statements together.

References:
    Bouabid, Fawkes and Sejdinovic, Returning The Favour: When Regression Benefits From Probabilistic Causal Knowledge,
    2023, algorithms 1 and 4, Proposition 5.1.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning

from kpp.foundation.validation import count, one_of
from kpp_models.colliders.estimators.regressions import Regressor, additive_regression, fit_columns, predict_columns
from kpp_models.colliders.estimators.statements import Statement

Table = Float[np.ndarray, "n d"]
Columns = Float[np.ndarray, "n q"]


@dataclasses.dataclass(frozen=True)
class BaselineRegression:
    r"""The conditional mean :math:`f_0(b) = E[Y \mid B = b]` given some columns; without columns the mean, (q,)."""

    given: tuple[int, ...]
    regression: Any

    def __call__(self, table: Table) -> Columns:
        """Return the values at rows, one column for each of q functions of the target."""
        if not self.given:
            return np.broadcast_to(self.regression, (len(table), len(self.regression)))
        if is_classifier(self.regression):
            return self.regression.predict_proba(table[:, self.given])
        return predict_columns(self.regression, table[:, self.given])


def fit_baselines(
    statements: Sequence[Statement],
    table: Table,
    targets: Columns,
    regression: Regressor,
    labels: np.ndarray | None = None,
) -> tuple[BaselineRegression, ...]:
    """Fit the baseline of each statement at rows (n, d) to functions (n, q) of the target, or to labels."""
    found: dict[tuple[int, ...], BaselineRegression] = {}
    for given in (tuple(sorted(statement.given)) for statement in statements):
        if given not in found:
            found[given] = BaselineRegression(given, _fit_baseline(table[:, given], targets, regression, labels))
    return tuple(found[tuple(sorted(statement.given))] for statement in statements)


def _fit_baseline(
    x: Table, targets: Columns, regression: Regressor, labels: np.ndarray | None
) -> Regressor | np.ndarray:
    if x.shape[1] == 0:
        return targets.mean(axis=0)
    return clone(regression).fit(x, labels) if is_classifier(regression) else fit_columns(regression, x, targets)


@dataclasses.dataclass(frozen=True)
class Projection:
    r"""The part that a projection subtracts from a function, :math:`\sum_s e_s(c_s)`.

    The terms are for each correction its columns and the regression on them; `num_cycles` is how often all statements
    were imposed.
    """

    terms: tuple[tuple[tuple[int, ...], Any], ...]
    num_cycles: int

    def __call__(self, table: Table) -> Columns:
        """Return the values that are subtracted at rows, (n, q)."""
        return np.sum([predict_columns(regression, table[:, columns]) for columns, regression in self.terms], axis=0)


def fit_projection(
    statements: Sequence[Statement],
    table: Table,
    values: Columns,
    baselines: Sequence[BaselineRegression],
    regression: Regressor,
    *,
    several: str = "in-turn",
    tol: float = 1e-4,
    max_cycles: int = 100,
) -> Projection:
    r"""Fit the correction to subtract from q functions, given their values at rows with or without labels.

    In turn, :math:`e_s` is the regression of :math:`h - \sum_{t \ne s} e_t - f_0` on :math:`C_s`, for one s after the
    other until nothing changes. With exact conditional expectations these are alternating projections. Unlike plain
    alternating projections, this scheme does not undo the shrinkage of regressions cycle by cycle. Jointly, all come
    from one additive regression. The cycles stop where the change over a cycle, as a root mean square in units of the
    functions' standard deviation, is at most `tol`, or with a warning after `max_cycles`. Raises ValueError if
    `several` is neither "in-turn" nor "jointly", or "jointly" is used with statements of different baselines or with a
    regression that is not linear in features.

    References:
        Halperin, The product of projection operators, 1962; Buja, Hastie and Tibshirani, Linear smoothers and additive
        models, 1989, section 3 (the cycle).
    """
    one_of(several, "several", ("in-turn", "jointly"))
    count(max_cycles, "max_cycles")
    if len(statements) > 1 and several == "jointly":
        if len({baseline.given for baseline in baselines}) > 1:
            raise ValueError(
                "`several='jointly'` needs statements that are given the same columns, got "
                f"{'; '.join(map(str, statements))}; take several='in-turn'"
            )
        columns = tuple(range(table.shape[1]))
        joint = additive_regression(regression, [statement.condition for statement in statements])
        return Projection(((columns, fit_columns(joint, table, values - baselines[0](table))),), 1)
    conditions = [table[:, statement.condition] for statement in statements]
    offsets = [baseline(table) for baseline in baselines]
    corrections = np.zeros((len(statements), *values.shape))
    fitted: list[Any] = [None] * len(statements)
    # The second term is for functions that are constant up to rounding.
    scale = values.std(axis=0) + 1e-10 * np.abs(values).max() + np.finfo(float).tiny
    num_cycles, change = 0, np.inf
    while change > tol and num_cycles < max_cycles:
        num_cycles += 1
        before = corrections.sum(axis=0)
        for s, condition in enumerate(conditions):
            others = corrections.sum(axis=0) - corrections[s]  # backfitting: those of this cycle where there are any
            fitted[s] = fit_columns(regression, condition, values - others - offsets[s])
            corrections[s] = predict_columns(fitted[s], condition)
        moved = np.sqrt(np.mean((corrections.sum(axis=0) - before) ** 2, axis=0)) / scale
        change = moved.max() if len(statements) > 1 else 0.0  # with a single statement, one cycle suffices
    if change > tol:
        warnings.warn(
            f"the statements imposed in turn still change the function by {change:.1g} of its standard deviation after "
            f"`max_cycles` = {max_cycles} cycles; `tol` is {tol:g}",
            ConvergenceWarning,
            stacklevel=3,
        )
    terms = tuple((statement.condition, regressor) for statement, regressor in zip(statements, fitted, strict=True))
    return Projection(terms, num_cycles)
