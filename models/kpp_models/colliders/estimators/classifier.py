"""Projection of any classifier onto the constraints of independences of the target."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from kpp import Fit
from kpp.foundation.caution import KppWarning
from kpp_models.colliders.estimators.function import ProjectedEstimator
from kpp_models.colliders.estimators.projection import fit_baselines
from kpp_models.colliders.estimators.rows import Rows, check_predictions, fit_predictor, read_labeled, read_new_rows

SCALES = ("probability", "latent")
LARGE_SHARE = 0.1


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)  # compared and printed by scikit-learn
class ProjectedClassifier(ClassifierMixin, ProjectedEstimator):
    r"""A classifier, projected so that its probabilities obey independences of the target.

    Where Y is independent of A given B, :math:`E[P(Y = k \mid X) \mid A, B] = P(Y = k \mid B)`. On the scale of
    probabilities, with C = (A, B), the probabilities :math:`p_k` of the classifier become

    .. math:: p_k(x) - E[p_k(X) - P(Y = k \mid B) \mid C = c],

    where negative values are replaced by 0, and all are divided by their sum. On the latent scale of the
    log-probabilities :math:`\eta_k`, centered over the classes, the scores

    .. math:: \eta_k(x) - E[\eta_k(X) - E[\eta_k(X) \mid B] \mid C = c]

    give probabilities in proportion to their exponentials, so that nothing is clipped. The independence does not imply
    that the mean latent scores do not depend on A: this is an additional assumption, as in a Gaussian process whose
    prior obeys the constraint on the latent scale.

    Args:
        estimator: The classifier, with `predict_proba`; a random forest by default. With `prefit` it is used unchanged:
            a fitted scikit-learn classifier, a `kpp.Fit` of labels 0 and 1, or a callable that takes rows and returns
            the probabilities of the sorted classes, (n, q), or of the second of two classes, (n,).
        collider, outcome, conditional, several, check, tol, max_cycles: As for `ProjectedRegressor`.
        scale: "probability" or "latent".
        baseline: The model of Y given B: "logistic" regression, a scikit-learn classifier, or a regression of the
            indicators of the classes, as `conditional`; frequencies if B is empty. On the latent scale `conditional` is
            used instead.
        prefit: Whether the estimator is already fitted.
        random_state: The seed of the default estimator, of "forest" and "kernel-ridge", and of tests.

    Attributes:
        classes_: The sorted classes.
        estimator_: The classifier that is projected.
        statements_, n_features_in_, feature_names_in_: As for `ProjectedRegressor`.
        baselines_: For each statement the mean of the projected values given B.
        projection_: The function that is subtracted; None without a collider.
        clipped_share_: The share of the rows, with labels or without, where a projected probability was negative; more
            than a tenth of them give a warning.
        independence_tests_: For each statement a `kpp.embeddings.MeanIndependenceTest` of the indicators.

    References:
        Bouabid, Fawkes and Sejdinovic, Returning The Favour: When Regression Benefits From Probabilistic Causal
        Knowledge, 2023, algorithms 1 and 4, here for indicators of classes.
    """

    scale: str = "probability"
    baseline: object = "logistic"

    def fit(self, X: object, y: object, X_unlabeled: object = None) -> ProjectedClassifier:
        """Fit the estimator and its projection; see `ProjectedRegressor.fit`.

        The targets are classes, at least two different ones; ValueError is also raised if `scale` is unknown.
        """
        if self.scale not in SCALES:
            raise ValueError(f"`scale` must be one of {SCALES}, got {self.scale!r}")
        rows, y = read_labeled(self, X, y)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(f"`y` must hold at least two classes, got only the class {self.classes_[0]!r}")
        indicators = (y[:, None] == self.classes_).astype(float)
        plan, further = self._plan(rows, indicators[:, 1:], X_unlabeled)
        estimator = RandomForestClassifier(random_state=self._seed) if self.estimator is None else self.estimator
        self.estimator_ = fit_predictor(estimator, self.prefit, rows, y)
        if self.scale == "probability":
            plain: Any = Probabilities(self.estimator_, self.classes_)
            baselines = fit_baselines(plan.statements, rows.table, indicators, plan.baseline, y)
        else:
            # A probability of 0 has no logarithm: half a row of n is less than any share that the data can show.
            plain = LogProbabilities(Probabilities(self.estimator_, self.classes_), 0.5 / len(rows))
            table, values = plan.evaluate(plain, rows, further)
            baselines = fit_baselines(plan.statements, table, values, plan.conditional)
        self._keep(plan.project(plain, baselines, rows, further))
        self.clipped_share_ = self._clipped_share(rows, further)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = self.collider is not None  # rows at which its values are invalid
        return tags

    def predict_proba(self, X: object) -> Float[np.ndarray, "n q"]:
        """Return the projected probabilities of the classes at rows (n, d), (n, q)."""
        check_is_fitted(self)
        rows = read_new_rows(self, X)
        if self.projection_ is None:
            return Probabilities(self.estimator_, self.classes_)(rows)
        values = self._function(rows)
        return _clip(values) if self.scale == "probability" else softmax(values, axis=1)

    def predict(self, X: object) -> np.ndarray:
        """Return the most probable classes at rows (n, d), (n,)."""
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def projected_values(self, X: object) -> Float[np.ndarray, "n q"]:
        """Return the values that obey the statements, at rows (n, d).

        Args:
            X: The rows.

        Returns:
            The probabilities before they are clipped, or the latent scores, (n, q).
        """
        return self._values(X)

    def _clipped_share(self, rows: Rows, further: Rows) -> float:
        if self.projection_ is None or self.scale == "latent":
            return 0.0
        # Probabilities of 0 may be projected to rounding errors below 0, which need no warning.
        negative = [(self._function(part) < -1e-12).any(axis=1) for part in (rows, further) if len(part)]
        share = float(np.concatenate(negative).mean())
        if share > LARGE_SHARE:
            warnings.warn(
                f"{share:.0%} of the rows have projected probabilities below 0, which are cut off, so that the "
                "statements hold less well than before; scale='latent' needs no cut",
                KppWarning,
                stacklevel=3,
            )
        return share


@dataclasses.dataclass(frozen=True)
class Probabilities:
    """The probabilities, by sorted classes, of a fitted classifier, a `kpp.Fit` or a callable before the projection."""

    predictor: Any
    classes: np.ndarray

    def __call__(self, rows: Rows) -> Float[np.ndarray, "n q"]:
        """Return the probabilities of the classes at rows."""
        found = np.asarray(self._predict(rows), dtype=np.float64)
        if found.ndim == 1 and len(self.classes) == 2:
            found = np.stack([1 - found, found], axis=1)
        check_predictions(found, (len(rows), len(self.classes)))
        return found

    def _predict(self, rows: Rows) -> Any:
        if isinstance(self.predictor, Fit):
            found = self.predictor.predict(rows.features)
            if "probability" not in found:
                raise TypeError(f"`estimator` must be a fit that predicts probabilities, got {self.predictor!r}")
            return found["probability"].mean(("chain", "draw"))
        if hasattr(self.predictor, "predict_proba"):
            if not np.array_equal(self.predictor.classes_, self.classes):
                raise ValueError(
                    f"`y` must hold the classes of the estimator, {self.predictor.classes_}, got {self.classes}"
                )
            return self.predictor.predict_proba(rows.features)
        if callable(self.predictor):
            return self.predictor(rows.features)
        raise TypeError(f"`estimator` must have `predict_proba`, be a kpp.Fit or a callable, got {self.predictor!r}")


@dataclasses.dataclass(frozen=True)
class LogProbabilities:
    """The logarithms of probabilities, minus their mean over the classes; a floor makes all of them finite."""

    probabilities: Probabilities
    floor: float

    def __call__(self, rows: Rows) -> Float[np.ndarray, "n q"]:
        """Return the latent scores at rows."""
        found = np.log(np.maximum(self.probabilities(rows), self.floor))
        return found - found.mean(axis=1, keepdims=True)


def _clip(values: Float[np.ndarray, "n q"]) -> Float[np.ndarray, "n q"]:
    """Turn numbers into probabilities: shift them so that they sum to 1, replace negative ones by 0, and normalize."""
    values = values + (1 - values.sum(axis=1, keepdims=True)) / values.shape[1]
    clipped = np.maximum(values, 0.0)
    return clipped / clipped.sum(axis=1, keepdims=True)
