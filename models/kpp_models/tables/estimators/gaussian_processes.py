"""Gaussian-process regression and classification as estimators."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from numpyro import distributions as dist
from sklearn.base import RegressorMixin

from kpp.data.estimators import as_rng_key, in_float64
from kpp.data.tables import read_points
from kpp_models.tables.estimators.defaults import noise_prior, scaled_kernel, target_variance
from kpp_models.tables.estimators.fitted import BinaryClassifier, FittedEstimator
from kpp_models.tables.generalized import GPClassification
from kpp_models.tables.regression import GPRegression


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)  # compared and printed by scikit-learn
class GPRegressor(RegressorMixin, FittedEstimator):
    r"""Gaussian-process regression, `kpp_models.GPRegression`, as a scikit-learn estimator.

    .. math:: y_i = f(x_i) + \epsilon_i, \qquad f \sim GP(m, k), \qquad \epsilon_i \sim N(0, \sigma^2)

    Parameters may be numbers or priors. Those that are not given get priors in the units of the data. Numbers are not
    changed by the fit. It computes in double precision in any case.

    Args:
        kernel: k; by default `kpp.kernels.default_kernel` with priors around the median distances of each column and
            around the variance of y.
        noise_variance: :math:`\sigma^2`, in squared units of y; by default a prior around a tenth of the
            variance of y, which excludes 0.
        mean: m, in units of y, as for `kpp_models.GPRegression`; by default a normal prior with the mean and the
            standard deviation of y.
        latent: "exact", "inducing" or "iterative", as for `kpp_models.GPRegression`.
        num_inducing: The number of inducing points, with "inducing".
        inference: The inference of what has a prior; by default ``kpp.MAP(progress=False)``, the fastest. With
            `kpp.Laplace` or `kpp.NUTS` intervals also hold the uncertainty of these parameters.
        random_state: An integer, a generator of NumPy, None or a JAX random key.

    Attributes:
        fit_: The `kpp.Fit`, with the posterior of each parameter; `kpp.explain` takes the estimator in its place.
        n_features_in_: The number of columns.
        feature_names_in_: The names of the columns of a data frame.

    Example:
        >>> from kpp_models.estimators import GPRegressor
        >>> GPRegressor(kpp.kernels.RBF(1.5), noise_variance=0.01).fit(x, y).predict(x[:2]).round(2)
        array([0.09, 0.65])
    """

    kernel: Any = dataclasses.field(default=None, kw_only=False)
    noise_variance: Any = None
    mean: Any = None
    latent: Any = "exact"
    num_inducing: Any = None
    inference: Any = None
    random_state: Any = None

    def _model(self, table: Any, y: np.ndarray, classes: tuple[str, str] | None) -> GPRegression:
        variance = target_variance(y)
        return GPRegression(
            scaled_kernel(*read_points(table, "X"), priors=True, variance=variance)
            if self.kernel is None
            else self.kernel,
            noise_prior(variance) if self.noise_variance is None else self.noise_variance,
            dist.Normal(float(np.mean(y)), variance**0.5) if self.mean is None else self.mean,
            latent=self.latent,
            num_inducing=self.num_inducing,
        )

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict new observations.

        Args:
            X: The points, (p, d).
            return_std: Whether to return standard deviations, too.

        Returns:
            The means, (p,), averaged over the draws of the parameters; with `return_std` also the standard deviations
            of new observations, (p,): of the function, between draws and of the noise together.
        """
        found = self._predicted(X)
        draws = ("chain", "draw")
        mean = found["mean"].mean(draws).values
        if not return_std:
            return mean
        within = (found["latent_variance"] + found["noise_variance"]).mean(draws)
        return mean, np.sqrt((within + found["mean"].var(draws)).values)

    @in_float64
    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Float[np.ndarray, "p s"]:
        """Draw new observations from their joint posterior.

        Args:
            X: The points, (p, d).
            n_samples: The number of draws, s.
            random_state: As for the estimator.

        Returns:
            The draws, (p, s).
        """
        draws = self.fit_.sample_predictive(as_rng_key(random_state), self._points(X), n_samples)
        return draws.transpose("instance", "sample").values


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
            scaled_kernel(*read_points(table, "X"), priors=True, variance=_VARIANCE)
            if self.kernel is None
            else self.kernel,
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
