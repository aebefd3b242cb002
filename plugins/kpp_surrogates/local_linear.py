"""The common part of "lime", "bayes-lime" and "bayes-shap": linear models of the predictions around each point."""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from kpp import Explanation
from kpp.explanations import AbstractPointsExplainer, Inputs
from kpp.runtime.batching import even_size, map_blocks, progress_bar
from kpp.typing import AnyArray, RngKey
from kpp_surrogates.perturbation import Perturbations
from kpp_surrogates.weighted_regression import bayesian_regression

# The largest number of entries of the perturbed rows, or of their predictions, in a block.
_MAX_ENTRIES = 2**22


class LinearModels(NamedTuple):
    """One linear model of each target around each point."""

    intercepts: Float[AnyArray, "p r"]
    coefficients: Float[AnyArray, "p g r"]
    variance: Float[AnyArray, "p g r"] | None  # of the coefficients; None without a posterior


class LocalProblem(NamedTuple):
    """The perturbations of points, a number of each, and the regression of predictions on their features."""

    sample: Callable[[Float[np.ndarray, "b d"], int], Perturbations]
    fit: Callable[[Float[np.ndarray, "b n g"], Float[np.ndarray, "b n r"]], LinearModels]
    record: dict[str, Any]  # the name of the explainer and its options, for the attributes of the explanation
    base: Float[np.ndarray, " r"] | None = None  # the base value of each target; None if it is the intercept


class _Fields:
    """The fields that final classes declare, each in its own order."""

    num_perturbations: eqx.AbstractVar[int]
    progress: eqx.AbstractVar[bool]


class AbstractLocalLinear(_Fields, AbstractPointsExplainer):
    """An explainer by the coefficients of a linear model around each point, which do not add up to the prediction."""

    requires: ClassVar[Literal["callable"]] = "callable"
    additive: ClassVar = False

    @abstractmethod
    def local_problem(self, inputs: Inputs, rng_key: RngKey | None) -> LocalProblem:
        """Return the perturbations around the points and the regression; raise TypeError if `rng_key` is None."""

    def explain_inputs(self, inputs: Inputs, *, rng_key: RngKey | None = None) -> Explanation:
        """Fit a linear model around each point, in blocks of points."""
        problem = self.local_problem(inputs, rng_key)

        def fit_block(points: Float[np.ndarray, "b d"]) -> LinearModels:
            perturbations = problem.sample(points, self.num_perturbations)
            return problem.fit(perturbations.features, inputs.predict(perturbations.rows))

        num_points, num_features = inputs.rows.shape
        entries = self.num_perturbations * max(num_features, inputs.num_targets)
        size = even_size(num_points, _MAX_ENTRIES // entries)
        label = f"explain by {problem.record['explainer']}"
        with progress_bar(math.ceil(num_points / size), label, show=self.progress) as bar:
            models = map_blocks(fit_block, inputs.rows, size, bar=bar)
        base = models.intercepts if problem.base is None else problem.base
        named = {"values": models.coefficients, "base_values": base, "variance": models.variance}
        arrays: dict[str, Any] = {
            name: None if value is None else inputs.unfold(value) for name, value in named.items()
        }
        return inputs.explanation({"perturbations": self.num_perturbations, **problem.record}, **arrays)


def fit_posterior(
    features: Float[np.ndarray, "p n g"],
    targets: Float[np.ndarray, "p n r"],
    weights: Float[np.ndarray, "p n"],
    base: Float[np.ndarray, " r"],
) -> LinearModels:
    """Return the posterior of weighted Bayesian regressions of the targets minus their base values."""
    posterior = bayesian_regression(features, weights, targets - base)
    return LinearModels(posterior.mean[:, 0] + base[None], posterior.mean[:, 1:], posterior.variance[:, 1:])
