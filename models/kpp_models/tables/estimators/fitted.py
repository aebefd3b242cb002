"""The bases of estimators that hold a `kpp.Fit`, and of classifiers of two classes."""

from __future__ import annotations

import abc
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy.special import expit
from sklearn.base import ClassifierMixin, is_classifier
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted

from kpp import MAP, Fit, RKHSFunction
from kpp.data.estimators import KernelEstimator, as_rng_key, in_float64, pad_rows, read_estimator_rows, read_training
from kpp.data.tables import read_points
from kpp.inference import AbstractInference, AbstractModel
from kpp.kernels import AbstractKernel
from kpp_models.tables.estimators.defaults import kernel_with_constant

Estimator = TypeVar("Estimator", bound="FittedEstimator")
Function = TypeVar("Function", bound="FunctionEstimator")

GRID = np.logspace(-8, 0, 9)  # regularizations that are tried if none is given


class FittedEstimator(KernelEstimator):
    """An estimator whose fit is a `kpp.Fit`, in its attribute `fit_`; a subclass says of which model."""

    fit_: Fit
    classes_: np.ndarray
    inference: AbstractInference | None = None
    random_state: Any = 0

    @abc.abstractmethod
    def _model(self, table: Any, y: np.ndarray, classes: tuple[str, str] | None) -> AbstractModel:
        """Return the model for rows with their targets, or with labels as text of two classes."""

    @in_float64
    def fit(self: Estimator, X: Any, y: Any) -> Estimator:
        """Fit the model.

        Args:
            X: The points, an array (n, d), a data frame or an xarray object; columns of text are categories.
            y: The targets, (n,); for a classifier labels of two classes and any type.

        Returns:
            The estimator itself.

        Raises:
            ValueError: If the data or a parameter are invalid, or there are not two classes.
            kpp.inference.ConvergenceError: If the inference has not converged.
        """
        table, targets = read_training(self, X, y, numeric=not is_classifier(self))
        classes = None
        if is_classifier(self):
            self.classes_, targets, classes = read_two_classes(targets)
        model = self._model(table, targets, classes)
        inference = MAP(progress=False) if self.inference is None else self.inference
        key = as_rng_key(self.random_state)
        self.fit_ = model.fit(key, table, targets, inference=inference, num_prior_samples=0)
        return self

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
        return self.fit_.predict(pad_rows(points)).isel(instance=slice(len(points)))  # `pad_rows`: few shapes


class FunctionEstimator(FittedEstimator):
    """An estimator whose fit is one function, without draws, in its attribute `function_`."""

    function_: RKHSFunction
    kernel: Any
    regularization: Any

    @abc.abstractmethod
    def _machine(self, kernel: AbstractKernel, regularization: Any, classes: tuple[str, str] | None) -> Any:
        """Return the model with a kernel and a regularization."""

    def _model(self, table: Any, y: np.ndarray, classes: tuple[str, str] | None) -> AbstractModel:
        kernel = kernel_with_constant(*read_points(table, "X")) if self.kernel is None else self.kernel
        if self.regularization is not None:
            return self._machine(kernel, self.regularization, classes)
        return self._machine(kernel, 1.0, classes).select(table, y, grid={"regularization": GRID}).model

    @in_float64
    def fit(self: Function, X: Any, y: Any) -> Function:
        super().fit(X, y)
        self.function_ = self.fit_.function()
        return self

    @in_float64
    def _evaluate(self, X: Any) -> Float[np.ndarray, " p"]:
        """Return the values of the function at rows."""
        points = self._points(X)
        return np.asarray(self.function_(jnp.asarray(pad_rows(points))))[0, 0, : len(points)]


def read_two_classes(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, tuple[str, str]]:
    """Return the two sorted classes of labels of any type, and as text, which models take, labels and classes."""
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


class BinaryClassifier(ClassifierMixin):
    """A classifier of two classes, by default through `decision_function`, the log-odds of the second class."""

    classes_: np.ndarray

    def predict_proba(self, X: Any) -> Float[np.ndarray, "p 2"]:
        """Return the probabilities of the two classes at rows, (p, 2)."""
        odds = self.decision_function(X)
        return np.stack([expit(-odds), expit(odds)], axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """Return the more probable classes at rows, (p,)."""
        probabilities = self.predict_proba(X)  # raises NotFittedError before there are `classes_`
        return self.classes_[np.argmax(probabilities, axis=1)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
