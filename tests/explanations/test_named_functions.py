"""Functions with the names of their features: explained by columns, saved, and read by `kpp explain`."""

import numpy as np
import pytest
from click.testing import CliRunner

import kpp
from kpp.__main__ import main
from kpp.data.tables import Schema
from kpp.kernels import RBF, Matern52

RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(9, 2))
FUNCTION = kpp.RKHSFunction(RBF(np.array([0.7, 1.3]), 2.0) + Matern52(0.4), POINTS, RNG.normal(size=9), 0.3)
PRODUCT = kpp.RKHSFunction(RBF(np.array([0.7, 1.3]), 2.0), POINTS, RNG.normal(size=9), 0.3)


def named(function=PRODUCT):
    return kpp.NamedFunction(function, Schema(("age", "height")))


def frame():
    pd = pytest.importorskip("pandas")
    rows = RNG.normal(size=(5, 3))
    return rows[:, [2, 0]], pd.DataFrame(rows, columns=["height", "win", "age"])


@pytest.mark.parametrize("function", [FUNCTION, PRODUCT], ids=["sum", "product"])
def test_a_file_gives_the_same_function_and_names(function, tmp_path):
    named(function).save(tmp_path / "f.nc")
    loaded = kpp.NamedFunction.load(tmp_path / "f.nc")
    np.testing.assert_array_equal(loaded.function()(POINTS + 0.1), function(POINTS + 0.1))
    assert loaded.schema == named().schema


@pytest.mark.slow
def test_explanations_select_columns_by_name_and_take_the_points_as_background():
    rows, table = frame()
    expected = kpp.explain(PRODUCT, rows, background=POINTS)
    found = kpp.explain(named(), table)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-12)
    assert list(found.values["feature"].values) == ["age", "height"]
    assert found.attrs["background"] == "points of the function"
    np.testing.assert_allclose(named().predict(table)["mean"], PRODUCT(rows), rtol=1e-12)


@pytest.mark.slow
def test_the_command_explains_by_a_saved_function(tmp_path):
    pytest.importorskip("dask.dataframe")
    pytest.importorskip("zarr")
    rows, table = frame()
    named().save(tmp_path / "f.nc")
    table.to_csv(tmp_path / "rows.csv", index=False)
    files = [str(tmp_path / name) for name in ("f.nc", "rows.csv", "out.zarr")]
    CliRunner().invoke(main, ["explain", *files[:2], "-o", files[2], "--quiet"], catch_exceptions=False)
    found = kpp.Explanation.load(files[2])
    expected = kpp.explain(PRODUCT, rows, background=POINTS)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-9)  # the CSV file has 17 digits
    assert list(found.values["feature"].values) == ["age", "height"]


@pytest.mark.slow
def test_what_does_not_fit_is_named(tmp_path):
    with pytest.raises(ValueError, match="`rkhs_function` must have points with 1 features"):
        kpp.NamedFunction(PRODUCT, Schema(("age",)))
    several = kpp.RKHSFunction(PRODUCT.kernel, POINTS, np.ones((9, 2)), np.zeros(2))
    with pytest.raises(ValueError, match="`rkhs_function` must have no draws and one output"):
        named(several)
    kpp.explain(PRODUCT, POINTS, background=POINTS).save(tmp_path / "e.nc")
    with pytest.raises(ValueError, match="is not a function saved by kpp"):
        kpp.NamedFunction.load(tmp_path / "e.nc")
