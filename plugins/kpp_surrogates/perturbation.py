r"""Perturbed rows around the explained points, and the features that show what was perturbed.

There are two kinds of perturbation. *Neighbors* vary each feature as it varies in the background: numbers by a Gaussian
with the mean and variance of the background, or by such Gaussians within intervals between its quantiles; categories by
their frequency; and any other group of features by the values of a whole row of the background or not at all.
*Coalitions* keep some features of a point and replace all others by those of one row of the background.

Every quantity is drawn by its own generator and point by point, so that the result does not depend on the size of
blocks of points.

References:
    Ribeiro, Singh and Guestrin, "Why should I trust you?": explaining the predictions of any classifier, 2016;
    Lundberg and Lee, A unified approach to interpreting model predictions, 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jaxtyping import Bool, Float, Int

from kpp.data.tables import Schema
from kpp.explanations.toolkit import GroupedPoints
from kpp.games.toolkit import Players
from kpp.typing import RngKey
from kpp_surrogates.converters import categorical_positions

Kind = Literal["number", "interval", "category", "block"]

# The share of perturbations in which a group of features keeps its values.
_KEPT = 0.5


class Perturbations(NamedTuple):
    """Perturbed rows, and the features of a linear model for them, one number per player."""

    rows: Float[np.ndarray, "p n d"]
    features: Float[np.ndarray, "p n g"]


def kinds_of_players(
    players: Players, shown: GroupedPoints, schema: Schema, categorical: Sequence[int | str], *, intervals: bool = False
) -> tuple[Kind, ...]:
    """Return how each player is perturbed, from the points as an explanation shows them.

    It is "category" for columns of categories, also those named in `categorical`, and one-hot ones, "number" or, with
    `intervals`, "interval" for any other single column, and "block" for any other group. Raises ValueError if a feature
    is unknown.
    """
    chosen = categorical_positions(categorical, schema)

    def kind(name: str, members: tuple[int, ...]) -> Kind:
        if name in shown.schema.levels or chosen.issuperset(members):
            return "category"
        if len(members) > 1:
            return "block"
        return "interval" if intervals else "number"

    return tuple(kind(name, members) for name, members in zip(players.names, players.groups, strict=True))


class Neighborhood:
    """Random neighbors of points; the first one of each point is the point itself.

    The feature of a linear model is :math:`(x_j - m_j) / s_j` for a number, with mean and standard deviation of the
    background; for an interval it is 1 if the value is in the interval of the point, and for anything else if it equals
    the value of the point; otherwise it is 0. A number that is constant in the background keeps this value. Gaussians
    have the mean of the "background", or that of the "instance".
    """

    def __init__(
        self,
        rng_key: RngKey,
        background: Float[np.ndarray, "m d"],
        players: Players,
        kinds: Sequence[Kind],
        around: str,
        num_bins: int = 4,
    ) -> None:
        self.background, self.players, self.kinds, self.around = background, players, kinds, around
        self._normals, self._choices, self._masks, self._quantiles = _generators(rng_key, 4)
        intervals = self._of_kind("interval")
        self._bins = {player: _QuantileBins(background[:, players.groups[player][0]], num_bins) for player in intervals}
        is_constant = (background == background[:1]).all(axis=0)  # where rounding may leave a small deviation
        self._means, self._spreads = background.mean(axis=0), np.where(is_constant, 0.0, background.std(axis=0))

    def sample(self, x: Float[np.ndarray, "p d"], size: int) -> Perturbations:
        """Return `size` neighbors of each point (p, d), the point itself among them, and their features."""
        rows = np.repeat(x[:, None], size, axis=1)  # the first one stays the point, whose prediction is always seen
        features = np.ones((*rows.shape[:2], self.players.num_players), dtype=x.dtype)
        self._perturb_numbers(rows, features)
        self._perturb_intervals(rows, features)
        self._perturb_categories(rows, features)
        self._perturb_blocks(rows, features)
        return Perturbations(rows, features)

    def _of_kind(self, kind: Kind) -> list[int]:
        return [player for player, found in enumerate(self.kinds) if found == kind]

    def _perturb_numbers(self, rows: np.ndarray, features: np.ndarray) -> None:
        numbers = self._of_kind("number")
        columns = [self.players.groups[player][0] for player in numbers]
        means, spreads = self._means[columns], self._spreads[columns]
        centers = rows[:, :1, columns] if self.around == "instance" else means
        noise = self._normals.standard_normal((*rows.shape[:2], len(columns)))
        rows[:, 1:, columns] = (centers + spreads * noise)[:, 1:]
        features[:, :, numbers] = (rows[:, :, columns] - means) / np.where(spreads > 0, spreads, 1.0)

    def _perturb_intervals(self, rows: np.ndarray, features: np.ndarray) -> None:
        quantiles = self._quantiles.random((*rows.shape[:2], len(self._bins), 2))
        donors = (quantiles[..., 0] * len(self.background)).astype(int)
        for position, (player, bins) in enumerate(self._bins.items()):
            column = self.players.groups[player][0]
            drawn = bins.index(self.background[donors[:, :, position], column])
            own = bins.index(rows[:, :1, column])
            rows[:, 1:, column] = bins.draw(drawn, quantiles[:, :, position, 1])[:, 1:]
            features[:, 1:, player] = (drawn == own)[:, 1:]

    def _perturb_categories(self, rows: np.ndarray, features: np.ndarray) -> None:
        categories = self._of_kind("category")
        donors = self._choices.integers(len(self.background), size=(*rows.shape[:2], len(categories)))
        for position, player in enumerate(categories):
            columns = list(self.players.groups[player])
            rows[:, 1:, columns] = self.background[donors[:, 1:, position, None], columns]
            features[:, :, player] = (rows[:, :, columns] == rows[:, :1, columns]).all(axis=2)

    def _perturb_blocks(self, rows: np.ndarray, features: np.ndarray) -> None:
        blocks = self._of_kind("block")
        quantiles = self._masks.random((*rows.shape[:2], len(blocks), 2))
        kept, donors = quantiles[..., 0] < _KEPT, (quantiles[..., 1] * len(self.background)).astype(int)
        kept[:, 0] = True
        for position, player in enumerate(blocks):
            columns = list(self.players.groups[player])
            replaced = self.background[donors[:, :, position, None], columns]
            rows[:, :, columns] = np.where(kept[:, :, position, None], rows[:, :, columns], replaced)
            features[:, :, player] = kept[:, :, position]


class _QuantileBins:
    """The intervals between quantiles of a column; there are `num_bins` if all quantiles differ.

    Interval i is :math:`(q_i, q_{i+1}]`, the first one without lower and the last one without upper bound; equal
    quantiles count once. Draws from an interval follow a Gaussian with the mean and variance of the values in it,
    truncated to the interval and to the range of the column.
    """

    def __init__(self, values: Float[np.ndarray, " m"], num_bins: int) -> None:
        self._inner = np.unique(np.percentile(values, 100 * np.arange(1, num_bins) / num_bins))
        self._lower = np.concatenate([[values.min()], self._inner])
        self._upper = np.concatenate([self._inner, [values.max()]])
        members = [values[self.index(values) == bin_] for bin_ in range(self._lower.size)]
        # No value lies in an empty interval, so that nothing is drawn from it.
        self._means = np.array([chosen.mean() if chosen.size else 0.0 for chosen in members])
        self._spreads = np.array([chosen.std() if chosen.size else 0.0 for chosen in members])

    def index(self, values: Float[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
        """Return the number of the interval of each value."""
        return np.searchsorted(self._inner, values, side="left")

    def draw(self, bins: Int[np.ndarray, "..."], probabilities: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Return the quantiles of the truncated Gaussians of some intervals at uniform probabilities."""
        means, spreads = self._means[bins], self._spreads[bins]
        scales = np.where(spreads > 0, spreads, 1.0)
        low, high = (self._lower[bins] - means) / scales, (self._upper[bins] - means) / scales
        standardized = scipy.stats.truncnorm.ppf(probabilities, low, np.where(spreads > 0, high, low + 1))
        return np.where(spreads > 0, means + spreads * standardized, means)


