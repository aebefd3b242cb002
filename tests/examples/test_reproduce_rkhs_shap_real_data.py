"""The script that explains real data runs, and reads the tables it is given."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("reproduce/rkhs_shap_real_data.py")


@pytest.fixture
def census(tmp_path):
    """A table like the census: text, a missing value, and a target that hours and job decide."""
    rng = np.random.default_rng(0)
    hours, job = rng.integers(10, 60, size=80), rng.choice(["clerk", "smith", "tutor"], size=80)
    income = np.where(hours + 20 * (job == "tutor") > 45, ">50K", "<=50K")
    table = pd.DataFrame({"hours": hours, "job": job, "age": rng.integers(18, 70, size=80), "income": income})
    table.loc[3, "job"] = "?"
    table.to_csv(tmp_path / "census.csv", index=False)
    return tmp_path / "census.csv"


def test_tables_are_read_with_text_as_codes(script, census, capsys):
    task = script.read_task("census", census)
    assert "1 of 80 rows have missing values" in capsys.readouterr().out
    assert task.categories == {"job"}
    assert set(task.x["job"]) == {0.0, 1.0, 2.0}
    assert set(task.y) == {0.0, 1.0}
    kernel = script.choose_kernel(task, task.x)
    assert [type(part).__name__ for part in kernel.kernels] == ["RBF", "Categorical", "RBF"]
    with pytest.raises(SystemExit, match="must have the target in the column 'MEDV', got the columns .*'hours'"):
        script.read_task("boston", census)


@pytest.mark.slow
def test_tables_are_explained(script, census, tmp_path):
    table = script.main(["--quick", "--given", "--output", str(tmp_path), "--census", str(census)])["census"]
    assert table["interventional"].idxmin() == "age"  # which decides nothing


@pytest.mark.nightly
def test_bundled_data_are_explained(script, tmp_path):
    tables = script.main(["--quick", "--output", str(tmp_path)])
    assert {name: len(table) for name, table in tables.items()} == {
        "diabetes-rbf": 10,
        "diabetes-matern12": 10,
        "diabetes-isotropic": 10,
        "breast-cancer": 30,
    }
    # The paper's figures C.1 and C.5: these three lead, with either kernel.
    leading = tables["diabetes-rbf"]["interventional"].nlargest(3).index
    assert set(leading) == {"bmi", "bp", "s5"}
    assert all(np.isfinite(table.to_numpy()).all() for table in tables.values())
    assert len(list(tmp_path.glob("*.png"))) == 16


def test_the_coded_census_has_another_target(script, census, tmp_path):
    table = pd.read_csv(census)[["hours", "age"]].assign(Target=[0, 1] * 40)
    table.to_csv(tmp_path / "coded.csv", index=False)
    task = script.read_task("census", tmp_path / "coded.csv")
    assert task.classification and not task.categories and task.y.tolist() == [0.0, 1.0] * 40


@pytest.fixture
def local(load_script, script):
    return load_script("reproduce/rkhs_shap_local.py")


def test_reasons_are_counted_and_houses_are_chosen(local):
    x = pd.DataFrame({"CRIM": [0.0, 5.0, 1.0], "LSTAT": [3.0, 2.0, 9.0]})
    values = pd.DataFrame({"CRIM": [1.0, -4.0, 2.0], "LSTAT": [0.5, 3.0, 2.5]})
    found = local.count_reasons(values)
    np.testing.assert_allclose(found.loc["CRIM"], [2 / 3, 1 / 3], rtol=1e-12)
    assert local.choose_houses(x) == {"highest crime rate": 1, "highest LSTAT": 2, "lowest LSTAT": 1}
    house = local.show_houses(x, values).set_index(["house", "feature"]).loc[("highest crime rate", "CRIM")]
    assert house.tolist() == [5.0, -4.0, 1.0]


@pytest.mark.slow
def test_known_reasons_are_found(local, tmp_path):
    tables = local.main(["--quick", "--output", str(tmp_path)])
    assert set(tables["kernels"]["RBF"].nlargest(2).index) == {"CRIM", "LSTAT"}
    house = tables["houses"].set_index(["house", "feature"])["value"]
    assert house["highest crime rate"].idxmin() == "CRIM" and house["lowest LSTAT", "LSTAT"] > 0
    assert list(tables["patient"].index) == ["Glucose", "BMI", "Insulin"] and tables["patient"]["value"].notna().all()
    assert len(list(tmp_path.glob("*.png"))) == 4
