"""The covariance of Shapley values under the posterior of a Gaussian process."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from kpp import GPPosterior
from kpp.batching import in_blocks
from kpp.games import shapley_covariance
from kpp.threads import num_cores
from kpp.typing import AnyArray
from kpp_rkhs_shap.target import Target


def posterior_of(predictor: Any, at: str) -> GPPosterior:
    """Return the Gaussian posterior of a predictor.

    Args:
        predictor: A `kpp.Fit`, or a `kpp.GPPosterior`, which is returned unchanged.
        at: For a fit, "mean" for the posterior at the mean of its draws, or "draws" for one per draw.

    Raises:
        TypeError: If the predictor does not have a Gaussian posterior.
    """
    if isinstance(predictor, GPPosterior):
        return predictor
    if not hasattr(predictor, "function_posterior"):
        raise TypeError(
            "`covariance` needs the posterior of a Gaussian process: explain a kpp.Fit of one, or a kpp.GPPosterior; "
            f"`predictor` is a {type(predictor).__name__}"
        )
    return predictor.function_posterior(at=at)


def covariance_of_values(
    value_function: Any,
    posterior: GPPosterior,
    x: Float[AnyArray, "p d"],
    target: Target,
    *,
    joint: bool,
    draws: tuple[int, ...],
    instances_at_once: int,
    progress: bool,
) -> Float[np.ndarray, "..."]:
    """Compute the covariance of the Shapley values at each point, or of all points together.

    Args:
        value_function: The game.
        posterior: The posterior; without draws its covariance is used for each draw.
        x: The points, (p, d).
        target: The values, g of them.
        joint: Whether the covariances between points are computed, too.
        draws: The shape of the draws of the values.
        instances_at_once: The largest number of points in a block, unless all points are taken together.
        progress: Whether to show a bar.

    Returns:
        The covariances, (*draws, p, g, g), or (*draws, p, p, g, g).
    """
    if joint:
        covariances = np.asarray(shapley_covariance(value_function, posterior, x, x, **target.options()))
    else:
        covariances = in_blocks(
            lambda process, rows: shapley_covariance(value_function, process, rows, **target.options()),
            posterior,
            x,
            instances_at_once=instances_at_once,
            label="covariance",
            progress=progress,
            threads=num_cores(),
        )
    return np.broadcast_to(covariances, (*draws, *covariances.shape[len(posterior.batch_shape) :]))
