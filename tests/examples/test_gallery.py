"""The scripts of the gallery have its form, and what their figures are said to show holds.

All run when the site is built, where a warning is an error; tests/browser looks for a picture on each page.
"""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

GALLERY = Path(__file__).resolve().parents[2] / "examples" / "gallery"
# BoTorch is not installed, and its script is a command with its own test.
SCRIPTS = sorted(path for path in GALLERY.rglob("*.py") if path.name != "botorch_loop.py")
# The site shows a button for each tag, which selects the examples that have it.
TAGS = {
    "Gaussian processes",
    "Shapley values",
    "aggregates",
    "any model",
    "causal effects",
    "causal graph",
    "classification",
    "correlated features",
    "intervals",
    "kernels",
    "large data",
    "next experiment",
    "plots",
    "preferences",
    "scikit-learn",
}


def name(path: Path) -> str:
    return path.relative_to(GALLERY).with_suffix("").as_posix()


def test_there_are_scripts():
    assert len(SCRIPTS) >= 24


@pytest.mark.parametrize("folder", sorted({GALLERY, *(path.parent for path in SCRIPTS)}), ids=lambda path: path.name)
def test_each_folder_has_a_header(folder):
    title, underline, *_ = (folder / "GALLERY_HEADER.rst").read_text().splitlines()
    assert title and underline == "=" * len(title)


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_each_script_has_the_form_of_the_gallery(path):
    text = path.read_text()
    title, underline, blank, *sentences = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    assert title and underline == "=" * len(title) and not blank
    assert " ".join(sentences).endswith(".")
    assert text.count("\n# %%\n") >= 2
    (tags,) = re.findall(r"^# sphinx_gallery_tags = (\[.*\])$", text, re.MULTILINE)
    assert ast.literal_eval(tags) and set(ast.literal_eval(tags)) <= TAGS
    assert "argparse" not in text and "__main__" not in text
    assert "Read more in the user guide" in text.rpartition("# %%")[2]


def check_tree_shap(script: dict[str, Any]) -> None:
    """The deviation, the error and the change of TreeSHAP are larger near the boundary, and the intervals hold."""
    near, far = script["near"], script["far"]
    for each in ("deviation", "error", "change"):
        assert script[each][near].mean() > script[each][far].mean(), each
    # Means over 1000 dependent attributions of one forest: a nominal 90 % within 10 %.
    assert script["inside"].mean() >= 0.8


def check_causal_values(script: dict[str, Any]) -> None:
    """The kinds of values differ where they should."""
    season, parts = script["values"].loc["season"], script["parts"]
    assert season["marginal"] < 0.5 * season["causal"]  # of 150 days the model has not fully learned to ignore it
    assert season["asymmetric"] > season["causal"]  # the first cause gets the credit
    # The first has effects on the others. The last has none; the empty coalition is the background itself, and not its
    # Gaussian law, which leaves a small difference for a function that is not linear.
    assert parts.loc["season", "indirect"] > parts.loc["season", "direct"]
    np.testing.assert_allclose(parts.loc["humidity", "indirect"], 0.0, atol=0.02)


def check_observational_values(script: dict[str, Any]) -> None:
    """The education, which the model ignores, has observational values only, with the slope of the closed form."""
    education = script["some"]["education"].to_numpy()
    slopes = {
        kind: np.polyfit(education, script[kind].values.sel(feature="education").values, 1)[0]
        for kind in ("interventional", "observational")
    }
    assert abs(slopes["interventional"]) < 0.15
    # 2.0 * 0.8 / 2; the weights of 300 rows leave some tenths.
    np.testing.assert_allclose(slopes["observational"], 0.8, atol=0.2)


def check_preference(script: dict[str, Any]) -> None:
    """The contributions of a duel are those of the linear utility of the simulation, within its intervals."""
    truth, bounds = script["truth"], script["bounds"]
    for feature, value in truth.items():
        lower, upper = bounds.loc[feature]
        # One data set: intervals of twice the width around the same center.
        assert abs(value - (lower + upper) / 2) < upper - lower, feature


def check_interactions(script: dict[str, Any]) -> None:
    """Of all pairs, a and b have by far the largest interaction."""
    table = abs(script["explanation"].interactions).mean("instance").squeeze()
    pairs = {(i, j): float(table[i, j]) for i in range(6) for j in range(i)}
    largest = pairs.pop((1, 0))
    assert largest > 5 * max(pairs.values())


def check_curves(script: dict[str, Any]) -> None:
    """The truth is inside of both bands, and the accumulated curve is the more certain one."""
    tables = {kind: curve.summary() for kind, curve in script["curves"].items()}
    for kind, table in tables.items():
        truth = script["true_growth"](script["curves"][kind].grid, 0.0)
        truth = truth - truth.mean()
        assert ((table["band_lower"] < truth) & (truth < table["band_upper"])).all(), kind
    assert tables["accumulated"]["sd"].mean() < tables["partial"]["sd"].mean()


def check_boundary(script: dict[str, Any]) -> None:
    """The explanation is more certain at the line than at the wave."""
    wave, line = np.asarray(script["pair"].variance.sum("feature"))
    assert wave > 2 * line


def check_bayes_shap(script: dict[str, Any]) -> None:
    """Sixteen times as many calls give intervals of a quarter of the width, up to a third of it."""
    widths = [float(np.sqrt(explanation.variance).mean()) for explanation in script["explanations"]]
    for few, many in zip(widths, widths[2:], strict=False):
        np.testing.assert_allclose(few / many, 4.0, rtol=1 / 3)


CLAIMS: dict[str, Callable[[dict[str, Any]], None]] = {
    "trust/bayes_shap_intervals": check_bayes_shap,
    "explanations/causal_shapley": check_causal_values,
    "explanations/curve_of_one_feature": check_curves,
    "trust/gpec_boundary": check_boundary,
    "trust/gpec_tree_shap": check_tree_shap,
    "explanations/interactions": check_interactions,
    "explanations/interventional_or_observational": check_observational_values,
    "preferences/pref_shap": check_preference,
}


@pytest.mark.nightly
@pytest.mark.parametrize("script", CLAIMS)
def test_what_a_figure_is_said_to_show_holds(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    CLAIMS[script](runpy.run_path(str(GALLERY / f"{script}.py")))
    plt.close("all")
