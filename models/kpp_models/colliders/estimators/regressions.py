"""The regressions behind a projection: conditional expectations and baselines, by name or any of scikit-learn's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

from kpp.kernels import median_heuristic

NUM_LANDMARKS = 200

#: A seed as scikit-learn takes it.
Seed = int | np.random.RandomState | np.random.Generator | None


@runtime_checkable
class Regressor(Protocol):
    """A regressor in the manner of scikit-learn."""

    def fit(self, X: object, y: object) -> Regressor:
        """Fit it to rows and targets, and return it."""

    def predict(self, X: object) -> ArrayLike:
        """Return the predictions at rows."""


class MedianNystroem(TransformerMixin, BaseEstimator):
    r"""Features of an RBF kernel with the lengthscales of the median heuristic, on landmarks drawn from the rows.

    .. math:: \phi(x)^\top \phi(x') \approx \exp\Bigl(-\sum_j \frac{(x_j - x_j')^2}{2 d\, \ell_j^2}\Bigr)

    with :math:`\ell_j` the median distance in feature j (`kpp.kernels.median_heuristic`); exact on the landmarks. There
    are `num_landmarks` features, q, if there are as many rows.
    """

    def __init__(self, num_landmarks: int = NUM_LANDMARKS, random_state: Seed = None):
        self.num_landmarks = num_landmarks
        self.random_state = random_state

    def fit(self, X: np.ndarray, y: object = None) -> MedianNystroem:
        """Compute lengthscales and landmarks for rows of shape (n, d)."""
        self.lengthscale_ = np.asarray(median_heuristic(X)) * np.sqrt(X.shape[1])
        num_landmarks = min(self.num_landmarks, X.shape[0])
        nystroem = Nystroem(gamma=0.5, n_components=num_landmarks, random_state=self.random_state)
        self.nystroem_ = nystroem.fit(X / self.lengthscale_)
        return self

    def transform(self, X: np.ndarray) -> Float[np.ndarray, "n q"]:
        """Return the features of rows, (n, q)."""
        return self.nystroem_.transform(X / self.lengthscale_)


def as_regression(
    choice: object, argument: str, random: np.random.RandomState, *, of_classes: bool = False
) -> Regressor:
    """Return the regression that a name denotes, or a copy of a regression of scikit-learn, not yet fitted.

    "linear" is least squares; "kernel-ridge" ridge regression on the features of `MedianNystroem` with the penalty of
    the smallest leave-one-out error; "forest" a random forest of leaves of at least ten rows; for classes "logistic" is
    logistic regression on standardized columns. Repeated fits to the same rows agree. Raises ValueError, which names
    the argument, if the name is unknown, and TypeError for an object without `fit` and `predict`.
    """
    if not isinstance(choice, str):
        if isinstance(choice, type) or not isinstance(choice, Regressor):
            raise TypeError(f"`{argument}` must be a name or a scikit-learn regressor, got {choice!r}")
        return clone(choice)
    if choice == "linear":
        return LinearRegression()
    if choice == "kernel-ridge":
        return make_pipeline(MedianNystroem(random_state=draw_seed(random)), RidgeCV(np.logspace(-4, 3, 15)))
    if choice == "forest":
        return RandomForestRegressor(min_samples_leaf=10, random_state=draw_seed(random))
    if choice == "logistic" and of_classes:
        return make_pipeline(StandardScaler(), LogisticRegression())
    names = [*(["logistic"] if of_classes else []), "linear", "kernel-ridge", "forest"]
    raise ValueError(f"`{argument}` must be one of {names} or a scikit-learn regressor, got {choice!r}")


def draw_seed(random: np.random.RandomState) -> int:
    """Draw an integer seed."""
    return int(random.randint(2**31 - 1))


def additive_regression(regression: Regressor, groups: Sequence[tuple[int, ...]]) -> Pipeline:
    r"""Return one regression, not yet fitted, on groups of columns: its function is a sum of functions of each group.

    .. math:: e(x) = \sum_s \beta_s^\top \phi(x_{C_s})

    The features of each group come from all steps of a pipeline except the last, and the last step is fitted once, to
    the features of all groups. Raises ValueError if the last step is not a linear model: its function of all features
    would not be a sum.
    """
    *steps, (_, last) = regression.steps if isinstance(regression, Pipeline) else [("", regression)]
    if not type(last).__module__.startswith("sklearn.linear_model"):
        raise ValueError(
            "`several='jointly'` needs a sum of functions of each condition: `conditional` must be 'linear', "
            f"'kernel-ridge', a linear model of scikit-learn or a pipeline that ends in one, got {regression!r}; or "
            "take several='in-turn'"
        )
    features = [
        (f"condition{s}", Pipeline(clone(steps, safe=False)) if steps else "passthrough", list(group))
        for s, group in enumerate(groups)
    ]
    return Pipeline([("features", ColumnTransformer(features)), ("sum", clone(last))])


def fit_columns(regression: Regressor, x: object, targets: Float[np.ndarray, "n q"]) -> Regressor:
    """Return a copy of a regression, fitted to q targets at once."""
    regression = clone(regression)
    if targets.shape[1] == 1:  # a column may get another treatment than a vector, or a warning
        return regression.fit(x, targets[:, 0])
    if not get_tags(regression).target_tags.multi_output:
        regression = MultiOutputRegressor(regression)
    return regression.fit(x, targets)


def predict_columns(regression: Regressor, x: object) -> Float[np.ndarray, "n q"]:
    """Return the predictions of all targets, one column each."""
    found = np.asarray(regression.predict(x), dtype=np.float64)
    return found[:, None] if found.ndim == 1 else found
