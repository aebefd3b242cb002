"""The explainer "bayes-shap"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float
from scipy.special import comb

from kpp import AbstractExplainer
from kpp.explanations import Inputs
from kpp.explanations.toolkit import describe_key, freeze_groups
from kpp.foundation.validation import count, one_of
from kpp.runtime.memory import check_count
from kpp.typing import AnyArray, RngKey
from kpp_surrogates.converters import as_background, required_key
from kpp_surrogates.example_functions import function_with_draws, points, product, two_outputs
from kpp_surrogates.local_linear import AbstractLocalLinear, LinearModels, LocalProblem, fit_posterior
from kpp_surrogates.perturbation import Coalitions


class BayesSHAP(AbstractLocalLinear):
    r"""The posterior of a Bayesian linear regression on coalitions, whose coefficients estimate Shapley values.

    A coalition of features keeps the values of the point, and all other features take those of one random row of the
    background. With rows :math:`X = [1, Z]`, z being 1 for the features that are present, coefficient j has a Student
    law,

    .. math:: V = (X^\top \Pi X + I)^{-1}, \quad \hat\beta = V X^\top \Pi y, \quad
        s^2 = \frac{r^\top \Pi r + \hat\beta^\top \hat\beta}{N}, \quad \beta_j \sim t_N(\hat\beta_j, s^2 V_{jj}),

    r being the residuals. Its mean is the contribution, and its variance is the variance of the explanation. The
    targets y are the predictions minus their mean over the background, so that a constant added to the function changes
    nothing. That mean is the base value of Shapley values; base value plus contributions equal the prediction only
    approximately.

    Args:
        background: The background points, (m, d).
        num_perturbations: N, the number of coalitions for each point, and of evaluations of the function for it.
        coalitions: "shapley" draws coalitions by the Shapley kernel, with equal weights. "uniform" draws all coalitions
            with equal probability and weights them by the kernel, with 1 for the empty and the full one, as first
            published: the sum of the weights is so small that the prior dominates, and the intervals are far too
            narrow.
        groups: Features that form one player: a mapping from the name of a player to names or positions of features.
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

    def __check_init__(self) -> None:
        count(self.num_perturbations, "num_perturbations", 3)
        check_count(self.num_perturbations, "num_perturbations", np.shape(self.background)[-1])
        one_of(self.coalitions, "coalitions", ("shapley", "uniform"))

    def local_problem(self, inputs: Inputs, rng_key: RngKey | None) -> LocalProblem:
        """Return random coalitions and the Bayesian regression on them."""
        rng_key = required_key(rng_key, "bayes-shap")
        base = inputs.mean_predictions()

        def fit(features: Float[np.ndarray, "p n g"], targets: Float[np.ndarray, "p n r"]) -> LinearModels:
            is_uniform = self.coalitions == "uniform"
            weights = _kernel_weights(features) if is_uniform else np.ones(features.shape[:2], features.dtype)
            return fit_posterior(features, targets, weights, base)

        record = {"explainer": "bayes-shap", "coalitions_drawn": self.coalitions, "rng_key": describe_key(rng_key)}
        coalitions = Coalitions(rng_key, np.asarray(inputs.background), inputs.players, self.coalitions)
        return LocalProblem(coalitions.sample, fit, record, base)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
        background, x = points(rng_key)
        yield cls(background, num_perturbations=40), two_outputs, x
        yield cls(background, num_perturbations=40, groups={"pair": [0, 2]}, coalitions="uniform"), product, x
        yield cls(background, num_perturbations=40), function_with_draws(background), x


def _kernel_weights(features: Float[np.ndarray, "p n g"]) -> Float[np.ndarray, "p n"]:
    """Return the Shapley kernel, but 1 for the empty and the full coalition, for which it is infinite."""
    num_players = features.shape[2]
    sizes = np.arange(1, num_players)  # of proper coalitions; Lundberg and Lee 2017, theorem 2
    weights = np.ones(num_players + 1, dtype=features.dtype)
    weights[1:-1] = (num_players - 1) / (comb(num_players, sizes) * sizes * (num_players - sizes))
    return weights[features.sum(axis=2).astype(int)]
