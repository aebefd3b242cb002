"""Whatever is wrong with a study is said in one line that names the key, with exit code 2, before the fit begins."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import kpp
from kpp.__main__ import main
from kpp_study.study.errors import StudyError
from kpp_study.study.sections.config import parse_study

# What is edited in the study of conftest.py, and what the one line must say.
FILE = {
    "no TOML": (("[data]", "[data"), ["study.toml", "not valid TOML"]),
    "unknown section": (("[explainer]", "[explaner]"), ["[explaner]", "did you mean 'explainer'"]),
    "no data": (("[data]\n", "[report]\n"), ["[data] is missing"]),
    "unknown key": (("seed = 3", "sead = 3"), ["[study]", "'sead'", "did you mean 'seed'"]),
    "misspelled target": (("target =", "traget ="), ["data.target is missing", "'traget'"]),
    "target no text": (('target = "price & tax"', "target = 3"), ["data.target", "got 3"]),
    "one simulated data set": (
        ("[explainer]", "[certificate]\ndata_sets = 1\n\n[explainer]"),
        ["certificate.data_sets", "2 or more", "got 1"],
    ),
    "negative seed": (("seed = 3", "seed = -3"), ["study.seed", "-3"]),
    "no such file": (("rooms.csv", "room.csv"), ["data.path", "room.csv"]),
    "unknown format": (("rooms.csv", "study.toml"), ["data.path", ".parquet"]),
    "no such column": (("price & tax", "price"), ["data.target", "'price'", "did you mean 'price & tax'"]),
    "features of a model": (("[model]\n", '[model]\non = ["x"]\n'), ["[model]", "on"]),
    "feature list": (("[data]\n", '[data]\nfeatures = ["area", "twon"]\n'), ["data.features", "did you mean 'town'"]),
    "target as feature": (("[data]\n", '[data]\nfeatures = ["price & tax"]\n'), ["data.features", "target"]),
    "categorical target": (
        ("[data]\n", '[data]\ncategorical = ["price & tax"]\n'),
        ["data.target", "must hold two classes, got 30"],
    ),
    "text as target": (("price & tax", "town"), ["data.target", "'town' has two classes", "must hold real numbers"]),
    "unknown model": (("GPRegression", "GPRegresion"), ["[model]", "did you mean 'GPRegression'"]),
    "unknown kernel": (('"RBF"', '"RBG"'), ["model.kernel.kernels.0", "RBG"]),
    "unknown prior": (("HalfNormal", "HalfNorml"), ["model.noise_variance", "HalfNorml"]),
    "unknown field": (("noise_variance", "noise_varience"), ["[model]", "noise_varience"]),
    "unknown name in a kernel": (('on = ["town"]', 'on = ["twon"]'), ["[model]", "'twon'", "'town'"]),
    "unknown inference": (('"NUTS"', '"NUTZ"'), ["inference.name", "did you mean 'NUTS'"]),
    "unknown option": (("num_warmup", "num_warmpu"), ["[inference]", "did you mean 'num_warmup'"]),
    "option of another type": (("num_warmup = 60", 'num_warmup = "60"'), ["inference.num_warmup", "whole number"]),
    "option out of range": (("num_chains = 2", "num_chains = 0"), ["[inference]", "num_chains"]),
    "unknown explainer": (("rkhs-shap", "rkhs-sharp"), ["explainer.name", "did you mean 'rkhs-shap'"]),
    "unknown value function": (("interventional", "interventionel"), ["explainer.value_function", "'interventional'"]),
    "unknown explainer option": (("max_draws", "max_draw"), ["[explainer]", "did you mean 'max_draws'"]),
    "option of no use": (("max_draws", 'method = "guess"\nmax_draws'), ["[explainer]", "method", "guess"]),
    "no instances": (("[0, 7, 19]", "0"), ["explainer.instances", "got 0"]),
    "row not there": (("[0, 7, 19]", "[0, 30]"), ["explainer.instances", "[30]", "0 to 29"]),
    "row twice": (("[0, 7, 19]", "[7, 7]"), ["explainer.instances", "more than once"]),
    "waterfall not explained": (
        ("[explainer]", "[report]\nwaterfalls = [1]\n[explainer]"),
        ["report.waterfalls", "[1]"],
    ),
}


# What is changed in the table of conftest.py, and what the one line must say.
TABLE = {
    "missing values": ({"area": {3: np.nan, 5: np.nan}, "town": {0: None}}, ["'area': 2", "'town': 1", "30 rows"]),
    "missing target": ({"price & tax": {9: np.nan}}, ["'price & tax': 1"]),
    "infinite feature": ({"area": {4: np.inf}}, ["'area'", "infinite"]),
    "infinite target": ({"price & tax": {4: -np.inf}}, ["data.target", "infinite"]),
}


def refusal(path, *arguments) -> str:
    result = CliRunner().invoke(main, ["run", str(path), "--output", str(path.parent / "results"), *arguments])
    assert result.exit_code == 2, result.output
    assert not (path.parent / "results").exists()
    (line,) = result.stderr.splitlines()
    assert line.startswith("kpp run: ")
    return line


@pytest.mark.parametrize("case", FILE)
def test_a_wrong_study_file_is_refused_in_one_line(case, write_study):
    edit, said = FILE[case]
    line = refusal(write_study(edit))
    assert all(words in line for words in said), line


@pytest.mark.parametrize("case", TABLE)
def test_unfit_data_are_refused_in_one_line(case, write_study, frame):
    changes, said = TABLE[case]
    for column, cells in changes.items():
        for row, value in cells.items():
            frame.loc[row, column] = value
    line = refusal(write_study(frame=frame))
    assert all(words in line for words in said), line


def test_other_tables_are_refused_in_one_line(write_study, frame):
    constant = frame.assign(**{"price & tax": 5.0})
    assert "nothing to predict" in refusal(write_study(frame=constant))
    names = frame.assign(town=[f"town {row}" for row in range(len(frame))])
    assert "30 different values" in refusal(write_study(frame=names))
    assert "no rows" in refusal(write_study(frame=frame.head(0)))
    twice = pd.concat([frame, frame["area"]], axis=1)
    assert "more than one column called 'area'" in refusal(write_study(frame=twice))
    path = write_study()
    (path.parent / "rooms.csv").write_bytes(b"")
    assert "data.path" in refusal(path)


def test_a_study_file_that_is_not_there_is_refused_in_one_line(tmp_path):
    assert "nothing.toml" in refusal(tmp_path / "nothing.toml")


def test_debug_shows_the_traceback(write_study):
    path = write_study(("seed = 3", "seed = -3"))
    result = CliRunner().invoke(main, ["run", str(path), "--output", str(path.parent / "results"), "--debug"])
    assert result.exit_code == 1
    assert "study.seed" in str(result.exception)


def test_a_kernel_that_the_explainer_refuses_is_refused_before_the_fit(write_study):
    quadrature = ("max_draws", 'method = "quadrature"\nmax_draws')
    line = refusal(write_study(('name = "RBF"', 'name = "Matern32"'), quadrature))
    assert "[explainer]" in line
    assert "quadrature" in line


def test_a_registered_inference_is_known_by_its_name(register, study_text):
    register("inferences", "mode", kpp.MAP)
    start, end = study_text.index("[inference]"), study_text.index("[explainer]")
    text = f'{study_text[:start]}[inference]\nname = "mode"\nOPTIONS\n{study_text[end:]}'
    built = parse_study(text.replace("OPTIONS", "num_restarts = 1\nprogress = false")).inference
    assert built == kpp.MAP(num_restarts=1, progress=False)
    with pytest.raises(StudyError, match=r"\[inference\] has an unknown key 'num_chains'"):
        parse_study(text.replace("OPTIONS", "num_chains = 1"))
