"""The interface of explainers."""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

from abc import abstractmethod
from typing import Any, Literal

import equinox as eqx

from kpp.explanations.explanation import Explanation
from kpp.modules import AbstractModule
from kpp.typing import RngKey

#: What an explainer can ask of the predictor; `kpp.explanations.resolve` hands over exactly that.
Requirement = Literal["rkhs_function", "probabilities", "callable", "pairs"]


class AbstractExplainer(AbstractModule):
    """A method that says how much each feature contributes to a prediction.

    A subclass is final, has its options as fields, and defines `explain`. It declares two class attributes:

    * ``requires``: what it needs of the predictor. "rkhs_function" is a `kpp.RKHSFunction` (with or without draws);
      "probabilities" a function from (p, d) to probabilities (p,) or (p, classes); "callable" any function from (p, d)
      to (p,) or (p, outputs), perhaps led by draws; "pairs" an `RKHSFunction` on pairs of points (p, 2, d).
    * ``additive``: whether base value plus contributions equal the prediction. Only then is additivity tested.

    An explainer that values coalitions has a field ``value_function``; `kpp.explain` looks a name given for it up.
    """

    requires: eqx.AbstractClassVar[Requirement]
    additive: eqx.AbstractClassVar[bool]

    @abstractmethod
    def explain(self, predictor: Any, x: Any, *, rng_key: RngKey | None = None) -> Explanation:
        r"""Explain the predictions at p points.

        Laws: the rows of `x` are explained independently of each other, up to the randomness of `rng_key`; the same key
        gives the same explanation; and if ``additive``, for every instance, draw and output,

        .. math:: \mathrm{base} + \sum_{j=1}^d \phi_j = f(x).

        Args:
            predictor: A `kpp.Fit`, or what ``requires`` names. Begin with `kpp.explanations.resolve`, which reads both.
            x: The points to explain, (p, d) or a data frame.
            rng_key: A JAX random key; needed only by explainers that sample.

        Returns:
            The explanation, built by `Explanation.create`.

        Raises:
            TypeError: If the predictor is not what ``requires`` names.
            ValueError: If `x` does not fit the predictor.
        """
