"""The converter of scikit-learn, registered as "sklearn"."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from kpp.conversion import AbstractConverter
from kpp.explanations.toolkit import fit_of, has_function_law
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.typing import RngKey
from kpp_converters.rules import sklearn_name
from kpp_converters.scikit_learn import estimators
from kpp_converters.scikit_learn.pipelines import Wrapped, unwrap

#: Class name -> its conversion to a function, and an attribute that only a fitted estimator has.
_FUNCTIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "KernelRidge": (estimators.from_kernel_ridge, "X_fit_"),
    "SVR": (estimators.from_support_vectors, "support_vectors_"),
    "NuSVR": (estimators.from_support_vectors, "support_vectors_"),
    "SVC": (estimators.from_support_vectors, "support_vectors_"),
    "NuSVC": (estimators.from_support_vectors, "support_vectors_"),
    "GaussianProcessRegressor": (estimators.regressor_mean, "alpha_"),
    "GaussianProcessClassifier": (estimators.classifier_mean, "base_estimator_"),
    **{name: (estimators.from_linear_model, "coef_") for name in estimators.LINEAR_MODELS},
}
#: The same for posteriors.
_POSTERIORS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "GaussianProcessRegressor": (estimators.regressor_posterior, "alpha_"),
    "GaussianProcessClassifier": (estimators.classifier_posterior, "base_estimator_"),
}


class SklearnConverter(AbstractConverter):
    """Fitted estimators of scikit-learn; subclasses are not accepted, because they may predict anything.

    Functions: KernelRidge, SVR, NuSVR, SVC and NuSVC (the decision function, positive for the second class; with
    several classes and ``decision_function_shape="ovo"`` one output per pair), GaussianProcessRegressor (the mean),
    GaussianProcessClassifier with two classes (the latent mean), and linear models (the decision function of
    classifiers), also behind Nystroem. Posteriors: GaussianProcessRegressor, and
    GaussianProcessClassifier with two classes (the latent posterior of Laplace's approximation).

    Kernels by name are "rbf", "linear", "poly" and "laplacian"; Gaussian-process kernels are RBF, Matern,
    RationalQuadratic, ExpSineSquared on one feature, DotProduct, ConstantKernel, WhiteKernel
    (noise, which is not part of the function), their sums and products, and whole powers.

    An estimator of kpp, which holds a `kpp.Fit`, gives the function and the posterior of this fit.

    A Pipeline may begin with StandardScaler, MinMaxScaler, MaxAbsScaler or RobustScaler if the kernel depends on
    differences of inputs only, or is linear. A TransformedTargetRegressor may transform its targets by one of these. A
    GridSearchCV, or another search, predicts by its best estimator.
    """

    def gp_posterior(self, model: Any) -> GPPosterior:
        def of_fit(fit: Any) -> GPPosterior:  # without axes of draws if there is only one, so that it has a law
            return fit.function_posterior(at="mean" if fit.num_chains * fit.num_draws == 1 else "draws")

        return _convert(model, _POSTERIORS, of_fit)

    def rkhs_function(self, model: Any) -> RKHSFunction:
        """Return the function that an estimator predicts, or the decision function of a classifier."""
        return _convert(model, _FUNCTIONS, lambda fit: fit.function())

    def has_posterior(self, model: Any) -> bool:
        """Return whether the model is a Gaussian process, of at most two classes."""
        estimator = unwrap(model).estimator
        fit = fit_of(estimator)
        if fit is not None:
            return has_function_law(fit)
        return sklearn_name(estimator) in _POSTERIORS and estimators.has_two_classes(estimator)

    def explainable(self, model: Any) -> Any:
        """Return a fit of kpp with all its draws behind what stands around it, or what other converters return."""
        wrapped = unwrap(model)
        fit = fit_of(wrapped.estimator)
        return super().explainable(model) if fit is None or not has_function_law(fit) else WrappedFit(fit, wrapped)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[SklearnConverter, Any, Any, Any, Any]]:
        """Yield a Gaussian process behind a scaler, and a kernel ridge regression."""
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF
        from sklearn.kernel_ridge import KernelRidge
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        points = np.asarray(jax.random.normal(rng_key, (12, 2)))
        targets, x = np.sin(points[:, 0]) + points[:, 1], points[:4] + 0.3
        process = GaussianProcessRegressor(2.0 * RBF(1.3), alpha=0.1, optimizer=None, normalize_y=True)
        pipeline = make_pipeline(StandardScaler(), process).fit(points, targets)
        yield cls(), pipeline, x, *pipeline.predict(x, return_cov=True)
        ridge = KernelRidge(kernel="rbf", alpha=0.1).fit(points, targets)
        yield cls(), ridge, x, ridge.predict(x), None


@dataclasses.dataclass(frozen=True)
class WrappedFit:
    """The part of a `kpp.Fit` that explainers use, for a model whose last step holds the fit of a Gaussian process."""

    fit: Any
    wrapped: Wrapped  # what stands around its estimator
    schema: None = None

    @property
    def fixed_sites(self) -> tuple[str, ...]:
        """The sites that have one value in all draws."""
        return self.fit.fixed_sites

    def function(self) -> RKHSFunction:
        """Return the prediction as a function of the points before any step, with draws."""
        return self.wrapped.wrap(self.fit.function())

    def function_posterior(self, *, at: Any = "draws") -> GPPosterior:
        """Return the posterior of this function; see `kpp.Fit.function_posterior`."""
        return self.wrapped.wrap(self.fit.function_posterior(at=at))

    def predict(self, x: np.ndarray) -> Any:
        """Return what the fit predicts, at points before any step and for targets after all of theirs."""
        for step in self.wrapped.steps:
            x = step.transform(x)
        return self.fit.predict(x)


def _convert(
    model: Any, conversions: Mapping[str, tuple[Callable[[Any], Any], str]], of_fit: Callable[[Any], Any]
) -> Any:
    """Convert the estimator within a model, which may hold a `kpp.Fit`, and apply what stands around it."""
    from sklearn.utils.validation import check_is_fitted

    wrapped = unwrap(model)
    fit = fit_of(wrapped.estimator)
    if fit is not None:
        return wrapped.wrap(of_fit(fit))
    name = sklearn_name(wrapped.estimator)
    if name is None or name not in conversions:
        found = type(wrapped.estimator)
        raise TypeError(
            f"of scikit-learn, `predictor` must be one of {', '.join(conversions)}, or a Pipeline, "
            f"TransformedTargetRegressor or search around one; got a {found.__module__}.{found.__qualname__}"
        )
    convert, attribute = conversions[name]
    check_is_fitted(wrapped.estimator, attribute)
    return wrapped.wrap(convert(wrapped.estimator))
