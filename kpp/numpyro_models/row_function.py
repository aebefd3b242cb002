r"""The posterior of a site of any NumPyro model as a function of the rows of its data.

`posterior_function` runs the model again by NumPyro's effect handlers, once for each draw, at any rows. Explainers take
the result like any other function; because its values lead with (chain, draw), explanations are posteriors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float

from kpp.data.tables import Schema, is_table
from kpp.foundation.validation import one_of
from kpp.inference.base import NumpyroModel, Site
from kpp.inference.fit.draws import draw_map, flatten_draws, unflatten_draws
from kpp.numpyro_models.replay import Replay, Unknown, describe_sites, read_samples, require_known
from kpp.runtime.batching import filled_chunks
from kpp.typing import AnyArray


@dataclasses.dataclass(frozen=True)
class RowInputs:
    """How the columns of points (n, d) become arguments of a model."""

    names: tuple[str, ...]  # of the arguments
    widths: tuple[int | None, ...]  # columns of each argument; None for one of shape (n,)
    dtypes: tuple[np.dtype, ...]
    schema: Schema  # of the columns
    rows: Float[np.ndarray, "n d"]  # of training

    @classmethod
    def read(
        cls,
        data: Mapping[str, Any],
        inputs: str | Sequence[str],
        feature_names: Sequence[str] | None,
        levels: Mapping[str, Sequence[Any]],
    ) -> RowInputs:
        """Read the arguments with which a model was run: arrays with the same rows, and text only with levels."""
        names = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        missing = [name for name in names if name not in data]
        if missing or not names:
            raise ValueError(
                f"`inputs` must name arguments in `data` with one entry per row, got {names}; `data` holds "
                f"{sorted(data)}"
            )
        arguments = [_Argument.read(name, data[name], levels) for name in names]
        lengths = {argument.name: len(argument.columns) for argument in arguments}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"`data` must hold as many rows for all `inputs`, got {lengths}")
        schema = _schema(arguments, feature_names, levels)
        rows = schema.read(np.concatenate([argument.columns for argument in arguments], axis=1), "data")
        widths = tuple(argument.columns.shape[1] if argument.is_matrix else None for argument in arguments)
        return cls(names, widths, tuple(argument.dtype for argument in arguments), schema, rows)

    @property
    def num_rows(self) -> int:
        """The number of training rows, n."""
        return len(self.rows)

    def arguments(self, rows: Float[AnyArray, "p d"]) -> dict[str, Any]:
        """Return the arguments of the model for some rows."""
        found, start = {}, 0
        for name, width, dtype in zip(self.names, self.widths, self.dtypes, strict=True):
            values = rows[:, start] if width is None else rows[:, start : start + width]
            found[name] = jnp.asarray(values).astype(jax.dtypes.canonicalize_dtype(dtype))
            start += 1 if width is None else width
        return found

    def check(self, rows: Float[np.ndarray, "p d"]) -> None:
        """Raise ValueError if numbers for an argument of integers are not integers."""
        start = 0
        for name, width, dtype in zip(self.names, self.widths, self.dtypes, strict=True):
            columns = rows[:, start : start + (width or 1)]
            if dtype.kind in "iub" and (columns != np.rint(columns)).any():
                wrong = columns[columns != np.rint(columns)][0]
                raise ValueError(
                    f"`x` must hold integers for the argument {name!r} of the model, got {wrong:g}; `levels` tells "
                    "explainers that a column holds codes of a category"
                )
            start += width or 1


@dataclasses.dataclass(frozen=True)
class _Argument:
    """One argument: its columns (n, k) as numbers, their names, and the type of its entries."""

    name: str
    columns: np.ndarray
    features: tuple[str, ...]
    dtype: np.dtype
    is_matrix: bool

    @classmethod
    def read(cls, name: str, value: Any, levels: Mapping[str, Sequence[Any]]) -> _Argument:
        if is_table(value):
            features = tuple(str(column) for column in value.columns)
            columns = [_codes(np.asarray(value[column]), column, levels) for column in features]
            return cls(name, np.stack(columns, axis=1), features, np.dtype(float), True)
        array = np.asarray(value)
        if array.ndim == 1:
            own = getattr(value, "name", None)
            feature = own if isinstance(own, str) else name
            codes = _codes(array, feature, levels)
            return cls(name, codes[:, None], (feature,), codes.dtype, False)
        if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiub":
            raise ValueError(
                f"`data` must hold numbers of shape (n,) or (n, k) for the input {name!r}, got {array.dtype} of shape "
                f"{array.shape}"
            )
        return cls(name, array, tuple(f"{name}{j}" for j in range(array.shape[1])), array.dtype, True)


def _codes(column: np.ndarray, feature: str, levels: Mapping[str, Sequence[Any]]) -> np.ndarray:
    """Return the numbers of a column; text is replaced by the positions of its levels."""
    if column.dtype.kind in "fiub":
        return column
    if feature not in levels:
        raise ValueError(
            f"`data` holds text in column {feature!r}; `levels` must give its levels in the order of the codes with "
            f"which the model was run: levels={{{feature!r}: [level of code 0, level of code 1, ...]}}"
        )
    positions = {level: code for code, level in enumerate(levels[feature])}
    unknown = sorted({str(value) for value in column.tolist() if value not in positions})
    if unknown:
        raise ValueError(f"`levels` lacks {unknown} of column {feature!r}; it has {list(levels[feature])}")
    return np.array([positions[value] for value in column.tolist()])


def _schema(
    arguments: Sequence[_Argument], feature_names: Sequence[str] | None, levels: Mapping[str, Sequence[Any]]
) -> Schema:
    own = [feature for argument in arguments for feature in argument.features]
    names = own if feature_names is None else [str(name) for name in feature_names]
    if len(names) != len(own):
        raise ValueError(f"`feature_names` must have one name for each of the {len(own)} columns, got {len(names)}")
    kinds = [argument.dtype.kind for argument in arguments for _ in argument.features]
    booleans = tuple(name for name, kind in zip(names, kinds, strict=True) if kind == "b")
    return Schema(tuple(names), {name: tuple(entries) for name, entries in levels.items()}, booleans)


# Rows per run of the model, and rows of the runs that show whether rows depend on each other.
_CHUNK, _PROBE = 4096, 16
_CATEGORICAL = (dist.CategoricalProbs, dist.CategoricalLogits)


@dataclasses.dataclass(frozen=True)
class PosteriorFunction:
    """The draws of a site of a NumPyro model, as a function of points; built by `posterior_function`.

    Calling it with p points, (p, d) or a data frame, returns an array (chain, draw, p), with further axes of the site
    last.

    Args:
        replay: The model with its fixed arguments.
        site: The name of the site.
        inputs: How points become arguments of the model.
        draws: The draws by site, (chain, draw, *shape).
        axis: The axis of the rows in the site's value.
    """

    replay: Replay
    site: str
    inputs: RowInputs
    draws: dict[str, Array]
    axis: int

    @property
    def schema(self) -> Schema:
        """The names of the columns of points, and the levels of those that hold codes."""
        return self.inputs.schema

    @property
    def data(self) -> dict[str, np.ndarray]:
        """The training rows under "x", from which `kpp.explain` takes a background if none is given."""
        return {"x": self.inputs.rows}

    @property
    def batch_shape(self) -> tuple[int, int]:
        """The numbers of chains and of draws."""
        chains, draws = next(iter(self.draws.values())).shape[:2] if self.draws else (1, 1)
        return chains, draws

    def __call__(self, x: object) -> Float[np.ndarray, "chain draw p *outputs"]:
        """Return the site's values at points.

        Args:
            x: The points, (p, d), or a data frame with the columns of `schema`.

        Raises:
            ValueError: If the points do not fit the schema.
            FloatingPointError: If values are NaN; the message tells the first draw.
        """
        rows = self.schema.read(x)
        self.inputs.check(rows)
        parts = [self._of_chunk(chunk) for chunk in filled_chunks(rows, _CHUNK)]
        return (parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2))[:, :, : len(rows)]

    def _of_chunk(self, rows: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "chain draw k *outputs"]:
        num_rows = len(rows)
        if num_rows == self.inputs.num_rows:
            rows = np.concatenate([rows, rows[-1:]])
        shared = (self.replay, self.site, self.axis, self.inputs.arguments(rows))
        chains, draws = self.batch_shape
        values = draw_map(_value_of_draw)(flatten_draws(self.draws), jnp.arange(chains * draws), shared)
        return np.asarray(unflatten_draws(values, (chains, draws)))[:, :, :num_rows]


def posterior_function(
    numpyro_model: NumpyroModel,
    posterior: object,
    site: str = "mu",
    *,
    data: Mapping[str, Any],
    inputs: str | Sequence[str] = "x",
    levels: Mapping[str, Sequence[Any]] | None = None,
    feature_names: Sequence[str] | None = None,
) -> PosteriorFunction:
    r"""Return a site of a NumPyro model as a function of the rows of its data, one value for each draw.

    .. math:: f_s(x) = \mathrm{site}(x;\, \theta_s), \qquad \theta_s \sim p(\theta \mid D)

    The model is run again at the rows asked for, with each draw substituted for its latent sites, by one compiled
    program and some draws at a time. A plate that holds one member per training row gets the size of these rows,
    subsampling plates hold all their members, and all other arguments keep their values in `data`. `kpp.explain` takes
    the function; the explanation has the dimensions chain and draw.

    Args:
        numpyro_model: The model function.
        posterior: Draws of its latent sites: a dict, (draw, ...) or (chain, draw, ...), a NumPyro MCMC that has run, an
            ArviZ InferenceData, or a DataTree. Draws of other sites are ignored: deterministic sites are computed anew.
        site: A deterministic site; or a sample site, for the mean of its distribution (of a categorical one, the
            probabilities of the classes) given the draws. For an observed site it is the expected observation.
        data: The arguments by name with which the model was run; observations may be among them.
        inputs: The arguments that hold one entry per row, each of shape (n,) or (n, k). Their columns, side by side,
            are the d features of points x.
        levels: For each feature that holds codes of a category its levels, in the order of the codes. Then points may
            be a data frame with these levels as text.
        feature_names: The names of the d features; by default the columns of data frames in `data`, the names of
            arguments (n,), and ``x0, x1, ...`` for an argument ``x`` of shape (n, k).

    Raises:
        TypeError: If `posterior` is of an unknown type.
        ValueError: If the model has no such site; if the site depends on latent sites that `posterior` lacks, or whose
            draws belong to single training rows; if it has no axis of rows; or if its value at a row depends on the
            other rows.
    """
    read = RowInputs.read(data, inputs, feature_names, levels or {})
    training = {**data, **read.arguments(read.rows)}
    sites = describe_sites(numpyro_model, training)
    one_of(site, "site", [name for name, found in sites.items() if found.kind != "param"])
    drawn = {name: found for name, found in sites.items() if found.kind in ("latent", "param") and name != site}
    draws = read_samples(posterior, drawn)
    fixed = {name: value for name, value in data.items() if name not in read.names}
    replay = Replay(numpyro_model, fixed, _row_plates(sites, draws, read.num_rows))
    probe = _Probe.create(replay, site, read, draws)
    require_known(probe.value, sites, draws, f"the site {site!r}")
    function = PosteriorFunction(replay, site, read, draws, probe.row_axis(sites[site]))
    probe.require_independent_rows(function.axis)
    return function


def _value_of_draw(draw: dict[str, Array], number: Array, shared: tuple[Replay, str, int, dict[str, Any]]) -> Array:
    """Return the value of a site under one draw, with its axis of rows first."""
    replay, site, axis, arguments = shared
    return jnp.moveaxis(_site_value(replay, site, draw, arguments), axis, 0)


def _site_value(
    replay: Replay, site: str, draw: Mapping[str, Array], arguments: dict[str, Any], unknown: Unknown | None = None
) -> Array:
    """Return the value of a deterministic site, or the mean of the distribution of a sample site."""
    num_rows = len(next(iter(arguments.values())))
    found = replay.trace(draw, arguments, num_rows, unknown)[site]
    return jnp.asarray(found["value"]) if found["type"] == "deterministic" else _mean(found["fn"], site)


def _mean(distribution: dist.Distribution, site: str) -> Array:
    """Return the mean of a distribution, or the probabilities of the classes of a categorical one."""
    base = distribution
    while not isinstance(base, _CATEGORICAL) and hasattr(base, "base_dist"):
        base = base.base_dist
    if isinstance(base, _CATEGORICAL):
        return jnp.broadcast_to(base.probs, (*distribution.shape(), base.probs.shape[-1]))
    try:
        return jnp.broadcast_to(distribution.mean, distribution.shape())
    except NotImplementedError:
        raise ValueError(
            f"`site` {site!r} has the distribution {type(base).__name__}, which has no mean in closed form; name a "
            "deterministic site of the model"
        ) from None


def _row_plates(sites: Mapping[str, Site], draws: Mapping[str, Array], num_rows: int) -> tuple[str, ...]:
    """Return the plates of one member per training row: around sites without draws, such as the observations.

    A plate of groups that has as many members by chance holds latent sites only, of which there are draws.
    """
    found = {
        plate
        for name, site in sites.items()
        if site.kind != "param" and name not in draws
        for plate, size in zip(site.plates, site.shape, strict=False)
        if plate is not None and size == num_rows
    }
    return tuple(sorted(found))


@dataclasses.dataclass(frozen=True)
class _Probe:
    """A run of the model under its first draw at a few training rows, not as many as there are."""

    replay: Replay
    site: str
    inputs: RowInputs
    draw: dict[str, Array]
    rows: Float[np.ndarray, "k d"]

    @classmethod
    def create(cls, replay: Replay, site: str, inputs: RowInputs, draws: Mapping[str, Array]) -> _Probe:
        count = _PROBE + (inputs.num_rows == _PROBE)
        chosen = np.linspace(0, inputs.num_rows - 1, count).astype(int)
        return cls(replay, site, inputs, {name: value[0, 0] for name, value in draws.items()}, inputs.rows[chosen])

    def value(self, unknown: Unknown) -> Array:
        """Return the value of the site; the model must run at other rows than those of training."""
        arguments = self.inputs.arguments(self.rows)
        try:
            return _site_value(self.replay, self.site, self.draw, arguments, unknown)
        except (TypeError, ValueError, IndexError, RuntimeError) as error:
            raise ValueError(
                f"the model cannot be run at {len(self.rows)} rows in place of the {self.inputs.num_rows} of training; "
                "name all arguments with one entry per row in `inputs`, and leave those out of `data` that only the "
                f"observations need: {error}"
            ) from error

    def row_axis(self, site: Site) -> int:
        """Return the axis of the rows in the site's value, the one that differs from that in training."""
        shape, trained = jax.eval_shape(self.value, Unknown()).shape, site.shape
        axes = [axis for axis, sizes in enumerate(zip(shape, trained, strict=False)) if sizes[0] != sizes[1]]
        if len(axes) != 1 or shape[axes[0]] != len(self.rows):
            raise ValueError(
                f"`site` {self.site!r} must have one axis of rows, got shape {trained} at the {self.inputs.num_rows} "
                f"training rows and {shape} at {len(self.rows)} rows"
            )
        return axes[0]

    def require_independent_rows(self, axis: int) -> None:
        """Raise ValueError if the value is not finite, or at the first row changes with its place or the other rows."""
        same = dataclasses.replace(self, rows=np.repeat(self.rows[:1], len(self.rows), axis=0))
        found, alone = (
            np.asarray(value) for value in jax.jit(lambda: (self.value(Unknown()), same.value(Unknown())))()
        )
        if not np.isfinite(found).all():
            raise ValueError(
                f"`site` {self.site!r} must be finite, got NaN or infinity at training rows under the first draw; the "
                "mean of a sample site does not exist for some distributions, such as Cauchy"
            )
        tolerance = 1e3 * np.finfo(found.dtype).eps if found.dtype.kind == "f" else 0.0
        first = np.take(found, [0], axis)
        if not np.allclose(alone, first, rtol=tolerance, atol=tolerance * np.max(np.abs(found))):
            raise ValueError(
                f"`site` {self.site!r} at a row depends on the other rows or on its place among them, so it is not a "
                "function of one row; standardize columns before the model, and name all arguments with one entry per "
                "row in `inputs`"
            )
