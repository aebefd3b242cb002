"""Column names, categories and labels of any type; xarray objects and frames of any library."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr
from numpyro import distributions as dist
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as peers
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kpp
from kpp.data.tables import read_points
from kpp.kernels import RBF, Categorical
from kpp_models.estimators import GPRegressor, KernelLogisticClassifier, KernelRidgeRegressor, NystroemFeatures

SCALES = np.array([9.0, 0.8])


@pytest.fixture(scope="module")
def ridge(table) -> KernelRidgeRegressor:
    frame, y = table
    return KernelRidgeRegressor(RBF(SCALES), regularization=0.02).fit(frame, y)


def of_xarray(frame):
    names = list(frame.columns)
    yield "Dataset", xr.Dataset({name: ("row", frame[name].to_numpy()) for name in names})
    yield "Dataset with rows", xr.Dataset.from_dataframe(frame)
    yield "DataArray", xr.DataArray(frame.to_numpy(), dims=("row", "column"), coords={"column": names})


@pytest.mark.slow
def test_xarray_objects_keep_their_names(table, ridge):
    frame, y = table
    for kind, x in of_xarray(frame):
        assert read_points(x)[1].feature_names == ("age", "dose"), kind
        found = KernelRidgeRegressor(RBF(SCALES), regularization=0.02).fit(x, xr.DataArray(y))
        np.testing.assert_array_equal(found.feature_names_in_, ["age", "dose"])
        np.testing.assert_allclose(found.predict(x), ridge.predict(frame), rtol=1e-12)
        np.testing.assert_allclose(ridge.fit_.predict(x)["mean"].values[0, 0], ridge.predict(frame), rtol=1e-9)
    explanation = kpp.explain(ridge.fit_, x[:2], background=x)
    np.testing.assert_array_equal(explanation.values.feature, ["age", "dose"])
    np.testing.assert_allclose(explanation.values, kpp.explain(ridge, frame[:2], background=frame).values, rtol=1e-9)


@pytest.mark.slow
def test_chunks_of_xarray_objects_keep_their_names(table, ridge):
    pytest.importorskip("dask")
    frame, _ = table
    expected = kpp.explain(ridge.function_, frame[:4], background=frame)
    for kind, x in of_xarray(frame[:4]):
        found = kpp.explain(ridge.fit_, x.chunk({x.dims[0] if isinstance(x, xr.DataArray) else [*x.dims][0]: 2}))
        np.testing.assert_array_equal(found.values.feature, ["age", "dose"], err_msg=kind)
        np.testing.assert_allclose(found.values.compute(), expected.values, rtol=1e-9, err_msg=kind)


@pytest.mark.slow
def test_names_are_compared(table, ridge):
    frame, _ = table
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        ridge.predict(frame[["dose", "age"]])
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        ridge.predict(frame.to_numpy())
    with pytest.raises(ValueError, match=r"`x` must be a Dataset whose variables share one dimension, the rows, got"):
        read_points(xr.Dataset({"a": ("row", [1.0]), "b": ("other", [1.0])}))


def test_a_data_array_without_names_is_an_array(table):
    frame, _ = table
    assert read_points(xr.DataArray(frame.to_numpy()))[1].feature_names == ("x0", "x1")


def test_frames_of_narwhals_are_read(table):
    narwhals = pytest.importorskip("narwhals")
    points, schema = read_points(narwhals.from_native(table[0]))
    assert schema.feature_names == ("age", "dose")
    np.testing.assert_array_equal(points, table[0])


def test_frames_of_polars_are_read(table, ridge):
    polars = pytest.importorskip("polars")
    frame, y = table
    found = KernelRidgeRegressor(RBF(SCALES), regularization=0.02).fit(polars.from_pandas(frame), y)
    np.testing.assert_array_equal(found.feature_names_in_, ["age", "dose"])
    np.testing.assert_allclose(found.predict(polars.from_pandas(frame)), ridge.predict(frame), rtol=1e-12)


def test_sparse_tables_are_refused_or_named(table, ridge):
    frame, y = table
    sparse = scipy.sparse.csr_array(frame.to_numpy())
    with pytest.raises(TypeError, match=r"`x` must be dense, got a csr_array of shape \(16, 2\); write `x.toarray"):
        read_points(sparse)
    with pytest.raises(TypeError, match="dense data is required"):
        clone(ridge).fit(sparse, y)
    named = pd.DataFrame.sparse.from_spmatrix(scipy.sparse.csr_matrix(frame.to_numpy()), columns=list(frame.columns))
    np.testing.assert_allclose(ridge.predict(named), ridge.predict(frame), rtol=1e-12)


@pytest.mark.slow
def test_columns_of_text_are_categories(table):
    frame, y = table
    frame = frame.assign(city=np.resize(["Rome", "Bern", "Oslo"], 16))
    kernel = RBF(SCALES).on(("age", "dose")) * Categorical(0.4).on("city")
    found = KernelRidgeRegressor(kernel, regularization=0.02).fit(frame, y)
    codes = frame.assign(city=np.resize([2.0, 0.0, 1.0], 16)).to_numpy(float)
    expected = KernelRidgeRegressor(RBF(SCALES).on((0, 1)) * Categorical(0.4).on(2), regularization=0.02).fit(codes, y)
    np.testing.assert_allclose(found.predict(frame), expected.predict(codes), rtol=1e-10)
    chosen = NystroemFeatures(num_landmarks=4, random_state=0).set_output(transform="pandas").fit(frame)
    names = [f"nystroemfeatures{j}" for j in range(4)]
    assert list(chosen.transform(frame).columns) == names == list(chosen.get_feature_names_out())


@pytest.mark.slow_variants("numbers", "dates", "truth values", "texts")
@pytest.mark.parametrize(
    "pair",
    [(False, True), (-1, 1), ("no", "yes"), (np.datetime64("2020-01-01"), np.datetime64("2021-01-01"))],
    ids=["truth values", "numbers", "texts", "dates"],
)
def test_labels_may_have_any_type(table, labels, pair):
    frame, _ = table
    y = np.asarray(pair)[(labels == "yes").astype(int)]
    found = KernelLogisticClassifier(RBF(SCALES), regularization=0.01).fit(frame, y)
    assert found.predict(frame).dtype == y.dtype
    np.testing.assert_array_equal(found.classes_, pair)
    assert found.score(frame, y) > 0.6
    assert found.fit_.model.positive_class == str(pair[1])


@pytest.mark.slow
def test_three_classes_go_one_against_the_rest(table):
    from sklearn.multiclass import OneVsRestClassifier

    frame, y = table
    classes = np.array(["low", "middle", "high"])[np.digitize(y, np.quantile(y, [0.3, 0.6]))]
    single = KernelLogisticClassifier(RBF(SCALES), regularization=0.01)
    with pytest.raises(ValueError, match="Only binary .* multiclass; sklearn.multiclass.OneVsRestClassifier"):
        single.fit(frame, classes)
    found = OneVsRestClassifier(single).fit(frame, classes).predict_proba(frame)
    odds = [single.fit(frame, classes == name).predict_proba(frame)[:, 1] for name in ("high", "low", "middle")]
    np.testing.assert_allclose(found, np.transpose(odds) / np.sum(odds, axis=0)[:, None], rtol=1e-9)


@pytest.mark.slow
def test_a_pipeline_with_a_scaler_has_the_posterior_of_scikit_learn(table):
    frame, y = table
    process = GPRegressor(RBF(1.5, 2.0), noise_variance=0.1, mean=0.0)
    found = kpp.as_gp_posterior(make_pipeline(StandardScaler(), process).fit(frame, y))
    kernel = peers.ConstantKernel(2.0) * peers.RBF(1.5)
    peer = make_pipeline(StandardScaler(), GaussianProcessRegressor(kernel, alpha=0.1, optimizer=None))
    x = frame[3:7] + 0.2
    mean, covariance = peer.fit(frame, y).predict(x, return_cov=True)
    np.testing.assert_allclose(found.mean(x.to_numpy()), mean, rtol=1e-9)
    np.testing.assert_allclose(found.covariance(x.to_numpy(), x.to_numpy()), covariance, atol=1e-9)


@pytest.mark.nightly
def test_a_pipeline_with_a_scaler_is_explained_exactly(table):
    """Its values are those of the same function of unscaled columns, and add up to its predictions."""
    frame, y = table
    draws = kpp.Laplace(num_samples=3, progress=False)  # of the mean
    options = {"noise_variance": 0.1, "mean": dist.Normal(20.0, 1.0), "inference": draws, "random_state": 0}
    pipeline = make_pipeline(StandardScaler(), GPRegressor(RBF(1.5, 2.0), **options)).fit(frame, y)
    found = kpp.explain(pipeline, frame[:3], background=frame, covariance=None)  # of the means of the function
    assert found.attrs["exact"]
    assert found.values.sizes["draw"] == 3
    np.testing.assert_array_equal(found.values.feature, ["age", "dose"])
    total = found.values.sum("feature") + found.base_values
    np.testing.assert_allclose(total.mean(("chain", "draw")), pipeline.predict(frame[:3]), rtol=1e-9)
    scaled = RBF(1.5 * frame.std(ddof=0).to_numpy(), 2.0)
    plain = GPRegressor(scaled, **options).fit(frame, y)
    expected = kpp.explain(kpp.as_rkhs_function(plain), frame[:3], background=frame)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_a_transformed_target_keeps_all_draws(table):
    """The posterior of each draw on the scale of the targets: its mean over draws is the prediction."""
    frame, y = table
    draws = kpp.Laplace(num_samples=3, progress=False)
    process = GPRegressor(
        RBF(1.5, 2.0), noise_variance=0.1, mean=dist.Normal(0.0, 1.0), inference=draws, random_state=0
    )
    steps = make_pipeline(StandardScaler(), process)
    model = TransformedTargetRegressor(steps, transformer=StandardScaler()).fit(frame, y)
    x = frame[3:7].to_numpy() + 0.2
    function, posterior = kpp.as_rkhs_function(model), kpp.as_gp_posterior(model)
    assert function.batch_shape == posterior.batch_shape == (1, 3)
    expected = model.predict(frame[3:7] + 0.2)
    np.testing.assert_allclose(function(x).mean((0, 1)), expected, rtol=1e-9)
    np.testing.assert_allclose(posterior.mean(x), function(x), rtol=1e-9)
    inner = model.regressor_[-1].fit_.predict(model.regressor_[:-1].transform(frame[3:7] + 0.2))
    variance = np.var(y) * inner["latent_variance"].values
    np.testing.assert_allclose(posterior.variance(x), variance, rtol=1e-7)


@pytest.mark.slow
def test_a_linear_model_on_nystroem_features_is_explained_exactly(table):
    frame, y = table
    pipeline = make_pipeline(StandardScaler(), NystroemFeatures(RBF(1.5), num_landmarks=6, random_state=0), Ridge(0.1))
    pipeline.fit(frame, y)
    found = kpp.explain(pipeline, frame[:3], background=frame)
    assert found.attrs["exact"]
    np.testing.assert_allclose(found.values.sum("feature") + found.base_values, pipeline.predict(frame[:3]), rtol=1e-8)
