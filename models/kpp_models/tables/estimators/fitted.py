"""The bases of estimators that hold a `kpp.Fit`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted

from kpp import MAP, Fit, RKHSFunction
from kpp.estimators import KernelEstimator, as_rng_key, in_float64, pad_rows, read_estimator_rows
from kpp.inference import AbstractInference, AbstractModel

GRID = np.logspace(-8, 0, 9)  # regularizations that are tried if none is given


class FittedEstimator(KernelEstimator):
    """An estimator whose fit is a `kpp.Fit`, in its attribute `fit_`."""

    fit_: Fit

    def _fit_model(
        self, model: AbstractModel, table: Any, y: Any, random_state: Any, inference: AbstractInference | None
    ) -> None:
        """Fit a model to a table; the inference is `kpp.MAP` if none is given."""
        chosen = MAP(progress=False) if inference is None else inference
        self.fit_ = model.fit(as_rng_key(random_state), table, y, inference=chosen, num_prior_samples=0)

    def _points(self, X: Any) -> np.ndarray:
        """Return rows as points, categories as their codes."""
        check_is_fitted(self)
        table = read_estimator_rows(self, X)
        assert self.fit_.schema is not None
        return self.fit_.schema.read(table, "X")

    @in_float64
    def _predicted(self, X: Any) -> xr.Dataset:
        """Return what `kpp.Fit.predict` predicts at rows, for each draw."""
        points = self._points(X)
        return self.fit_.predict(pad_rows(points)).isel(instance=slice(len(points)))


class FunctionEstimator(FittedEstimator):
    """An estimator whose fit is one function, without draws, in its attribute `function_`."""

    function_: RKHSFunction

    def _fit_function(self, model: AbstractModel, table: Any, y: Any) -> None:
        self._fit_model(model, table, y, 0, None)
        self.function_ = self.fit_.function()

    @in_float64
    def _evaluate(self, X: Any) -> Float[np.ndarray, " p"]:
        """Return the values of the function at rows."""
        points = self._points(X)
        return np.asarray(self.function_(jnp.asarray(pad_rows(points))))[0, 0, : len(points)]


def read_two_classes(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, tuple[str, str]]:
    """Read labels of any type.

    Args:
        labels: One label per row, (n,).

    Returns:
        The two sorted classes, and as text the labels and the classes, which models take.

    Raises:
        ValueError: If there are not exactly two classes.
    """
    check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) > 2:
        raise ValueError(
            f"Only binary classification is supported. The type of the target is {type_of_target(labels)}; "
            "sklearn.multiclass.OneVsRestClassifier makes a classifier of several classes of this one"
        )
    if len(classes) < 2:
        raise ValueError(f"`y` must hold labels of two classes, got only the class {classes[0]!r}")
    first, second = map(str, classes)
    return classes, np.where(codes.ravel() == 1, second, first), (first, second)
