"""A converted estimator predicts what the estimator predicts, at 1e-10."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as gp
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    BayesianRidge,
    ElasticNet,
    ElasticNetCV,
    HuberRegressor,
    Lasso,
    LassoCV,
    LinearRegression,
    LogisticRegression,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    RidgeCV,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR

import kpp

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3)) * [1.0, 3.0, 0.5] + [0.0, 2.0, -1.0]
Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] ** 2 + X[:, 2] + 5.0 + 0.2 * RNG.normal(size=24)
LABELS = np.where(Y > np.median(Y), "high", "low")
NEW = RNG.normal(size=(9, 3)) * [1.0, 3.0, 0.5]


def fixed(kernel, **options):
    """A Gaussian process whose hyperparameters are not optimized."""
    return GaussianProcessRegressor(kernel, optimizer=None, alpha=0.1, **options)


ARD = [0.7, 2.0, 5.0]
GP_KERNELS = {
    "RBF": gp.RBF(1.3),
    "RBF, a lengthscale a feature": gp.RBF(ARD),
    "Matern 1/2": gp.Matern(ARD, nu=0.5),
    "Matern 3/2": gp.Matern(1.7, nu=1.5),
    "Matern 5/2": gp.Matern(ARD, nu=2.5),
    "Matern 0.7": gp.Matern(ARD, nu=0.7),
    "Matern infinity": gp.Matern(ARD, nu=np.inf),
    "RationalQuadratic": gp.RationalQuadratic(1.7, alpha=0.6),
    "DotProduct": gp.DotProduct(1.5),
    "DotProduct without offset": gp.DotProduct(0.0),
    "a constant alone": gp.ConstantKernel(2.0),
    "variance times RBF": gp.ConstantKernel(2.5) * gp.RBF(ARD),
    "noise in a sum": gp.ConstantKernel(2.5) * gp.Matern(ARD, nu=1.5) + gp.WhiteKernel(0.3),
    "noise in front of a sum": gp.WhiteKernel(0.3) + gp.RBF(1.0),
    "sum of three": gp.RBF(0.8) + 0.5 * gp.DotProduct(1.0) + gp.ConstantKernel(3.0),
    "product of two": gp.RBF(1.5) * gp.RationalQuadratic(2.0, alpha=1.5),
    "product with noise": gp.RBF(2.0) + gp.RBF(1.0) * gp.WhiteKernel(1.0),
    "sum times sum": (gp.RBF(1.0) + gp.ConstantKernel(0.5)) * (gp.DotProduct(1.0) + gp.Matern(2.0)),
    "square of a dot product": gp.DotProduct(0.8) ** 2,
    "cube of a sum with noise": (gp.RBF(2.0) + gp.ConstantKernel(0.3) + gp.WhiteKernel(0.5)) ** 3,
}
ESTIMATORS = {
    "ridge, linear": KernelRidge(alpha=0.3),
    "ridge, rbf": KernelRidge(alpha=0.3, kernel="rbf", gamma=0.4),
    "ridge, rbf by default": KernelRidge(alpha=0.3, kernel="rbf"),
    "ridge, laplacian": KernelRidge(alpha=0.3, kernel="laplacian", gamma=0.4),
    "ridge, poly": KernelRidge(alpha=0.3, kernel="poly", degree=3, gamma=0.2, coef0=1.5),
    "ridge, poly without offset": KernelRidge(alpha=0.3, kernel="polynomial", degree=2, coef0=0),
    "ridge, a kernel of a process": KernelRidge(alpha=0.3, kernel=gp.RBF(ARD) + gp.WhiteKernel(0.5)),
    "SVR, gamma 'scale'": SVR(C=10.0),
    "SVR, gamma 'auto'": SVR(C=10.0, gamma="auto"),
    "SVR, gamma": SVR(C=10.0, gamma=0.3),
    "SVR, linear": SVR(kernel="linear"),
    "SVR, poly": SVR(kernel="poly", degree=2, gamma=0.1, coef0=1.0),
    "NuSVR": NuSVR(C=10.0),
    "process, normalize_y": fixed(gp.RBF(ARD), normalize_y=True),
    "process, optimized": GaussianProcessRegressor(
        gp.ConstantKernel(1.0) * gp.RBF(np.ones(3)) + gp.WhiteKernel(0.1), normalize_y=True, random_state=0
    ),
    "process, default kernel": GaussianProcessRegressor(alpha=0.1),
} | {f"process, {name}": fixed(kernel) for name, kernel in GP_KERNELS.items()}


# These take the paths of other rows, with other numbers or fewer parts.
_SLOW = {
    "ridge, rbf by default",
    "ridge, poly without offset",
    "SVR, gamma 'auto'",
    "SVR, gamma",
    "process, default kernel",
    "process, RBF",
    "process, variance times RBF",
    "process, noise in front of a sum",
    "process, sum of three",
    "process, product of two",
    "process, square of a dot product",
}
REGRESSIONS = [pytest.param(name, marks=[pytest.mark.slow] if name in _SLOW else []) for name in ESTIMATORS]


def assert_agrees(function, expected, new=NEW):
    """1e-10 of the largest prediction: the same sums of some ten products, in another order."""
    np.testing.assert_allclose(function(new), expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())


@pytest.mark.slow_variants("process, Matern 0.7")
@pytest.mark.parametrize("name", REGRESSIONS)
def test_regressions_predict_the_same(name):
    estimator = ESTIMATORS[name].fit(X, Y)
    assert_agrees(kpp.as_rkhs_function(estimator), estimator.predict(NEW))


@pytest.mark.parametrize("classes", [["low", "high"], [0, 1]])
@pytest.mark.parametrize(
    "machine", [SVC(), SVC(kernel="linear", C=3.0), SVC(probability=False, gamma=0.2), NuSVC(nu=0.3)]
)
def test_support_vector_classifiers_give_their_decision_function(machine, classes):
    fitted = machine.fit(X, np.where(LABELS == "low", classes[0], classes[1]))
    function = kpp.as_rkhs_function(fitted)
    assert_agrees(function, fitted.decision_function(NEW))
    np.testing.assert_array_equal(np.asarray(function(NEW)) > 0, fitted.predict(NEW) == fitted.classes_[1])


@pytest.mark.parametrize("kernel", [gp.ExpSineSquared(1.2, 2.5), 2.0 * gp.ExpSineSquared(0.7, 1.5) + gp.RBF(3.0)])
def test_periodic_kernels_of_one_feature_predict_the_same(kernel):
    fitted = fixed(kernel).fit(X[:, :1], Y)
    assert_agrees(kpp.as_rkhs_function(fitted), fitted.predict(NEW[:, :1]), NEW[:, :1])


@pytest.mark.parametrize("machine", [SVC(), NuSVC(nu=0.2, kernel="poly", degree=2, coef0=1.0)])
def test_support_vectors_of_several_classes_give_one_function_per_pair(machine):
    fitted = machine.set_params(decision_function_shape="ovo").fit(X, np.digitize(Y, np.quantile(Y, [0.2, 0.5, 0.8])))
    function = kpp.as_rkhs_function(fitted)
    assert function.output_shape == (6,)
    assert_agrees(function, fitted.decision_function(NEW))


SCALERS = {
    "StandardScaler": [StandardScaler()],
    "StandardScaler without mean": [StandardScaler(with_mean=False)],
    "StandardScaler without scale": [StandardScaler(with_std=False)],
    "MinMaxScaler": [MinMaxScaler(feature_range=(-1.0, 2.0))],
    "MaxAbsScaler": [MaxAbsScaler()],
    "RobustScaler": [RobustScaler()],
    "two in a row": [StandardScaler(), "passthrough", MinMaxScaler()],
}
NYSTROEM = {
    "rbf": Nystroem(gamma=0.2, n_components=8, random_state=0),
    "rbf by default": Nystroem(n_components=8, random_state=0),
    "poly": Nystroem("poly", degree=2, coef0=0.5, gamma=0.1, n_components=8, random_state=0),
    "poly by default": Nystroem("poly", n_components=8, random_state=0),
    "laplacian": Nystroem("laplacian", kernel_params={"gamma": 0.2}, n_components=8, random_state=0),
    "linear": Nystroem("linear", n_components=3, random_state=0),
}
LINEAR = {
    "Ridge": Ridge(),
    "LinearRegression": LinearRegression(),
    "without intercept": Ridge(fit_intercept=False),
    "Lasso": Lasso(alpha=0.1),
    "ElasticNet": ElasticNet(alpha=0.1),
    "SGDRegressor": SGDRegressor(random_state=0),
    "BayesianRidge": BayesianRidge(),
    "HuberRegressor": HuberRegressor(max_iter=1000),
    "RidgeCV": RidgeCV(),
    "LassoCV": LassoCV(cv=3),
    "ElasticNetCV": ElasticNetCV(cv=3),
    "LinearSVR": LinearSVR(random_state=0),
    "LogisticRegression": LogisticRegression(),
    "RidgeClassifier": RidgeClassifier(),
    "RidgeClassifierCV": RidgeClassifierCV(),
    "SGDClassifier": SGDClassifier(random_state=0),
    "LinearSVC": LinearSVC(random_state=0),
}
SEVERAL_TARGETS = ("Ridge", "LinearRegression", "without intercept", "Lasso", "ElasticNet", "RidgeCV")


def predictions(fitted, points):
    return getattr(fitted, "decision_function", getattr(fitted, "predict", None))(points)


@pytest.mark.slow_variants("2-Ridge", "3-Ridge")
@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_models_predict_the_same_behind_scalers_and_features(name, classes):
    model = LINEAR[name]
    targets = Y
    if is_classifier(model):
        targets = np.digitize(Y, np.quantile(Y, np.arange(1, classes) / classes))
    elif classes == 3 and name in SEVERAL_TARGETS:
        targets = np.column_stack([Y, X[:, 0], -Y])
    features = make_pipeline(StandardScaler(), NYSTROEM["rbf"])
    for steps in ([], [RobustScaler()], [features, MinMaxScaler()]):
        fitted = clone(make_pipeline(*steps, model)).fit(X, targets)
        assert_agrees(kpp.as_rkhs_function(fitted), predictions(fitted, NEW))


@pytest.mark.parametrize("name", NYSTROEM)
def test_a_ridge_on_landmarks_is_a_function_on_the_landmarks(name):
    fitted = make_pipeline(clone(NYSTROEM[name]), Ridge()).fit(X, Y)
    function = kpp.as_rkhs_function(fitted)
    np.testing.assert_array_equal(function.points, fitted[0].components_)
    assert_agrees(function, fitted.predict(NEW))


@pytest.mark.parametrize("name", SCALERS)
def test_scalers_in_front_of_linear_machines_are_absorbed(name):
    fitted = make_pipeline(*SCALERS[name], SVR(kernel="linear")).fit(X, Y)
    assert_agrees(kpp.as_rkhs_function(fitted), fitted.predict(NEW))


@pytest.mark.parametrize("name", SCALERS)
def test_linear_transformations_of_the_targets_are_undone(name):
    machine = make_pipeline(StandardScaler(), SVR(C=10.0))
    targets = make_pipeline(*SCALERS[name]) if len(SCALERS[name]) > 1 else clone(SCALERS[name][0])
    fitted = TransformedTargetRegressor(machine, transformer=targets).fit(X, Y)
    assert_agrees(kpp.as_rkhs_function(fitted), fitted.predict(NEW))


@pytest.mark.parametrize("regressor", [KernelRidge(kernel="rbf"), Ridge(), fixed(gp.RBF(ARD), normalize_y=True)])
def test_several_targets_are_transformed_each_on_its_own(regressor):
    fitted = TransformedTargetRegressor(regressor, transformer=StandardScaler())
    fitted.fit(X, np.column_stack([Y, -(Y**2)]))
    assert_agrees(kpp.as_rkhs_function(fitted), fitted.predict(NEW))


def test_a_search_is_its_best_estimator():
    pipeline = make_pipeline(StandardScaler(), SVR())
    fitted = GridSearchCV(pipeline, {"svr__C": [0.1, 10.0], "svr__gamma": [0.1, 1.0]}, cv=2).fit(X, Y)
    assert_agrees(kpp.as_rkhs_function(fitted), fitted.predict(NEW))


def test_pipelines_and_transformed_targets_may_be_nested():
    inner = TransformedTargetRegressor(make_pipeline(MinMaxScaler(), SVR(C=10.0)), transformer=StandardScaler())
    outer = TransformedTargetRegressor(make_pipeline(RobustScaler(), "passthrough", inner), transformer=MaxAbsScaler())
    fitted = outer.fit(X, Y)
    assert_agrees(kpp.as_rkhs_function(fitted), fitted.predict(NEW))
    identity = TransformedTargetRegressor(SVR(C=10.0)).fit(X, Y)
    assert_agrees(kpp.as_rkhs_function(identity), identity.predict(NEW))


@pytest.mark.parametrize(
    "estimator", [KernelRidge(kernel="rbf"), fixed(gp.RBF(ARD), normalize_y=True), fixed(gp.RBF())]
)
def test_several_targets_become_several_outputs(estimator):
    targets = np.column_stack([Y, -(Y**2)])
    fitted = estimator.fit(X, targets)
    function = kpp.as_rkhs_function(fitted)
    assert function.output_shape == (2,)
    assert_agrees(function, fitted.predict(NEW))


def test_one_target_in_a_column_is_what_predict_makes_of_it():
    process = fixed(gp.RBF(ARD), normalize_y=True).fit(X, Y[:, None])
    assert_agrees(kpp.as_rkhs_function(process), process.predict(NEW))
    ridge = KernelRidge(kernel="rbf").fit(X, Y[:, None])
    assert_agrees(kpp.as_rkhs_function(ridge), ridge.predict(NEW))


STATIONARY = [
    KernelRidge(kernel="rbf", alpha=0.1),
    KernelRidge(kernel="laplacian", alpha=0.1),
    SVR(C=10.0),
    fixed(2.0 * gp.Matern(ARD, nu=2.5) * gp.RationalQuadratic(2.0) + gp.ConstantKernel(0.3)),
]


@pytest.mark.parametrize("estimator", STATIONARY, ids=lambda estimator: type(estimator).__name__)
@pytest.mark.parametrize("name", SCALERS)
def test_a_scaler_is_absorbed_into_a_stationary_kernel(name, estimator):
    fitted = make_pipeline(*SCALERS[name], estimator).fit(X, Y)
    assert_agrees(kpp.as_rkhs_function(fitted), fitted.predict(NEW))


def test_a_scaler_is_absorbed_into_a_periodic_kernel():
    fitted = make_pipeline(StandardScaler(), fixed(gp.ExpSineSquared(1.2, 2.5))).fit(X[:, 1:2], Y)
    assert_agrees(kpp.as_rkhs_function(fitted), fitted.predict(NEW[:, 1:2]), NEW[:, 1:2])


def test_a_constant_feature_behind_a_scaler_is_legal():
    constant = np.column_stack([X[:, :2], np.full(24, 4.0)])
    fitted = make_pipeline(StandardScaler(), SVR()).fit(constant, Y)
    new = np.column_stack([NEW[:, :2], np.full(9, 4.0)])
    assert_agrees(kpp.as_rkhs_function(fitted), fitted.predict(new), new)


def test_sparse_training_data_are_read():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    fitted = SVR().fit(scipy_sparse.csr_matrix(X), Y)
    assert_agrees(kpp.as_rkhs_function(fitted), fitted.predict(NEW))


def test_a_function_is_its_own_conversion():
    function = kpp.as_rkhs_function(KernelRidge(kernel="rbf").fit(X, Y))
    assert kpp.as_rkhs_function(function) is function


@pytest.mark.slow_variants("interventional", "observational")
@pytest.mark.parametrize("value_function", ["interventional", "observational"])
def test_a_machine_without_support_vectors_is_explained(value_function):
    """Support vectors of constant targets are none; every value of the constant function is 0."""
    machine = SVR().fit(X, np.full(len(X), 3.0))
    assert not len(machine.support_vectors_)
    found = kpp.explain(machine, NEW, background=X, value_function=value_function).dataset
    np.testing.assert_allclose(found["values"], 0.0, atol=1e-12)
    np.testing.assert_allclose(found["predictions"], machine.predict(NEW), rtol=1e-12)
