"""Explain a fit draw by draw, thinned evenly, with a progress bar."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np
import xarray as xr
from tqdm import tqdm

from kpp.api import explain
from kpp.explanations import Explanation
from kpp.functions import RKHSFunction
from kpp.inference import AbstractModel, Fit
from kpp.kernels import AbstractKernel
from kpp.priors import prior_sites, substitute
from kpp.study.build import ExplainerPlan
from kpp.study.config import Rows
from kpp.typing import RngKey

__all__ = ["explain_fit", "rehearse", "thinned_draws", "waterfall_positions"]

_BLOCKS = 10


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


def rehearse(rng_key: RngKey, model: AbstractModel, points: np.ndarray, plan: ExplainerPlan) -> None:
    """Explain a tiny function of the model's kernel, to learn before the fit what the explainer would say after it.

    Some ways to explain refuse kernels that don't factorise, and options may have unfit values. Models without a field
    `kernel` are not rehearsed.

    Args:
        rng_key: A JAX random key.
        model: The model, with names of features resolved.
        points: The data, of shape (n, d) in the model's units.
        plan: The explainer and its options.

    Raises:
        TypeError: If the explainer can't work on the kernel, or lacks an option.
        ValueError: If an option has an unfit value.
    """
    kernel = getattr(model, "kernel", None)
    if not plan.by_draw or not isinstance(kernel, AbstractKernel):
        return
    priors = prior_sites("kernel", kernel)
    draws = {site: prior.sample(jax.random.fold_in(rng_key, i)) for i, (site, prior) in enumerate(priors.items())}
    few = points[:2]
    function = RKHSFunction(substitute("kernel", kernel, draws), few, np.ones(len(few)))
    background: dict[str, Any] = {} if plan.background is None else {"background": few}
    explain(function, few[:1], explainer=plan.name, rng_key=rng_key, **plan.options, **background)


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
        progress: Whether to show a progress bar.

    Returns:
        The explanation in the model's units; ``draw`` names the draws that were kept.
    """
    options = {**plan.options, **({} if background is None else {"background": background})}
    kept = thinned_draws(fit.num_chains, fit.num_draws, max_draws)
    thinned = dataclasses.replace(fit, draws={site: values[:, kept] for site, values in fit.draws.items()})

    def run(predictor: Any) -> xr.Dataset:
        return explain(predictor, x, explainer=plan.name, rng_key=rng_key, **options).dataset

    if not plan.by_draw:
        return Explanation(run(thinned))
    function = thinned.function()
    blocks = np.array_split(np.arange(kept.size), min(_BLOCKS, kept.size))
    predictors = [_Block(thinned, _take_draws(function, block)) for block in blocks]
    bar = tqdm(predictors, desc="explain", unit="block", disable=not progress)
    return Explanation(_join([run(predictor) for predictor in bar]).assign_coords(draw=kept))


@dataclasses.dataclass(frozen=True)
class _Block:
    """Some draws of a fit: as much of a `Fit` as `kpp.explain` asks of one."""

    fit: Fit
    part: RKHSFunction

    @property
    def schema(self) -> Any:
        return self.fit.schema

    def function(self) -> RKHSFunction:
        return self.part

    def predict(self, x: Any) -> xr.Dataset:
        return self.fit.predict(x)


def _take_draws(function: RKHSFunction, draws: np.ndarray) -> RKHSFunction:
    """Select draws, the same in each chain; points that differ between draws are selected too."""

    def take(leaf: Any) -> Any:
        return leaf[:, draws] if eqx.is_array(leaf) else leaf

    leading = (*function.batch_shape, function.num_points)
    own_points = all(leaf.shape[:3] == leading for leaf in jax.tree.leaves(function.points))
    return RKHSFunction(
        jax.tree.map(take, function.kernel),
        jax.tree.map(take, function.points) if own_points else function.points,
        take(function.coefficients),
        take(function.intercept),
        (function.batch_shape[0], draws.size),
    )


def _join(parts: list[xr.Dataset]) -> xr.Dataset:
    """Put the draws of several explanations of the same instances one behind the other."""
    first = parts[0]
    shared = [name for name in first.data_vars if "draw" not in first[name].dims]
    whole = xr.concat([part.drop_vars(shared) for part in parts], dim="draw", combine_attrs="override")
    return whole.assign(first[shared].data_vars)


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
