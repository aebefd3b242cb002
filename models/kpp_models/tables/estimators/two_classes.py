"""The common part of classifiers of two classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit
from sklearn.base import ClassifierMixin


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
