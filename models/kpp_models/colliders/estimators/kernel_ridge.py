"""Kernel ridge regression that obeys independences of the target, with hyperparameters chosen from the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from kpp import RKHSFunction
from kpp.data.estimators import without_generator
from kpp.kernels import RBF, AbstractKernel, median_heuristic
from kpp.typing import Numbers
from kpp_models.colliders.collider_ridge import ColliderRidge
from kpp_models.colliders.estimators.regressions import Seed
from kpp_models.colliders.estimators.rows import read_labeled, read_new_rows, read_unlabeled
from kpp_models.colliders.estimators.statements import Statement, check_statements, read_statements
from kpp_models.tables.machines.ridge import KernelRidge

GRID = np.logspace(-6, 0, 9)  # regularizations
FACTORS = (0.5, 1.0, 2.0, 4.0)  # multiples of the lengthscales
MAX_SCALED_ROWS = 1000  # the most rows with which the lengthscales are compared
MAX_EXACT_ROWS = 3000  # with more rows, landmarks are used
NUM_LANDMARKS = 500
PREDICTED_AT_ONCE = 5000  # rows, which bounds the memory


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)  # compared and printed by scikit-learn
class ProjectedKernelRidge(RegressorMixin, BaseEstimator):
    r"""Kernel ridge regression in the space of functions that obey independences of the target.

    Where Y is independent of A given B, the regression :math:`f(x) = E[Y \mid X = x]` has
    :math:`E[f(X) \mid A, B] = E[Y \mid B]`. The fit is a `kpp_models.ColliderRidge` with Gaussian kernels. Options
    that are not given are chosen: lengthscales and the regularization by leave-one-out error, the regularization of the
    conditional expectation by its cross-validated error over labeled and unlabeled rows. Without a collider it is an
    ordinary kernel ridge regression, around the mean of Y.

    Args:
        collider, outcome, check: As for `ProjectedRegressor`; several statements hold jointly.
        projection: "space" fits in the space of projected functions, "function" projects the ordinary fit.
        form: "product" or "general", which estimate the expectation differently, see `kpp.kernels.Projected`; for
            several statements it must be "general".
        lengthscale: The lengthscale of all features, or one for each column, in units of X; None for the best of some
            multiples of each column's `kpp.kernels.median_heuristic`, times the root of the number of columns of a
            kernel.
        regularization: That of the fit, multiplied by the number of labeled rows; None to choose.
        condition_regularization: The regularization of the conditional expectation, multiplied by the number of its
            rows; None to choose.
        num_landmarks: The number of landmarks of Nyström's method for the conditional expectation; None for no
            approximation, "auto" for 500 if there are more than 3000 rows.
        random_state: The seed of the tests.

    Attributes:
        model_: The `kpp_models.ColliderRidge` with the chosen hyperparameters.
        function_: The fit, a `kpp.RKHSFunction`.
        statements_, n_features_in_, feature_names_in_: As for `ProjectedRegressor`.
        independence_tests_: For each statement a `kpp.embeddings.MeanIndependenceTest`.

    References:
        Bouabid, Fawkes and Sejdinovic, Returning the favour: when regression benefits from probabilistic causal
        knowledge, 2023, sections 4 and 5.
    """

    # scikit-learn's own checks give -1 for every argument, so constructors are exempt from checks of types at run time.
    __no_type_check__ = True

    collider: object = dataclasses.field(default=None, kw_only=False)
    outcome: str | None = None
    projection: str = "space"
    form: str = "product"
    lengthscale: Numbers | None = None
    regularization: float | None = None
    condition_regularization: float | None = None
    num_landmarks: int | str | None = "auto"
    check: bool = True
    random_state: Seed = None

    def fit(self, X: object, y: object, X_unlabeled: object = None) -> ProjectedKernelRidge:
        """Choose the hyperparameters that are not given, and fit; see `ProjectedRegressor.fit`."""
        rows, y = read_labeled(self, X, y, y_numeric=True)
        further = read_unlabeled(self, X_unlabeled, rows).table
        names = getattr(self, "feature_names_in_", None)
        self.statements_ = read_statements(self.collider, self.outcome, rows.table.shape[1], names)
        random = check_random_state(without_generator(self.random_state))
        self.independence_tests_ = (
            check_statements(self.statements_, rows.table, y[:, None], random) if self.check else ()
        )
        unlabeled = further if len(further) else None
        scale = self._choose_scale(rows.table, y, further)
        self.model_ = self._choose(self._build(scale, rows.table, y, len(further)), rows.table, y, unlabeled)
        prepared, data, _ = self.model_.prepare(rows.table, y, unlabeled)
        self.function_ = _fit(prepared, {}, data)
        if not np.isfinite(self.function_.coefficients).all():
            self.function_ = prepared.function_draw({}, data)  # not compiled, so that it says which matrix is singular
        return self

    def predict(self, X: object) -> Float[np.ndarray, " n"]:
        """Return the predictions at rows (n, d), (n,)."""
        check_is_fitted(self)
        table = read_new_rows(self, X).table
        parts = [table[start : start + PREDICTED_AT_ONCE] for start in range(0, len(table), PREDICTED_AT_ONCE)]
        return np.concatenate([np.asarray(_predict(self.function_, jnp.asarray(part))) for part in parts])

    def _choose_scale(self, table: np.ndarray, y: np.ndarray, further: np.ndarray) -> _Lengthscales:
        """Return the given lengthscales, or those with the smallest leave-one-out error without a projection."""
        if self.lengthscale is not None:
            return _Lengthscales.given(self.lengthscale, table.shape[1])
        medians = np.asarray(median_heuristic(np.concatenate([table, further])))
        few = slice(None, None, -(-len(table) // MAX_SCALED_ROWS))
        grid = {"regularization": GRID if self.regularization is None else [self.regularization]}
        errors = []
        for factor in FACTORS:
            model = self._build(_Lengthscales(factor * medians, by_root=True), table[few], y[few], 0)
            model = dataclasses.replace(model, projection="none", num_landmarks=None)
            errors.append(float(model.select(table[few], y[few], grid=grid).scores.min()))
        return _Lengthscales(FACTORS[int(np.argmin(errors))] * medians, by_root=True)

    def _build(self, scale: _Lengthscales, table: np.ndarray, y: np.ndarray, num_further: int) -> ColliderRidge:
        """Return the model; regularizations that are not given get a preliminary value."""
        columns = tuple(range(table.shape[1]))
        fields: dict[str, Any] = {"projection": self.projection, "form": self.form}
        regularization = 1.0 if self.regularization is None else self.regularization
        if not self.statements_:
            fields["form"] = "product"
            return ColliderRidge(scale.kernel(columns), None, regularization, None, columns, (), **fields)
        spouses, parents = _condition(self.statements_, self.form)
        condition = spouses + parents
        children = tuple(column for column in columns if column not in condition)
        if not children:
            raise ValueError(
                f"`collider` must leave a feature that the target is not said to be independent of, got "
                f"{', '.join(map(str, self.statements_))} for n_features = {table.shape[1]}"
            )
        kernel: AbstractKernel = scale.kernel(children)
        if self.form == "general":
            kernel = (kernel.on(children) + 1.0) * scale.kernel(condition).on(condition)
        if parents:
            fields |= _baseline(scale.kernel(parents), table[:, parents], y)
        gamma = 1.0 if self.condition_regularization is None else self.condition_regularization
        count = self._count_landmarks(len(table) + num_further)
        parts = (children, spouses, parents)
        condition_kernel = _additive(self.statements_, condition, scale)
        return ColliderRidge(kernel, condition_kernel, regularization, gamma, *parts, num_landmarks=count, **fields)

    def _choose(
        self, model: ColliderRidge, table: np.ndarray, y: np.ndarray, unlabeled: np.ndarray | None
    ) -> ColliderRidge:
        """Choose the regularizations that are not given; that of the expectation is chosen for the unprojected fit."""
        ridges = {"regularization": GRID}
        if model.spouses and self.condition_regularization is None:
            start = dataclasses.replace(model, projection="none")
            if self.regularization is None:
                start = start.select(table, y, grid=ridges).model
            grid = {"condition_regularization": GRID}
            chosen = start.select_condition(table, y, grid=grid, unlabeled=unlabeled).model
            model = dataclasses.replace(chosen, projection=model.projection)
        if self.regularization is None:
            model = model.select(table, y, grid=ridges, unlabeled=unlabeled).model
        return model

    def _count_landmarks(self, num_rows: int) -> int | None:
        if self.num_landmarks == "auto":
            return NUM_LANDMARKS if num_rows > MAX_EXACT_ROWS else None
        if isinstance(self.num_landmarks, str):
            raise ValueError(f"`num_landmarks` must be a number, None or 'auto', got {self.num_landmarks!r}")
        return self.num_landmarks


@dataclasses.dataclass(frozen=True)
class _Lengthscales:
    """Lengthscales for each column, which may be multiplied by the root of the number of columns in a group."""

    values: np.ndarray
    by_root: bool

    @classmethod
    def given(cls, lengthscale: Numbers, num_columns: int) -> _Lengthscales:
        """Return lengthscales as the user gives them."""
        values = np.asarray(lengthscale, dtype=np.float64)
        if values.shape not in ((), (num_columns,)):
            raise ValueError(
                f"`lengthscale` must be a number or one for each of {num_columns} columns, got shape {values.shape}"
            )
        return cls(np.broadcast_to(values, num_columns), by_root=False)

    def kernel(self, columns: Sequence[int]) -> RBF:
        """Return a kernel of some columns only."""
        return RBF(self.values[list(columns)] * (len(columns) ** 0.5 if self.by_root else 1.0))


def _condition(statements: Sequence[Statement], form: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the columns that the target is independent of, in all statements together, and the given columns."""
    given = {tuple(sorted(statement.given)) for statement in statements}
    if len(given) > 1:
        raise ValueError(
            "`collider` must hold statements that are given the same variables, got "
            f"{', '.join(map(str, statements))}; ProjectedRegressor takes others"
        )
    if len(statements) > 1 and form != "general":
        raise ValueError(f"`form` must be 'general' for {len(statements)} statements that hold jointly, got {form!r}")
    return tuple(dict.fromkeys(column for statement in statements for column in statement.of)), statements[0].given


def _additive(statements: Sequence[Statement], condition: Sequence[int], scale: _Lengthscales) -> AbstractKernel:
    """Return a kernel of the condition: a sum of functions of the conditions of all statements."""
    if len(statements) == 1:
        return scale.kernel(condition)
    kernels = [
        scale.kernel(statement.condition).on(tuple(map(condition.index, statement.condition)))
        for statement in statements
    ]
    return sum(kernels[1:], start=kernels[0])


def _baseline(kernel: RBF, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Return the kernel of the regression on the given columns, and its regularization by leave-one-out error."""
    # `KernelRidge` has no intercept, while the baseline of `ColliderRidge` is around the mean of y.
    chosen = KernelRidge(kernel, 1.0).select(x, y - y.mean(), grid={"regularization": GRID}).chosen
    return {"baseline_kernel": kernel, "baseline_regularization": chosen["regularization"]}


_fit, _predict = eqx.filter_jit(ColliderRidge.function_draw), eqx.filter_jit(RKHSFunction.__call__)
