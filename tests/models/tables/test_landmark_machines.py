"""Ridge and logistic regression with landmarks: scikit-learn on the same features, every kind of table, bad tables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

import kpp
from kpp.features import Nystrom
from kpp.gp import GaussianProcessMarginal
from kpp.kernels import RBF
from kpp_models import LandmarkLogistic, LandmarkRidge
from kpp_models.tables import landmark_machines

KEY, N = jax.random.key(0), 400
KERNEL = RBF(np.array([1.2, 0.9]))
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 2))
F = np.sin(2 * X[:, 0]) + X[:, 1]
Y, LABELS = F + 0.3 * RNG.normal(size=N) + 5.0, (RNG.uniform(size=N) < 1 / (1 + np.exp(-2 * F))).astype(float)
Z, NEW = X[:20], RNG.normal(size=(7, 2))
FEATURES = np.asarray(Nystrom(KERNEL, Z).feature_map(X))
WHOLE = {"landmarks": Z, "num_held_out": 0, "progress": False}


@pytest.fixture(params=[2**24, 20 * 64])
def block_entries(request, monkeypatch):
    """One block, and several whose last one is not full."""
    monkeypatch.setattr(landmark_machines, "_BLOCK_ENTRIES", request.param)


@pytest.mark.usefixtures("block_entries")
def test_ridge_is_ridge_regression_on_the_features():
    ours = LandmarkRidge(KERNEL, 1e-3, **WHOLE).fit(KEY, X, Y)
    theirs = Ridge(alpha=1e-3 * N, solver="cholesky").fit(FEATURES, Y)
    expected = theirs.predict(np.asarray(Nystrom(KERNEL, Z).feature_map(NEW)))
    np.testing.assert_allclose(ours.function(NEW), expected, rtol=1e-8)  # the nugget of the landmarks is 1e-10
    np.testing.assert_allclose(ours.noise_variance, np.mean((Y - theirs.predict(FEATURES)) ** 2), rtol=1e-8)


@pytest.mark.usefixtures("block_entries")
def test_logistic_is_logistic_regression_on_the_features():
    ours = LandmarkLogistic(KERNEL, 1e-2, **WHOLE).fit(KEY, X, LABELS)
    theirs = LogisticRegression(C=1 / (1e-2 * N), tol=1e-12, max_iter=10_000).fit(FEATURES, LABELS)
    expected = theirs.decision_function(np.asarray(Nystrom(KERNEL, Z).feature_map(NEW)))
    np.testing.assert_allclose(ours.function(NEW), expected, rtol=1e-5, atol=1e-6)  # the accuracy of L-BFGS


def test_the_evidence_is_that_of_the_process_with_the_features():
    """The scale of the evidence has its best value: its derivative there is 0, and the score is its maximum."""
    values = (1e-1, 1e-3)
    found = LandmarkRidge(KERNEL, values, criterion="evidence", **WHOLE).fit(KEY, X, Y)
    centred, features = jnp.asarray(Y - Y.mean()), jnp.asarray(FEATURES - FEATURES.mean(0))
    for value in values:
        shape = features @ features.T / (N * value) + jnp.eye(N)
        scale = centred @ jnp.linalg.solve(shape, centred) / N
        expected = GaussianProcessMarginal(0.0, scale * shape, 0.0).log_prob(centred)
        np.testing.assert_allclose(found.scores[value], -expected / N, rtol=1e-7)
    assert found.regularization == min(found.scores, key=found.scores.get)


@pytest.mark.parametrize("method", ["random", "kmeans"])
@pytest.mark.parametrize("kind", [LandmarkRidge, LandmarkLogistic])
def test_the_choice_is_the_best_on_rows_that_do_not_enter_the_fit(kind, method):
    y = Y if kind is LandmarkRidge else LABELS
    values = (1e-1, 1e-3, 1e-5)
    fields = {"landmarks": 20, "num_held_out": 100, "progress": False, "method": method}
    both = kind(KERNEL, values, **fields).fit(KEY, X, y)
    alone = {value: kind(KERNEL, value, **fields).fit(KEY, X, y) for value in values}
    for value, fit in alone.items():
        np.testing.assert_allclose(both.scores[value], fit.scores[value], rtol=1e-6)
    best = alone[both.regularization]
    assert both.regularization == min(both.scores, key=both.scores.get)
    np.testing.assert_allclose(both.function(NEW), best.function(NEW), rtol=1e-5, atol=1e-7)
    if method == "random":  # landmarks are rows of the table
        assert all((X == row).all(1).any() for row in np.asarray(both.function.points))


@pytest.mark.parametrize("source", ["memmap", "parquet", "dask", "dask_frame"])
def test_every_kind_of_table_gives_the_same_function(source, tmp_path, monkeypatch):
    monkeypatch.setattr(landmark_machines, "_BLOCK_ENTRIES", 20 * 64)
    model = LandmarkRidge(KERNEL, (1e-2, 1e-3), landmarks=20, num_held_out=50, progress=False)
    expected, y = model.fit(KEY, X, Y), Y
    if source == "memmap":
        np.save(tmp_path / "x.npy", X)
        x = np.load(tmp_path / "x.npy", mmap_mode="r")
    elif source == "dask":
        da = pytest.importorskip("dask.array")
        x, y = da.from_array(X, chunks=(90, 1)), da.from_array(Y, chunks=70)
    else:
        pd = pytest.importorskip("pandas")
        x, y = pd.DataFrame({"a": X[:, 0], "target": Y, "b": X[:, 1]}), "target"
        if source == "parquet":
            x.to_parquet(tmp_path / "x.parquet", row_group_size=150)
            x = tmp_path / "x.parquet"
        else:
            x = pytest.importorskip("dask.dataframe").from_pandas(x, npartitions=3)
    found = model.fit(KEY, x, y)
    np.testing.assert_allclose(found.function(NEW), expected.function(NEW), rtol=1e-9)
    assert found.regularization == expected.regularization
    assert found.feature_names == (("a", "b") if source in ("parquet", "dask_frame") else ("x0", "x1"))


def test_the_function_is_explained_exactly():
    function = LandmarkRidge(KERNEL, 1e-3, **WHOLE).fit(KEY, X, Y).function
    explanation = kpp.explain(function, NEW, background=X[:30])
    total = explanation.values.sum("feature") + explanation.dataset["base_values"]
    np.testing.assert_allclose(total, function(NEW), rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (np.where(np.arange(N)[:, None] == 300, np.nan, x), y), "got nan in row 300, column 'x0'"),
        (
            lambda x, y: (x, np.where(np.arange(N) == 77, np.inf, y)),
            "`y` must hold finite numbers .* got inf in row 77",
        ),
        (lambda x, y: (x, y[:-1]), r"`x` must have shape \(n, d\) and `y` shape \(n,\)"),
        (lambda x, y: (x[:20], y[:20]), "more rows than the 20 landmarks"),
        (lambda x, y: ("nowhere.parquet", "y"), "nowhere.parquet"),
    ],
)
def test_bad_tables_are_named(change, message, monkeypatch):
    monkeypatch.setattr(landmark_machines, "_BLOCK_ENTRIES", 20 * 64)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        LandmarkRidge(KERNEL, 1e-3, **WHOLE).fit(KEY, *change(X, Y))


@pytest.mark.parametrize("source", ["parquet", "dask_frame"])
@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["low", "high"] * 200, "column 'b' of `x` must hold numbers"),
        (np.where(np.arange(N) == 210, np.nan, 1.0), "got nan in row 210, column 'b'"),
    ],
)
def test_bad_columns_are_named(source, column, message, tmp_path, monkeypatch):
    monkeypatch.setattr(landmark_machines, "_BLOCK_ENTRIES", 20 * 64)
    table = pytest.importorskip("pandas").DataFrame({"a": X[:, 0], "b": column, "target": Y})
    if source == "parquet":
        table.to_parquet(tmp_path / "x.parquet")
        table = tmp_path / "x.parquet"
    else:
        table = pytest.importorskip("dask.dataframe").from_pandas(table, npartitions=3)
    with pytest.raises(ValueError, match=message):
        LandmarkRidge(KERNEL, 1e-3, **WHOLE).fit(KEY, table, "target")
    with pytest.raises(ValueError, match="`y` must be a column of `x`, got 'price'"):
        LandmarkRidge(KERNEL, 1e-3, **WHOLE).fit(KEY, table, "price")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LandmarkRidge(KERNEL, 0.0), "`regularization` must be positive"),
        (lambda: LandmarkRidge(KERNEL, 1.0, landmarks=0), "`landmarks`"),
        (lambda: LandmarkRidge(KERNEL, (1.0, 2.0), num_held_out=0), "`num_held_out` must be positive"),
        (lambda: LandmarkRidge(KERNEL, 1.0, criterion="best"), "`criterion`"),
        (lambda: LandmarkLogistic(KERNEL, 1.0, method="best"), "`method`"),
        (lambda: LandmarkLogistic(KERNEL, 1e-2, **WHOLE).fit(KEY, X, Y), "labels 0 and 1"),
    ],
)
def test_bad_fields_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
