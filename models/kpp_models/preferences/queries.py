r"""Queries to a fitted preference model: single duels, and all pairs of some items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, PyTree
from scipy.special import ndtri

from kpp.foundation.validation import as_points, as_targets, check_same_rows, count, probability
from kpp.gp.toolkit import prior_factor
from kpp.inference import Data, Fit
from kpp.inference.toolkit import Sample
from kpp.kernels.toolkit import PaddedBags
from kpp.preferences import Matches, Rankings
from kpp.runtime.batching import map_blocks
from kpp.typing import AnyArray, Numbers, Points, RngKey
from kpp_models.preferences.many_matches import AbstractPreferenceMachine
from kpp_models.preferences.preference_gp import AbstractPreferenceModel
from kpp_models.preferences.rankings.ranking_gp import RankingGP
from kpp_models.preferences.rankings.ranking_laplace import normal_points

if TYPE_CHECKING:
    import xarray as xr

Items = Numbers | PaddedBags | Matches | Rankings

_BLOCK = 2048  # the number of pairs that are predicted at a time
_NODES, _NODES_A_DRAW = 2000, 16  # the smallest numbers of quantiles of g: in total, and for each draw


def duel(fit: Fit, first: Items, second: Items, *, contexts: Numbers | None = None, level: float = 0.9) -> xr.Dataset:
    r"""Return the probability that one item beats another, with an interval, over all draws.

    The interval is for the probability itself, :math:`s(g(a, b))`: it expresses the uncertainty about the preference
    and the hyperparameters, not the randomness of the match. Its ends are quantiles of the mixture of all draws'
    posteriors, computed from at least 2000 quantiles of g, so that their error is at most 1/2000 in probability. If the
    items are exchanged, every p becomes 1 - p.

    Fits of `kpp_models.PreferenceLogistic` and `PreferenceRidge` give ``mean`` and ``probability`` only.

    Args:
        fit: A fit of a model of preferences.
        first: p items a, (p, d) or a data frame; or p teams, `kpp.kernels.toolkit.PaddedBags` such as
            `kpp.kernels.pad_bags` makes.
        second: Their opponents b, in the same form.
        contexts: (p, c), coded as in the matches, if the matches have contexts.
        level: The mass of the interval.

    Returns:
        With dims (instance): ``mean`` of g, ``probability`` (that a wins, plus half the probability of a tie),
        ``lower`` and ``upper`` ends of its interval, and ``preferred``, the probability that g(a, b) > 0.

    Raises:
        TypeError: If the fit is of another model.
        ValueError: If the items are invalid, or `level` is not between 0 and 1.

    Example:
        >>> kpp_models.duel(general, items[4:], items[:1], level=0.9).to_dataframe().columns.tolist()
        ['mean', 'probability', 'lower', 'upper', 'preferred']
    """
    probability(level, "level")
    pairs = _pairs(fit, first, second, contexts)
    if isinstance(fit.model, AbstractPreferenceMachine):
        found = _in_blocks(fit, pairs)
        return _dataset({name: value[0, 0] for name, value in found.items()}, ("instance",))
    per_draw = max(_NODES_A_DRAW, -(-_NODES // (fit.num_chains * fit.num_draws)))
    # The middles of parts of equal probability.
    white = jnp.asarray(ndtri((np.arange(per_draw) + 0.5) / per_draw), float)
    values = {name: np.asarray(value) for name, value in fit.map_draws(_duel_of_one_draw, pairs, white).items()}
    scores = values["scores"].reshape(-1, values["scores"].shape[-1])
    lower, upper = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2], axis=0)
    found = {name: values[name].mean(axis=(0, 1)) for name in ("mean", "probability")}
    preferred = 0.5 + 0.5 * values["share"].mean(axis=(0, 1))
    return _dataset(found | {"lower": lower, "upper": upper, "preferred": preferred}, ("instance",))


def preference_matrix(fit: Fit, items: Items, *, context: Numbers | None = None) -> xr.Dataset:
    """Return the preferences between all pairs of n items, for every draw.

    Args:
        fit: A fit of a model of preferences.
        items: n items, (n, d) or a data frame, or n teams, `kpp.kernels.toolkit.PaddedBags`; or
            `kpp.preferences.Matches`, for the items of the matches by their names.
        context: The context of all duels, (c,), if the matches have contexts.

    Returns:
        ``mean`` of g, its ``latent_variance`` if the model is a Gaussian process, ``probability``, and
        ``probability_tie`` if the model has ties, with dims (chain, draw, item, item_other): the item of the row
        against the item of the column. ``mean`` is exactly skew-symmetric.

    Raises:
        TypeError: If the fit is of another model.
        ValueError: If the items are invalid.

    Example:
        >>> kpp_models.preference_matrix(general, items)["probability"].shape
        (1, 1, 5, 5)
    """
    _refuse_other_models(fit)
    points, names = _items(fit, items)
    if isinstance(fit.model, AbstractPreferenceMachine):
        mean = fit.model.item_function(fit.data).preference_matrix(points, context=context)
        return _matrices({"mean": mean[None, None], "probability": fit.model.probability(mean)[None, None]}, names)
    rows, columns = np.triu_indices(len(names))
    pairs = _pairs(fit, _take(points, rows), _take(points, columns), _repeat(context, len(rows)))
    return _square(_in_blocks(fit, pairs), rows, columns, names)


def sample_preferences(
    fit: Fit, rng_key: RngKey, items: Items, num_samples: int, *, context: Numbers | None = None
) -> Float[np.ndarray, "s n n"]:
    """Draw g at all pairs of n items jointly, as required for rankings with uncertainty.

    Args:
        fit: A fit of `kpp_models.PreferenceGP`, `GPGP`, `PGP` or `RankingGP`.
        rng_key: A JAX random key.
        items: As for `preference_matrix`. For the models of pairs, the memory of the joint covariance grows with the
            fourth power of their number: 60 items have 1770 pairs and need 25 MB.
        num_samples: The number of draws. They use the draws of the posterior in turn.
        context: As for `preference_matrix`.

    Returns:
        The draws, (num_samples, n, n), each skew-symmetric; `kpp_models.rank_items` takes them.

    Raises:
        TypeError: If the fit is not of a Gaussian process of preferences.
        ValueError: If the items are invalid, or `num_samples` is below 1.

    Example:
        >>> draws = kpp_models.sample_preferences(general, jax.random.key(1), items, 100)
        >>> draws.shape
        (100, 5, 5)
    """
    _refuse_other_models(fit, AbstractPreferenceModel, RankingGP)
    count(num_samples, "num_samples")
    points, names = _items(fit, items)
    if isinstance(fit.model, RankingGP):
        utilities = np.stack(list(_draw_functions(fit, rng_key, _options(fit, points, context), num_samples)))
        return utilities[:, :, None] - utilities[:, None, :]
    rows, columns = np.triu_indices(len(names), 1)  # the rest follows from g(b, a) = -g(a, b)
    pairs = _pairs(fit, _take(points, rows), _take(points, columns), _repeat(context, len(rows)))
    matrix = np.zeros((num_samples, len(names), len(names)))
    for number, values in enumerate(_draw_functions(fit, rng_key, pairs, num_samples)):
        matrix[number, rows, columns], matrix[number, columns, rows] = values, -values
    return matrix


def choice_probabilities(fit: Fit, items: Items, *, context: Numbers | None = None) -> xr.DataArray:
    r"""Return the probability that each of n items is chosen as the best of all n, for every draw.

    .. math:: P(i) = E \frac{e^{f_i}}{\sum_j e^{f_j}}

    The expectation over the utilities is computed by quasi-Monte Carlo with 512 points. With two items it is the
    probability that one beats the other.

    Args:
        fit: A fit of `kpp_models.RankingGP`.
        items: n items, (n, d) or a data frame; or `kpp_models.Rankings`, for their items by their names.
        context: The context of the choice, (c,), coded as in the rankings, if they have contexts.

    Returns:
        The probabilities, with dims (chain, draw, item); they sum to 1 over the items.

    Raises:
        TypeError: If the fit is of another model.
        ValueError: If the items are invalid.
    """
    _refuse_other_models(fit, RankingGP)
    points, names = _items(fit, items)
    white = normal_points(len(names), jnp.result_type(float))
    found = np.asarray(fit.map_draws(_choices_of_one_draw, _options(fit, points, context), white))
    return _dataset({"probability": found}, ("chain", "draw", "item")).assign_coords(item=names)["probability"]


def _choices_of_one_draw(
    model: RankingGP, sample: Sample, data: Data, items: Points, white: Float[Array, "k n"]
) -> Float[Array, " n"]:
    found = model.predictive(sample, data, items, covariance=True)
    utilities = found["mean"][None] + white @ prior_factor(found["latent_covariance"]).T
    return jnp.mean(jax.nn.softmax(utilities, axis=1), axis=0)


def _duel_of_one_draw(
    model: AbstractPreferenceModel, sample: Sample, data: Data, pairs: Points, white: Float[Array, " nodes"]
) -> dict[str, Array]:
    found = model.predictive(sample, data, pairs)
    deviation = jnp.sqrt(found["latent_variance"])
    scores = model.score(sample, found["mean"][None] + white[:, None] * deviation[None])
    sure = jnp.sign(found["mean"])
    share = jnp.where(deviation > 0, 2.0 * ndtr(found["mean"] / jnp.maximum(deviation, 1e-300)) - 1.0, sure)
    return {"mean": found["mean"], "probability": found["probability"], "scores": scores, "share": share}


def _draw_functions(fit: Fit, rng_key: RngKey, points: PyTree, num_samples: int) -> Iterator[np.ndarray]:
    """Draw the values of the latent function at points jointly, from the draws of the posterior in turn."""
    total = fit.num_chains * fit.num_draws
    pick_key, *keys = jax.random.split(rng_key, num_samples + 1)
    order = np.asarray(jax.random.permutation(pick_key, total))
    flat = {name: np.asarray(value).reshape(total, *value.shape[2:]) for name, value in fit.draws.items()}
    draw_latent = eqx.filter_jit(fit.model.draw_latent)
    for number, key in enumerate(keys):
        sample = {name: jax.device_put(value[order[number % total]]) for name, value in flat.items()}
        yield np.asarray(draw_latent(key, sample, fit.data, points))


def _items(fit: Fit, items: Items) -> tuple[Any, list[Any]]:
    """Return items (n, d), or teams, and their names, by default their numbers."""
    if isinstance(items, (Matches, Rankings)):
        return jax.tree.map(np.asarray, items.items), list(items.item_names)
    if isinstance(items, PaddedBags):
        return items, list(range(len(items.lengths)))
    points = fit.schema.read(items, "items") if fit.schema is not None else np.asarray(as_points(items, "items"))
    return points, list(range(len(points)))


def _pairs(fit: Fit, first: Items, second: Items, contexts: Numbers | None) -> Any:
    """Return pairs of items, with their contexts if there are any, in the form of the model."""
    _refuse_other_models(fit)
    (firsts, names), (seconds, others) = _items(fit, first), _items(fit, second)
    check_same_rows(len(names), len(others), "first", "second")
    if isinstance(firsts, PaddedBags) and isinstance(seconds, PaddedBags):
        pairs: Any = PaddedBags.pair(firsts, seconds)
    else:
        pairs = np.stack([firsts, seconds], axis=1)
    return fit.model.read_points(pairs if contexts is None else (pairs, contexts), fit.schema)


def _options(fit: Fit, items: Any, context: Numbers | None) -> Any:
    """Return items, in the same context if there is one, in the form of a model of rankings."""
    contexts = _repeat(context, len(items))
    return fit.model.read_points(items if contexts is None else (items, contexts), fit.schema)


def _take(items: Any, rows: np.ndarray) -> Any:
    """Return some of the items or teams."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], items)


