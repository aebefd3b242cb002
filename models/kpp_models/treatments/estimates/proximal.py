"""Proximal regression: the effect of treatments whose hidden causes have proxies, also called negative controls."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import pandas as pd

from kpp.causal import CausalDAG, CausalError, d_connecting_path, d_separated, is_adjustment_set
from kpp.causal.toolkit import as_causal_graph, as_nodes, check_disjoint
from kpp.data.tables import Schema, as_frame, as_names, check_columns, read_points
from kpp.foundation.wording import brief, named
from kpp_models.treatments.instruments import InstrumentalRegression, instrumental_regression

_Names = Sequence[str]


def proximal_regression(
    frame: pd.DataFrame,
    *,
    treatment: str | _Names,
    outcome: str,
    treatment_proxies: str | _Names,
    outcome_proxies: str | _Names,
    covariates: str | _Names = (),
    graph: Any = None,
    hidden: str | _Names = (),
    **options: Any,
) -> InstrumentalRegression:
    r"""Fit the effect of one or several treatments with proxies of their hidden causes, in closed form.

    .. math:: E[Y - f(X, W, C) \mid X, Z, C] = 0, \qquad E[Y \mid do(x)] = E[f(x, W, C)]

    The first equation is that of an `instrumental_regression` of Y on (X, W) with the instruments (X, Z), whose
    posterior f has. The second holds under three assumptions, with U for the hidden causes:

    * U and C together are an adjustment set for the effect of X on Y.
    * Z is independent of Y given (X, U, C), and W is independent of (X, Z) given (U, C).
    * The proxies tell enough of U (completeness): if a function g has :math:`E[g(U) \mid x, Z, C] = 0` for all Z, it is
      0; and there is an f with :math:`E[f(x, W, C) \mid U, C] = E[Y \mid x, U, C]`. For this, Z and W need at least as
      many levels as U has, or as many columns.

    A graph can imply the first two. No table can show the third: where it fails, the intervals do not widen.

    Args:
        frame: The table of n rows. Columns of text are categories.
        treatment: The columns of X, the treatments.
        outcome: The column of Y, of numbers.
        treatment_proxies: The columns of Z, which affect Y at most through X.
        outcome_proxies: The columns of W, which neither X nor Z affects.
        covariates: The columns of C, which may affect all others.
        graph: The causal graph, if the first two assumptions are to be checked; see `kpp.causal.as_graph`.
        hidden: The nodes of U in the graph.
        options: The kernels and regularizations of `instrumental_regression`, for the columns of X, W and C, and of the
            instruments X, Z and C.

    Returns:
        The regression. Its `effect` takes values of X, and averages over W and C, which count as their distribution.

    Raises:
        CausalError: If the graph does not imply the assumptions; it says which one fails, and shows a path.
        ValueError: If columns are missing or have two roles, there are no proxies, or not more rows than columns, or as
            for `instrumental_regression`.

    References:
        Mastouri et al., Proximal causal learning with kernels: two-stage estimation and moment restriction, 2021; Miao,
        Geng and Tchetgen Tchetgen, Identifying causal effects with proxy variables of an unmeasured confounder, 2018.
    """
    x, z, w, c, u = map(as_names, (treatment, treatment_proxies, outcome_proxies, covariates, hidden))
    roles = {"treatment": x, "outcome": (outcome,), "treatment_proxies": z, "outcome_proxies": w, "covariates": c}
    check_disjoint(**{name: frozenset(columns) for name, columns in roles.items()})
    for name in ("treatment", "treatment_proxies", "outcome_proxies"):
        if not roles[name]:
            raise ValueError(f"`{name}` must name at least one column, got none")
    if u and graph is None:
        raise ValueError(f"`hidden` needs the argument `graph`, got {named(u)} alone")
    if graph is not None:
        _check_graph(as_causal_graph(graph), outcome, x, z, w, c, u)
    table = as_frame(frame, "frame")
    check_columns(table.columns, [*x, outcome, *z, *w, *c], "frame")
    points, _ = read_points(table[[*x, *w, *c, *z]], "frame")
    if len(points) <= points.shape[1]:
        raise ValueError(f"`frame` must have more rows than the {points.shape[1]} columns used, got {len(points)}")
    y, given = Schema((outcome,)).read(table, "frame")[:, 0], table[[*c]] if c else None
    found = instrumental_regression(table[[*x, *w]], y, table[[*x, *z]], given, **options)
    averaged = jnp.asarray(points[:, len(x) : len(x) + len(w) + len(c)])
    return dataclasses.replace(found, covariates=averaged, schema=read_points(table[[*x]], "frame")[1])


def _check_graph(graph: CausalDAG, y: str, x: _Names, z: _Names, w: _Names, c: _Names, u: _Names) -> None:
    """Raise CausalError unless the hidden causes are an adjustment set and the proxies are independent given them."""
    latent = graph.latent - as_nodes(graph, u, "hidden")
    full = CausalDAG(graph.edges, nodes=graph.nodes, bidirected=graph.bidirected, latent=latent)
    check = is_adjustment_set(full, treatment=x, outcome=y, adjusting=[*u, *c])
    if not check:
        raise CausalError(f"`hidden` and `covariates`, {named([*u, *c])}, must be an adjustment set: {check}")
    sides = {"treatment_proxies": (z, [y], [*x, *c]), "outcome_proxies": (w, [*x, *z], c)}
    for name, (proxies, others, given) in sides.items():
        path = d_connecting_path(full, proxies, others, [*given, *u])
        if path is not None:
            raise CausalError(
                f"`{name}` {named(proxies)} must be independent of {named(others)} given {named([*given, *u])}; see "
                f"the path {brief(path)}"
            )
        silent = [cause for cause in u if d_separated(full, proxies, cause, given)]
        if silent:
            raise CausalError(f"`{name}` {named(proxies)} must depend on {named(silent)} given {named([*given])}")
