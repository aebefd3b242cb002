"""The fit of a finished study predicts and explains new rows, in the units of the study's table."""

from __future__ import annotations

import dataclasses
import json
import logging

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import kpp
from kpp.__main__ import main
from kpp.storage import arviz_data
from kpp_study import load_fit, load_study, run_study
from kpp_study.study import runner

HOSTILE = "<script>alert('x')</script>"


def new_rooms(num_rows: int = 5) -> pd.DataFrame:
    """Rows that the study has not seen, with a column more and in another order."""
    rng = np.random.default_rng(11)
    town = np.array(["Rome", "Bern"])[np.arange(num_rows) % 2]
    area = rng.uniform(20.0, 120.0, num_rows)
    return pd.DataFrame({"town": town, "note": "new", HOSTILE: rng.normal(size=num_rows), "area": area})


def standardized(frame: pd.DataFrame, known: pd.DataFrame) -> pd.DataFrame:
    scaled = {n: (frame[n] - known[n].mean()) / known[n].std(ddof=0) for n in ("area", HOSTILE)}
    return pd.DataFrame({**scaled, "town": frame["town"]})


@pytest.fixture(scope="module")
def fit(finished):
    """The fit in the model's units."""
    return kpp.Fit.load(finished.folder / "fit.nc")


@pytest.mark.slow
def test_predictions_are_those_of_the_standardized_fit_in_the_units_of_the_table(finished, fit):
    new, price = new_rooms(), finished.frame["price & tax"]
    known = fit.predict(standardized(new, finished.frame))
    found = load_fit(finished.folder).predict(new)
    mean = known["mean"].values.reshape(-1, len(new))
    latent = mean.var(0) + known["latent_variance"].values.reshape(-1, len(new)).mean(0)
    noise = known["noise_variance"].values.reshape(-1, len(new)).mean(0)
    scale = price.std(ddof=0)
    np.testing.assert_allclose(found["prediction"], price.mean() + scale * mean.mean(0), rtol=1e-10)
    np.testing.assert_allclose(found["prediction_sd"], scale * np.sqrt(latent), rtol=1e-10)
    np.testing.assert_allclose(found["observation_sd"], scale * np.sqrt(latent + noise), rtol=1e-10)


@pytest.mark.slow
def test_predictions_of_the_rows_of_the_study_lie_near_their_targets(finished):
    found = load_fit(finished.folder / "fit.nc").predict(finished.frame)
    price = finished.frame["price & tax"]
    assert 1.0 - ((found["prediction"] - price) ** 2).mean() / price.var(ddof=0) > 0.95


