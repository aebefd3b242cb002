"""Gaussian-process classification as an estimator."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from numpyro import distributions as dist

from kpp.data.tables import read_points
from kpp_models.tables.classification import GPClassification
from kpp_models.tables.estimators.defaults import kernel_with_priors
from kpp_models.tables.estimators.fitted import FittedEstimator
from kpp_models.tables.estimators.two_classes import BinaryClassifier

_VARIANCE = 4.0  # the scale of the latent function's variance: log-odds of some units


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)  # compared and printed by scikit-learn
class GPClassifier(BinaryClassifier, FittedEstimator):
    r"""Gaussian-process classification into two classes, `kpp_models.GPClassification`, as a scikit-learn estimator.

    .. math:: P(y_i = c_2 \mid f) = \sigma(f(x_i)), \qquad f \sim GP(m, k)

    Parameters may be numbers or priors. Numbers are not changed by the fit. It computes in double precision in any
    case. `sklearn.multiclass.OneVsRestClassifier` makes a classifier of several classes of it.

    Args:
        kernel: k; by default `kpp.kernels.default_kernel` with priors around the median distances of each column.
        mean: m, as for `kpp_models.GPClassification`; by default a standard normal prior.
        link: "logit" or "probit".
        latent: "laplace", "sample" or "inducing", as for `kpp_models.GPClassification`.
        num_inducing: The number of inducing points, with "inducing".
        inference: The inference of what has a prior; by default ``kpp.MAP(progress=False)``, the fastest. With
            `kpp.Laplace` or `kpp.NUTS` intervals also hold the uncertainty of these parameters.
        random_state: An integer, a generator of NumPy, None or a JAX random key.

    Attributes:
        fit_: The `kpp.Fit`, with the posterior of each parameter; `kpp.explain` takes the estimator in its place.
        classes_: The two sorted labels.
        n_features_in_: The number of columns.
        feature_names_in_: The names of the columns of a data frame.
    """

    kernel: Any = dataclasses.field(default=None, kw_only=False)
    mean: Any = None
    link: Any = "logit"
    latent: Any = "laplace"
    num_inducing: Any = None
    inference: Any = None
    random_state: Any = None

    def _model(self, table: Any, y: np.ndarray, classes: tuple[str, str] | None) -> GPClassification:
        return GPClassification(
            kernel_with_priors(*read_points(table, "X"), _VARIANCE) if self.kernel is None else self.kernel,
            dist.Normal(0.0, 1.0) if self.mean is None else self.mean,
            link=self.link,
            latent=self.latent,
            num_inducing=self.num_inducing,
            classes=classes,
        )

    def predict_proba(self, X: Any) -> Float[np.ndarray, "p 2"]:
        """Return the probabilities of the two classes at rows (p, d), averaged over the draws of the parameters."""
        second = self._predicted(X)["probability"].mean(("chain", "draw")).values
        return np.stack([1.0 - second, second], axis=1)
