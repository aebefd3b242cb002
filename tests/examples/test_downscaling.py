"""The downscaling experiment: its data are what it says, and it runs to its tables and maps."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import wilcoxon


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("reproduce/downscaling.py")


@pytest.mark.slow
def test_halves_share_no_bag_and_targets_are_block_means(script):
    fields = script.simulate(10, 13)
    problem = script.pose(fields, 3, seed=1)
    assert dict(problem.fields.sizes) == {"lat": 9, "lon": 12}
    assert sorted([*problem.first, *problem.second]) == list(range(12))
    temperature = fields["temperature"].values[:9, :12]
    blocks = temperature.reshape(3, 3, 4, 3).mean(axis=(1, 3)).ravel()
    kelvin = problem.center + problem.scale * problem.targets
    np.testing.assert_allclose(kelvin, blocks[problem.second], rtol=1e-12)
    np.testing.assert_allclose([problem.targets.mean(), problem.targets.std()], [0.0, 1.0], atol=1e-12)
    assert problem.bags.num_points == 6 * 9


def test_files_are_read_with_the_coarse_field_repeated(script, tmp_path):
    rng = np.random.default_rng(0)
    temperature, pressure = rng.normal(size=(6, 9)), rng.normal(size=(2, 3))
    np.savez(tmp_path / "f.npz", ttop=temperature, pctisccp=pressure, lat=np.arange(6.0), lon=np.arange(9.0))
    fields = script.read(tmp_path / "f.npz")
    np.testing.assert_array_equal(fields["temperature"], temperature)
    np.testing.assert_array_equal(fields["pressure"], np.repeat(np.repeat(pressure, 3, axis=0), 3, axis=1))


@pytest.mark.slow
def test_netcdf_files_of_two_resolutions_become_bags(script, tmp_path):
    rng = np.random.default_rng(0)
    xr = script.xr
    fine = {"lat": np.linspace(-80.0, 80.0, 8), "lon": np.arange(0.0, 360.0, 30.0)}
    coarse = {"latitude": np.linspace(-60.0, 60.0, 4), "longitude": np.arange(-180.0, 180.0, 60.0), "time": [0, 1]}
    fields = {
        "temperature": xr.DataArray(rng.normal(size=(8, 12)), fine, ("lat", "lon"), "ta"),
        "albedo": xr.DataArray(rng.normal(size=(8, 12)), fine, ("lat", "lon"), "al"),
        "pressure": xr.DataArray(rng.normal(size=(2, 4, 6)), coarse, ("time", "latitude", "longitude"), "p"),
    }
    for name, field in fields.items():
        field.to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf")
    read = script.read_netcdf({name: tmp_path / f"{name}.nc" for name in fields})
    problem = script.pose(read, 4, seed=0)
    assert problem.bags.feature_names == ("lat", "lon", "albedo")
    assert problem.bags.covariate_names == ("lat", "lon", "pressure")
    np.testing.assert_array_equal(read["pressure"][0, 0], fields["pressure"].mean("time").sel(longitude=0.0)[0])


@pytest.mark.slow
def test_the_default_has_several_covariates_and_a_mediator_that_is_none_of_them(script):
    fields = script.simulate(24, 48)
    problem = script.pose(fields, 4, seed=0)
    assert problem.bags.feature_names == ("lat", "lon", "altitude", "cover", "albedo")
    assert problem.bags.covariate_names == ("lat", "lon", "pressure")


def test_ours_stand_beside_the_published_numbers_and_are_compared_over_seeds(script, capsys):
    rng = np.random.default_rng(0)
    rows = [
        {"model": model, "seed": seed, "covered": 0.9} | {metric: level + rng.normal() for metric in script.METRICS}
        for level, model in enumerate(script.MODELS)
        for seed in range(6)
    ]
    scores = script.pd.DataFrame(rows)
    script.print_table(scores)
    script.print_tests(scores)
    printed = capsys.readouterr().out
    assert "published, on other fields" in printed
    assert f"{scores[scores.model == 'VarCMP'].rmse.mean():.3f} +- " in printed
    assert "| 7.400 +- 0.250" in printed
    mine, other = (scores[scores.model == model].rmse.to_numpy() for model in ("VBagg", "VarCMP"))
    assert f"VBagg / VarCMP{wilcoxon(mine, other).pvalue:>10.4f}" in printed


@pytest.mark.nightly
def test_the_script_draws_maps_near_the_truth(script, tmp_path):
    output = tmp_path / "maps"
    arguments = ["--small", "--seeds", "1", "--output", str(output)]
    result = CliRunner().invoke(script.main, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "One seed: nothing to test." in result.output
    assert "peak memory" in result.output
    scores = script.pd.read_csv(output / "scores.csv")
    assert list(scores["model"]) == list(script.MODELS)
    # The temperature of the small field varies by 15 K or so; all models are much nearer than that.
    assert (scores["rmse"] < 10.0).all()
    assert (scores["spearman"] > 0.7).all()
    names = {path.name for path in output.glob("*.png")}
    assert names == {"data.png", "vargpr.png", "vbagg.png", "varcmp.png"}
