"""The NumPyro model of a causal graph whose variables have mechanisms.

The change of an outcome between two tables is divided among the mechanisms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import numpyro
import xarray as xr
from jaxtyping import Array, Bool, Float
from numpyro import distributions as dist
from numpyro import handlers

from kpp.causal import CausalDAG
from kpp.causal.toolkit import as_causal_graph
from kpp.explanations import Explanation
from kpp.foundation.validation import check_rng_key, count, one_of
from kpp.foundation.wording import named
from kpp.games import all_coalitions, shapley_values_from_table
from kpp.gp import GaussianLikelihood
from kpp.inference.toolkit import draw_map, flatten_draws, unflatten_draws
from kpp.priors import sample as draw_priors
from kpp.runtime.memory import check_count
from kpp.typing import RngKey
from kpp_models.mechanisms.mechanism import AbstractMechanism, Causes, LinearMechanism, Training
from kpp_models.mechanisms.tables import check_support, common_length, read_columns, read_units
from kpp_models.mechanisms.units import counterfactual_units, draw_units, read_draws, split_draw

_PLATE = "rows"


class StructuralModel(eqx.Module):
    r"""The structural causal model of a graph, as a NumPyro model of a table.

    .. math:: p(v \mid \theta) = \prod_i \int \prod_k N(u_{ik}; 0, 1) \prod_j
        p_j(v_{ij} \mid \mathrm{pa}_{ij}, u_i, \theta_j)\, du_i

    ``model(table)`` is a NumPyro model function. Each node of the graph is a site of its name, with one value for each
    row; a node without a column in the table is latent. Each bidirected edge a <-> b is a latent site ``a <-> b``, a
    standard normal cause of both. Mechanisms are drawn first, with the sites ``y.coefficients.x`` and so on.
    `numpyro.handlers.do` intervenes: ``do(model, {"x": 1.0})``. `kpp.causal.CausalDAG.from_numpyro` reads the graph
    back, with ``plate="rows"``.

    Args:
        graph: The causal graph; see `kpp.causal.as_graph`.
        mechanisms: A mechanism for some nodes, by name.
        default: The mechanism of other nodes that have parents; by default `LinearMechanism`. Other nodes without
            parents are normal with a prior for mean and variance, and latent ones are standard normal.

    Raises:
        CausalError: If the graph is not a causal graph.
        ValueError: If a mechanism is for an unknown node, or does not fit the node's parents, or a node has the name of
            another site.
        TypeError: If a mechanism is of another type.

    Example:
        >>> graph = kpp.causal.CausalDAG([("age", "dose"), ("age", "rate"), ("dose", "rate")])
        >>> model = kpp_models.StructuralModel(graph)
        >>> sorted(model.graph.parents("rate"))
        ['age', 'dose']
    """

    graph: CausalDAG = eqx.field(static=True)
    mechanisms: dict[str, AbstractMechanism]

    def __init__(
        self, graph: Any, mechanisms: Mapping[str, Any] | None = None, *, default: AbstractMechanism | None = None
    ):
        known = as_causal_graph(graph)
        if _PLATE in known:
            raise ValueError(f"`graph` must not have a node {_PLATE!r}, the name of the plate: rename the node")
        given = dict(mechanisms or {})
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ValueError(
                f"`mechanisms` is given for {named(unknown)}, which are not among the nodes {named(known.nodes)}"
            )
        self.graph = known
        self.mechanisms = {node: self._resolve(node, given.get(node), default) for node in known.topological_order()}

    def _resolve(self, node: str, given: object, default: AbstractMechanism | None) -> AbstractMechanism:
        parents = tuple(self._parents(node))
        mechanism = default if given is None and parents else given
        if mechanism is None and not parents and node in self.graph.latent:  # its location and scale are arbitrary
            mechanism = LinearMechanism(intercept=0.0, likelihood=GaussianLikelihood(noise_variance=1.0))
        elif mechanism is None:
            mechanism = LinearMechanism()
        if not isinstance(mechanism, AbstractMechanism):
            raise TypeError(f"`mechanisms` must hold mechanisms, got {type(mechanism).__name__} for {node!r}")
        loadings = {cause: _loading_prior(first=ends[0] == node) for cause, ends in self.hidden.items() if node in ends}
        return mechanism.resolve(node, parents, loadings)

    @property
    def hidden(self) -> dict[str, tuple[str, ...]]:
        """The hidden common causes of the bidirected edges, each with the two variables that it causes."""
        full: nx.DiGraph = self.graph.canonical()
        causes = [node for node in full if node not in self.graph]
        return {cause: tuple(self.graph.sort(full.successors(cause))) for cause in causes}

    def __call__(
        self, table: object = None, *, num_rows: int | None = None, training: object = None
    ) -> dict[str, Array]:
        """Run the NumPyro model.

        Args:
            table: The columns by name, (n,) each: a mapping or a data frame, whose columns are nodes. Nodes without a
                column are latent. None to draw all nodes.
            num_rows: n, needed without a table.
            training: Rows that are known already, for the law of n new rows: the columns of all nodes whose mechanism
                is a Gaussian process, of their parents and of their hidden causes. The parameters must then be
                conditioned on these rows, too, as `numpyro.infer.Predictive` does by draws from the posterior.

        Returns:
            For each node and each hidden common cause its values, (n,).

        Raises:
            ValueError: If a column is invalid or missing, or the number of rows is unknown.
        """
        columns = read_columns(table, self.graph.nodes, "table")
        known = read_columns(training, (*self.graph.nodes, *self.hidden), "training")
        size = self._size(columns, num_rows)
        plate = numpyro.plate(_PLATE, size, dim=-1)
        values: dict[str, Array] = {}
        for cause in self.hidden:
            values[cause] = _sample(cause, dist.Normal(0.0, 1.0), None, plate)
        for node, mechanism in self.draw_mechanisms().items():
            past = self.past(node, known) if known and mechanism.needs_training else None
            law = mechanism.law(self.inputs(node, values, size), past)
            check_support(law.support, columns.get(node), f"table[{node!r}]")
            values[node] = _sample(node, law, columns.get(node), plate)
        return values

    def draw(
        self,
        rng_key: RngKey,
        posterior: object,
        training: object,
        *,
        num_rows: int | None = None,
        do: Mapping[str, Any] | None = None,
    ) -> xr.Dataset:
        r"""Draw new rows from the posterior predictive law, under an intervention or without one.

        .. math:: v^{(s)} \sim p(v \mid do(x), \theta^{(s)}, D), \qquad \theta^{(s)} \sim p(\theta \mid D)

        All rows of one draw have the same mechanisms, so that differences between rows with different interventions are
        effects: ``do={"x": np.repeat([0.0, 1.0], 100)}``.

        Args:
            rng_key: A JAX random key.
            posterior: Draws of the latent sites of ``model(table)``: a dict, (draw, ...) or (chain, draw, ...), a
                NumPyro MCMC that has run, an ArviZ InferenceData, a DataTree, or its group posterior. An empty dict for
                a model in which nothing is unknown.
            training: The table that the posterior was inferred from.
            num_rows: The number p of rows of each draw; by default as many as in the table.
            do: For each variable that is set its value, a number or (p,).

        Returns:
            A dataset with one variable for each node, with the dimensions ``chain``, ``draw`` and ``row``.

        Raises:
            ValueError: If draws of a site are missing, the table is invalid, or `do` names an unknown node or has
                another shape.
        """
        columns = read_columns(training, self.graph.nodes, "training")
        size = common_length(columns) if num_rows is None else count(num_rows, "num_rows")
        check_count(size, "num_rows", len(self.graph.nodes))
        return draw_units(self, rng_key, posterior, columns, size, do or {})

    def counterfactual(
        self, rng_key: RngKey, posterior: object, training: object, unit: object = None, *, do: Mapping[str, Any]
    ) -> xr.Dataset:
        r"""Draw what the variables of units would have been under an intervention, given what they were.

        .. math:: v'^{(s)} \sim p(v_{do(x)} \mid v, \theta^{(s)}, D), \qquad \theta^{(s)} \sim p(\theta \mid D)

        Three steps for each draw: hidden causes u and noise are drawn given the unit (abduction), the mechanisms of the
        variables of `do` are replaced by its values (action), and the others give new values with the same hidden
        causes and the same noise (prediction). A variable that `do` does not affect keeps its value.

        * Numbers with Gaussian or Student-t noise keep their residual, :math:`y' = y + f' - f`.
        * Labels, levels and counts keep their quantile r: :math:`r \sim U(F(y - 1; f), F(y; f))`, and y' is the least
          value with :math:`F(y'; f') > r`. That y' grows with f is an assumption, which no data can test:
          `kpp_models.causation_bounds` says what holds without it.
        * Hidden causes of numbers with Gaussian noise are drawn exactly; 256 candidates are weighted by the likelihood
          of the other variables that they affect.

        The unit informs its hidden causes and noise, and not the mechanisms: they are those of the table, which should
        hold the unit if it is not one of many.

        Args:
            rng_key: A JAX random key.
            posterior: Draws of the latent sites of ``model(training)``; see `draw`.
            training: The table that the posterior was inferred from.
            unit: The columns of p units, with all nodes; by default the rows of the table.
            do: For each variable that is set its value, a number or (p,).

        Returns:
            A dataset with one variable for each node, with the dimensions ``chain``, ``draw`` and ``row``.

        Raises:
            ValueError: If a node has no column, a likelihood has no noise of these kinds, or an argument is invalid;
                see `draw`.

        References:
            Pearl (2009), Causality, theorem 7.1.7.
        """
        columns = read_columns(training, self.graph.nodes, "training")
        units = read_units(unit, columns, self.graph.nodes)
        check_count(common_length(units), "unit", 2 * len(self.graph.nodes))
        for node, mechanism in self.mechanisms.items():
            check_support(mechanism.likelihood.support, units[node], f"unit[{node!r}]")
        return counterfactual_units(self, rng_key, posterior, columns, units, do)

    def attribute_change(
        self,
        rng_key: RngKey,
        first: object,
        second: object,
        *,
        outcome: str,
        statistic: Callable[[Float[Array, " n"]], Any] = jnp.mean,
        num_rows: int = 1000,
    ) -> Explanation:
        r"""Divide the change of an outcome between two periods or groups among the mechanisms.

        .. math:: v(S) = T\Bigl[\prod_{k \in S} p_2(v_k \mid \mathrm{pa}_k) \prod_{k \notin S}
            p_1(v_k \mid \mathrm{pa}_k)\Bigr]

        v(S) is a statistic T of the outcome if the mechanisms in S are those of the second period, and the others those
        of the first. The Shapley values of this game sum to the change of the statistic, for each draw of the two
        posteriors. Mechanisms of variables that share hidden causes are one player, since only their joint law is
        identified; those of variables that do not affect the outcome are left out.

        v(S) is computed from n simulated rows, with the same random numbers for all S. The draws also vary as
        statistics of n rows do, so take more rows than the tables have.

        Args:
            rng_key: A JAX random key.
            first: The first period, a pair: draws of the latent sites of ``model(table)``, as for `draw`, and the
                table, with a column for each node.
            second: The second period, likewise, with as many chains and draws.
            outcome: The node whose change is explained.
            statistic: T, a JAX function from the outcome in the simulated rows, (n,), to a number.
            num_rows: The number n of simulated rows.

        Returns:
            The explanation, with draws: one instance, the outcome, and one feature per mechanism. Base value and
            prediction are the statistics of the two periods under the model, and the attribute ``observed_change`` is
            their difference in the tables.

        Raises:
            TypeError: If a period is not a pair.
            ValueError: If a table is invalid, draws are missing or their numbers differ, `outcome` is not a node, or
                more than 12 mechanisms affect it.

        References:
            Budhathoki, Janzing, Bloebaum and Ng, Why did the distribution change?, 2021.
        """
        return change_between(self, rng_key, {"first": first, "second": second}, outcome, statistic, num_rows)

    def draw_mechanisms(self) -> dict[str, AbstractMechanism]:
        """Draw the mechanisms, in the order of causes and effects; the NumPyro model without its variables."""
        order = self.graph.topological_order()  # a dict of a pytree does not keep its order
        return {node: draw_priors(node, self.mechanisms[node]) for node in order}

    @property
    def training_variables(self) -> frozenset[str]:
        """The variables whose values at known rows determine the law of new rows, besides the parameters."""
        nodes = [node for node, mechanism in self.mechanisms.items() if mechanism.needs_training]
        return frozenset(name for node in nodes for name in (*self._parents(node), *self._causes(node), node))

    def _parents(self, node: str) -> list[str]:
        return self.graph.sort(self.graph.parents(node))

    def _causes(self, node: str) -> list[str]:
        return [cause for cause, ends in self.hidden.items() if node in ends]

    def _size(self, columns: Mapping[str, Array], num_rows: int | None) -> int:
        if num_rows is None and not columns:
            raise ValueError("`num_rows` is needed without a column in `table`, got None")
        size = count(num_rows, "num_rows") if num_rows is not None else common_length(columns)
        check_count(size, "num_rows", len(self.graph.nodes))
        if columns and common_length(columns) != size:
            raise ValueError(f"`num_rows` must be the number of rows of `table`, {common_length(columns)}, got {size}")
        return size

    def inputs(self, node: str, values: Mapping[str, Array], num_rows: int) -> Causes:
        """Return the direct causes of a node among the values of variables."""
        parents, hidden = self._parents(node), self._causes(node)
        return Causes({name: values[name] for name in parents}, {name: values[name] for name in hidden}, num_rows)

    def past(self, node: str, known: Mapping[str, Array]) -> Training:
        """Return the known rows of a node and its direct causes; raise ValueError if one is missing."""
        missing = [name for name in (*self._parents(node), *self._causes(node), node) if name not in known]
        if missing:
            raise ValueError(
                f"`training` must hold {named(missing)} for the mechanism of {node!r}, got {named(known)}; "
                "StructuralModel.draw takes the draws of latent variables"
            )
        return Training(self.inputs(node, known, common_length(known)), known[node])


def _sample(name: str, law: dist.Distribution, observed: Array | None, plate: Any) -> Array:
    """Sample a site, in the plate if its rows are independent; an intervention may give one number for all rows."""
    if law.event_shape:
        value = numpyro.sample(name, law, obs=observed)
    else:
        with plate:
            value = numpyro.sample(name, law, obs=observed)
    return jnp.broadcast_to(jnp.asarray(value), (plate.size,))


def _loading_prior(*, first: bool) -> dist.Distribution:
    return dist.HalfNormal(1.0) if first else dist.Normal(0.0, 1.0)


# All 2^g coalitions are simulated for each draw of the posterior.
_MAX_PLAYERS = 12


def change_between(
    model: Any, rng_key: RngKey, periods: dict[str, Any], outcome: str, statistic: Callable[[Array], Any], num_rows: int
) -> Explanation:
    """Return `StructuralModel.attribute_change`, for two periods by the names of their arguments."""
    graph = model.graph
    one_of(outcome, "outcome", graph.nodes)
    check_count(count(num_rows, "num_rows"), "num_rows", len(graph))
    relevant = graph.ancestors(outcome) | {outcome}
    players = [graph.sort(district & relevant) for district in graph.districts() if district & relevant]
    if len(players) > _MAX_PLAYERS:
        raise ValueError(f"`outcome` must depend on at most {_MAX_PLAYERS} mechanisms, got {len(players)}")
    (first, before), (second, after) = (_read_period(model, period, name) for name, period in periods.items())
    shape, other = (next(iter(draws.values())).shape[:2] if draws else (1, 1) for draws in (first, second))
    if shape != other:
        raise ValueError(f"`second` must have as many chains and draws as `first`, {shape}, got {other}")
    chains, num_draws = shape
    coalitions = jnp.asarray(all_coalitions(len(players)))
    player = {node: number for number, group in enumerate(players) for node in group}
    shared = (model, check_rng_key(rng_key), flatten_draws(second), (before, after), coalitions, player)
    numbers, arguments = jnp.arange(chains * num_draws), (*shared, outcome, statistic, num_rows)
    values = draw_map(_values_of_draw)(flatten_draws(first), numbers, arguments)
    table = np.asarray(unflatten_draws(values, (chains, num_draws)))  # (chain, draw, coalition)
    parts = np.asarray(shapley_values_from_table(np.moveaxis(table, -1, 0)))
    names = [", ".join(group) for group in players]
    return Explanation.create(
        np.moveaxis(parts, 0, -1)[..., None, :],
        table[..., :1],
        table[..., -1:],
        np.full((1, len(names)), np.nan),
        feature_names=names,
        instance_names=[outcome],
        draws=True,
        groups=dict(zip(names, players, strict=True)),
        attrs={"observed_change": float(statistic(after[outcome]) - statistic(before[outcome]))},
    )


def _read_period(model: Any, period: Any, argument: str) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the draws of the posterior of a period, and its table."""
    if not isinstance(period, tuple) or len(period) != 2:
        raise TypeError(f"`{argument}` must be a pair (posterior, table), got {type(period).__name__}")
    columns = read_units(period[1], {}, model.graph.nodes, argument)
    return read_draws(model, period[0], columns), columns


