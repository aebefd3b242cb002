"""An explainer that is called as those of shap are, and whose explanations have intervals."""

from __future__ import annotations

from typing import Any

import kpp
from kpp.typing import RngKey


class Explainer:
    """An explainer with the interface of ``shap.Explainer``: ``Explainer(model, background)(x)``.

    The result is a ``shap.Explanation``, which shap's plots take; its ``lower_bounds`` and ``upper_bounds`` are the
    intervals of the contributions, see `kpp.Explanation.to_shap`.

    Args:
        model: What `kpp.explain` explains: a `kpp.Fit`, a fitted estimator, a function from points to predictions.
        background: The background points, (m, d), or a data frame; by default the training data of a `kpp.Fit`.
        probability: The probability of the intervals.
        **options: Further options of `kpp.explain`. By default ``explainer`` is "rkhs-shap", or "kernel-shap" if the
            model is not an RKHS function and cannot be converted to one.
    """

    def __init__(
        self,
        model: Any,
        background: Any = None,
        *,
        explainer: str | None = None,
        probability: float = 0.9,
        **options: Any,
    ):
        self.model, self.probability = model, probability
        self.options = options | ({} if background is None else {"background": background})
        self.explainer = explainer or ("rkhs-shap" if _is_rkhs_function(model) else "kernel-shap")

    def __call__(self, x: Any, rng_key: RngKey | None = None) -> Any:
        """Explain the rows of x, (p, d) or a data frame; an explainer that samples needs a JAX random key."""
        found = kpp.explain(self.model, x, explainer=self.explainer, rng_key=rng_key, **self.options)
        return found.to_shap(probability=self.probability)


def _is_rkhs_function(model: Any) -> bool:
    """Return whether a model is an RKHS function, has some as draws, or can be converted to one."""
    try:
        kpp.as_rkhs_function(model)
    except (AttributeError, TypeError, ValueError):
        return False
    return True
