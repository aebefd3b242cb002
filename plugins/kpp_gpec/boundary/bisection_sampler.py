"""The boundary sampler for any model, by bisection."""

from __future__ import annotations

import equinox as eqx
import numpy as np
from jaxtyping import Float

from kpp.foundation.validation import count, one_of, positive
from kpp.runtime.memory import check_count
from kpp.storage.serialization import data_class
from kpp_gpec.boundary.bisection import halve
from kpp_gpec.boundary.brackets import Brackets, CountedMargin
from kpp_gpec.boundary.opposite_sides import pair_up, two_sides
from kpp_gpec.boundary.sampler import AbstractBoundarySampler, check_sampler
from kpp_gpec.boundary.walk import walk

_SEEDS = ("training", "walk", "both")

# A walk without other pairs begins from this number of pairs of rows.
_WALK_PAIRS = 64


@data_class
class BisectionSampler(AbstractBoundarySampler):
    r"""Samples a boundary of any model by halving segments between opposite sides.

    All segments are halved together, one call of the model a round, until each is no longer than `width`:
    :math:`\log_2(\ell / w)` rounds for the length :math:`\ell`, about 23 by default. This also holds for forests, whose
    output is a step function.

    Segments come from pairs of training rows, half of which are a row and its nearest neighbor on the other side, and
    half are random, so that parts of the boundary far from all rows are found as well; and from a random walk along the
    boundary (see the module `walk`), which stays within the range of the rows. If all rows are on one side, rows with
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
        check_sampler(self)
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