def _values_of_draw(draw: dict[str, Array], number: Array, shared: Any) -> Float[Array, " c"]:
    """Return the statistic of the outcome for each coalition, whose mechanisms are those of the second period."""
    model, rng_key, others, tables, coalitions, player, outcome, statistic, num_rows = shared
    order = [node for node in model.graph.topological_order() if node in player]
    key, *keys = jax.random.split(jax.random.fold_in(rng_key, number), 1 + len(order) + len(model.hidden))
    # The same random numbers for all coalitions and both periods, so that they cancel in the differences.
    key_of = dict(zip((*order, *model.hidden), keys, strict=True))
    periods = []
    for table, sites in zip(tables, (draw, jax.tree.map(lambda values: values[number], others)), strict=True):
        parameters, variables = split_draw(model, sites)
        mechanisms = handlers.seed(handlers.substitute(model.draw_mechanisms, data=parameters), key)()
        periods.append((mechanisms, table | variables))

    def value(coalition: Bool[Array, " g"]) -> Float[Array, ""]:
        rows = {cause: jax.random.normal(key_of[cause], (num_rows,)) for cause in model.hidden}
        for node in order:
            causes, drawn = model.inputs(node, rows, num_rows), []
            for mechanisms, known in periods:
                past = model.past(node, known) if mechanisms[node].needs_training else None
                drawn.append(mechanisms[node].law(causes, past).sample(key_of[node]))
            rows[node] = jnp.where(coalition[player[node]], drawn[1], drawn[0])
        return jnp.asarray(statistic(rows[outcome]), float)

    with jax.numpy_rank_promotion("allow"):  # NumPyro broadcasts arrays of different ranks
        return jax.lax.map(value, coalitions)
