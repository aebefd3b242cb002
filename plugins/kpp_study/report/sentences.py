"""Sentences about an explanation, for the reports of studies and of explanations alone."""

from __future__ import annotations

import datetime

import numpy as np

from kpp.explanations import Explanation

# What a report says about the attribute ``uncertainty`` of an explanation.
_WHAT_VARIES = {
    "full": " The draws vary with all that the model does not know: its hyperparameters, if they have priors, and its "
    "function given them.",
    "function only": " The draws vary with the function only, not with the hyperparameters, which are fixed at one "
    "value, so the intervals may be too narrow.",
    "hyperparameters only": " The draws vary with the hyperparameters only, not with the function given them, so the "
    "intervals are too narrow.",
    "part of the function only": " The draws vary with the function's values at the inducing points only, not with the "
    "rest of the function nor with the hyperparameters, so the intervals are too narrow.",
    "posterior mean only": " These are the contributions of the posterior mean alone: how uncertain they are is not "
    "part of this result.",
}

_NEUTRAL = (
    "A contribution says how far a feature moves the prediction from the base value, what is predicted when no feature "
    "is known."
)
_NOT_CAUSAL = (
    "Contributions describe the model. They are not causal effects: they do not say what happens if a feature is "
    "changed."
)
# What a contribution means, by the beginning of the name of the value function.
_WHAT_IS_VARIED = {
    "interventional": "A contribution says how far the prediction moves from the base value, the mean prediction of "
    "the background rows, when the feature takes its value in this row. Features that have not been set yet keep the "
    "values of background rows, whatever the others are, so correlated features are combined in ways that nobody may "
    "have.",
    "baseline": "A contribution says how far the prediction moves from the base value, the prediction of the baseline, "
    "when the feature takes its value in this row. Features that have not been set yet keep the values of the "
    "baseline, whatever the others are, so correlated features are combined in ways that nobody may have.",
    "observational": "A contribution says how far knowing a feature moves the prediction from the base value, what is "
    "predicted when no feature is known. What is unknown is averaged over its distribution given the known features, "
    "so a feature that the model does not use has a contribution if it is correlated with others.",
    "causal": "A contribution says how far setting a feature by intervention moves the prediction from the base value. "
    "The other features follow from it as the causal graph says; contributions are causal only as far as the graph is "
    "right.",
}


def explained(explanation: Explanation, *, rows: int | None = None, available: int | None = None) -> str:
    """Say what was explained and how accurately.

    Args:
        explanation: The explanation.
        rows: The number of rows from which the explained ones were chosen, if known.
        available: The number of posterior draws from which those of the explanation were chosen, if known.

    Returns:
        A few sentences.
    """
    attrs = explanation.attrs
    count = str(len(explanation)) if rows is None else f"{len(explanation)} of {rows}"
    verb = "row was" if count == "1" else "rows were"
    how = f" by {attrs['explainer']}" if "explainer" in attrs else ""
    if "value_function" in attrs:
        how += f" with the {attrs['value_function']} value function"
    if not attrs.get("exact", True):
        how += f", estimated from {attrs['coalitions']} coalitions" if "coalitions" in attrs else ", estimated"
    return (
        f"{count} {verb} explained{how}. {_meaning(attrs.get('value_function', ''))}{_draws(explanation, available)}"
        f"{_adds(explanation)}"
    )


def today() -> str:
    """Return the date of a report."""
    date = datetime.date.today()
    return f"{date.day} {date:%B %Y}"


def recorded(explanation: Explanation) -> dict[str, str]:
    """Return the facts that an explanation records about itself, as far as they are short."""
    return {
        str(name).replace("_", " "): f"{value:.6g}" if isinstance(value, float) else str(value)
        for name, value in explanation.attrs.items()
        if name not in ("levels", "study", "data", "versions") and isinstance(value, (str, int, float, bool))
    }


def _meaning(value_function: str) -> str:
    """Say what is varied, and what contributions are not."""
    varied = next((text for name, text in _WHAT_IS_VARIED.items() if value_function.startswith(name)), _NEUTRAL)
    return varied if value_function.startswith("causal") else f"{varied} {_NOT_CAUSAL}"


def _draws(explanation: Explanation, available: int | None) -> str:
    sizes = explanation.dataset.sizes
    used = sizes.get("chain", 1) * sizes.get("draw", 1)
    thinned = f" (of {available}, evenly thinned)" if available is not None and used < available else ""
    draws = f" Every contribution is a posterior of {used} draws{thinned}." if used > 1 else ""
    if explanation.variance is not None:
        draws += " Every contribution has a Gaussian distribution" + (" in each draw." if used > 1 else ".")
    return draws + _WHAT_VARIES.get(explanation.attrs.get("uncertainty", ""), "")


def _adds(explanation: Explanation) -> str:
    error = float(explanation.additivity_error().max())
    # Relative error 1e-6: larger than the rounding errors of an explainer that is additive by construction.
    if error > 1e-6 * max(1.0, float(np.abs(explanation.predictions).max())):
        return ""
    return " For every row and draw, base value and contributions add up to the prediction."
