"""`kpp.importance`: how much each feature reduces the expected loss of a predictor, with its uncertainty."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float

from kpp.api import explain
from kpp.data.tables import as_table
from kpp.explanations import Explanation
from kpp.explanations.toolkit import fit_of
from kpp.foundation.arguments import guard_exports
from kpp.games import AbstractValueFunction
from kpp.inspection.reductions.losses import Loss
from kpp.inspection.reductions.reduction import LossReduction
from kpp.inspection.scores import FeatureScores
from kpp.lazy.blocks import is_chunked
from kpp.runtime.random import numpy_generator
from kpp.typing import RngKey

# The smallest number of draws of the rows, all draws of the function together.
_MIN_DRAWS = 2000


def importance(
    predictor: object,
    x: object,
    y: object,
    *,
    loss: Loss = "squared",
    value_function: str | AbstractValueFunction | None = None,
    rng_key: RngKey | None = None,
    **options: object,
) -> FeatureScores:
    r"""Return how much each feature reduces the expected loss: the Shapley values of a game among features (SAGE).

    .. math:: v(S) = E\,\ell\bigl(y, f_\emptyset\bigr) - E\,\ell\bigl(y, f_S(x)\bigr)

    with the value :math:`f_S(x)` of the present features by any game of `kpp.explain`. The importances of all features
    add up to the reduction of the loss by the predictor.

    A Gaussian process is a posterior of functions. Functions drawn from it are not better on the rows that it was
    fitted to than on other rows, as a fitted function is: under the model, a drawn function and the targets have the
    same joint law as the true function and the targets. So the rows may be those of the fit, and the importance of
    noise is 0 in expectation. Any other predictor should get rows that it has not seen.

    Args:
        predictor: The predictor, as for `kpp.explain`; a fit of a classifier is explained by its probabilities.
        x: The rows, (p, d), or a data frame.
        y: The targets of the rows, (p,): numbers, or classes with the loss "log".
        loss: "squared", "absolute", "log" (minus the logarithm of the probability of the class), or a function of y,
            (p,), and predictions, (c, p[, outputs]), that returns losses, (c, p).
        value_function: The registered name of a value function, or an instance; by default "interventional".
        rng_key: A JAX random key, needed if features have more than `num_coalitions` coalitions. By default the key 0
            is taken for draws.
        **options: ``groups`` of features; ``num_draws``, the largest number of draws of a fit, 100;
            ``num_coalitions``, the largest number of coalitions, 4096, beyond which orders of features are sampled;
            and the options of the value function, such as ``background``.

    Returns:
        The measure ``importance``, whose draws hold the uncertainty of the function and, by the Bayesian bootstrap, of
        the rows. A predictor with draws also has ``importance_of_rows``, where only the function varies, and
        ``importance_of_mean``, where only the rows vary. The attributes of the dataset:

        * ``p_values``: of the test that a feature without relation to the targets does not reduce the loss. With draws
          of the whole function it is the posterior probability that the reduction on these rows is not positive, and
          otherwise the p value of the mean reduction at first order, which is 0 for noise. It is missing if draws hold
          only a part of the uncertainty, or if a predictor without draws has seen the rows.
        * ``rows``: "in sample" if the predictor has seen some of the rows, "new", or "not known".
        * ``uncertainty``: what the draws hold of the function; "rows only" for a predictor without draws, and "draws of
          the predictor" for a function that has its own, which are taken to hold all of it.
        * ``standard_errors``: of the importances, if orders were sampled.

    Raises:
        TypeError: As `kpp.explain`.
        ValueError: If rows and targets do not fit each other or the loss, or as `kpp.explain`.

    Example:
        >>> first = lambda rows: rows[:, 0]
        >>> scores = kpp.importance(first, x, x[:, 0], background=x)
        >>> scores.probability_greater("x0", "x1", "importance")
        1.0

    References:
        Covert, Lundberg and Lee, Understanding global feature contributions with additive importance measures, 2020;
        Rubin, The Bayesian bootstrap, 1981.
    """
    x = as_table(x)
    if is_chunked(x):
        raise ValueError("`x` must be in memory, got chunks; take a sample of the rows")
    fit = fit_of(getattr(predictor, "best_estimator_", predictor))
    known = predictor if fit is None else fit
    asked: dict[str, Any] = {"value_function": value_function, "y": y, "loss": loss, **options}
    explanation = explain(known, x, explainer=LossReduction, rng_key=rng_key, **asked)
    return _scores(explanation, jax.random.key(0) if rng_key is None else rng_key)


def _scores(explanation: Explanation, rng_key: RngKey) -> FeatureScores:
    """Return the draws of the means over rows."""
    values = explanation.values
    shape = tuple(values.sizes[dim] for dim in ("chain", "draw")) if explanation.has_draws else (1, 1)
    arrays = _resampled(values.to_numpy().reshape(*shape, *values.shape[-2:]), rng_key)
    if not explanation.has_draws:
        arrays = {"importance": arrays["importance"]}
    coords = {"feature": values.coords["feature"].to_numpy()}
    dims = ("chain", "draw", "feature")
    kept = {name: value for name, value in explanation.attrs.items() if name != "levels"}
    for name in ("p_values", "standard_errors"):
        if name in kept:
            kept[name] = dict(zip(explanation.feature_names, kept[name], strict=True))
    return FeatureScores(xr.Dataset({name: (dims, array) for name, array in arrays.items()}, coords, kept))


def _resampled(values: Float[np.ndarray, "chain draw p g"], rng_key: RngKey) -> dict[str, np.ndarray]:
    """Return draws of means over rows, (chain, draws, g), several of the rows for each draw of the function."""
    num_chains, num_draws, num_rows, num_players = values.shape
    repeats = math.ceil(_MIN_DRAWS / (num_chains * num_draws))
    generator = numpy_generator(rng_key)
    weights = generator.standard_exponential((num_chains, num_draws, repeats, num_rows))
    weights /= weights.sum(axis=-1, keepdims=True)
    of_rows = np.repeat(values.mean(axis=2)[:, :, None], repeats, axis=2)
    found = {
        "importance": weights @ values,
        "importance_of_rows": of_rows,
        "importance_of_mean": weights @ values.mean(axis=(0, 1)),
    }
    return {name: array.reshape(num_chains, -1, num_players) for name, array in found.items()}


guard_exports(globals())
