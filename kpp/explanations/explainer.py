"""The interface of explainers, and a base for explainers of points whose inputs are read for them."""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Float

from kpp.explanations.explanation import Explanation
from kpp.explanations.inputs import Inputs
from kpp.explanations.predictors import Requirement
from kpp.modules import AbstractModule
from kpp.typing import AnyArray, RngKey

__all__ = ["AbstractExplainer", "AbstractPointsExplainer"]


class AbstractExplainer(AbstractModule):
    """A method that computes how much each feature contributes to a prediction.

    A subclass is final, has its options as fields, and defines `explain`. It declares two class attributes:

    * ``requires``: what it needs of the predictor. "rkhs_function" is a `kpp.RKHSFunction` (with or without draws);
      "probabilities" a function from (p, d) to probabilities (p,) or (p, classes); "callable" any function from (p, d)
      to (p,) or (p, outputs), perhaps led by draws; "pairs" an `RKHSFunction` on pairs of points (p, 2, d).
    * ``additive``: whether base value plus contributions equal the prediction. Only then is additivity tested.

    An explainer that values coalitions has a field ``value_function``, for which `kpp.explain` takes a registered name.
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


class AbstractPointsExplainer(AbstractExplainer):
    """An explainer of points (p, d), to which users' inputs come read and checked.

    A subclass defines `explain_inputs` in place of `explain`, and has a field `groups`. Its background is the field
    ``background``, its own or that of its value function, if there is one.
    """

    @abstractmethod
    def explain_inputs(self, inputs: Inputs, *, rng_key: RngKey | None = None) -> Explanation:
        """Explain predictions; the laws are those of `explain`.

        Args:
            inputs: The predictor, points, players and background.
            rng_key: A JAX random key, for explainers that sample.

        Returns:
            The explanation, best built by `Inputs.explanation`.
        """

    def explain(self, predictor: Any, x: Any, *, rng_key: RngKey | None = None) -> Explanation:
        """Explain the predictions at p points.

        Args:
            predictor: A `kpp.Fit`, a `kpp.RKHSFunction`, or a `kpp.GPPosterior`; an explainer that requires a
                "callable" takes any function from points to predictions and a fitted estimator, too.
            x: The points to explain, (p, d), or a data frame.
            rng_key: A JAX random key, for explainers that sample.

        Returns:
            The explanation. Its attributes record the options and how the values were found.

        Raises:
            TypeError: If the predictor is not what the explainer requires, or an explainer that samples gets no key.
            ValueError: If `x`, or an option, does not fit the predictor.
        """
        return self.explain_inputs(self.read_inputs(predictor, x), rng_key=rng_key)

    def read_inputs(self, predictor: Any, x: Any) -> Inputs:
        """Read a predictor and points for this explainer."""
        groups = getattr(self, "groups", None)
        return Inputs.read(predictor, x, self.requires, background=self.reference_points, groups=groups)

    @property
    def reference_points(self) -> Float[AnyArray, "m d"] | None:
        """The background of the explainer or of its value function, (m, d), or None."""
        owner = self if hasattr(self, "background") else getattr(self, "value_function", None)
        return getattr(owner, "background", None)
