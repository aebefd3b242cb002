"""The estimators of the experiments on interventions, all fitted in the same way to one pair of data sets.

Treatments, covariates, mediators and targets are standardized first; mediators are standardized by both data sets
together. Lengthscales of the mediators' kernel are fixed at the median heuristic (times `--lengthscale-factor`); the
sampling baseline learns the lengthscale of its regression of targets on mediators. All other hyperparameters are at
their joint mode (MAP) under LogNormal priors, or drawn by NUTS.
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
from numpyro import distributions as dist

import kpp
from kpp.inference import AbstractInference, ConvergenceError
from kpp.kernels import RBF, median_heuristic
from kpp_models import IME, IMP, BayesIME, BayesIMP, CausalLink, InterventionData, SamplingEffect
from kpp_optimization import AbstractObjectivePrior, Draws, FitPrior, JointPrior

MODELS = {"sampling": SamplingEffect, "IME": IME, "IMP": IMP, "BayesIME": BayesIME, "BayesIMP": BayesIMP}


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Origin and unit of the treatment and of the target."""

    treatment: tuple[float, float]
    target: tuple[float, float]


class EffectPrior(AbstractObjectivePrior):
    """A prior of the effect in the units of the data, from one in standardized units."""

    prior: FitPrior | JointPrior
    scaling: Scaling

    def moments(self, points):
        """See `AbstractObjectivePrior.moments`."""
        return self.draws(points).moments()

    def draws(self, points):
        """See `AbstractObjectivePrior.draws`."""
        found = self.prior.draws(self._standardized(points))
        center, unit = self.scaling.target
        return Draws(found.log_weights, center + unit * found.means, unit**2 * found.covariances)

    def given(self, points, index, values, noise_variance):
        """See `AbstractObjectivePrior.given`."""
        center, unit = self.scaling.target
        learned = self.prior.given(
            self._standardized(points), index, (values - center) / unit, noise_variance / unit**2
        )
        return self if learned is self.prior else EffectPrior(learned, self.scaling)

    def _standardized(self, points):
        center, unit = self.scaling.treatment
        return (points - center) / unit


def fit_effect(
    name: str,
    adjustment: str,
    first: InterventionData,
    places: np.ndarray,
    targets: np.ndarray,
    inference: AbstractInference,
    *,
    seed: int = 0,
    num_samples: int = 200,
    lengthscale_factor: float = 1.0,
) -> EffectPrior:
    """Fit one of `MODELS` to D1 and D2; draws of kpp.Laplace get importance weights."""
    x, x_scale = standardize(first.treatment)
    pooled, _ = standardize(np.concatenate([first.outcome, places]))
    y, places = np.split(pooled, [first.num_rows])
    t, t_scale = standardize(targets[:, None])
    z = None if first.adjusting is None else standardize(first.adjusting)[0]
    link = CausalLink(
        RBF(dist.LogNormal(np.log(0.5), 1.0)),
        RBF(lengthscale_factor * median_heuristic(pooled)),
        dist.LogNormal(np.log(0.1), 1.5),
        adjustment=adjustment,
        adjusting_kernel=None if z is None else RBF(dist.LogNormal(0.0, 1.0)),
    )
    options = {}
    if name == "sampling":
        options = {"function_kernel": RBF(dist.LogNormal(-0.5, 1.0)), "num_samples": num_samples}
    model = MODELS[name](link, dist.LogNormal(np.log(0.01), 2.0), dist.LogNormal(0.0, 2.0), **options)
    data = InterventionData.create(x, y, z)
    arguments = {"mediators": places, "num_prior_samples": 0}
    try:
        fit = model.fit(jax.random.key(seed), data, t[:, 0], inference=inference, **arguments)
    except ConvergenceError:  # from other starts; a second failure is the caller's
        fit = model.fit(jax.random.key(seed + 10_000), data, t[:, 0], inference=inference, **arguments)
    prior = FitPrior(fit, importance_weights=isinstance(inference, kpp.Laplace))
    return EffectPrior(prior, Scaling(x_scale, t_scale))


def standardize(values) -> tuple[np.ndarray, tuple[float, float]]:
    """Return columns (n, d) with mean 0 and sd 1, and mean and sd of the first."""
    values = np.asarray(values)
    center, unit = values.mean(axis=0), values.std(axis=0)
    return (values - center) / unit, (float(center[0]), float(unit[0]))
