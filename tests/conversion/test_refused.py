"""What has no exact representation is refused, with the reason."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process import kernels as gp
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, PoissonRegressor, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PowerTransformer, StandardScaler
from sklearn.svm import SVC, SVR

import kpp

RNG = np.random.default_rng(0)
X = RNG.normal(size=(15, 2))
Y = X[:, 0] + 0.1 * RNG.normal(size=15)
THREE = np.arange(15) % 3


def process(kernel):
    return GaussianProcessRegressor(kernel, optimizer=None, alpha=0.1)


class OwnRBF(gp.RBF):
    """A subclass may compute anything."""


class OwnSVR(SVR):
    """A subclass may predict anything."""


REFUSED = {
    "three classes": (SVC(), THREE, ValueError, r"SVC with 3 classes votes between pairs"),
    "sigmoid": (SVR(kernel="sigmoid"), Y, ValueError, r"kernel 'sigmoid' has no exact counterpart; known are 'rbf'"),
    "function as kernel of SVR": (SVR(kernel=lambda a, b: a @ b.T), Y, ValueError, "`kernel` .* is a function"),
    "function as kernel of ridge": (
        KernelRidge(kernel=lambda a, b: float(a @ b)),
        Y,
        ValueError,
        "`kernel` .* is a function",
    ),
    "chi2": (KernelRidge(kernel="cosine"), Y, ValueError, "kernel 'cosine' has no exact counterpart"),
    "negative offset": (SVR(kernel="poly", coef0=-1.0, gamma=0.1), Y, ValueError, "`coef0` of at least 0"),
    "periodic in two": (process(gp.ExpSineSquared(periodicity=9.0)), Y, ValueError, "not for 2 features"),
    "broken power": (process(gp.RBF() ** 0.5), Y, ValueError, "whole exponents from 1 to 16, got 0.5"),
    "pairwise": (process(gp.PairwiseKernel(metric="rbf")), Y, ValueError, "PairwiseKernel.* has no exact counterpart"),
    "only noise": (process(gp.WhiteKernel(1.0)), Y, ValueError, "nothing but noise"),
    "own kernel": (process(OwnRBF()), Y, ValueError, "OwnRBF.* has no exact counterpart"),
    "own estimator": (OwnSVR(), Y, TypeError, r"must be one of KernelRidge, SVR, .*; got a .*OwnSVR"),
    "forest": (RandomForestRegressor(n_estimators=2), Y, TypeError, "got a sklearn.ensemble.*RandomForestRegressor"),
    "search of forests": (
        GridSearchCV(RandomForestRegressor(n_estimators=2), {"max_depth": [1]}, cv=2),
        Y,
        TypeError,
        "got a sklearn.ensemble.*RandomForestRegressor",
    ),
    "scaler and dot product": (
        make_pipeline(StandardScaler(), process(gp.DotProduct() + gp.RBF())),
        Y,
        ValueError,
        r"Linear kernel behind a scaler .*pipeline.-1.",
    ),
    "scaler and poly": (
        make_pipeline(StandardScaler(), KernelRidge(kernel="poly")),
        Y,
        ValueError,
        r"Polynomial kernel behind a scaler .*pipeline\[:-1\].transform",
    ),
    "clipping scaler": (make_pipeline(MinMaxScaler(clip=True), SVR()), Y, ValueError, "can't be absorbed exactly"),
    "other step": (make_pipeline(PCA(), SVR()), Y, ValueError, r"PCA\(\) of the pipeline can't be absorbed exactly"),
    "a link": (PoissonRegressor(), np.exp(Y), TypeError, "got a .*PoissonRegressor"),
    "Nystroem and a kernel": (
        make_pipeline(Nystroem(n_components=5), SVR()),
        Y,
        ValueError,
        r"Nystroem\(n_components=5\) of the pipeline can't be absorbed exactly",
    ),
    "Nystroem of a function": (
        make_pipeline(Nystroem(lambda a, b: float(a @ b), n_components=5), Ridge()),
        Y,
        ValueError,
        "of this Nystroem is a function",
    ),
    "Nystroem, sigmoid": (
        make_pipeline(Nystroem("sigmoid", n_components=5), Ridge()),
        Y,
        ValueError,
        "kernel 'sigmoid' has no exact counterpart",
    ),
    "logarithm of the targets": (
        TransformedTargetRegressor(LinearRegression(), func=np.log, inverse_func=np.exp),
        np.exp(Y),
        ValueError,
        r"(?s)targets, FunctionTransformer\(.*, is not linear, .*model.regressor_",
    ),
    "power of the targets": (
        TransformedTargetRegressor(SVR(), transformer=PowerTransformer()),
        Y,
        ValueError,
        r"targets, PowerTransformer\(\), is not linear",
    ),
    "three classes of a process": (
        GaussianProcessClassifier(optimizer=None),
        THREE,
        ValueError,
        "GaussianProcessClassifier with 3 classes combines several latent functions",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_exact_is_refused(name):
    estimator, y, error, message = REFUSED[name]
    fitted = clone(estimator).fit(X, y)
    with pytest.raises(error, match=message):
        kpp.as_rkhs_function(fitted)


@pytest.mark.parametrize(
    "estimator",
    [
        KernelRidge(),
        SVR(),
        SVC(),
        GaussianProcessRegressor(),
        GaussianProcessClassifier(),
        Ridge(),
        TransformedTargetRegressor(Ridge()),
        GridSearchCV(Ridge(), {"alpha": [1.0]}),
        make_pipeline(StandardScaler(), SVR()),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_an_estimator_that_was_not_fitted_is_refused(estimator):
    with pytest.raises(NotFittedError):
        kpp.as_rkhs_function(estimator)


@pytest.mark.parametrize("thing", [3, "SVR", lambda x: x, SVR])
def test_other_things_are_a_type_error(thing):
    with pytest.raises(TypeError, match="`predictor` must be a kpp.Fit, .*, or a fitted model of .*sklearn"):
        kpp.as_rkhs_function(thing)


NO_POSTERIOR = {
    "ridge": (
        KernelRidge(kernel="rbf"),
        Y,
        TypeError,
        "one of GaussianProcessRegressor, .*; got a .*KernelRidge",
    ),
    "noise of a latent function": (
        GaussianProcessClassifier(1.0 * gp.RBF() + gp.WhiteKernel(0.1), optimizer=None),
        Y > 0,
        ValueError,
        r"the WhiteKernel in .* adds noise to the latent function",
    ),
    "dot product behind a scaler": (
        make_pipeline(StandardScaler(), process(gp.DotProduct())),
        Y,
        ValueError,
        "Linear kernel behind a scaler",
    ),
}


@pytest.mark.parametrize("name", NO_POSTERIOR)
def test_what_has_no_exact_posterior_is_refused(name):
    estimator, y, error, message = NO_POSTERIOR[name]
    with pytest.raises(error, match=message):
        kpp.as_gp_posterior(clone(estimator).fit(X, y))
