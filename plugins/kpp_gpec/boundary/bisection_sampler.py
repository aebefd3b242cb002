"""The boundary sampler for any model, by bisection, and the random walk along the boundary that it may take."""

from __future__ import annotations

import equinox as eqx
import numpy as np
from jaxtyping import Float

from kpp.foundation.validation import count, one_of, positive
from kpp.runtime.memory import check_count
from kpp.storage.serialization import data_class
from kpp_gpec.boundary.brackets import Brackets, CountedMargin, halve, pair_up, spread, two_sides
from kpp_gpec.boundary.sampler import AbstractBoundarySampler

_SEEDS = ("training", "walk", "both")

# A walk without other pairs begins from this number of pairs of rows.
_WALK_PAIRS = 64
# The length to which segments are halved, in standard units, before the next round starts from their middles; and the
# number of these starts.
_COARSE, _MAX_STARTS = 0.02, 500


@data_class
class BisectionSampler(AbstractBoundarySampler):
    r"""Samples a boundary of any model by halving segments between opposite sides.

    All segments are halved together, one call of the model a round, until each is no longer than `width`:
    :math:`\log_2(\ell / w)` rounds for the length :math:`\ell`, about 23 by default. This also holds for forests, whose
    output is a step function.

    Segments come from pairs of training rows, half of which are a row and its nearest neighbor on the other side, and
    half are random, so that parts of the boundary far from all rows are found as well; and from a random walk along the
    boundary (see `walk`), which stays within the range of the rows. If all rows are on one side, rows with
    randomly mixed features are tried too.

    Args:
        max_points, width, tolerance: As for `AbstractBoundarySampler`.
        seeds: "training" for pairs of rows, "walk" for a walk from a few pairs, or "both".
        num_pairs: The number of pairs of rows, and of proposals of the walk; twice `max_points` by default.
        step: The largest step of the walk, in standard deviations.
        num_rounds: The number of rounds of the walk, over which its proposals are distributed.

    References:
        Hill et al. (2023), section 4.2 and appendix D.1, where pairs are bisected to a tolerance on the probability.
    """

    max_points: int = eqx.field(static=True, default=1000)
    width: float = eqx.field(static=True, default=1e-6)
    seeds: str = eqx.field(static=True, default="both")
    num_pairs: int | None = eqx.field(static=True, default=None)
    step: float = eqx.field(static=True, default=1.0)
    num_rounds: int = eqx.field(static=True, default=4)
    tolerance: float = eqx.field(static=True, default=1e-4)

    def __check_init__(self) -> None:
        one_of(self.seeds, "seeds", _SEEDS)
        if self.num_pairs is not None:
            count(self.num_pairs, "num_pairs")
        positive(self.step, "step")
        count(self.num_rounds, "num_rounds")

    def search(self, rng: np.random.Generator, margin: CountedMargin, z: Float[np.ndarray, "n d"]) -> Brackets:
        budget = self.num_pairs or 2 * self.max_points
        check_count(budget, "num_pairs", 2 * z.shape[1])
        inside, outside = two_sides(rng, margin, z)
        if not (len(inside) and len(outside)):
            return Brackets(z[:0], z[:0], 0)
        num_pairs = budget if self.seeds != "walk" else min(budget, _WALK_PAIRS)
        brackets = pair_up(rng, inside, outside, num_pairs)
        if self.seeds != "training":
            box = z.min(axis=0), z.max(axis=0)
            brackets = walk(
                rng, margin, brackets, box, step=self.step, num_rounds=self.num_rounds, num_proposals=budget
            )
        return halve(margin, brackets, self.width)


def walk(
    rng: np.random.Generator,
    margin: CountedMargin,
    brackets: Brackets,
    box: tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]],
    *,
    step: float,
    num_rounds: int,
    num_proposals: int,
) -> Brackets:
    r"""Explore a boundary from known points on it, by proposals along and across it.

    From a known point p, with random unit vectors u and v and a random length s, the points

    .. math:: q_\pm = p + s\,(u \pm v)

    are proposed. If they are on opposite sides, the boundary crosses the segment between them, which is bisected, and
    its middle is a new point. Each round starts from points spread evenly over all that were found, so that the walk
    also continues from the ends of the known part. On a flat boundary with normal n, half of the proposals are accepted
    in any dimension, namely those with :math:`|n^\top u| < |n^\top v|`. Like the boundary attack, it needs only the
    side of a point.

    It starts from at least one segment, does not leave the `box` of the smallest and the largest values of each
    feature, and takes s up to `step`. The proposals are those of all rounds together; a round takes one call of the
    margin, and a few more for the bisection. The result holds the given and the new segments, at most 0.02 long.

    References:
        Brendel, Rauber, Bethge (2018), "Decision-based adversarial attacks: reliable attacks against black-box
        machine learning models".
    """
    low, high = box
    found = halve(margin, brackets, _COARSE)
    for number in np.diff(np.linspace(0, num_proposals, num_rounds + 1).astype(int)).tolist():
        known = found.midpoints
        starts = known[np.resize(spread(known, min(number, _MAX_STARTS)), number)]
        lengths = step * rng.uniform(size=(number, 1))  # the same for both, so that half are accepted in any dimension
        along, across = (lengths * _unit_vectors(rng, starts.shape) for _ in range(2))
        first, second = (np.clip(starts + along + side * across, low, high) for side in (1.0, -1.0))
        in_first, in_second = np.split(margin.is_inside(np.concatenate([first, second])), 2)
        opposite, in_first = in_first != in_second, in_first[:, None]
        inside, outside = np.where(in_first, first, second), np.where(in_first, second, first)
        new = Brackets(inside[opposite], outside[opposite], int(opposite.sum()))
        found = Brackets.joined(found, halve(margin, new, _COARSE))
    return found


def _unit_vectors(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    vectors = rng.normal(size=shape)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
