"""The experiments on GPEC: the synthetic boundary, thirds, scores and balls by hand, tables of small runs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner


@pytest.fixture(scope="module")
def data(load_script):
    return load_script("reproduce/gpec_data.py")


@pytest.fixture(scope="module")
def methods(load_script, data):
    return load_script("reproduce/gpec_methods.py")


@pytest.fixture(scope="module")
def synthetic(load_script, methods):
    return load_script("reproduce/gpec_synthetic.py")


@pytest.fixture(scope="module")
def sensitivity(load_script, synthetic):
    return load_script("reproduce/gpec_sensitivity.py")


@pytest.fixture(scope="module")
def case_study(load_script, methods):
    return load_script("reproduce/gpec_case_study.py")


@pytest.fixture(scope="module")
def regularisation(load_script, methods):
    return load_script("reproduce/gpec_regularisation.py")


@pytest.fixture(scope="module")
def seconds(load_script, methods):
    return load_script("reproduce/gpec_time.py")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table with a number, a text and the target of the credit data, one row of it not whole."""
    rng = np.random.default_rng(0)
    age, purpose = rng.normal(40, 10, size=60), rng.choice(["car", "house"], size=60)
    good = np.where((age > 40) ^ (purpose == "car"), 1, -1)
    rows = pd.DataFrame({"GoodCustomer": good, "Age": age, "Purpose": purpose})
    rows.loc[7, "Age"] = np.nan
    path = tmp_path_factory.mktemp("tables") / "credit.csv"
    rows.to_csv(path, index=False)
    return path


def test_the_synthetic_boundary_is_that_of_the_paper(data):
    assert data.wave(np.array([5.0]))[0] == pytest.approx(2 * np.cos(2.0))
    assert data.wave(np.array([0.0, 1e-7]))[0] == 0.0 and np.isfinite(data.wave(np.array([0.0, 1e-7]))).all()
    x = np.array([[5.0, 2 * np.cos(2.0) + 1e-9], [5.0, 2 * np.cos(2.0) - 1e-9]])
    np.testing.assert_array_equal(data.wavy_classifier(x), [1.0, 0.0])


def test_a_table_is_read_by_its_target(data, table):
    read = data.read_table(table)
    assert list(read.x) == ["Age", "Purpose_car", "Purpose_house"] and len(read.x) == len(read.y) == 59
    raw = pd.read_csv(table).dropna()
    np.testing.assert_array_equal(read.y, raw["GoodCustomer"] == 1)
    np.testing.assert_array_equal(read.x["Purpose_car"], raw["Purpose"] == "car")
    parts = data.split(read, 0)
    assert len(parts.x) == 44 and abs(parts.y.mean() - read.y.mean()) < 0.02


def test_tables_without_a_target_are_refused(data, tmp_path):
    path = tmp_path / "other.csv"
    pd.DataFrame({"a": [1, 2]}).to_csv(path, index=False)
    with pytest.raises(Exception, match="GoodCustomer"):
        data.read_table(path)
    with pytest.raises(Exception, match="no columns"):
        data.breast_cancer().keep(["height"])


def test_gamma_needs_xgboost(data, regularisation, monkeypatch):
    monkeypatch.setattr(data, "has_xgboost", lambda: False)
    monkeypatch.setattr(regularisation, "has_xgboost", lambda: False)
    x, y = np.arange(8.0)[:, None], np.arange(8) // 4
    with pytest.raises(Exception, match="XGBoost"):
        data.boosted_trees(x, y, gamma=5.0)
    np.testing.assert_array_equal(data.boosted_trees(x, y).predict(x), y)  # scikit-learn's, where gamma is not varied
    result = CliRunner().invoke(regularisation.main, ["--small"])
    assert result.exit_code == 1 and "pip install" in result.output


def test_slices_and_scores_by_hand(synthetic, methods):
    axis = methods.centers(-10.0, 10.0, 20)
    on = methods.Plane("square", ("a", "b"), None, np.zeros((1, 2)), axis, axis)
    inside = np.abs(on.points[:, 0]) < 4
    found = synthetic.score(on, np.where(inside, 6.0, 2.0)[:, None] + np.array([[0.0, 2.0]]))
    assert found["inner"] == 1.0 and found["ratio"] == pytest.approx(7 / 3)
    assert [found[f"slice {j}"] for j in range(10)] == [3.0] * 3 + [7.0] * 4 + [3.0] * 3
    assert synthetic.score(on, np.abs(on.points))["inner"] == 0.0
    np.testing.assert_array_equal(on.on_grid(on.points[:, 0])[0], axis)  # the first feature runs along a row


