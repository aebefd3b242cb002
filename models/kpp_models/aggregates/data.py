"""Reading bags and aggregate targets, from one source or several, and taking some of the bags of a model's data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kpp.data.bags import Bags
from kpp.data.tables import Schema
from kpp.foundation.validation import as_points, as_targets, check_same_rows, warn_if_float32
from kpp.typing import Numbers

Data = Mapping[str, Any]

#: Bags of one source, bags of several sources, or points each of which is a bag.
Sources = Bags | Sequence[Bags] | Numbers

#: Numbers of one source, or a list with an entry for each source.
Targets = Numbers | Sequence[Numbers]


def bags_of(data: Data) -> Bags:
    """Return the bags that the data of a model hold."""
    return Bags(data["x"], data["bag_of"], data["sizes"], data["covariates"])


def as_bags(x: Sources, name: str = "x") -> list[Bags]:
    """Return the bags of every source, all with the same features.

    `x` holds `Bags`, or a list of them, one per source; or points, an array (n, d) or a data frame: n bags of one
    point, whose covariates are the points themselves. Raises ValueError if the list is empty, or features differ
    between sources.
    """
    if isinstance(x, (list, tuple)) and any(isinstance(part, Bags) for part in x):
        sources = list(x)
        strange = [type(part).__name__ for part in sources if not isinstance(part, Bags)]
        if strange:
            raise ValueError(f"`{name}` must hold one kpp.Bags a source, got {strange} among them")
    else:
        sources = [x if isinstance(x, Bags) else _single_points(x, name)]
    names = {part.feature_names for part in sources}
    if len(names) > 1:
        raise ValueError(f"`{name}` must have the same features in all sources, got {sorted(names)}")
    return sources


def read_aggregates(
    x: Sources, y: Targets, covariates: Targets | None, *, matched: bool
) -> tuple[dict[str, Any], Bags]:
    """Read bags, their aggregates (M,) and the covariates of these (M, dy), or lists of them, into the data of a model.

    A list has one entry per source. Without covariates there is one target per bag, in the order of the bags, which
    `matched` requires. The data lack the parts for the likelihood and for inference; all bags are returned with them.
    Raises ValueError if rows do not match, values are missing, or required covariates are missing.
    """
    warn_if_float32("a model of aggregates")
    sources = as_bags(x)
    several = isinstance(x, (list, tuple)) and len(sources) > 1 or isinstance(y, (list, tuple)) and _nested(y)
    targets = _one_a_source(y, len(sources), "y", several)
    places = _one_a_source(covariates, len(sources), "covariates", several or covariates is None)
    targets = [as_targets(part, name="y") for part in targets]
    places = [
        _read_places(bags, part, target, matched) for bags, part, target in zip(sources, places, targets, strict=True)
    ]
    bags, source = join_bags(sources)
    data = {
        "x": bags.points,
        "bag_of": bags.index,
        "sizes": bags.sizes,
        "covariates": bags.covariates,
        "source": source,
        "target_covariates": _join_places(places),
        "target_source": jnp.asarray(np.repeat(np.arange(len(sources)), [len(part) for part in targets])),
        "y": jnp.concatenate(targets),
    }
    return data, bags


def num_sources(data: Data) -> int:
    """Return the number of sources of the aggregates."""
    return int(np.max(data["source"])) + 1


def join_exposures(exposure: Targets | None) -> Targets | None:
    """Return the exposures of all targets, which are given as a list if there are several sources."""
    if isinstance(exposure, (list, tuple)) and _nested(exposure):
        return np.concatenate([as_targets(part, name="exposure") for part in exposure])
    return exposure


def join_bags(sources: Sequence[Bags]) -> tuple[Bags, Array]:
    """Concatenate bags with the same features and numbers of covariates; return all bags and the source of each."""
    first = sources[0]
    columns = {None if part.covariates is None else part.covariates.shape[1] for part in sources}
    if len(columns) > 1:
        raise ValueError(f"`x` must have as many covariates in all sources, got {sorted(map(str, columns))} columns")
    source = jnp.asarray(np.repeat(np.arange(len(sources)), [part.num_bags for part in sources]))
    offsets = np.concatenate([[0], np.cumsum([part.num_bags for part in sources])[:-1]])
    joined = Bags(
        jnp.concatenate([part.points for part in sources]),
        jnp.concatenate([part.index + offset for part, offset in zip(sources, offsets, strict=True)]),
        jnp.concatenate([part.sizes for part in sources]),
        _join_places([part.covariates for part in sources]),
        first.feature_names,
        first.covariate_names,
    )
    return joined, source


def _join_places(places: Sequence[Array | None]) -> Array | None:
    known = [part for part in places if part is not None]
    return jnp.concatenate(known) if known else None


def _single_points(x: Sources, name: str) -> Bags:
    points = x if hasattr(x, "columns") else as_points(x, name)
    return Bags.of_single_points(points, points)


def _nested(y: Sequence[Numbers]) -> bool:
    return any(np.ndim(part) > 0 for part in y)


def _one_a_source(value: Targets | None, count: int, name: str, several: bool) -> list[Any]:
    if value is None:
        return [None] * count
    parts = list(value) if several else [value]  # type: ignore[arg-type]  # several are a sequence
    if len(parts) != count:
        raise ValueError(f"`{name}` must have one entry for each of the {count} sources, got {len(parts)}")
    return parts


def _read_places(bags: Bags, covariates: Numbers | None, targets: Array, matched: bool) -> Array | None:
    """Return the covariates of the targets of one source."""
    if covariates is None:
        check_same_rows(bags.num_bags, targets.shape[0], "x", "y")
        if matched:
            return None
    if bags.covariates is None:
        raise ValueError(
            "`x` must have covariates, by which bags and targets are matched; give them to kpp.Bags.create"
        )
    if covariates is None:
        return bags.covariates
    places = read_places(bags.covariate_names, bags.covariates.shape[1], covariates)
    check_same_rows(places.shape[0], targets.shape[0], "covariates", "y")
    return places


def read_places(names: Sequence[str], num_covariates: int, covariates: Numbers) -> Array:
    """Read finite covariates (M, dy), an array or a data frame, by the column names of the bags' covariates."""
    if names:
        return jnp.asarray(Schema(tuple(names)).read(covariates, "covariates"))
    return as_points(covariates, "covariates", num_features=num_covariates)


