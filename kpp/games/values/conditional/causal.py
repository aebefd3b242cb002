"""Causal value functions with Gaussian laws, or laws of a Gaussian copula, after interventions."""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kpp.causal import CausalDAG, CausalOrder, as_graph
from kpp.causal.toolkit import LawFactor, factors_of_features, gaussian_precision, marginal_precision
from kpp.foundation.validation import as_points, count, one_of
from kpp.functions import RKHSFunction
from kpp.games.values.abstract import AbstractValueFunction
from kpp.games.values.conditional.causal_graphs import Graph, as_names, names_of_features, positions
from kpp.games.values.conditional.gaussian_conditionals import AbstractSampled, Sampler, copula_quantiles, copula_scores
from kpp.games.values.product_games import example_functions
from kpp.linalg import add_diagonal, whitener
from kpp.runtime.batching import sum_arrays
from kpp.typing import AnyArray, RngKey


class Causal(AbstractSampled):
    r"""The expected prediction after an intervention that sets the present features to the values of the point.

    .. math:: v(S) = \mathrm{E}[f(X) \mid do(X_S = x_S)] = \frac1r \sum_{i=1}^r f(x_S, \xi_i), \qquad
        \xi_i \sim P(X_{S^c} \mid do(X_S = x_S))

    The law after the intervention follows from the graph and from the joint law of the features, which is Gaussian with
    the mean and covariance of the background, or has a Gaussian copula with the background's margins. It is exact for
    these laws, also for graphs with hidden common causes, as long as the effects are identified. The random numbers
    behind the samples are fixed by a seed, with means of exactly 0, so that values are reproducible, linear in the
    function, and exact for a linear function of Gaussian features. The empty coalition is worth the mean prediction
    over the background.

    Args:
        background: The background points, (m, d).
        graph: The causal graph of the features, a `kpp.causal.CausalDAG` (or its edges, or its text in the language of
            dagitty or Graphviz), or a `kpp.causal.CausalOrder` of groups of features. Nodes of a graph that are not
            features, such as the outcome, are treated as latent.
        feature_names: The names of the d features in the graph, in the order of the columns. `kpp.explain` takes those
            of a data frame. Otherwise the default is x0, x1, ... if these are nodes, and else the observed nodes in the
            graph's order.
        conditionals: "gaussian" or "copula".
        samples_per_point: How many samples per background point; r is m times this number.
        seed: The seed of the random numbers.

    Raises:
        NotIdentifiableError: If the graph and the observed law do not determine the value of a coalition; the error
            holds the hedge that proves it.
        UnknownNodeError: If a feature is not in the graph.

    References:
        Heskes, Sijben, Bucur and Claassen, Causal Shapley values: Exploiting causal knowledge to explain individual
        predictions of complex models, 2020, equations 4 and 5 and theorem 1.
    """

    background: Float[AnyArray, "m d"] = eqx.field(converter=lambda value: as_points(value, "background"))
    graph: Graph = eqx.field(static=True, converter=as_graph)
    feature_names: tuple[str, ...] | None = eqx.field(static=True, default=None, converter=as_names)
    conditionals: str = eqx.field(static=True, default="gaussian")
    samples_per_point: int = eqx.field(static=True, default=1)
    seed: int = eqx.field(static=True, default=0)

    def __check_init__(self) -> None:
        count(self.samples_per_point, "samples_per_point")
        one_of(self.conditionals, "conditionals", ("gaussian", "copula"))
        factors_of_features(self.graph, self._names)

    @property
    def _names(self) -> tuple[str, ...]:
        return names_of_features(self.graph, self.feature_names, self.background.shape[1])

    def to_scores(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Return the points, or for a copula the normal quantiles of their ranks in the background."""
        return copula_scores(jnp.asarray(self.background), x) if self.conditionals == "copula" else x

    def from_scores(self, scores: Float[Array, "*shape d"]) -> Float[Array, "*shape d"]:
        """Return the scores, or for a copula the quantiles of the background at them."""
        return copula_quantiles(jnp.asarray(self.background), scores) if self.conditionals == "copula" else scores

    def sampler(self, correlation: Float[Array, "d d"]) -> Sampler:
        """Return the function that samples from the law after an intervention on the present features."""
        factors = factors_of_features(self.graph, self._names)
        forms = [_form(factor, correlation, self._names) for factor in factors]
        return lambda x, mask, noise: _samples(sum_arrays(form(mask) for form in forms), x, mask, noise)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractValueFunction, RKHSFunction, Any]]:
        (function, x), *_, (outputs, _) = list(example_functions(rng_key))[:3]
        background = function.points[:4] + 0.1
        names = tuple(f"x{j}" for j in range(background.shape[1]))
        chain = CausalDAG(list(zip(names[:-1], names[1:], strict=True)))
        yield cls(background, chain), function, x
        yield cls(background, CausalDAG(chain.edges, bidirected=[(names[0], names[-1])])), function, x
        order = CausalOrder([names[:1], names[1:]], confounded=False)
        yield cls(background, order, conditionals="copula", samples_per_point=2), outputs, x


def _form(
    factor: LawFactor, correlation: Float[Array, "d d"], names: tuple[str, ...]
) -> Callable[[Bool[Array, " d"]], Float[Array, "d d"]]:
    """Return the quadratic form of a factor, as `gaussian_precision` has it, as a function of a coalition's mask."""
    members, parents = (jnp.array([name in part for name in names]) for part in (factor.members, factor.parents))
    if not factor.expressions:

        def form(mask: Bool[Array, " d"]) -> Array:
            given = parents | (members & mask) if factor.given_members else parents
            return marginal_precision(correlation, given | (members & ~mask)) - marginal_precision(correlation, given)

        return form
    # One form for each subset of the members; the form of the empty one is 0.
    forms = {absent: gaussian_precision(expression, correlation, names) for absent, expression in factor.expressions}
    places = positions(factor.members, names)
    bits = [2**bit for bit in range(len(places))]
    subsets = [
        frozenset(name for name, bit in zip(factor.members, bits, strict=True) if row & bit)
        for row in range(2 ** len(places))
    ]
    table = jnp.stack([forms.get(subset, jnp.zeros_like(correlation)) for subset in subsets])
    return lambda mask: table[jnp.sum(jnp.where(mask[jnp.array(places)], 0, jnp.array(bits)))]


def _samples(
    form: Float[Array, "d d"], x: Float[Array, "p d"], mask: Bool[Array, " d"], noise: Float[Array, "r d"]
) -> Float[Array, "p r d"]:
    """Sample the absent features of a Gaussian of mean 0 whose density has a quadratic form, given the present ones."""
    absent = ~mask[:, None] & ~mask[None, :]
    root = whitener(
        add_diagonal(jnp.where(absent, form, 0.0), mask), what="the precision matrix after the intervention"
    )
    pull = jnp.where(mask[:, None] & ~mask[None, :], form, 0.0)
    mean = -x @ pull @ root.T @ root
    return mean[:, None] + (noise @ root)[None]
