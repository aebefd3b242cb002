"""Explain a fit draw by draw, thinned evenly."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
import xarray as xr

from kpp.api import explain
from kpp.explanations import Explanation
from kpp.functions import RKHSFunction
from kpp.inference import AbstractModel, Fit
from kpp.kernels import AbstractKernel
from kpp.posteriors import GPPosterior
from kpp.priors import prior_sites, substitute
from kpp.study.build import ExplainerPlan
from kpp.study.config import Rows
from kpp.tables import Schema
from kpp.typing import RngKey

__all__ = ["explain_fit", "rehearse", "thinned_draws", "waterfall_positions"]


def thinned_draws(num_chains: int, num_draws: int, max_draws: int) -> np.ndarray:
    """Choose which draws of each chain to explain.

    Args:
        num_chains: The number of chains.
        num_draws: The number of draws in each.
        max_draws: At most so many in all; every chain keeps at least one.

    Returns:
        Positions within a chain, evenly spaced from the first draw to the last, the same for all chains.
    """
    kept = max(1, min(num_draws, max_draws // num_chains))
    return np.linspace(0, num_draws - 1, kept).round().astype(int)


def rehearse(rng_key: RngKey, model: AbstractModel, points: np.ndarray, schema: Schema, plan: ExplainerPlan) -> None:
    """Explain a tiny function of the model's kernel, to learn before the fit what the explainer would say after it.

    Some ways to explain refuse kernels that don't factorise, and options may have unfit values. Models without a field
    `kernel` are not rehearsed.

    Args:
        rng_key: A JAX random key.
        model: The model, with names of features resolved.
        points: The data, of shape (n, d) in the model's units.
        schema: The names of their columns.
        plan: The explainer and its options.

    Raises:
        TypeError: If the explainer can't work on the kernel, or lacks an option.
        ValueError: If an option has an unfit value.
    """
    kernel = getattr(model, "kernel", None)
    if not plan.of_function or not isinstance(kernel, AbstractKernel):
        return
    priors = prior_sites("kernel", kernel)
    draws = {site: prior.sample(jax.random.fold_in(rng_key, i)) for i, (site, prior) in enumerate(priors.items())}
    few = points[:2]
    function = RKHSFunction(substitute("kernel", kernel, draws), few, np.ones(len(few)))
    options = {**plan.options, **({} if plan.background is None else {"background": few})}
    explain(_Rehearsal(schema, function), few[:1], explainer=plan.name, rng_key=rng_key, **options)


def explain_fit(
    rng_key: RngKey,
    fit: Fit,
    x: Any,
    plan: ExplainerPlan,
    background: Any,
    *,
    max_draws: int,
    progress: bool,
) -> Explanation:
    """Explain a fit at some points.

    Args:
        rng_key: A JAX random key, for explainers that sample.
        fit: The fit.
        x: The points, a data frame in the model's units.
        plan: The explainer and its options.
        background: The background, a data frame in the model's units, or None where none is taken.
        max_draws: At most so many posterior draws are explained.
        progress: Whether an explainer that has a progress bar shows it.

    Returns:
        The explanation in the model's units; ``draw`` names the draws that were kept.
    """
    options = {**plan.options, **({} if background is None else {"background": background})}
    if plan.shows_progress:
        options.setdefault("progress", progress)
    kept = thinned_draws(fit.num_chains, fit.num_draws, max_draws)
    thinned = dataclasses.replace(fit, draws={site: values[:, kept] for site, values in fit.draws.items()})

    explanation = explain(thinned, x, explainer=plan.name, rng_key=rng_key, **options)
    drawn = "draw" in explanation.dataset.dims
    return Explanation(explanation.dataset.assign_coords(draw=kept)) if drawn else explanation


@dataclasses.dataclass(frozen=True)
class _Rehearsal:
    """As much of a `Fit` as an explainer may ask of one, for a function that nothing was fitted to."""

    schema: Schema
    tiny: RKHSFunction

    def function(self) -> RKHSFunction:
        return self.tiny

    def function_posterior(self, *, at: str = "draws") -> GPPosterior:
        """Return the prior's covariance around the function."""
        return GPPosterior(self.tiny, jnp.zeros((self.tiny.num_points, 0)))

    def predict(self, x: Any) -> xr.Dataset:
        probability = scipy.special.expit(np.asarray(self.tiny(np.asarray(x))))
        return xr.Dataset({"probability": (("chain", "draw", "instance"), probability[None, None])})


def waterfall_positions(rows: Rows, explanation: Explanation) -> list[int]:
    """Choose the explained rows that get a waterfall plot, in the order of their predictions.

    Args:
        rows: So many, spread evenly from the lowest to the highest prediction; a list of row numbers; or all.
        explanation: The explanation; its instances are row numbers.

    Returns:
        Positions among the explained rows.
    """
    predictions = explanation.mean().predictions
    ranked = predictions.isel(output=-1) if "output" in predictions.dims else predictions
    order = np.argsort(ranked.values, kind="stable")
    instances = explanation.dataset.coords["instance"].values
    if isinstance(rows, tuple):
        return [int(position) for position in order if instances[position] in rows]
    if rows == "all" or rows >= order.size:
        return order.tolist()
    if rows == 1:
        return [int(order[order.size // 2])]
    return order[np.linspace(0, order.size - 1, rows).round().astype(int)].tolist()
