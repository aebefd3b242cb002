"""Causal value functions: laws after interventions, Gaussian, with a Gaussian copula, or drawn by embeddings."""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import networkx as nx
from jaxtyping import Array, Bool, Float
from numpy.polynomial.legendre import legvander

from kpp.causal import CausalDAG, CausalError, CausalOrder, as_graph
from kpp.causal.toolkit import LawFactor, factors_of_features, gaussian_precision, marginal_precision
from kpp.foundation.validation import as_points, count, one_of
from kpp.foundation.wording import named
from kpp.functions import RKHSFunction
from kpp.games.players.players import Coalitions, Instances
from kpp.games.values.abstract import AbstractValueFunction
from kpp.games.values.conditional.conditional_embeddings import REGULARIZED, median_kernel, restricted_matrices
from kpp.games.values.conditional.gaussian_conditionals import AbstractSampled, Sampler, copula_quantiles, copula_scores
from kpp.games.values.imputation import AbstractImputation, equal_weights
from kpp.games.values.product_games import example_functions
from kpp.kernels import AbstractKernel, parameter
from kpp.kernels.toolkit import check_positive
from kpp.linalg import add_diagonal, whitener
from kpp.linalg.toolkit import DenseRidge
from kpp.runtime.batching import sum_arrays
from kpp.runtime.random import uniform
from kpp.typing import AnyArray, Leaf, RngKey

Graph = CausalDAG | CausalOrder


