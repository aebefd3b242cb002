"""Ridge and logistic regression with landmarks: scikit-learn on the same features, every kind of table, bad tables."""

import jax
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

import kpp
from kpp.features import Nystrom
from kpp.inference import ConvergenceError
from kpp.kernels import RBF, Categorical
from kpp_models import LandmarkLogistic, LandmarkRidge
from kpp_models.tables.machines import landmark_machines

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


@pytest.mark.slow_variants("16777216", "1280")
@pytest.mark.usefixtures("block_entries")
def test_ridge_is_ridge_regression_on_the_features():
    ours = LandmarkRidge(KERNEL, 1e-3, **WHOLE).fit(KEY, X, Y)
    theirs = Ridge(alpha=1e-3 * N, solver="cholesky").fit(FEATURES, Y)
    expected = theirs.predict(np.asarray(Nystrom(KERNEL, Z).feature_map(NEW)))
    np.testing.assert_allclose(ours.function(NEW), expected, rtol=1e-8)  # the nugget of the landmarks is 1e-10
    np.testing.assert_allclose(ours.noise_variance, np.mean((Y - theirs.predict(FEATURES)) ** 2), rtol=1e-8)


@pytest.mark.slow_variants("1280", "16777216")
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
    centered, features = Y - Y.mean(), FEATURES - FEATURES.mean(0)
    for value in values:
        shape = features @ features.T / (N * value) + np.eye(N)
        scale = centered @ np.linalg.solve(shape, centered) / N
        expected = -0.5 * (N + N * np.log(2 * np.pi * scale) + np.linalg.slogdet(shape)[1])
        np.testing.assert_allclose(found.scores[value], -expected / N, rtol=1e-7)
    assert found.regularization == min(found.scores, key=found.scores.get)


@pytest.mark.slow_variants("LandmarkLogistic-kmeans", "LandmarkLogistic-random")
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


@pytest.mark.slow
def test_the_function_is_explained_exactly_with_names():
    pd = pytest.importorskip("pandas")
    fit = LandmarkRidge(KERNEL, 1e-3, **WHOLE).fit(KEY, X, Y)
    explanation = kpp.explain(fit.predictor, pd.DataFrame(NEW, columns=fit.feature_names), background=X[:30])
    total = explanation.values.sum("feature") + explanation.dataset["base_values"]
    np.testing.assert_allclose(total, fit.function(NEW), rtol=1e-9)
    assert list(explanation.values["feature"].values) == ["x0", "x1"]


GRID = {"kernel.lengthscale": np.array([[0.3, 0.3], [1.2, 0.9]]), "kernel.variance": [0.5, 2.0]}


@pytest.mark.nightly_variants("LandmarkLogistic-None")
@pytest.mark.slow_variants("LandmarkLogistic-None", "LandmarkRidge-held_out")
@pytest.mark.parametrize(
    ("kind", "criterion"), [(LandmarkRidge, "held_out"), (LandmarkRidge, "evidence"), (LandmarkLogistic, None)]
)
def test_a_choice_of_the_kernel_is_the_best_of_separate_fits(kind, criterion):
    y = Y if kind is LandmarkRidge else LABELS
    fields = {"landmarks": 20, "num_held_out": 100, "progress": False}
    fields |= {} if criterion is None else {"criterion": criterion}
    found = kind(KERNEL, (1e-1, 1e-3), **fields).select(KEY, X, y, grid=GRID)
    key = jax.random.split(KEY)[1]  # of the landmarks and the rows held out
    for row, lengthscale in enumerate(GRID["kernel.lengthscale"]):
        for column, variance in enumerate(GRID["kernel.variance"]):
            alone = kind(RBF(lengthscale, variance), (1e-1, 1e-3), **fields).fit(key, X, y)
            np.testing.assert_allclose(found.scores[row, column], min(alone.scores.values()), rtol=1e-6)
    best = np.unravel_index(int(np.argmin(found.scores.values)), (2, 2))
    np.testing.assert_array_equal(found.model.kernel.lengthscale, GRID["kernel.lengthscale"][best[0]])
    assert found.model.kernel.variance == GRID["kernel.variance"][best[1]]
    assert found.model.regularization == (1e-1, 1e-3)  # it is not in the grid, so the fit chooses it


@pytest.mark.slow
def test_a_choice_can_include_the_regularization_and_use_some_rows(tmp_path):
    machine = LandmarkRidge(KERNEL, 1.0, landmarks=20, num_held_out=100, progress=False)
    grid = {"kernel.lengthscale": [0.05, 1.0], "regularization": [1e-5, 1e-3, 1e1]}
    found = machine.select(KEY, X, Y, grid=grid, num_rows=300)
    assert found.scores.dims == ("kernel.lengthscale", "regularization")
    assert float(found.scores.sel(found.chosen)) == float(found.scores.min())
    assert found.model.regularization == (found.chosen["regularization"],)
    assert found.chosen["kernel.lengthscale"] == 1.0  # that of the function, sin(2 x0) + x1
    np.save(tmp_path / "x.npy", X)
    again = machine.select(KEY, np.load(tmp_path / "x.npy", mmap_mode="r"), Y, grid=grid, num_rows=300)
    np.testing.assert_array_equal(again.scores, found.scores)
    alone = machine.select(KEY, X, Y, grid={"regularization": grid["regularization"]})
    assert alone.scores.dims == ("regularization",)


