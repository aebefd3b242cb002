"""`kpp.curve` and `kpp.gradient`: how the prediction depends on one or two features, and its derivatives."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Int

from kpp import registry
from kpp.data.tables import Schema, as_names
from kpp.explanations.toolkit import describe_key
from kpp.foundation.arguments import guard_exports
from kpp.foundation.caution import KppWarning
from kpp.foundation.validation import as_targets, count, one_of
from kpp.functionals import Average, FunctionalLaw, Gradient, Values
from kpp.functionals.toolkit import PartialDependence
from kpp.games import AbstractImputation, CoalitionValues
from kpp.inspection.curves.inspected import Inspected
from kpp.inspection.curves.result import Curve
from kpp.kernels.toolkit import has_product_terms
from kpp.runtime.programs import release_programs
from kpp.typing import RngKey

CurveKind = Literal["partial", "individual", "accumulated", "causal", "observational"]
# The kinds that are the game of one feature, by the registered names of the games.
_GAMES = ("causal", "observational")
_KINDS = ("partial", "individual", "accumulated", "causal", "observational")
_KINDS_OF_TWO = ("partial", *_GAMES)
# The values of a grid by default, those of each of two features, and the largest number of individual curves.
_NUM_VALUES, _NUM_OF_EACH, _INDIVIDUAL = 20, 8, 50
# The largest numbers of rows: under a product kernel, another kernel, of probabilities with joint draws at all rows and
# values, and of a function that is called, for averages and for games.
_ROWS = {"partial": 500, "accumulated": 200, "observational": 100, "causal": 50}
_ROWS_OF_KERNEL, _JOINT_POINTS, _ROWS_OF_CALLABLE = 50, 1000, (4000, 1000)
# The largest number of weights of a matrix from all rows and values to the values.
_MAX_WEIGHTS = 4 * 10**7
# The draws of a curve if there is only one draw of the hyperparameters.
_NUM_DRAWS = 200


def curve(
    predictor: object,
    x: object,
    feature: str | Sequence[str],
    *,
    kind: CurveKind = "partial",
    grid: object = None,
    scale: str = "auto",
    output: str | int | None = None,
    rng_key: RngKey | None = None,
    **options: object,
) -> Curve:
    r"""Compute how the prediction depends on one or two features, with its uncertainty.

    With the feature :math:`x_j` and the other features z, the kinds are

    * "partial" (partial dependence): :math:`\frac1n \sum_i f(t, z_i)`, the mean prediction if the feature of all rows
      is set to t;
    * "individual" (individual conditional expectation): :math:`f(t, z_i)` for each row;
    * "accumulated" (accumulated local effects): the mean changes of the prediction between neighboring values of the
      grid, each over the rows between them, added up, with mean 0 over the rows. The values of the other features occur
      together with that of the feature, so no combination is far from the data;
    * "causal": :math:`\mathrm{E}[f(X) \mid do(X_j = t)]`, by `kpp.games.Causal`;
    * "observational": :math:`\mathrm{E}[f(X) \mid X_j = t]`, by `kpp.games.Observational`.

    All of them are linear in f. Under a Gaussian process the curve has a joint Gaussian law given the hyperparameters,
    of which intervals and bands are computed. Other functions with draws give a curve for each draw. A function without
    draws gives one curve; that of the kinds "partial" and "accumulated" has the standard errors that come from the
    sampling of the rows.

    Args:
        predictor: A predictor that `kpp.explain` takes.
        x: The rows, (n, d), or a data frame. There are at most 50 individual curves. The other curves take rows at even
            steps, the attribute ``rows`` says how many: under a Gaussian process with a product kernel up to 500 for
            "partial", 200 for "accumulated", 100 for "observational" and 50 for "causal"; 50 under another kernel, and
            1000 / p for p values of a probability, which is drawn jointly at all rows; for a function without law up
            to 4000, and 1000 for the last two kinds.
        feature: The name of the feature; ``x0``, ``x1``, ... for an array. A tuple of two names gives a surface over
            all pairs of values, of the kinds "partial", "causal" and "observational".
        kind: The kind of the curve.
        grid: The number of values of the feature, quantiles of it at even steps, or the values themselves; 20 by
            default. For a category its levels; a number means all of them. For two features a tuple of two grids, or
            one number for both; 8 by default.
        scale: "latent", or "probability" for a classifier; "auto" takes the probability if there is one.
        output: The output, by name or position, if the predictor has several. By default the second of two classes.
        rng_key: A JAX random key for the draws; the key 0 by default.
        **options: Fields of the value function of the kinds "causal", which needs ``graph``, and "observational".

    Returns:
        The curve. Its attribute ``uncertainty`` says what the intervals hold: "full" or "function only" under a
        Gaussian process (see `kpp.explain`), "draws" of another function, "rows only", or "none".

    Raises:
        TypeError: If the predictor cannot be read, or an option is unknown or missing.
        ValueError: If the rows, the feature or the grid are invalid, or the feature is a category and the curve
            "accumulated": its levels have no order in which to add up changes; or there are two features and the kind
            is another one than those above.

    Example:
        >>> kpp.curve(fit, x, "x0", grid=[-1.0, 0.0, 1.0])
        Curve(partial of 'x0': {'chain': 1, 'draw': 200, 'grid': 3}, uncertainty: full)

    References:
        Friedman, Greedy function approximation, 2001; Goldstein, Kapelner, Bleich and Pitkin, Peeking inside the black
        box, 2015; Apley and Zhu, Visualizing the effects of predictor variables in black box supervised learning
        models, 2020.
    """
    one_of(kind, "kind", _KINDS)
    release_programs()
    key = jax.random.key(0) if rng_key is None else rng_key
    subject = Inspected.read(predictor, x, scale=scale, output=output, rng_key=jax.random.fold_in(key, 1))
    if isinstance(feature, str):
        found = _read_grid(_NUM_VALUES if grid is None else grid, subject.rows, subject.schema, feature)
    else:
        one_of(kind, "kind", _KINDS_OF_TWO)
        feature = tuple(feature)
        found = _read_pair(grid, subject.rows, subject.schema, feature, _NUM_OF_EACH)
    num_rows = min(len(subject.rows), _max_rows(kind, subject, len(found.values)))
    rows = subject.rows[np.linspace(0, len(subject.rows) - 1, num_rows).round().astype(int)]
    if len(rows) < 2 and kind != "individual":
        raise ValueError(f"`x` must have at least 2 rows for a curve of kind {kind!r}, got {len(rows)}")
    game = _game(kind, rows, subject.schema, options)
    laws, uncertainty = _laws(kind, subject, rows, found, game)
    if not all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(laws)):
        raise FloatingPointError(f"the curve of {feature!r} is NaN or infinite; set a larger `regularization`")
    attrs: dict[str, Any] = {
        "kind": kind,
        "feature": feature,
        "scale": subject.scale,
        "uncertainty": uncertainty,
        "centered": False,
    }
    attrs |= {"rows": f"{len(rows)} of {len(subject.rows)}", "rng_key": describe_key(key)}
    dataset = _dataset(laws, found, key).assign_attrs(attrs)
    return Curve(dataset if kind == "individual" else dataset.isel(instance=0))


def _max_rows(kind: str, subject: Inspected, num_values: int) -> int:
    """Return the largest number of rows whose curve takes little time."""
    if kind == "individual":
        return _INDIVIDUAL
    if subject.outputs is not None:
        return max(2, min(_ROWS_OF_CALLABLE[kind in _GAMES], _MAX_WEIGHTS // num_values**2))
    if subject.scale == "probability":
        return max(2, _JOINT_POINTS // num_values)
    is_product = subject.kernel is not None and has_product_terms(subject.kernel)
    return _ROWS[kind] if is_product else _ROWS_OF_KERNEL


def _game(kind: str, rows: np.ndarray, schema: Schema, options: Mapping[str, Any]) -> AbstractImputation | None:
    """Return the value function of a kind; raise TypeError for options that it does not have."""
    cls: Any = registry.value_functions()[kind] if kind in _GAMES else None
    names = [] if cls is None else [field.name for field in dataclasses.fields(cls) if field.init]
    own = sorted({*names} - {"background", "feature_names"})
    unknown = sorted({*options} - {*own})
    if unknown:
        raise TypeError(f"unknown options {', '.join(f'`{name}`' for name in unknown)}: the kind {kind!r} takes {own}")
    if kind == "causal" and "graph" not in options:
        raise TypeError("the kind 'causal' needs `graph`, the causal graph of the features")
    if cls is None:
        return None
    named = {"feature_names": schema.feature_names} if kind == "causal" and not schema.has_default_names else {}
    return cls(rows, **named, **options)


def _laws(
    kind: str, subject: Inspected, rows: np.ndarray, grid: _Grid, game: AbstractImputation | None
) -> tuple[list[FunctionalLaw], str]:
    """Return the law of the curve, or those of the individual curves, and what they hold."""
    points = grid.at(rows)
    if kind == "individual":
        return [subject.law(Values(points[:, i])) for i in range(len(rows))], subject.uncertainty
    if kind == "accumulated":
        ends, weights, strata = _local_effects(rows, grid)
    elif kind == "partial" and (subject.outputs is not None or subject.scale == "probability"):
        # The values of one row stand together.
        ends = points.transpose(1, 0, 2).reshape(-1, rows.shape[1])
        weights, strata = np.tile(np.eye(len(points)) / len(rows), len(rows)), np.zeros(len(rows), int)
    elif game is None:
        return [_partial(subject, rows, grid)], subject.uncertainty
    else:
        coalition = np.isin(np.arange(rows.shape[1]), grid.column)[None]
        return [subject.law(CoalitionValues(game, points[:, 0], coalition))], subject.uncertainty
    law = subject.law(Average(ends, weights))
    if subject.outputs is None or subject.uncertainty != "none":
        return [law], subject.uncertainty
    values = subject.outputs.with_draws(ends).reshape(-1)
    covariance = jnp.asarray(_sampling_covariance(values, weights, strata))
    return [FunctionalLaw(law.mean.reshape(-1), covariance)], "rows only"


class _LocalEffects(NamedTuple):
    """The points whose weighted predictions are accumulated local effects."""

    points: Float[np.ndarray, "k d"]  # each row at the lower and then at the upper end of its interval
    weights: Float[np.ndarray, "p k"]  # of the predictions, for each value of the grid
    intervals: Int[np.ndarray, " m"]  # of the rows


def _local_effects(rows: Float[np.ndarray, "n d"], grid: _Grid) -> _LocalEffects:
    r"""Return points and weights of accumulated local effects with mean 0 over the rows.

    .. math:: g(z_k) = \sum_{l \le k} \frac{1}{n_l} \sum_{i:\, z_{l-1} < x_{ij} \le z_l}
        \bigl(f(z_l, x_{i, -j}) - f(z_{l-1}, x_{i, -j})\bigr) - c

    The constant c makes the mean of :math:`(g(z_{k-1}) + g(z_k)) / 2` over the m rows inside of the grid 0. A row at
    the first value of the grid belongs to the first interval. These are equations 15 and 16 of Apley and Zhu (2020).

    Raises ValueError if the feature is a category, or an interval has no rows.
    """
    if grid.is_category:
        raise ValueError(
            "`kind` 'accumulated' adds up changes between neighboring values, and the levels of a category have no "
            "order; use 'partial' or 'individual', or give the levels as numbers whose order has a meaning"
        )
    values, column = grid.values, rows[:, grid.column]
    inside = rows[(column >= values[0]) & (column <= values[-1])]
    intervals = np.maximum(np.searchsorted(values, inside[:, grid.column]), 1) - 1
    counts = np.bincount(intervals, minlength=len(values) - 1)
    if (counts == 0).any():
        k = int(np.flatnonzero(counts == 0)[0])
        raise ValueError(
            f"`grid` must have rows of `x` between neighboring values, got none from {values[k]:g} to "
            f"{values[k + 1]:g}; give fewer values, or quantiles of the feature"
        )
    ends = np.repeat(inside[:, None], 2, axis=1)
    ends[:, :, grid.column] = np.stack([values[intervals], values[intervals + 1]], axis=1)
    effects = (intervals == np.arange(len(counts))[:, None]) / counts[:, None]
    sums = np.concatenate([np.zeros((1, len(inside))), np.cumsum(effects, axis=0)])
    centered = sums - counts / counts.sum() @ (sums[:-1] + sums[1:]) / 2
    weights = centered[:, :, None] * np.array([-1.0, 1.0])
    return _LocalEffects(ends.reshape(-1, rows.shape[1]), weights.reshape(len(values), -1), intervals)


def _partial(subject: Inspected, rows: np.ndarray, grid: _Grid) -> FunctionalLaw:
    """Return the law of partial dependence; grids of up to 20 values share a compiled program."""
    size = len(grid.values)
    values = np.concatenate([grid.values, np.repeat(grid.values[-1:], max(0, _NUM_VALUES - size), axis=0)])
    law = subject.law(PartialDependence(rows, grid.column, values))
    return FunctionalLaw(law.mean[..., :size], law.covariance[..., :size, :size])


def _sampling_covariance(
    values: Float[np.ndarray, " k"], weights: Float[np.ndarray, "q k"], strata: np.ndarray
) -> Float[np.ndarray, "q q"]:
    """Return the covariance of weighted sums from the sampling of the rows, whose values stand together.

    The weights depend on the stratum of a row only, and the number of rows of a stratum counts as fixed.
    """
    parts = (weights * values).reshape(len(weights), len(strata), -1).sum(axis=-1)
    total = np.zeros((len(weights), len(weights)))
    for stratum in np.unique(strata):
        own = parts[:, strata == stratum]
        size = own.shape[1]
        centered = own - own.mean(axis=1, keepdims=True)
        total += size / max(1, size - 1) * centered @ centered.T
    return total


def _dataset(laws: Sequence[FunctionalLaw], grid: _Grid, rng_key: RngKey) -> xr.Dataset:
    """Return draws of the curves, and their laws given each draw of the hyperparameters."""
    size, shape = len(grid.values), laws[0].mean.shape[:-1]
    means = np.stack([np.asarray(law.mean).reshape(-1, size) for law in laws], axis=1)
    covariances = np.stack([np.asarray(law.covariance).reshape(-1, size, size) for law in laws], axis=1)
    has_law = bool(covariances.any())
    num = _NUM_DRAWS if has_law and len(means) == 1 else 1
    keys = jax.random.split(rng_key, len(laws))
    sampled = [law.sample(key, num) if has_law else law.mean for law, key in zip(laws, keys, strict=True)]
    chains = shape[0] if len(shape) == 2 else 1
    draws = np.stack([np.asarray(drawn).reshape(chains, -1, size) for drawn in sampled], axis=2)
    variables: dict[str, Any] = {
        "draws": (("chain", "draw", "instance", "grid"), draws),
        "mean": (("law", "instance", "grid"), means),
        "data": (("row", "feature")[: grid.data.ndim], grid.data),
    }
    if has_law:
        variables["covariance"] = (("law", "instance", "grid", "grid_other"), covariances)
    labels: Any = {"grid": grid.labels}
    if grid.data.ndim == 2:
        labels = xr.Coordinates.from_pandas_multiindex(
            pd.MultiIndex.from_tuples(grid.labels, names=["first", "second"]), "grid"
        )
    return xr.Dataset(variables, coords=labels)


class _Grid(NamedTuple):
    """The values of a feature, or the pairs of values of two features."""

    column: int | Int[np.ndarray, "2"]  # the position of the feature, or those of both
    values: Float[np.ndarray, "p *pair"]  # as the model takes them, codes for a category
    labels: list[Any]  # as the table has them
    data: Float[np.ndarray, "n *pair"]  # of the rows
    is_category: bool  # or a boolean; of two features whether one is

    def at(self, rows: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "p m d"]:
        """Return rows with each of the values in the column."""
        points = np.repeat(rows[None], len(self.values), axis=0)
        points[:, :, self.column] = self.values[:, None]
        return points


def _read_pair(grid: Any, rows: Float[np.ndarray, "n d"], schema: Schema, features: tuple[str, ...], num: int) -> _Grid:
    """Read the values of two features, or choose some number of each, and return all pairs of them."""
    grids = grid if isinstance(grid, tuple) else (num if grid is None else grid,) * 2
    if len(features) != 2 or features[0] == features[1]:
        raise ValueError(f"`feature` must name one feature, or two different ones, got {features}")
    if len(grids) != 2:
        raise ValueError(f"`grid` must be a number, or hold a grid for each of {features}, got {len(grids)}")
    pair = [_read_grid(own, rows, schema, feature) for own, feature in zip(grids, features, strict=True)]
    first, second = np.meshgrid(*(part.values for part in pair), indexing="ij")
    return _Grid(
        np.array([part.column for part in pair]),
        np.stack([first.ravel(), second.ravel()], axis=1),
        list(itertools.product(*(part.labels for part in pair))),
        np.stack([part.data for part in pair], axis=1),
        any(part.is_category for part in pair),
    )


def _read_grid(grid: Any, rows: Float[np.ndarray, "n d"], schema: Schema, feature: str) -> _Grid:
    """Read the values of a feature, or choose as many as a number says: quantiles at even steps, or all levels.

    Raises ValueError if the feature is unknown or constant, or values are invalid.
    """
    try:
        column = schema.index(feature)
    except ValueError as error:
        raise ValueError(f"`feature`: {error}") from None
    data = rows[:, column]
    if feature in schema.categories:
        levels = list(schema.levels.get(feature, (False, True)))
        labels = levels if isinstance(grid, int) and not isinstance(grid, bool) else list(_several(grid))
        unknown = [label for label in labels if label not in levels]
        if unknown:
            raise ValueError(f"`grid` must hold levels of {feature!r}, {levels}, got {unknown[:5]}")
        return _Grid(column, np.array([float(levels.index(label)) for label in labels]), labels, data, True)
    if not isinstance(grid, (list, tuple)) and np.ndim(grid) == 0:
        places = np.linspace(0.0, 1.0, count(grid, "grid", 2))
        values = np.unique(np.quantile(data, places, method="inverted_cdf"))
        if len(values) < 2:
            raise ValueError(
                f"`x` must have at least two values of {feature!r} to choose a grid, got only {values[0]:g}; give the "
                "values in `grid`"
            )
    else:
        values = np.asarray(as_targets(grid, name="grid"), dtype=float)
        if len(values) < 2 or (np.diff(values) <= 0).any():
            raise ValueError("`grid` must hold at least two values in increasing order")
        _warn_outside(values, data, feature)
    return _Grid(column, values, values.tolist(), data, False)


def _several(grid: Any) -> Iterable[Any]:
    if isinstance(grid, (str, bytes)) or not isinstance(grid, Iterable):
        raise ValueError(f"`grid` must be a number of values or a list of values, got {grid!r}")
    return grid


def _warn_outside(values: np.ndarray, data: np.ndarray, feature: str) -> None:
    """Warn of values outside of the data, where a curve is an extrapolation."""
    low, high, near = data.min(), data.max(), data.std()
    outside = values[(values < low) | (values > high)]
    if len(outside) and len(data) > 1:
        closest = max(float((abs(data - value) <= near).mean()) for value in outside)
        warnings.warn(
            f"`grid` has {len(outside)} of {len(values)} values outside of {feature!r} in `x`, from {low:g} to "
            f"{high:g}: at most {closest:.1%} of the rows lie within a standard deviation of such a value, and the "
            "curve there is an extrapolation",
            KppWarning,
            stacklevel=5,
        )


def gradient(predictor: object, x: object, features: str | Sequence[str] | None = None) -> FunctionalLaw:
    r"""Compute the law of the derivatives of the latent function of a Gaussian process, :math:`\partial_j f(x_i)`.

    Args:
        predictor: A Gaussian process that `kpp.explain` takes.
        x: The p points, (p, d), or a data frame.
        features: The names of one or several features, all numbers; all features that are numbers by default.

    Returns:
        The joint law of the derivatives, those of the first point before those of the second, in units of the function
        per unit of the feature, for at most 100 draws of the hyperparameters (``function_posterior(at="few")``). Its
        names are those of the features, with the numbers of the points if there are several.

    Raises:
        TypeError: If the predictor is not a Gaussian process.
        ValueError: If `x` does not fit it, a feature is unknown or a category, or the functions of the kernel have no
            derivatives.

    Example:
        >>> law = kpp.gradient(fit, x[:2])
        >>> law.mean.round(1)
        Array([[[1. , 0.2, 0.8, 0.3]]], dtype=float64)
    """
    subject = Inspected.read(predictor, x, scale="latent", output=None, rng_key=jax.random.key(0))
    if subject.uncertainty not in ("full", "function only"):
        raise TypeError(f"`predictor` must be a Gaussian process, got a {type(predictor).__name__} without its law")
    rows, schema = subject.rows, subject.schema
    numeric = [name for name in schema.feature_names if name not in schema.categories]
    names = numeric if features is None else [one_of(name, "features", numeric) for name in as_names(features)]
    law = subject.law(Gradient(rows, [schema.index(name) for name in names]))
    several = [f"{name}, point {i}" for i in range(len(rows)) for name in names]
    return dataclasses.replace(law, names=tuple(several if len(rows) > 1 else names))


guard_exports(globals())
