"""The probability that a fitted classifier predicts, as a function with the draws of the fit."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import ArrayLike, Float

from kpp import Fit
from kpp.explanations.toolkit import is_fit
from kpp.typing import AnyArray


class ProbabilityOfDraws:
    """The probabilities of a fitted classifier, with one output per draw (chain, draw)."""

    def __init__(self, fit: object, draws: tuple[int, ...]) -> None:
        if not is_fit(fit):
            raise TypeError(
                "`scale` 'probability' needs a kpp.Fit of a classifier, whose `predict` gives a probability for each "
                f"draw; `predictor` is a {type(fit).__name__}"
            )
        self.fit, self.draws = _without_bar(fit), draws

    def __call__(self, x: Float[AnyArray, "n d"]) -> Float[np.ndarray, "n draws"]:
        """Return the probabilities at points (n, d)."""
        predicted = self.fit.predict(np.asarray(x))
        if "probability" not in predicted:
            raise TypeError(f"`scale` 'probability' needs a classifier; `predictor` predicts {list(predicted)}")
        return predicted["probability"].transpose("instance", ...).values.reshape(len(x), -1)

    def lead_with_draws(self, array: ArrayLike) -> np.ndarray:
        """Return an array (..., draws) as (chain, draw, ...)."""
        array = np.moveaxis(np.asarray(array), -1, 0)
        return array.reshape((*self.draws, *array.shape[1:]))


def _without_bar(fit: object) -> Any:
    """Return a fit that predicts without a progress bar, because it is called many times."""
    if not isinstance(fit, Fit):
        return fit
    inference = dataclasses.replace(fit.inference, progress=False)  # type: ignore[call-arg]  # every one has the field
    return dataclasses.replace(fit, inference=inference)