def test_uniformity_of_a_heat_map_by_hand(synthetic, methods):
    axis = methods.centers(-10.0, 10.0, 20)
    on = methods.Plane("square", ("a", "b"), None, np.array([[-9.5, -9.5], [-8.5, 9.5]]), axis, axis)
    right, top = (on.points > 0).T
    found = synthetic.uniformity(on, np.where(right & top, 5.0, 1.0))
    assert found["top right"] == pytest.approx(5.0) and found["bottom right"] == pytest.approx(1 / (7 / 3))
    assert found["spread"] == pytest.approx(
        np.sqrt(3) / 2
    )  # a quarter of 5 and three quarters of 1: sd sqrt(3), mean 2
    assert synthetic.uniformity(on, on.points[:, 0] + 10)["distance"] > 0.8  # the rows are at the left
    assert synthetic.uniformity(on, np.zeros(400))["spread"] == 0.0


def test_thirds_are_equal_parts(case_study):
    values = np.random.default_rng(0).normal(size=(10, 6))
    level = case_study.thirds(values)
    np.testing.assert_array_equal(np.bincount(level.ravel()), [20, 20, 20])
    assert values[level == 0].max() < values[level == 1].min() < values[level == 2].min()
    np.testing.assert_array_equal(np.bincount(case_study.thirds(np.zeros(9))), [3, 3, 3])


def test_only_what_falls_strictly_counts(regularisation):
    wide = pd.DataFrame([[3.0, 2.0, 1.0], [3.0, 3.0, 1.0], [1.0, 2.0, 0.0]])
    assert regularisation.falls(wide) == 1


@pytest.mark.slow
def test_drawn_backgrounds_differ_by_key_alone(methods):
    import jax

    rows, x = np.random.default_rng(0).normal(size=(12, 2)), np.array([[1.0, 2.0], [0.0, -1.0]])
    explainer = methods.SampledBackground(rows, 4)
    first, again, other = (
        np.asarray(explainer.explain(lambda z: np.asarray(z).prod(axis=1), x, rng_key=jax.random.key(k)).values)
        for k in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3
    drawn = rows[np.asarray(jax.random.choice(jax.random.key(0), 12, (4,)))]
    # Shapley values of a product of two: half of each gain.
    a, b = drawn.T
    expected = [((p - a) * (q + b)).mean() / 2 for p, q in x]
    np.testing.assert_allclose(first[:, 0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_balls_are_smaller_beside_intricate_parts(sensitivity, synthetic, methods):
    shares, members = sensitivity.measure_balls(synthetic.Sizes(30, 40, methods.Effort(boundary=300)))
    waves = shares[shares["boundary"].isin(["2 cos(10 / x)", "chirp"])]
    assert (waves["intricate"] < waves["plain"]).all()
    assert (shares.groupby("boundary")["plain"].agg(lambda part: part.is_monotonic_decreasing)).all()  # in rho
    straight = shares[shares["boundary"] == "straight"]
    # Along a straight line the kernel depends on the shift along it alone; what differs are grid points at the rim.
    np.testing.assert_allclose(straight["plain"], straight["intricate"], atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "options", "words", "file", "rows"),
    [
        ("synthetic", ["--features", "Age", "Purpose_car"], ("GPEC as published", "CXPlain"), "gpec_synthetic.csv", 22),
        ("sensitivity", ["--features", "Age", "Purpose_car"], ("straight", "BayesSHAP"), "gpec_balls.csv", 12),
        ("regularisation", [], ("breast cancer, 2 splits", "credit, 2 splits"), "gpec_regularisation.csv", 96),
        ("case_study", [], ("medium", "rank correlation"), "gpec_case_study.csv", 30),
        ("seconds", [], ("sampling the boundary", "Published"), "gpec_time.csv", 18),
    ],
)
def test_a_small_run_prints_its_tables(request, script, options, words, file, rows, table, tmp_path):
    pytest.importorskip("xgboost")
    module = request.getfixturevalue(script)
    given = ["--small", "--output", str(tmp_path), "--data", str(table), *options]
    result = CliRunner().invoke(module.main, given, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    for word in words:
        assert word in result.output
    found = pd.read_csv(tmp_path / file)
    assert len(found) == rows
    for column in {"ratio", "width", "plain", "intricate"} & set(found):
        assert (found[column] >= 0).all() and found[column].max() > 0