class Coalitions:
    """Random coalitions of g players, the features of all others taken from one random row of the background.

    The law "shapley" draws coalitions by the Shapley kernel: sizes s from 1 to g - 1 in proportion to 1 / (s (g - s)),
    and coalitions of one size with equal probability; "uniform" draws all coalitions with equal probability, including
    the empty and the full one.
    """

    def __init__(self, rng_key: RngKey, background: Float[np.ndarray, "m d"], players: Players, law: str) -> None:
        self.background, self.players, self.law = background, players, law
        self._sizes, self._orders, self._choices = _generators(rng_key, 3)

    def sample(self, x: Float[np.ndarray, "p d"], size: int) -> Perturbations:
        """Return the rows of `size` coalitions of each point (p, d), and the players that are present in them."""
        present = self._draw(len(x) * size)
        donors = self.background[self._choices.integers(len(self.background), size=len(present))]
        kept = self.players.expand(present)
        rows = np.where(kept, np.repeat(x, size, axis=0), donors)
        shape = (len(x), size)
        return Perturbations(rows.reshape(*shape, -1), present.reshape(*shape, -1).astype(x.dtype))

    def _draw(self, count: int) -> Bool[np.ndarray, "n g"]:
        num_players = self.players.num_players
        quantiles = self._orders.random((count, num_players))
        if self.law == "uniform" or num_players == 1:  # a single player has no proper coalitions
            return quantiles < 0.5
        sizes = np.arange(1, num_players)
        masses = np.cumsum(1.0 / (sizes * (num_players - sizes)))  # C(g, s) coalitions of the Shapley kernel's weight
        drawn = sizes[np.searchsorted(masses[:-1] / masses[-1], self._sizes.random(count), side="right")]
        return np.argsort(np.argsort(quantiles, axis=1), axis=1) < drawn[:, None]  # ranks of random numbers


def _generators(rng_key: RngKey, count: int) -> list[np.random.Generator]:
    """Return NumPy's generators, seeded by a JAX key: the rows are arguments of functions that JAX does not trace."""
    seed = np.asarray(jax.random.bits(rng_key, (4,), dtype=jnp.uint32))
    return np.random.default_rng(seed).spawn(count)
