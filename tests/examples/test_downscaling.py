"""The downscaling experiment: its data are what it says, and it runs to its tables and maps."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("reproduce/downscaling.py")


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
    np.testing.assert_array_equal(fields["cloud"], np.repeat(np.repeat(pressure, 3, axis=0), 3, axis=1))


@pytest.mark.slow
def test_the_script_prints_its_tables_and_draws_its_maps(script, tmp_path):
    output = tmp_path / "maps"
    result = CliRunner().invoke(script.main, ["--small", "--output", str(output)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "published, on other fields" in result.output
    assert "7.400 +- 0.250" in result.output
    assert "Wilcoxon's signed-rank test over 2 seeds" in result.output
    assert "peak memory" in result.output
    scores = script.pd.read_csv(output / "scores.csv")
    assert len(scores) == 6
    # The temperature of the small field varies by 15 K or so; all models are much nearer than that.
    assert (scores["rmse"] < 10.0).all()
    assert (scores["spearman"] > 0.7).all()
    names = {path.name for path in output.glob("*.png")}
    assert names == {"data.png", "vargpr.png", "vbagg.png", "varcmp.png"}
