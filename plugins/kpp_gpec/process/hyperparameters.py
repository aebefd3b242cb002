r"""Hyperparameters of a GPEC: given, by a rule, by the evidence or by leave-one-out predictions.

The rule uses a short range for the similarity along the boundary and a long lengthscale for the inputs, so that the
boundary determines the uncertainty. For points in d standardized dimensions, scaled from a rule for d = 2, it is

.. math:: \lambda = 3 \sqrt{2 / d}, \qquad \rho = 30 \cdot 2 / d, \qquad \ell = 4 \sqrt{d / 2}.

Evidence and cross-validation often choose a kernel that depends only on distance, because it predicts explanations
best. The search uses at most `MAX_ROWS` explained points and `MAX_LANDMARKS` rows of geodesic distances, so that it
takes seconds for data of any size; its result is used for all points.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float

from kpp.kernels import RBF, AbstractKernel
from kpp.typing import AnyArray
from kpp_gpec.process.explanation_process import factorize, leave_one_out_law, log_evidence
from kpp_gpec.process.geodesic_kernel import WeightedExponentialGeodesic

#: The methods for choosing the hyperparameters that are not given.
METHODS = ("heuristic", "evidence", "cross-validation")
#: The largest numbers of points and of rows of distances in the search.
MAX_ROWS, MAX_LANDMARKS = 200, 200

_STARTS, _STEPS = 2, 60  # the number of the grid's best points that are improved, and of steps for each
_GRID = {"decay": (0.1, 1.0, 10.0), "concentration": (1.0, 10.0, 100.0), "lengthscale": (0.3, 1.0)}
# The largest factor between a parameter and its typical size.
_RANGE = {"decay": (1e-3, 1e3), "concentration": (1e-1, 1e4), "lengthscale": (5e-2, 2e1), "variance": (1e-4, 1e4)}
# The prior variance of a feature whose contributions are all zero, relative to the other features.
_LEAST_SHARE = 1e-6
_HUGE = 1e30  # the loss in the line search if a matrix cannot be factorized


class SelectedHyperparameters(NamedTuple):
    """The hyperparameters of one output.

    The objective is the log evidence, or the sum of the leave-one-out log densities. With the rule it is the evidence,
    by which prior variances are chosen.
    """

    decay: float | None  # lambda, None without a boundary
    concentration: float | None  # rho, None without a boundary
    lengthscale: Any  # of the RBF factor, a number or one per feature; None without the factor
    variance: Any  # the prior variances, (D,)
    method: str  # one of `METHODS`, or "given" if all were given
    objective: float | None  # None if all were given
    at_bounds: tuple[str, ...]  # the parameters that ended at a bound of the search


def combine_kernels(
    boundary: WeightedExponentialGeodesic | None, lengthscale: float | AnyArray | None
) -> AbstractKernel:
    """Return the WEG kernel times an RBF kernel; a single one if the other is None."""
    if lengthscale is None:
        if boundary is None:
            raise ValueError("`lengthscale` must be given where there is no boundary, got None")
        return boundary
    return RBF(lengthscale) if boundary is None else boundary * RBF(lengthscale)


def select(
    boundary: WeightedExponentialGeodesic | None,
    points: Float[np.ndarray, "N d"],
    values: Float[np.ndarray, "N D"],
    noise: Float[np.ndarray, "N D"],
    given: Mapping[str, Any],
    *,
    method: str,
    rbf: bool,
    rng: np.random.Generator,
) -> SelectedHyperparameters:
    """Choose the hyperparameters that are not given, and return all, with the way they were chosen.

    `boundary` is the WEG kernel, whose own `decay` and `concentration` are ignored, or None. The explanations of points
    (N, d) and their variances have shape (N, D). `given` holds values of "decay", "concentration", "lengthscale" and
    "variance", which are None or missing if they are to be chosen. `rng` chooses rows if there are more than
    `MAX_ROWS`.
    """
    names = (*(("decay", "concentration") if boundary is not None else ()), *(("lengthscale",) if rbf else ()))
    fixed = {name: np.asarray(given[name], float) for name in (*names, "variance") if given.get(name) is not None}
    if "variance" in fixed:
        fixed["variance"] = np.broadcast_to(fixed["variance"], values.shape[1:])
    chosen = [name for name in (*names, "variance") if name not in fixed]
    if not chosen:
        return _selected(fixed, "given", None, ())
    if method == "heuristic" and boundary is None:  # the rule needs a boundary
        method = "evidence"
    if method == "heuristic":
        fixed = {**{name: value for name, value in _by_rule(points).items() if name in names}, **fixed}
    free = [name for name in chosen if name not in fixed]
    if not free:
        return _selected(fixed, method, None, ())
    rows = np.arange(len(points))
    if len(points) > MAX_ROWS:
        rows = np.sort(rng.choice(len(points), MAX_ROWS, replace=False))
    x, y, u = (jnp.asarray(array[rows], jnp.result_type(float)) for array in (points, values, noise))
    thinned = None if boundary is None else boundary.thin(MAX_LANDMARKS)
    typical = _typical_sizes(thinned, points, values, free)
    found, value = _search(_Problem(thinned, (x, y, u), fixed, typical, method))
    at_bounds = tuple(name for name in free if name != "variance" and _ends(name, found[name], typical[name]))
    return _selected({**fixed, **found}, method, value, at_bounds)


class _Problem(NamedTuple):
    boundary: WeightedExponentialGeodesic | None
    data: tuple[Array, Array, Array]
    fixed: dict[str, np.ndarray]
    typical: dict[str, np.ndarray]
    method: str

    def bounds(self) -> list[tuple[float, float]]:
        """Return the ends of the logarithm of each parameter over its typical size."""
        logs = {name: tuple(np.log(_RANGE[name]).tolist()) for name in self.typical}
        return [logs[name] for name, size in self.typical.items() for _ in range(size.size)]

    def unpack(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Return the parameters of a vector of logarithms of multiples of their typical sizes."""
        sizes = [np.size(size) for size in self.typical.values()]
        parts = np.split(vector, np.cumsum(sizes)[:-1])
        return {
            name: np.asarray(size * np.exp(part.reshape(np.shape(size))))
            for (name, size), part in zip(self.typical.items(), parts, strict=True)
        }

    def evaluate(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the objective to minimize, and its gradient."""
        values = self.unpack(vector)
        value, slopes = _loss(values, self.fixed, self.boundary, self.data, self.method)
        # In logarithms: d / d log p = p d / dp.
        gradient = np.concatenate([np.ravel(values[name] * slopes[name]) for name in self.typical])
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return _HUGE, np.zeros_like(vector)
        return float(value), np.asarray(gradient, dtype=float)


def _search(problem: _Problem) -> tuple[dict[str, np.ndarray], float]:
    """Improve the best points of a grid, and keep the best result."""
    grids = [np.log(_GRID[name]) for name in problem.typical if name in _GRID]
    num_variances = len(problem.bounds()) - len(grids)
    starts = [np.concatenate([point, np.zeros(num_variances)]) for point in itertools.product(*grids)]
    starts.sort(key=lambda start: problem.evaluate(start)[0])
    options = {"maxiter": _STEPS, "maxfun": 2 * _STEPS}
    ends = [
        scipy.optimize.minimize(
            problem.evaluate, start, jac=True, method="L-BFGS-B", bounds=problem.bounds(), options=options
        )
        for start in starts[:_STARTS]
    ]
    best = min(ends, key=lambda end: end.fun)
    if best.fun >= _HUGE:
        raise ValueError(
            "no hyperparameters give a kernel matrix that can be factorized; give some noise (`min_noise_variance`)"
        )
    return problem.unpack(best.x), -float(best.fun)


@eqx.filter_jit
def _loss(
    free: Mapping[str, AnyArray],
    fixed: Mapping[str, AnyArray],
    boundary: WeightedExponentialGeodesic | None,
    data: tuple[Array, Array, Array],
    method: str,
) -> tuple[Array, dict[str, Array]]:
    """Return the negative log evidence, or sum of leave-one-out log densities, with its gradient in `free`."""
    points, values, noise = data

    def loss(free: Mapping[str, Array]) -> Array:
        parameters = {**fixed, **free}
        own: dict[str, Any] = {name: parameters[name] for name in ("decay", "concentration") if name in parameters}
        geodesic = None if boundary is None else dataclasses.replace(boundary, **own)
        gram = combine_kernels(geodesic, parameters.get("lengthscale")).gram(points)
        variance = jnp.asarray(parameters["variance"])
        factors = factorize(gram, noise / variance[None, :])
        if method != "cross-validation":
            return -jnp.sum(log_evidence(factors, values, variance))
        mean, spread = leave_one_out_law(factors, values, variance)
        return 0.5 * jnp.sum((values - mean) ** 2 / spread + jnp.log(2 * jnp.pi * spread))

    return jax.value_and_grad(loss)({name: jnp.asarray(value) for name, value in free.items()})


def _by_rule(points: np.ndarray) -> dict[str, np.ndarray]:
    """Return the parameters by the rule, where d is the sum of the points' variances: 1 per standardized feature."""
    total = float(np.var(points, axis=0).sum()) or 1.0
    # 3 sqrt(2 / d), 30 * 2 / d and 4 sqrt(d / 2), where the total variance stands for d.
    sizes = {"decay": (18.0 / total) ** 0.5, "concentration": 60.0 / total, "lengthscale": (8.0 * total) ** 0.5}
    return {name: np.asarray(size) for name, size in sizes.items()}


def _typical_sizes(
    boundary: WeightedExponentialGeodesic | None, points: np.ndarray, values: np.ndarray, free: list[str]
) -> dict[str, np.ndarray]:
    """Return a typical size of each parameter that is free."""
    sizes: dict[str, Any] = {"lengthscale": _median(_squared(points, points)) ** 0.5}
    if boundary is not None:
        sizes["decay"] = 1.0 / _median(np.asarray(boundary.distances))
        sizes["concentration"] = 1.0 / _median(_squared(points, np.asarray(boundary.points)))
    squares = np.mean(np.square(values), axis=0)
    sizes["variance"] = np.maximum(squares, _LEAST_SHARE * squares.mean()) if squares.any() else np.ones(len(squares))
    return {name: np.asarray(sizes[name], dtype=float) for name in free}


def _squared(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return squared distances between at most `MAX_ROWS` points and at most `MAX_ROWS` others."""
    first, second = (rows[:: -(-len(rows) // MAX_ROWS)] for rows in (first, second))
    return ((first[:, None] - second[None]) ** 2).sum(axis=-1)


def _median(distances: np.ndarray) -> float:
    """Return the median of the distances that are positive and finite, or 1 if there are none."""
    positive = distances[(distances > 0) & np.isfinite(distances)]
    return float(np.median(positive)) if positive.size else 1.0


def _ends(name: str, value: np.ndarray, typical: np.ndarray) -> bool:
    lower, upper = (typical * end for end in _RANGE[name])
    return bool(np.isclose(value, lower, rtol=1e-3) | np.isclose(value, upper, rtol=1e-3))


def _selected(
    parameters: Mapping[str, Any], method: str, objective: float | None, at_bounds: tuple[str, ...]
) -> SelectedHyperparameters:
    arrays = {name: np.asarray(value, dtype=float) for name, value in parameters.items()}
    plain = {name: array.item() if array.ndim == 0 else array for name, array in arrays.items()}
    known: dict[str, Any] = {"decay": None, "concentration": None, "lengthscale": None, **plain}
    return SelectedHyperparameters(**known, method=method, objective=objective, at_bounds=at_bounds)
