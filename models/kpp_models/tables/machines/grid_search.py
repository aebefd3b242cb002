"""The choice of hyperparameters of a model from a grid by a score."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from kpp.foundation.validation import as_finite_array
from kpp.foundation.wording import warn_at_edge
from kpp.priors import leaf_paths, substitute
from kpp.runtime.batching import map_blocks, progress_bar
from kpp.runtime.threads import num_cores

if TYPE_CHECKING:
    import xarray as xr

Model = TypeVar("Model", bound=eqx.Module)


@dataclasses.dataclass(frozen=True)
class Selection(Generic[Model]):
    """The result of a grid search.

    Args:
        model: The model with the chosen values in place.
        chosen: The chosen value of every path of the grid.
        scores: The score of every entry, lower is better, with one named axis per path. The coordinates of an axis are
            the values tried, or their positions if each value is an array. An entry at which the matrix could not be
            factorized has the score infinity.
    """

    model: Model
    chosen: dict[str, Any]
    scores: xr.DataArray

    def with_names_of(self, model: Model) -> Selection[Model]:
        """Return the same choice for another model of the same structure (for example with features by name)."""
        return dataclasses.replace(self, model=put_values(model, self.chosen))


@dataclasses.dataclass(frozen=True)
class CandidateGrid(Generic[Model]):
    """All combinations of values for some leaves of a model of numbers, the entries.

    For each path of a leaf there are the values to try, (g,) or (g, *shape of the leaf).
    """

    model: Model
    values: dict[str, Array]

    @classmethod
    def read(cls, model: Model, grid: Mapping[str, Any]) -> CandidateGrid[Model]:
        """Read a grid; numbers are used for all entries of a leaf that is an array.

        Raises ValueError if a path does not lead to a leaf of the model, or values are missing, have the wrong shape,
        or are impossible, such as a negative lengthscale.
        """
        values = _read_grid(model, grid)
        for path, column in values.items():
            for value in column:
                _refuse_impossible(put_values(model, {path: value}), path)
        return cls(model, values)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each path."""
        return tuple(len(column) for column in self.values.values())

    def entries(self) -> dict[str, Array]:
        """Return for each path the values of all entries."""
        positions = np.array(list(itertools.product(*map(range, self.shape))), dtype=int)
        return {path: column[positions[:, axis]] for axis, (path, column) in enumerate(self.values.items())}

    def models(self) -> list[Model]:
        """Return the model of each entry."""
        entries, number = self.entries(), int(np.prod(self.shape))
        return [
            put_values(self.model, {path: column[row] for path, column in entries.items()}) for row in range(number)
        ]

    def choose(self, scores: np.ndarray, name: str, further: Mapping[str, Any] | None = None) -> Selection[Model]:
        """Return the entry with the lowest score, NaN being the worst; raise ValueError if every score is NaN.

        The scores have an axis for each of the values in `further`, by name of fields that are not leaves. The best of
        them is among the chosen values, but it is not put into the model.
        """
        import xarray as xr

        if np.isnan(scores).all():
            raise ValueError("`grid` has no entry that can be fitted; try larger regularization")
        values: dict[str, Any] = {**self.values, **{path: np.asarray(found) for path, found in (further or {}).items()}}
        shape = tuple(len(column) for column in values.values())
        scores = np.where(np.isnan(scores), np.inf, scores).reshape(shape)
        best = np.unravel_index(int(np.argmin(scores)), shape)
        chosen = {path: column[index] for (path, column), index in zip(values.items(), best, strict=True)}
        coords = {
            path: np.asarray(column) if column.ndim == 1 else np.arange(len(column)) for path, column in values.items()
        }
        curve = xr.DataArray(scores, dims=tuple(values), coords=coords, name=name)
        model = put_values(self.model, {path: chosen[path] for path in self.values})
        warn_at_edge({path: (float(chosen[path]), column) for path, column in values.items() if column.ndim == 1})
        return Selection(model, {path: np.asarray(value)[()] for path, value in chosen.items()}, curve)


def select_from_grid(
    model: Model, grid: Mapping[str, Any], score: Callable[..., Array], name: str, *arguments: object
) -> Selection[Model]:
    """Try all combinations of values for some leaves of a model of numbers, and keep the best.

    The score of a model, and of pytrees of arrays, is a scalar, lower is better, and traceable by JAX; its name is for
    the result and the progress bar. Define it at module level, so that searches over equal shapes share the compiled
    program. Raises ValueError as `CandidateGrid.read` does, or if every score is NaN.
    """
    return search_grid(model, grid, lambda entry: _score(score, model, entry, arguments), name, threads=num_cores())


def search_grid(
    model: Model, grid: Mapping[str, Any], score: Callable[[Mapping[str, Array]], Any], name: str, *, threads: int = 1
) -> Selection[Model]:
    """Do what `select_from_grid` does, by a score that is not compiled, with several combinations at a time.

    The score takes one combination, which maps the paths of the grid to values, and returns a number, or NaN if there
    is none; `put_values` puts the values into the model.
    """
    read = CandidateGrid.read(model, grid)

    def score_entry(rows: Mapping[str, Array]) -> np.ndarray:
        return np.asarray(score({path: column[0] for path, column in rows.items()}))[None]

    with progress_bar(int(np.prod(read.shape)), name, unit="entry") as bar:
        scores = map_blocks(score_entry, read.entries(), 1, bar=bar, threads=threads)
    return read.choose(scores, name)


@eqx.filter_jit
def _score(
    score: Callable[..., Array], model: eqx.Module, entry: Mapping[str, Array], arguments: tuple[Any, ...]
) -> Array:
    return score(put_values(model, entry), *arguments)


def _read_grid(model: eqx.Module, grid: Mapping[str, Any]) -> dict[str, Array]:
    known = leaf_paths(model)
    unknown = [path for path in grid if path not in known]
    if unknown or not grid:
        raise ValueError(f"`grid` must name leaves of the model, {list(known)}; got {list(grid)}")
    shapes = dict(zip(known, (np.shape(leaf) for leaf in jax.tree.leaves(model)), strict=True))
    return {path: _read_values(path, values, shapes[path]) for path, values in grid.items()}


def _read_values(path: str, values: object, shape: tuple[int, ...]) -> Array:
    array = as_finite_array(values, f"grid[{path!r}]")
    if array.ndim == 0 or array.size == 0 or array.shape[1:] not in ((), shape):
        raise ValueError(
            f"`grid[{path!r}]` must hold one or more values of shape () or {shape}, got shape {array.shape}"
        )
    return array


def _refuse_impossible(tree: Any, path: str) -> None:
    """Raise ValueError if a module would not have been created with the values that it holds; see `put_values`."""
    for module in jax.tree.leaves(tree, is_leaf=lambda part: part is not tree and isinstance(part, eqx.Module)):
        if isinstance(module, eqx.Module):
            _refuse_impossible(module, path)
    checks = [vars(kind)["__check_init__"] for kind in type(tree).__mro__ if "__check_init__" in vars(kind)]
    try:
        for check in checks:
            check(tree)
    except ValueError as error:
        raise ValueError(f"`grid[{path!r}]` holds a value that is impossible: {error}") from None


def put_values(model: Model, entry: Mapping[str, Any]) -> Model:
    """Return a model with the values of one combination of a grid."""
    shapes = dict(zip(leaf_paths(model), (jnp.shape(leaf) for leaf in jax.tree.leaves(model)), strict=True))
    values = {f"model.{path}": jnp.broadcast_to(value, shapes[path]) for path, value in entry.items()}
    return substitute("model", model, values)