def _repeat(context: Numbers | None, count: int) -> np.ndarray | None:
    """Return one context for every pair, or None without a context."""
    if context is None:
        return None
    row = np.asarray(as_targets(context, name="context"))
    return np.broadcast_to(row, (count, len(row)))


def _in_blocks(fit: Fit, pairs: PyTree) -> dict[str, np.ndarray]:
    """Predict at pairs in blocks, which share one compiled program."""

    def predict(rows: PyTree) -> dict[str, np.ndarray]:
        predicted = fit.predict(rows)
        return {str(name): values.values for name, values in predicted.data_vars.items()}

    return map_blocks(predict, jax.tree.map(np.asarray, pairs), _BLOCK, axis=-1)


def _square(values: dict[str, np.ndarray], rows: np.ndarray, columns: np.ndarray, names: list[Any]) -> xr.Dataset:
    """Write values at the pairs of the upper triangle as matrices."""
    matrices = {}
    for name, value in values.items():
        matrix = np.zeros((*value.shape[:-1], len(names), len(names)))
        matrix[..., columns, rows] = -value if name == "mean" else 1.0 - value if name == "probability" else value
        matrix[..., rows, columns] = value
        matrices[name] = matrix
    return _matrices(matrices, names)


def _matrices(values: Mapping[str, AnyArray], names: list[Any]) -> xr.Dataset:
    found = _dataset(values, ("chain", "draw", "item", "item_other"))
    return found.assign_coords(item=names, item_other=names)


def _dataset(values: Mapping[str, AnyArray], dims: tuple[str, ...]) -> xr.Dataset:
    import xarray as xr

    found = xr.Dataset({name: (dims, np.asarray(value)) for name, value in values.items()}, attrs={"created_by": "kpp"})
    return found.assign_coords({dim: np.arange(size) for dim, size in found.sizes.items()})


def _refuse_other_models(fit: Fit, *kinds: type) -> None:
    if not isinstance(fit.model, kinds or (AbstractPreferenceModel, AbstractPreferenceMachine)):
        raise TypeError(
            f"`fit` must be of a model of preferences such as kpp_models.GPGP, got {type(fit.model).__name__}"
        )