@pytest.mark.slow
def test_the_command_predicts_the_rows_of_a_file(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    new_rooms().to_csv("new.csv", index=False)
    done = CliRunner().invoke(main, ["predict", str(finished.folder), "new.csv"])
    assert done.exit_code == 0, done.output
    written = pd.read_csv("new-predictions.csv", index_col="row")
    pd.testing.assert_frame_equal(written, load_fit(finished.folder).predict(new_rooms()).rename_axis("row"))
    again = CliRunner().invoke(main, ["predict", str(finished.folder), "new.csv"])
    assert again.exit_code == 2
    assert "add --overwrite" in again.output


BAD = {
    "a missing column": (lambda frame: frame.drop(columns="area"), [], "area"),
    "an unknown level": (lambda frame: frame.assign(town="Oslo"), [], "Oslo"),
    "a missing value": (lambda frame: frame.assign(area=np.nan), [], "missing"),
}


@pytest.mark.parametrize(("change", "options", "message"), BAD.values(), ids=BAD)
def test_rows_that_do_not_fit_the_study_are_refused_in_one_line(change, options, message, finished, tmp_path):
    change(new_rooms()).to_csv(tmp_path / "new.csv", index=False)
    output = tmp_path / "out.csv"
    arguments = ["predict", str(finished.folder), str(tmp_path / "new.csv"), "--output", str(output), *options]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert not output.exists()


@pytest.mark.slow
def test_an_unknown_level_may_be_predicted_from_the_prior(finished):
    new = new_rooms().assign(town="Oslo")
    found, known = (load_fit(finished.folder).predict(rows, unseen="prior") for rows in (new, new_rooms()))
    assert (found["prediction_sd"] > known["prediction_sd"]).all()


@pytest.mark.slow
def test_curves_are_means_of_predictions_in_the_units_of_the_table(finished):
    """A curve takes 100 of the 120 draws: its means differ by less than 1 % of the spread of the prices."""
    fit = load_fit(finished.folder)
    points = fit.units.points(finished.frame[list(fit.units.schema.feature_names)])
    spread = finished.frame["price & tax"].std()
    for feature, grid in (("area", [-1.0, 1.0]), ("town", 2)):
        curve = fit.units.curve(kpp.curve(fit.fit, points, feature, grid=grid))
        expected = [fit.predict(finished.frame.assign(**{feature: v}))["prediction"].mean() for v in curve.grid]
        np.testing.assert_allclose(curve.summary()["mean"], expected, atol=0.01 * spread)
        assert sorted(curve.dataset["data"].to_numpy())[:1] == pytest.approx(
            [finished.frame["area"].min() if feature == "area" else 0.0]
        )


@pytest.mark.slow
def test_loading_a_fit_in_standardized_units_says_so(finished, caplog):
    with caplog.at_level(logging.WARNING, "kpp"):
        load_fit(finished.folder)
        assert not caplog.text
        kpp.Fit.load(finished.folder / "fit.nc")
    assert "is in standardized units; kpp_study.study.load_fit" in caplog.text


def test_the_message_about_the_results_of_a_study_names_the_file_of_its_fit(finished):
    with pytest.raises(ValueError, match=r"posterior\.nc, which lacks the attribute 'kpp'; the file fit\.nc beside it"):
        kpp.Fit.load(finished.folder / "posterior.nc")


@pytest.mark.slow
def test_a_fit_that_belongs_to_no_study_has_its_own_units(finished, fit, tmp_path):
    attrs = {name: value for name, value in fit.attrs.items() if not name.startswith("kpp_")}
    plain = dataclasses.replace(fit, arviz=arviz_data.from_groups(arviz_data.groups(fit.idata), attrs))
    plain.save(tmp_path / "plain.nc")
    rows = standardized(new_rooms(), finished.frame)
    found = load_fit(tmp_path / "plain.nc").predict(rows)
    np.testing.assert_allclose(found["prediction"], fit.predict(rows)["mean"].mean(("chain", "draw")), rtol=1e-12)


@pytest.mark.slow
def test_the_fit_of_matches_predicts_no_single_rows(fit, tmp_path):
    facts = {**json.loads(fit.attrs["kpp_study_fit"]), "pairs": True}
    idata = arviz_data.from_groups(arviz_data.groups(fit.idata), {**fit.attrs, "kpp_study_fit": json.dumps(facts)})
    dataclasses.replace(fit, arviz=idata).save(tmp_path / "pairs.nc")
    with pytest.raises(ValueError, match="matches between items, which predicts no single rows"):
        load_fit(tmp_path / "pairs.nc")


def test_a_folder_without_a_fit_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"fit\.nc"):
        load_fit(tmp_path)


@pytest.mark.slow
def test_the_command_explains_new_rows_in_the_units_of_the_table(finished, fit, tmp_path):
    pytest.importorskip("dask.dataframe")
    new = new_rooms()
    new.to_parquet(tmp_path / "new.parquet")
    output = tmp_path / "out.zarr"
    arguments = ["explain", str(finished.folder), str(tmp_path / "new.parquet"), "--output", str(output), "--quiet"]
    done = CliRunner().invoke(main, [*arguments, "--option", "covariance=null"])
    assert done.exit_code == 0, done.output
    found = kpp.Explanation.load(output)
    thinned = load_fit(finished.folder).thinned
    known = kpp.explain(thinned, standardized(new, finished.frame), covariance=None, progress=False)
    price = finished.frame["price & tax"]
    np.testing.assert_allclose(found.values, price.std(ddof=0) * known.values.values, rtol=1e-8, atol=1e-8)
    whole = found.base_values + found.values.sum("feature")
    np.testing.assert_allclose(whole.transpose(*found.predictions.dims), found.predictions, rtol=1e-8)
    np.testing.assert_allclose(found.data.sel(feature="area"), new["area"])
    assert found.attrs["target"] == "price & tax"


@pytest.mark.nightly
def test_of_two_classes_the_probability_of_the_second_is_predicted(write_study, frame, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "render_report", lambda contents, progress: "")
    dear = np.where(frame["price & tax"] > frame["price & tax"].median(), "yes", "no")
    edits = [('name = "GPRegression"', 'name = "GPClassification"'), ('"NUTS"\nnum_warmup = 60', '"MAP"')]
    edits += [("num_samples = 60\nnum_chains = 2\n", "")]
    edits += [('noise_variance = { prior = "HalfNormal", scale = 1.0 }\n', "")]
    study = load_study(write_study(*edits, frame=frame.assign(**{"price & tax": dear})))
    folder = run_study(study, tmp_path / "results", progress=False)
    found = load_fit(folder).predict(frame)
    assert list(found) == ["prediction"]
    assert ((found["prediction"] > 0.5) == (dear == "yes")).mean() > 0.8
