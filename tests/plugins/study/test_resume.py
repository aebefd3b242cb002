"""A run that stops after the fit loses no fit: another run goes on from it, if study and data are the same."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

from kpp.__main__ import main
from kpp.storage import netcdf
from kpp_study import StudyError, load_study, run_study
from kpp_study.study import runner
from kpp_study.study.output import FILES

STUDY = """
[study]
seed = 3
[data]
path = "rooms.csv"
target = "price & tax"
features = ["area"]
[model]
name = "GPRegression"
noise_variance = 0.1
kernel = { name = "RBF", lengthscale = 1.0 }
[inference]
name = "MAP"
[explainer]
instances = [0, 7]
background = 4
[report]
waterfalls = 0
"""


def run(study, output, *options):
    return CliRunner().invoke(main, ["run", str(study), "--output", str(output), *options])


@pytest.fixture(scope="module", autouse=True)
def short_report():
    """The figures of the report would take most of the time, and other tests look at them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "render_report", lambda contents, progress: contents.model[0])
        yield


def names(folder) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A folder with a study, its results by a run without a stop, and the fit of a run that stopped after it."""
    folder = tmp_path_factory.mktemp("stopped")
    rng = np.random.default_rng(5)
    rows = [f"{area:.3f},{1000 + 12 * area:.3f}" for area in rng.uniform(20.0, 120.0, 30)]
    (folder / "rooms.csv").write_text("\n".join(["area,price & tax", *rows]))
    (folder / "study.toml").write_text(STUDY)
    whole = run(folder / "study.toml", folder / "whole")
    assert whole.exit_code == 0, whole.output + str(whole.exception)

    def stop(*arguments):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner.StudyPlan, "explain", stop)
        result = run(folder / "study.toml", folder / "results")
    return folder, result, whole


@pytest.fixture
def again(stopped, tmp_path):
    """A copy of that folder, for a test of its own."""
    return shutil.copytree(stopped[0], tmp_path / "again")


@pytest.mark.slow
def test_lines_say_which_stage_runs_and_how_long_each_took(stopped):
    whole = stopped[2]
    lines = [line.split() for line in whole.stderr.splitlines() if line.startswith("kpp: [")]
    stages = ("read", "fit", "explanation", "predictions", "report")
    done = [words[1:3] for words in lines if words[-1] == "s"]
    assert done == [[f"[{number}/5]", f"{name}:"] for number, name in enumerate(stages, start=1)]
    assert [words[2] for words in lines if words[-1] == "..."] == list(stages[1:])
    assert "\r" not in whole.stderr


@pytest.mark.slow
def test_a_run_that_stops_after_the_fit_keeps_it_and_says_so(stopped):
    folder, result, _ = stopped
    assert result.exit_code != 0
    assert names(folder) == [".results.fit.nc", "rooms.csv", "study.toml", "whole"]
    assert "--resume" in result.stderr


@pytest.mark.slow
def test_the_resumed_run_gives_the_bits_of_one_without_a_stop(again, monkeypatch):
    monkeypatch.setattr(runner.StudyPlan, "fit", None)  # the resumed run fits nothing
    result = run(again / "study.toml", again / "results", "--resume")
    assert result.exit_code == 0, result.output + str(result.exception)
    assert "going on from the finished fit" in result.stderr
    assert names(again) == ["results", "rooms.csv", "study.toml", "whole"]
    assert names(again / "results") == sorted(FILES)
    assert (again / "results" / "summary.csv").read_bytes() == (again / "whole" / "summary.csv").read_bytes()
    for name in ("posterior.nc", "explanation.nc"):
        (root, groups), (first_root, first_groups) = (netcdf.read(again / f / name) for f in ("results", "whole"))
        assert groups.keys() == first_groups.keys()
        for found, first in [(root, first_root), *((groups[key], first_groups[key]) for key in groups)]:
            xr.testing.assert_equal(found, first)
            assert found.attrs.keys() == first.attrs.keys()


@pytest.mark.slow
def test_explainer_and_report_may_change_before_the_run_goes_on(again, monkeypatch):
    monkeypatch.setattr(runner.StudyPlan, "fit", None)
    monkeypatch.setattr(runner, "_write_folder", lambda folder, *rest: (folder / "report.html").write_text("new"))
    (again / "study.toml").write_text(STUDY.replace("[0, 7]", "[1]").replace("waterfalls = 0", "waterfalls = 1"))
    run_study(load_study(again / "study.toml"), again / "results", resume=True, progress=False)
    assert names(again) == ["results", "rooms.csv", "study.toml", "whole"]


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        ("study.toml", "seed = 3", "seed = 4", r"study\.seed has"),
        ("study.toml", "noise_variance = 0.1", "noise_variance = 0.2", r"\[model\] has"),
        ("study.toml", '"MAP"', '"MAP"\nmax_steps = 90', r"\[inference\] has"),
        ("rooms.csv", "\n1", "\n2", r"the table 'rooms\.csv' has"),
    ],
)
def test_the_fit_of_another_study_or_of_other_data_is_refused(again, file, old, new, changed):
    text = (again / file).read_text()
    (again / file).write_text(text.replace(old, new, 1))
    assert text != (again / file).read_text()
    with pytest.raises(StudyError, match=f"--resume: {changed} changed .* leave --resume out"):
        run_study(load_study(again / "study.toml"), again / "results", resume=True, progress=False)
    assert ".results.fit.nc" in names(again)


def test_a_fit_that_is_missing_or_damaged_is_refused(again):
    config = load_study(again / "study.toml")
    with pytest.raises(StudyError, match="no finished fit was kept"):
        run_study(config, again / "elsewhere", resume=True, progress=False)
    kept = again / ".results.fit.nc"
    kept.write_bytes(kept.read_bytes()[:2000])
    with pytest.raises(StudyError, match="can't be read"):
        run_study(config, again / "results", resume=True, progress=False)
    assert names(again) == [".results.fit.nc", "rooms.csv", "study.toml", "whole"]


def test_a_run_without_resume_mentions_the_kept_fit(again, monkeypatch, capsys):
    def stop(*arguments):
        raise ValueError("stop")

    monkeypatch.setattr(runner.StudyPlan, "fit", stop)
    with pytest.raises(StudyError, match="stop"):
        run_study(load_study(again / "study.toml"), again / "results")
    assert "--resume goes on from it" in capsys.readouterr().err


@pytest.mark.nightly  # two processes that import JAX
def test_a_killed_run_can_be_resumed(again):
    (again / ".results.fit.nc").unlink()
    command = [sys.executable, "-m", "kpp", "run", str(again / "study.toml"), "--output", str(again / "results")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120.0
    while not (again / ".results.fit.nc").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (again / "results").exists()
    done = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=True)
    assert "going on from the finished fit" in done.stderr
    (found, _), (first, _) = (netcdf.read(again / folder / "explanation.nc") for folder in ("results", "whole"))
    xr.testing.assert_allclose(found, first, rtol=1e-9)  # the number of threads of another process changes bits
