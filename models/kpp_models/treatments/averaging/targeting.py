"""How much is gained by treating first the rows with the largest scores."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import xarray as xr

from kpp.foundation.arguments import guard_exports
from kpp.foundation.validation import as_finite_array
from kpp.typing import Numbers, RngKey
from kpp_models.treatments.averaging.averages import row_weights


def rank_weighted_effect(
    rng_key: RngKey, effects: xr.DataArray, scores: Numbers, *, bootstrap: bool = True
) -> xr.Dataset:
    r"""Return how much larger the mean effect is among the rows with the largest scores than in all rows.

    .. math:: \mathrm{TOC}(q) = \mathrm{E}[\tau \mid s \ge s_{1 - q}] - \mathrm{E}[\tau], \qquad
        \mathrm{AUTOC} = \int_0^1 \mathrm{TOC}(q)\, dq, \qquad \mathrm{Qini} = \int_0^1 q\, \mathrm{TOC}(q)\, dq

    :math:`s_{1 - q}` is a quantile of the scores. Scores that say nothing of the effects have the expected value 0.
    Rows with equal scores count as one group.

    Args:
        rng_key: A JAX random key.
        effects: Joint draws of the effects :math:`\tau` of rows, (chain, draw, row), of
            `CausalEffect.contrast(..., by_row=True)`.
        scores: The scores of the rows, (row,), such as their mean effects, a column, or a rule.
        bootstrap: Whether the law of the rows is uncertain, by the Bayesian bootstrap.

    Returns:
        Draws of ``toc``, (chain, draw, share), at shares of .05, .1, ..., 1, of ``autoc`` and ``qini``, (chain, draw).

    Raises:
        ValueError: If draws have other dims, or there is not one finite score for each row.

    References:
        Yadlowsky, Fleming, Shah, Brunskill and Wager, Evaluating treatment prioritization rules via rank-weighted
        average treatment effects, 2025, definitions 1 and 2.
    """
    if effects.dims != ("chain", "draw", "row"):
        raise ValueError(f"`effects` must have dims (chain, draw, row), got {effects.dims}")
    given = np.asarray(as_finite_array(scores, "scores"))
    if given.shape != effects.shape[2:]:
        raise ValueError(f"`scores` must hold a number for each of {effects.sizes['row']} rows, got {given.shape}")
    weights = row_weights(rng_key, effects.shape[:2], jnp.ones(given.shape, bool), bootstrap)
    order = np.argsort(-given, kind="stable")
    starts = np.unique(-given[order], return_index=True)[1]
    loads = np.asarray(weights)[..., order]
    sizes = np.add.reduceat(loads, starts, axis=-1)
    sums = np.add.reduceat(loads * effects.to_numpy()[..., order], starts, axis=-1)
    ends, totals = np.cumsum(sizes, axis=-1), np.cumsum(sums, axis=-1)
    mean, before = totals[..., -1:], totals - sums
    # Within a group q TOC(q) is a line, so that both integrals are exact.
    offsets = (before - sums / sizes * (ends - sizes))[..., 1:]
    grid = np.linspace(0.05, 1.0, 20)
    lines = zip(ends.reshape(-1, len(starts)), totals.reshape(-1, len(starts)), strict=True)
    gains = [np.interp(grid, [0.0, *end], [0.0, *total]) / grid for end, total in lines]
    return xr.Dataset(
        {
            "toc": (("chain", "draw", "share"), np.reshape(gains, (*mean.shape[:2], -1)) - mean),
            "autoc": (("chain", "draw"), (offsets * np.log(ends[..., 1:] / ends[..., :-1])).sum(axis=-1)),
            "qini": (("chain", "draw"), (sizes * (before + sums / 2)).sum(axis=-1) - mean[..., 0] / 2),
        },
        coords={"share": grid},
    )


guard_exports(globals())
