r"""Duels of teams as averages over duels of their members.

With the kernel `BagMean`, the embedding of a team is the mean of those of its members, and a preference is bilinear in
the embeddings of both teams:

.. math:: g(A, B) = \frac{1}{|A|\, |B|} \sum_{a \in A} \sum_{b \in B} h(a, b)

with a preference h between members. Values of a game are linear in the function, so that those of a duel of teams are
the same averages of those of its members, of which each lacks the absent features.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from kpp import Explanation, GPPosterior, RKHSFunction
from kpp.explanations import Inputs
from kpp.kernels.toolkit import PaddedBags
from kpp.typing import AnyArray
from kpp_pref_shap.pair_functions import compares_teams, is_mean


def pair_members(
    points: Float[AnyArray, "m 2 L d"], lengths: Int[AnyArray, "m 2"]
) -> tuple[Float[np.ndarray, "r 2 d"], Int[np.ndarray, " r"], Float[np.ndarray, " r"]]:
    """Return the pairs of members of all duels, the number of the duel of each pair, and its share of the duel."""
    points, lengths = np.asarray(points), np.asarray(lengths)
    inside = np.arange(points.shape[2]) < lengths[..., None]
    duel, first, second = np.nonzero(inside[:, 0, :, None] & inside[:, 1, None, :])
    pairs = np.stack([points[duel, 0, first], points[duel, 1, second]], axis=1)
    return pairs, duel, 1.0 / lengths.prod(axis=1)[duel]


def of_members(function: Any) -> Any:
    """Return the preference h between members of a preference g between teams; other functions are unchanged."""
    if not (isinstance(function, RKHSFunction) and compares_teams(function.kernel)):
        return function
    return _split_teams(function)[0]


def posterior_of_members(posterior: GPPosterior) -> GPPosterior:
    """Return the posterior of h from that of g; one of items is returned unchanged."""
    if not compares_teams(posterior.mean.kernel):
        return posterior
    mean, duel, share = _split_teams(posterior.mean)
    return GPPosterior(mean, np.asarray(posterior.root)[..., duel, :] * share[:, None])


def _split_teams(function: RKHSFunction) -> tuple[RKHSFunction, Int[np.ndarray, " r"], Float[np.ndarray, " r"]]:
    """Return h, and the duel and the share of each of its pairs; see `pair_members`."""
    contextual = isinstance(function.points[0], tuple)
    teams, contexts = function.points if contextual else (function.points, None)
    pairs, duel, share = pair_members(*teams)
    points = pairs if contexts is None else (pairs, contexts[duel])
    kernel = jax.tree.map(lambda node: node.kernel if is_mean(node) else node, function.kernel, is_leaf=is_mean)
    coefficients = np.asarray(function.coefficients)[..., duel] * share
    return RKHSFunction(kernel, points, coefficients, function.intercept, function.batch_shape), duel, share


def duels_of_members(points: Any) -> tuple[Any, Float[np.ndarray, "t p"] | None]:
    """Return the duels of the members of teams with their shares, or other points unchanged and None."""
    bags, contexts = points if isinstance(points, tuple) and not isinstance(points, PaddedBags) else (points, None)
    if not isinstance(bags, PaddedBags):
        return points, None
    if np.ndim(bags.lengths) != 2:
        raise ValueError("`x` must hold pairs of teams, such as those of `PaddedBags.pair`, got teams")
    pairs, duel, share = pair_members(*bags)
    shares = np.where(np.arange(len(bags.lengths))[:, None] == duel, share, 0.0)
    return (pairs if contexts is None else (pairs, np.asarray(contexts)[duel])), shares


@dataclasses.dataclass(frozen=True)
class TeamInputs(Inputs):
    """Duels of members, whose explanation is that of the duels of their teams.

    Args:
        shares: The share of each duel of members in each duel of teams, (t, p).
    """

    shares: Float[np.ndarray, "t p"] = dataclasses.field(kw_only=True)

    def explanation(self, attrs: Any, *, draws: bool | None = None, **arrays: Any) -> Explanation:
        for name in ("values", "standard_errors"):  # errors of one sample of coalitions add up at most
            if arrays[name] is not None:
                arrays[name] = np.einsum("tp,...pg->...tg", self.shares, np.asarray(arrays[name]))
        arrays["predictions"] = np.asarray(arrays["predictions"]) @ self.shares.T
        assert self.data is not None, "duels are shown by their differences"
        kept = {field.name: getattr(self, field.name) for field in dataclasses.fields(Inputs)}
        rows = {"x": jnp.asarray(self.shares @ np.asarray(self.x)), "data": self.shares @ self.data}
        return Inputs(**kept | rows).explanation(attrs, draws=draws, **arrays)