@pytest.mark.slow
def test_entries_that_fail_have_an_infinite_score():
    """With a lengthscale of 100 all kernel values are near 1: nearly all that distinguishes them is rounded away."""
    machine = LandmarkRidge(KERNEL, 1e-9, 20, num_held_out=100, precision="float32", progress=False)
    found = machine.select(KEY, X, Y, grid={"kernel.lengthscale": [0.1, 100.0]})
    assert np.isinf(found.scores[1])
    assert np.isfinite(found.scores[0])


# The kernel matrix of these landmarks has eigenvalues above 1e-1; rounding errors of 6e-8 give at most 1e-6.
APART = X[np.argsort(X[:, 0])[::20]]


@pytest.mark.slow_variants("16777216-LandmarkLogistic", "1280-LandmarkRidge", "1280-LandmarkLogistic")
@pytest.mark.usefixtures("block_entries")
@pytest.mark.parametrize("kind", [LandmarkRidge, LandmarkLogistic])
def test_single_precision_gives_nearly_the_same_function(kind):
    y = 10.0 + Y if kind is LandmarkRidge else LABELS
    fields = {**WHOLE, "landmarks": APART}
    double = kind(RBF(0.5), 1e-3, **fields).fit(KEY, X, y).function(NEW)
    single = kind(RBF(0.5), 1e-3, precision="float32", **fields).fit(KEY, X, y).function(NEW)
    assert single.dtype == np.float64
    np.testing.assert_allclose(single, double, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_rounding_errors_above_the_ridge_are_refused():
    fields = {"landmarks": X[:60], "num_held_out": 50, "precision": "float32", "progress": False}
    with pytest.raises(ValueError, match="`regularization` is too small for rounding errors.*`precision` float64"):
        LandmarkRidge(RBF(3.0), 1e-8, **fields).fit(KEY, X, Y)
    found = LandmarkRidge(RBF(3.0), (1e3, 1e-8), **fields).fit(KEY, X, Y)
    assert found.scores[1e-8] == np.inf
    assert found.regularization == 1e3


def test_values_after_one_that_does_not_converge_have_an_infinite_score(monkeypatch):
    monkeypatch.setattr(landmark_machines, "_MAX_NEWTON", 4)  # enough for a function of nearly 0 only
    values = (1e4, 1e-6, 1e-7)
    found = LandmarkLogistic(KERNEL, values, landmarks=20, num_held_out=50, progress=False).fit(KEY, X, LABELS)
    assert [value for value in values if np.isinf(found.scores[value])] == [1e-6, 1e-7]
    with pytest.raises(ConvergenceError, match="`regularization` 1e-06"):
        LandmarkLogistic(KERNEL, values[1:], landmarks=20, num_held_out=50, progress=False).fit(KEY, X, LABELS)


@pytest.mark.slow
@pytest.mark.parametrize("regularization", [1e-4, 1e-7])
def test_kernel_matrices_that_are_nearly_singular_are_whitened_with_a_larger_nugget(regularization):
    """The oracle solves least squares by QR, without products, in features that span the same functions."""
    kernel, landmarks = RBF(3.0), X[:60]
    found = LandmarkRidge(kernel, regularization, **{**WHOLE, "landmarks": landmarks}).fit(KEY, X, Y).function(NEW)
    values, vectors = np.linalg.eigh(kernel.gram(landmarks))
    root = (vectors / np.sqrt(np.maximum(values, 1e-14)))[:, values > 1e-13 * values[-1]]
    features = np.column_stack([kernel(X, landmarks) @ root, np.ones(N)])
    penalty = np.sqrt(N * regularization) * np.eye(root.shape[1], root.shape[1] + 1)
    weights = np.linalg.lstsq(np.vstack([features, penalty]), np.append(Y, np.zeros(len(penalty))), rcond=None)[0]
    expected = np.asarray(kernel(NEW, landmarks)) @ root @ weights[:-1] + weights[-1]
    # The nugget leaves out functions that hardly change the fit: differences stay below a tenth of the noise, 0.3.
    np.testing.assert_allclose(found, expected, atol=0.03)


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
        (lambda: LandmarkRidge(KERNEL, 1.0, precision="half"), "`precision`"),
        (
            lambda: LandmarkRidge(KERNEL, 1.0).select(KEY, X, Y, grid={"landmarks": [3]}),
            r"`grid` must name.*'regularization'",
        ),
        (lambda: LandmarkRidge(KERNEL, 1.0).select(KEY, X, Y, grid={}), "`grid` must name leaves of the kernel"),
        (lambda: LandmarkRidge(KERNEL, 1.0, **WHOLE).select(KEY, X, Y, grid=GRID), "`num_held_out` must be positive"),
        (lambda: LandmarkLogistic(KERNEL, 1.0, method="best"), "`method`"),
        (lambda: LandmarkLogistic(KERNEL, 1e-2, **WHOLE).fit(KEY, X, Y), "labels 0 and 1"),
    ],
)
def test_bad_fields_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.slow
def test_landmarks_by_k_means_have_the_categories_of_rows():
    codes = np.random.default_rng(5).integers(0, 6, size=N).astype(float)
    table = np.column_stack([X, codes])
    kernel = RBF(1.0).on((0, 1)) * Categorical(0.2).on(2)
    fields = {"landmarks": 20, "num_held_out": 50, "progress": False, "method": "kmeans"}
    found = LandmarkRidge(kernel, 1e-3, **fields).fit(KEY, table, Y)
    assert set(np.asarray(found.function.points)[:, 2]) == set(range(6))
