"""Sentences about an explanation, for the reports of studies and of explanations alone."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from kpp.explanations import Explanation
from kpp.foundation import distribution
from kpp.foundation.wording import listed
from kpp.inspection import Curve
from kpp_study.report.numbers import interval, short, signed
from kpp_study.report.pages import render_text


def explained(explanation: Explanation, *, rows: int | None = None, available: int | None = None) -> str:
    """Say what was explained and how accurately, by the template `explained.txt.j2`.

    `rows` and `available` are the numbers of rows and of posterior draws from which the explained ones were chosen.
    """
    sizes, error = explanation.dataset.sizes, float(explanation.additivity_error().max())
    return render_text(
        "explained.txt.j2",
        attrs=explanation.attrs,
        count=len(explanation),
        rows=rows,
        available=available,
        draws=sizes.get("chain", 1) * sizes.get("draw", 1),
        is_gaussian=explanation.variance is not None,
        # Relative error 1e-6: larger than the rounding errors of an explainer that is additive by construction.
        adds_up=error <= 1e-6 * max(1.0, float(np.abs(explanation.predictions).max())),
    )


def effect(found: Curve, target: str) -> str:
    """Say what the curve of a treatment means, and how much it changes, with intervals."""
    levels = found.grid.tolist()
    if len(levels) == 2 or not isinstance(levels[0], float):
        changes = [found.contrast(level, levels[0]) for level in levels[1:]]
    else:
        changes = [found.rise()]
    said = [
        f"from {_value(change['from'])} to {_value(change['to'])} by {signed(change['mean'])} (90% interval "
        f"{interval(change[['lower', 'upper']].to_numpy(float))})"
        for change in changes
    ]
    treatment = found.attrs["feature"]
    return (
        f"The curve of {treatment} is its effect, as far as the causal graph is right: the mean of {target} if "
        f"{treatment} were set to the same value (over {found.attrs['rows']} rows). It changes "
        f"{listed(said, len(said))}."
    )


def mediation_table(found: Any) -> pd.DataFrame:
    """Return the summary of direct and indirect effects, with the names of columns of the effect."""
    return found.summary(0.9).set_axis(["mean", "sd", "lower", "upper"], axis=1)


def mediation(found: Any, target: str) -> str:
    """Say how the effect of a treatment divides into a direct and an indirect part, with intervals."""
    attrs, table = found.dataset.attrs, mediation_table(found)
    told = {
        name: f"{write(row['mean'])} (90% interval {interval(row[['lower', 'upper']].to_numpy(float))})"
        for name, row in table.iterrows()
        for write in [short if name == "proportion_mediated" else signed]
    }
    treatment, mediators = attrs["treatment_name"], listed(attrs["mediators"], len(attrs["mediators"]))
    low, high = (_value(_number(label)) for label in attrs["at"])
    share = f"The proportion mediated is {told['proportion_mediated']}."
    if table["lower"]["total"] <= 0.0 <= table["upper"]["total"]:
        share = "The proportion mediated is not shown, because the total effect may be 0."
    return (
        f"From {low} to {high}, {treatment} changes the mean of {target} by {told['total']} in total. With {mediators} "
        f"as at {low}, it changes by {told['natural_direct']}: the natural direct effect. With only {mediators} as at "
        f"{high}, it changes by {told['natural_indirect']}: the natural indirect effect. {share} These numbers come "
        f"from regressions of their own ({'; '.join(attrs['regressions'])}), and assume that the noise of these "
        "variables is independent."
    )


def counterfactual(
    table: pd.DataFrame, treatment: str, value: object, target: str, known: Float[np.ndarray, " n"]
) -> str:
    """Say what the target of the explained rows would have been with another value of the treatment.

    `known` are the values of the treatment in the data.
    """
    changes = table["mean"] - table["observed"]
    clear = int(((table["lower"] > table["observed"]) | (table["upper"] < table["observed"])).sum())
    said = (
        f"If {treatment} had been {_value(value)}, {target} of the {len(table)} explained rows would have changed by "
        f"{signed(changes.min())} to {signed(changes.max())}, on average by {signed(changes.mean())}. For {clear} of "
        "them the 90% interval of the change excludes 0. Each row keeps its noise. counterfactual.csv has the value "
        "of each row with its interval."
    )
    low, high = known.min(), known.max()
    if isinstance(value, str | bool) or low <= value <= high:  # type: ignore[operator]
        return said
    return f"{said} In the data {treatment} is from {short(low)} to {short(high)}: elsewhere the prior decides."


def _number(label: str) -> float | str:
    try:
        return float(label)
    except ValueError:
        return label


def _value(value: object) -> str:
    return short(value) if isinstance(value, float) else str(value)


def today() -> str:
    """Return the date of a report."""
    date = datetime.date.today()
    return f"{date.day} {date:%B %Y}"


def versions() -> dict[str, str]:
    """Return the versions of the packages that matter."""
    return distribution.versions("numpyro", "jax", "arviz", "numpy", "xarray")


def recorded(explanation: Explanation) -> dict[str, str]:
    """Return the facts that an explanation records about itself, as far as they are short."""
    return {
        str(name).replace("_", " "): f"{value:.6g}" if isinstance(value, float) else str(value)
        for name, value in explanation.attrs.items()
        if name not in ("levels", "study", "data", "versions") and isinstance(value, (str, int, float, bool))
    }
