"""The explainer "bayes-shap"."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Float
from scipy.special import comb

from kpp import AbstractExplainer, Explanation
from kpp.explanations import freeze_groups
from kpp.typing import AnyArray, RngKey
from kpp_surrogates.example_functions import function_with_draws, points, product, two_outputs
from kpp_surrogates.fitting import LinearModels, fit_in_blocks
from kpp_surrogates.inputs import (
    Task,
    as_background,
    check_choice,
    check_count,
    record_key,
    required_key,
)
from kpp_surrogates.perturbation import Coalitions
from kpp_surrogates.weighted_regression import bayesian_regression

__all__ = ["BayesSHAP"]


class BayesSHAP(AbstractExplainer):
    r"""The posterior of a Bayesian linear regression on coalitions, whose coefficients estimate Shapley values.

    A coalition of features keeps the values of the point, and all other features take those of one random row of the
    background. With rows :math:`X = [1, Z]`, z being 1 for the features that are present, coefficient j has a Student
    law,

    .. math:: V = (X^\top \Pi X + I)^{-1}, \quad \hat\beta = V X^\top \Pi y, \quad
        s^2 = \frac{r^\top \Pi r + \hat\beta^\top \hat\beta}{N}, \quad \beta_j \sim t_N(\hat\beta_j, s^2 V_{jj}),

    r being the residuals. Its mean is the contribution and its variance that of the explanation. The targets y are the
    predictions minus their mean over the background, so that a constant added to the function changes nothing. That
    mean is the base value, from which Shapley values count; contributions add up to the prediction only roughly.

    Args:
        background: The background points, (m, d).
        num_perturbations: How many coalitions each point has, N; as often the function is called for it.
        coalitions: "shapley" draws coalitions by the Shapley kernel, and weighs them equally. "uniform" draws all alike
            and weighs them by the kernel, with 1 for the empty and the full one, as first published: the weights sum to
            so little that the prior dominates, and the intervals are far too narrow.
        groups: Features that play as one: a mapping from the name of a player to names or positions of features.
        progress: Whether to show a progress bar.

    References:
        Slack, Hilgard, Singh and Lakkaraju, Reliable post hoc explanations: modeling uncertainty in explainability,
        2021.
    """

    background: Float[AnyArray, "m d"] = eqx.field(converter=as_background)
    num_perturbations: int = eqx.field(static=True, default=200)
    coalitions: str = eqx.field(static=True, default="shapley")
    groups: Any = eqx.field(static=True, default=None, converter=freeze_groups)
    progress: bool = eqx.field(static=True, default=True)

    requires: ClassVar = "callable"
    additive: ClassVar = False

    def __check_init__(self) -> None:
        """Refuse options out of range."""
        check_count("num_perturbations", self.num_perturbations, 3)
        check_choice("coalitions", self.coalitions, ("shapley", "uniform"))

    def explain(self, predictor: Any, x: Any, *, rng_key: RngKey | None = None) -> Explanation:
        """Explain the predictions at p points.

        Args:
            predictor: A function, an estimator of scikit-learn or XGBoost, a `kpp.Fit` or a `kpp.RKHSFunction`.
            x: The points to explain, (p, d), or a data frame.
            rng_key: A JAX random key.

        Returns:
            The explanation, with the variance of each contribution.

        Raises:
            TypeError: If the predictor is none of these, or there is no key.
            ValueError: If `x`, or an option, is not as said.
        """
        rng_key = required_key(rng_key, "bayes-shap")
        task = Task.read(predictor, x, self.background, self.groups)
        base = task.base()
        models = fit_in_blocks(
            task,
            Coalitions(rng_key, task.background, task.players, self.coalitions).sample,
            functools.partial(_fit, base=base, weigh=_kernel_weights if self.coalitions == "uniform" else _ones),
            self.num_perturbations,
            label="explain by bayes-shap",
            progress=self.progress,
        )
        record = {
            "explainer": "bayes-shap",
            "perturbations": self.num_perturbations,
            "coalitions_drawn": self.coalitions,
            "rng_key": record_key(rng_key),
        }
        arrays = models.as_arrays(task) | {"base_values": task.unfold(base)}
        return task.explanation(record, **arrays)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
        """Yield explainers with a function and points: outputs, groups and the published weights, draws."""
        background, x = points(rng_key)
        yield cls(background, num_perturbations=40), two_outputs, x
        yield cls(background, num_perturbations=40, groups={"pair": [0, 2]}, coalitions="uniform"), product, x
        yield cls(background, num_perturbations=40), function_with_draws(background), x


def _fit(features: Any, targets: Any, *, base: Any, weigh: Any) -> LinearModels:
    posterior = bayesian_regression(features, weigh(features), targets - base)
    return LinearModels(posterior.mean[:, 0] + base[None], posterior.mean[:, 1:], posterior.variance[:, 1:])


def _ones(features: Float[np.ndarray, "p n g"]) -> Float[np.ndarray, "p n"]:
    return np.ones(features.shape[:2], dtype=features.dtype)


def _kernel_weights(features: Float[np.ndarray, "p n g"]) -> Float[np.ndarray, "p n"]:
    """Return the Shapley kernel, and 1 at both ends, where it is infinite."""
    num_players = features.shape[2]
    sizes = np.arange(1, num_players)
    weights = np.ones(num_players + 1, dtype=features.dtype)
    weights[1:-1] = (num_players - 1) / (comb(num_players, sizes) * sizes * (num_players - sizes))
    return weights[features.sum(axis=2).astype(int)]