def as_names(names: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the names of features as a tuple, or None."""
    return None if names is None else tuple(map(str, names))


def names_of_features(graph: Graph, feature_names: tuple[str, ...] | None, num_features: int) -> tuple[str, ...]:
    """Return the names of the features.

    The default is x0, x1, ... if these are nodes, and otherwise the observed nodes in the graph's order.
    """
    numbered = tuple(f"x{j}" for j in range(num_features))
    if feature_names is None and set(numbered) <= set(graph.nodes):
        return numbered
    hidden = () if isinstance(graph, CausalOrder) else graph.latent
    names = feature_names or tuple(node for node in graph.nodes if node not in hidden)
    if len(names) != num_features:
        argument = "feature_names" if feature_names else "graph"
        raise ValueError(
            f"`{argument}` must name the {num_features} features of `background`, got {len(names)}: {named(names)}"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"`feature_names` must be different from each other, got {twice} more than once")
    return names


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

    Example:
        >>> x = table[["age", "dose"]].to_numpy()
        >>> fit = kpp_models.KernelRidge(RBF(1.0), 0.01).fit(key, x, rate)
        >>> value = kpp.games.Causal(x, graph=[("x0", "x1")])
        >>> kpp.games.shapley_values(value, kpp.as_rkhs_function(fit), x[:1]).round(1)
        Array([[[[-0., -1.]]]], dtype=float64)

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
    places = [names.index(name) for name in factor.members]
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


# The degree of the polynomials that describe how predictions depend on the random numbers of a district.
_DEGREE = 4


class CausalEmbedding(AbstractImputation):
    r"""The expected prediction after an intervention, with absent features drawn along the graph.

    .. math:: v(S) = \frac1r \sum_{i=1}^r f(x_S, \xi_i), \qquad \xi_i \sim P(X_{S^c} \mid do(X_S = x_S))

    Causes come first. The absent members of each district of the graph (or group of the order) are those of a row of
    the background. It is drawn with the weights of the conditional mean embedding given the causes,
    :math:`(K + m \eta I)^{-1} k(c)`, in proportion to those that are positive; with equal weights if none is. So the
    law may have any form, and values of one district stay together. The random numbers are fixed by a seed; they are
    stratified. The empty coalition is worth the mean prediction over the background.

    Args:
        background: The background points, (m, d).
        graph: The causal graph of the features; see `Causal`. In a district no member may be a cause of another one.
        feature_names: The names of the d features in the graph; see `Causal`.
        kernel: The kernel on the causes, or None for an RBF kernel with :math:`\sqrt d` times the median distances.
        regularization: :math:`\eta`, positive; it is multiplied by the number of rows m.
        samples_per_point: How many samples per background point; r is m times this number.
        seed: The seed of the random numbers.

    Raises:
        CausalError: If districts cannot be drawn one after the other.
        UnknownNodeError: If a feature is not in the graph.

    References:
        Heskes, Sijben, Bucur and Claassen, Causal Shapley values, 2020, theorem 1; Song, Huang, Smola and Fukumizu,
        Hilbert space embeddings of conditional distributions, 2009.
    """

    background: Float[AnyArray, "m d"] = eqx.field(converter=lambda value: as_points(value, "background"))
    graph: Graph = eqx.field(static=True, converter=as_graph)
    feature_names: tuple[str, ...] | None = eqx.field(static=True, default=None, converter=as_names)
    kernel: AbstractKernel | None = None
    regularization: Leaf = eqx.field(converter=parameter("regularization"), default=1e-3)
    samples_per_point: int = eqx.field(static=True, default=1)
    seed: int = eqx.field(static=True, default=0)

    def __check_init__(self) -> None:
        count(self.samples_per_point, "samples_per_point")
        check_positive(self.regularization, "regularization", infinity_allowed=False)
        _ = self._factors

    @property
    def _factors(self) -> tuple[LawFactor, ...]:
        """The districts, causes first."""
        names = names_of_features(self.graph, self.feature_names, self.background.shape[1])
        return _causes_first(factors_of_features(self.graph, names))

    def imputation_weights(self, function: object, x: Instances, coalitions: Coalitions) -> Float[Array, "c p r"]:
        return equal_weights(x, coalitions, self.background.shape[0] * self.samples_per_point)

    def impute(self, function: object, x: Instances, coalitions: Coalitions) -> Float[Array, "c p r d"]:
        numbers = self._numbers(len(self._factors))
        # All seeds share one compiled program, which gets the random numbers as an argument.
        return dataclasses.replace(self, seed=0)._impute(jnp.asarray(x), jnp.asarray(coalitions), numbers)

    @eqx.filter_jit
    def _impute(
        self, x: Float[Array, "p d"], coalitions: Bool[Array, "c d"], numbers: list[Float[Array, " r"]]
    ) -> Float[Array, "c p r d"]:
        background = jnp.asarray(self.background)
        names = names_of_features(self.graph, self.feature_names, background.shape[1])
        kernel = median_kernel(background) if self.kernel is None else self.kernel
        repeated = jnp.tile(background, (self.samples_per_point, 1))

        def of_coalition(mask: Array) -> Array:
            draws = [_draw(self, factor, names, kernel, mask) for factor in self._factors]

            def of_point(point: Array) -> Array:
                rows = jnp.where(mask[None], point[None], repeated)
                for draw, ranks in zip(draws, numbers, strict=True):
                    rows = draw(rows, ranks)
                return jnp.where(jnp.any(mask), rows, repeated)

            return jax.lax.map(of_point, x)

        return jax.lax.map(of_coalition, coalitions)

    def control_variates(self) -> Float[Array, "r q"]:
        """Return Legendre polynomials of the random numbers of all districts, which are stratified."""
        numbers = 2 * jnp.stack(self._numbers(len(self._factors)), axis=1) - 1
        by_degree = jnp.moveaxis(jnp.asarray(legvander(numbers, _DEGREE)), -1, 0)[1:]
        return jnp.concatenate(list(by_degree), axis=1)

    def _numbers(self, num_factors: int) -> list[Float[Array, " r"]]:
        """Return numbers between 0 and 1 for each factor, one in each of r intervals, in random order."""
        size, dtype = self.background.shape[0] * self.samples_per_point, jnp.asarray(self.background).dtype
        keys = jax.random.split(jax.random.key(self.seed), (num_factors, 2))
        inside = [uniform(key[0], (size,)).astype(dtype) for key in keys]
        order = [jax.random.permutation(key[1], size) for key in keys]
        return [(place + number) / size for place, number in zip(order, inside, strict=True)]

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractValueFunction, RKHSFunction, Any]]:
        (function, x), *_, (outputs, _) = list(example_functions(rng_key))[:3]
        background = function.points[:4] + 0.1
        names = tuple(f"x{j}" for j in range(background.shape[1]))
        yield cls(background, CausalDAG(list(zip(names[:-1], names[1:], strict=True)))), function, x
        yield cls(background, CausalOrder([names[:1], names[1:]], confounded=False), samples_per_point=2), outputs, x


def _causes_first(factors: tuple[LawFactor, ...]) -> tuple[LawFactor, ...]:
    """Return the factors in an order in which all causes of a factor's members come before it."""
    inside = [factor.members for factor in factors if factor.expressions]
    if inside:
        raise CausalError(
            f"`graph` must have no effects between nodes that hidden common causes connect, got them in {inside[0]}; "
            "the value function 'causal' takes such graphs"
        )
    owner = {name: number for number, factor in enumerate(factors) for name in factor.members}
    links: nx.DiGraph = nx.DiGraph()
    links.add_nodes_from(range(len(factors)))
    links.add_edges_from((owner[name], number) for number, factor in enumerate(factors) for name in factor.parents)
    if not nx.is_directed_acyclic_graph(links):
        circle = [factors[number].members for number, _ in nx.find_cycle(links)]
        raise CausalError(
            f"`graph` must not have districts that cause each other, got {circle}; the value function 'causal' takes "
            "such graphs"
        )
    return tuple(factors[number] for number in nx.lexicographical_topological_sort(links))


def _draw(
    game: CausalEmbedding, factor: LawFactor, names: tuple[str, ...], kernel: AbstractKernel, mask: Bool[Array, " d"]
) -> Callable[[Float[Array, "r d"], Float[Array, " r"]], Float[Array, "r d"]]:
    """Return a function that replaces a factor's absent members in rows, by numbers between 0 and 1."""
    background = jnp.asarray(game.background)
    # In the order of a member, close random numbers choose similar rows, so that stratified numbers spread well.
    background = background[jnp.argsort(background[:, names.index(factor.members[0])])]
    members, parents = (jnp.array([name in part for name in names]) for part in (factor.members, factor.parents))
    given = parents | (members & mask) if factor.given_members else parents
    gram = restricted_matrices(kernel, background, background)(given)
    system = DenseRidge.create(gram, background.shape[0] * game.regularization, what=REGULARIZED)
    inverse = system.inverse()

    def draw(rows: Array, numbers: Array) -> Array:
        # A law has no negative weights.
        weights = jnp.maximum(restricted_matrices(kernel, rows, background)(given) @ inverse, 0.0)
        none = ~jnp.any(weights > 0, axis=1, keepdims=True)  # far from all rows, which are then equally likely
        upto = jnp.cumsum(jnp.where(none, 1.0, weights), axis=1)
        chosen = jnp.sum(upto < (numbers * upto[:, -1])[:, None], axis=1)
        values = background[jnp.minimum(chosen, background.shape[0] - 1)]
        return jnp.where((members & ~mask)[None], values, rows)

    return draw