def take_bags(data: Data, rows: Int[Array, " b"]) -> dict[str, Any]:
    """Return what the prior of the means of b bags depends on, which may be repeated, and of one more bag.

    The number of points must not depend on the bags, so each bag takes as many places as the largest. The places that
    it leaves over form the additional bag, the last, which no target depends on.
    """
    points, index, sizes = _gather(data["x"], data["sizes"], rows, data["offsets"])
    part: dict[str, Any] = {"x": points, "bag_of": index, "sizes": sizes}
    part |= {"covariates": None, "coincidence": None, "inducing": None}
    if data["coincidence"] is not None:
        part["coincidence"] = jnp.pad(data["coincidence"][rows[:, None], rows[None, :]], (0, 1))
    if data["inducing"] is not None:
        thin = data["inducing"]
        gathered = _gather(thin["points"], thin["sizes"], rows, thin["offsets"])
        part["inducing"] = dict(zip(("points", "index", "sizes"), gathered, strict=True))
    return part


def _gather(
    points: Float[Array, "n d"], sizes: Int[Array, " N"], rows: Int[Array, " b"], offsets: Int[Array, " c"]
) -> tuple[Float[Array, "k d"], Int[Array, " k"], Int[Array, " b_and_1"]]:
    """Return the points of some bags, the bag of each, and the sizes of the bags; the last bag is the one to drop."""
    taken, count = sizes[rows], rows.shape[0]
    starts = (jnp.cumsum(sizes) - sizes)[rows]
    inside = offsets[None, :] < taken[:, None]
    places = starts[:, None] + jnp.minimum(offsets[None, :], taken[:, None] - 1)
    index = jnp.where(inside, jnp.arange(count)[:, None], count).ravel()
    order = jnp.argsort(index, stable=True)
    # One more point keeps the additional bag from being empty.
    chosen = jnp.concatenate([places.ravel()[order], places[0, :1]])
    left = jnp.sum(~inside) + 1
    return points[chosen], jnp.append(index[order], count), jnp.append(taken, left)
