r"""Kernel ridge and logistic regression with landmarks, for tables of millions of rows that are read in blocks."""

from __future__ import annotations

import dataclasses
import functools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kpp import NamedFunction, linalg
from kpp.data.tables import Schema
from kpp.foundation.modules import AbstractModule
from kpp.foundation.validation import as_points, check_rng_key, count, one_of
from kpp.functions import RKHSFunction
from kpp.gp.toolkit import code_columns, k_means_centers, refuse_priors_in
from kpp.inference import ConvergenceError
from kpp.kernels import AbstractKernel
from kpp.priors import leaf_paths
from kpp.runtime.batching import call_in_chunks, progress_bar
from kpp.typing import RngKey
from kpp_models.tables.machines.grid_search import CandidateGrid, Selection
from kpp_models.tables.machines.landmark_statistics import Statistics, Whiteners
from kpp_models.tables.machines.row_blocks import RowBlocks, read_rows_and_targets, sum_over_rows

_BLOCK_ENTRIES = 2**22  # the largest number of kernel values of a block: 32 MB
_SAMPLE = 20_000  # the number of rows that k-means uses
_MAX_NEWTON = 30  # steps, each of which reads all rows; convergence is quadratic near the minimum
# By precision: the tolerance of the last change of the log-odds, and the rounding error of the objective.
_TOLERANCES = {"float64": (1e-6, 1e-12), "float32": (1e-3, 1e-6)}

Machine = TypeVar("Machine", bound="AbstractLandmarkMachine")
Result = TypeVar("Result")


class LandmarkFit(NamedTuple):
    """A function fitted with landmarks.

    Attributes:
        function: f, an RKHS function whose points are the m landmarks.
        regularization: The value that was chosen.
        scores: The score of each value of the regularization; lower is better, and infinity where it is too small for
            the method to converge or for rounding errors.
        noise_variance: The mean squared residual on the rows held out, or on all rows if none are; for log-odds, None.
        num_rows: The number of rows of the table.
        feature_names: The names of the features.
    """

    function: RKHSFunction
    regularization: float
    scores: dict[float, float]
    noise_variance: float | None
    num_rows: int
    feature_names: tuple[str, ...]

    @property
    def predictor(self) -> NamedFunction:
        """The function with the names of its features, for `kpp.explain` and to save."""
        return NamedFunction(self.function, Schema(self.feature_names))


class _Rows(NamedTuple):
    """A table with its landmarks, and rows that are held out."""

    table: RowBlocks
    landmarks: Float[Array, "m d"]
    held_out: np.ndarray  # (h,), their numbers
    size: int  # of a block
    precision: str

    def sections(
        self, kernel: AbstractKernel, shift: Float[Array, " m"], label: str, progress: bool
    ) -> Iterator[tuple[Float[Array, "m b"], Float[Array, " b"], Float[Array, " b"]]]:
        """Yield for each block the shifted sections, the targets, and 1 for each row to fit, 0 for the others."""
        kernel, landmarks, shift = _cast((kernel, self.landmarks, shift), self.precision)
        with progress_bar(-(-self.table.num_rows // self.size), label, show=progress) as bar:
            for start, (x, y) in self.table.blocks():
                # The last block is filled up with zeros of weight 0: blocks of one shape share one compiled program.
                fitted = np.zeros(self.size)
                fitted[: len(x)] = ~np.isin(np.arange(start, start + len(x)), self.held_out, assume_unique=True)
                points, targets = np.zeros((self.size, x.shape[1]), self.precision), np.zeros(self.size)
                points[: len(x)], targets[: len(x)] = x, y
                sections = _sections(kernel, landmarks, jnp.asarray(points), shift)
                yield sections, jnp.asarray(targets), jnp.asarray(fitted)
                bar.update()

    def sum(self, sums: Callable[[_Rows], PyTree], label: str, progress: bool) -> PyTree:
        """Return sums over the rows of the table; see `sum_over_rows`."""
        return sum_over_rows(lambda part: sums(self._replace(table=part)), self.table, label, progress=progress)


def _values(value: Any) -> tuple[float, ...]:
    """Return one or several values of the regularization, in descending order."""
    values = tuple(sorted({float(each) for each in np.atleast_1d(value)}, reverse=True))
    if not values or not all(0 < each < np.inf for each in values):
        raise ValueError(f"`regularization` must be positive finite numbers, got {value}")
    return values


def _landmark_field(value: Any) -> Any:
    return value if isinstance(value, int) else np.asarray(as_points(value, "landmarks"))


class AbstractLandmarkMachine(AbstractModule):
    """A regression by landmarks; a final class says what it minimizes."""

    kernel: AbstractKernel
    regularization: tuple[float, ...] = eqx.field(converter=_values, static=True)
    landmarks: Any = eqx.field(converter=_landmark_field, default=1000)
    method: str = eqx.field(static=True, default="random")
    num_held_out: int = eqx.field(static=True, default=1000, kw_only=True)
    precision: str = eqx.field(static=True, default="float64", kw_only=True)
    progress: bool = eqx.field(static=True, default=True, kw_only=True)

    def __check_init__(self) -> None:
        refuse_priors_in(self, "kpp_models.GPRegression")
        one_of(self.method, "method", ("random", "kmeans"))
        one_of(self.precision, "precision", tuple(_TOLERANCES))
        if isinstance(self.landmarks, int):
            count(self.landmarks, "landmarks")
        if not self.chooses_without_rows and self.num_held_out == 0 and len(self.regularization) > 1:
            raise ValueError("`num_held_out` must be positive to choose among several values of `regularization`")

    @property
    @abstractmethod
    def chooses_without_rows(self) -> bool:
        """Whether the regularization is chosen without rows held out."""

    @abstractmethod
    def solve(self, rows: Any, whiteners: Whiteners) -> LandmarkFit:
        """Return the fit to rows."""

    def fit(self, rng_key: RngKey, x: object, y: object) -> LandmarkFit:
        """Fit to a table that is read in blocks.

        Args:
            rng_key: A JAX random key, for the landmarks and the rows that are held out.
            x: The points: an array (n, d), such as a `numpy.memmap`; a Dask array; a Dask data frame; or the path of a
                Parquet file.
            y: The targets, (n,); for data frames and Parquet files the name of a column.

        Returns:
            The fit.

        Raises:
            TypeError: If x or y are of another kind.
            ValueError: If the data are invalid; the message names row and column. If there are too few rows, or the
                precision is not double.
        """
        if not jax.config.jax_enable_x64:
            raise ValueError('sums over many rows need float64; call `jax.config.update("jax_enable_x64", True)` first')
        rng, m = _generator(rng_key), self._num_landmarks
        size = max(1, _BLOCK_ENTRIES // m)
        table = read_rows_and_targets(x, y, size)
        if table.num_rows < m + self.num_held_out + 2:
            raise ValueError(
                f"`x` must have more rows than the {m} landmarks and the {self.num_held_out} rows held out together, "
                f"got {table.num_rows}"
            )
        held_out = _some(rng, table.num_rows, self.num_held_out)
        rows = _Rows(table, self._place(rng, table, m), held_out, min(size, table.num_rows), self.precision)
        return self.solve(rows, Whiteners(self.kernel.gram(rows.landmarks), self.precision))

    def select(
        self: Machine, rng_key: RngKey, x: object, y: object, *, grid: Mapping[str, Any], num_rows: int | None = None
    ) -> Selection[Machine]:
        """Choose parameters of the kernel, and the regularization, from a grid by the score of a fit.

        All entries have the same landmarks and the same rows held out; values of the regularization share the sums.

        Args:
            rng_key: A JAX random key.
            x: As for `fit`.
            y: As for `fit`.
            grid: For each path of a leaf of the kernel (``"kernel.lengthscale"``) the values to try, of shape (g,), or
                (g, d) for a leaf of shape (d,). Under ``"regularization"`` the values to choose from; without it, the
                field `regularization` keeps its values, and the score of a kernel is the best among them.
            num_rows: The number of random rows to choose on; all rows by default. The best regularization often
                decreases with the number of rows: leave it to the fit of all rows.

        Returns:
            The machine with the best combination, to be fitted; the values chosen; and the score of every combination,
            infinity where the fit failed.

        Raises:
            ValueError: If x, y or the grid are invalid, every fit failed, or there are no rows to choose on.
        """
        if self.num_held_out == 0 and not self.chooses_without_rows:
            raise ValueError("`num_held_out` must be positive to choose from a grid by the error of rows held out")
        kernels, values = self._read_grid(grid)
        keys = jax.random.split(rng_key)
        if num_rows is not None:
            x, y = self._sample(keys[0], x, y, count(num_rows, "num_rows"))
        scores = []
        with progress_bar(int(np.prod(kernels.shape)), "select", unit="kernel", show=self.progress) as bar:
            for machine in kernels.models():
                scores.append(machine._scores(keys[1], x, y))
                bar.update()
        if values is None:
            return kernels.choose(np.min(scores, axis=1), "score")
        found = kernels.choose(np.asarray(scores), "score", {"regularization": values})
        chosen = dataclasses.replace(found.model, regularization=found.chosen["regularization"])
        return dataclasses.replace(found, model=chosen)

    def _read_grid(self: Machine, grid: Mapping[str, Any]) -> tuple[CandidateGrid[Machine], tuple[float, ...] | None]:
        """Return the grid of the kernel, and the values of the regularization if the grid has them."""
        other = [path for path in grid if path != "regularization" and not path.startswith("kernel.")]
        if other or not grid:
            known = [f"kernel.{path}" for path in leaf_paths(self.kernel)]
            raise ValueError(f"`grid` must name leaves of the kernel, {known}, or 'regularization'; got {list(grid)}")
        values = _values(grid["regularization"]) if "regularization" in grid else None
        machine = self if values is None else dataclasses.replace(self, regularization=values)
        paths = {path: column for path, column in grid.items() if path != "regularization"}
        return (CandidateGrid.read(machine, paths) if paths else CandidateGrid(machine, {})), values

    def _sample(self, rng_key: RngKey, x: object, y: object, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the points and targets of random rows; all rows if there are not more."""
        table = read_rows_and_targets(x, y, _BLOCK_ENTRIES // self._num_landmarks + 1)
        return table.take(_some(_generator(rng_key), table.num_rows, min(num_rows, table.num_rows)))

    def _scores(self, rng_key: RngKey, x: object, y: object) -> list[float]:
        """Return the score of each value of the regularization, NaN if the fit fails."""
        try:
            scores = dataclasses.replace(self, progress=False).fit(rng_key, x, y).scores
        except (ConvergenceError, linalg.FactorizationError):
            return [np.nan] * len(self.regularization)
        return [scores[value] for value in self.regularization]

    @property
    def _num_landmarks(self) -> int:
        return self.landmarks if isinstance(self.landmarks, int) else len(self.landmarks)

    def _place(self, rng: np.random.Generator, table: RowBlocks, m: int) -> Float[Array, "m d"]:
        if not isinstance(self.landmarks, int):
            return jnp.asarray(self.landmarks, float)
        if self.method == "random":
            return jnp.asarray(table.take(_some(rng, table.num_rows, m))[0], float)
        sample, _ = table.take(_some(rng, table.num_rows, min(table.num_rows, max(_SAMPLE, m))))
        seed, sample = int(rng.integers(2**31)), sample.astype(float)
        return jnp.asarray(k_means_centers(sample, m, seed, code_columns(self.kernel, sample)))

    def _fitted(self, rows: _Rows, solution: tuple[Array, Array]) -> RKHSFunction:
        return RKHSFunction(self.kernel, rows.landmarks, *solution)

    def _choose(
        self, rows: _Rows, functions: dict[float, RKHSFunction], scores: dict[float, float], errors: dict[float, float]
    ) -> LandmarkFit:
        """Return the fit with the lowest score."""
        best = min(scores, key=scores.__getitem__)
        scores = dict.fromkeys(self.regularization, np.inf) | scores  # values after the first failure were not tried
        table = rows.table
        return LandmarkFit(functions[best], best, scores, errors.get(best), table.num_rows, table.feature_names)


def _until_failure(values: tuple[float, ...], attempt: Callable[[float], Result]) -> dict[float, Result]:
    """Return the results for descending values of the regularization up to the first that fails, at least one."""
    found: dict[float, Result] = {}
    for each in values:
        try:
            found[each] = attempt(each)
        except (ConvergenceError, linalg.FactorizationError):
            if not found:
                raise
            break
    return found


def _generator(rng_key: RngKey) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(check_rng_key(rng_key))).tolist())


def _cast(tree: Any, precision: str) -> Any:
    """Return a pytree whose numbers have a precision."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, precision) if eqx.is_inexact_array_like(leaf) else leaf, tree)


def _some(rng: np.random.Generator, num_rows: int, num: int) -> np.ndarray:
    return np.sort(rng.choice(num_rows, num, replace=False))


@eqx.filter_jit
def _sections(kernel: AbstractKernel, landmarks: Array, x: Float[Array, "b d"], shift: Array) -> Float[Array, "m b"]:
    return kernel(landmarks, x) - shift[:, None]


class LandmarkRidge(AbstractLandmarkMachine):
    r"""Kernel ridge regression with landmarks Z, for tables of millions of rows.

    .. math:: \min_{f, b} \frac1n \sum_i (y_i - f(x_i) - b)^2 + \lambda \|f\|^2, \qquad
        f = \sum_{j=1}^m \alpha_j\, k(\cdot, z_j)

    The rows are read once for the fit, in blocks, and once more for each choice of random rows. Time is of order n m^2,
    memory of order m^2 for any n. All values of the regularization share the sums over the rows, so that choosing among
    them costs nothing. The result is an `RKHSFunction` of m points, which `kpp.explain` explains exactly.

    Args:
        kernel: k, with numbers as leaves.
        regularization: :math:`\lambda`, multiplied by the number of rows; or several values to choose from.
        landmarks: m, or the landmarks, (m, d).
        method: "random" takes random rows as landmarks, "kmeans" the centers of clusters of up to 20,000 random rows,
            whose codes of categories are those of rows.
        criterion: "held_out" chooses the regularization by the mean squared error on rows held out, "evidence" by the
            evidence of the Gaussian process with m features.
        num_held_out: The number of random rows that are held out; they do not enter the fit.
        precision: The precision of kernel values and their products, "float64" or "float32", which takes about half the
            time. The sums of blocks have double precision in both cases. Values of the regularization so small that
            rounding errors of float32 would matter are refused.
        progress: Whether to show a progress bar.

    Raises:
        TypeError: If a leaf of the kernel is a prior.
        ValueError: If a number is out of range.

    References:
        Rudi, Camoriano and Rosasco, Less is more: Nyström computational regularization, 2015, equation (4).
    """

    criterion: str = eqx.field(static=True, default="held_out", kw_only=True)

    @property
    def chooses_without_rows(self) -> bool:
        """Whether the criterion is the evidence."""
        return one_of(self.criterion, "criterion", ("held_out", "evidence")) == "evidence"

    def solve(self, rows: _Rows, whiteners: Whiteners) -> LandmarkFit:
        sums = functools.partial(self._pass, shift=whiteners.shift)
        statistics = rows.sum(sums, "landmark ridge", self.progress)
        num = rows.table.num_rows - len(rows.held_out)
        systems = _until_failure(self.regularization, lambda each: whiteners.system(statistics, num * each))
        functions = {each: self._fitted(rows, system.solve(num * each)) for each, system in systems.items()}
        errors = {each: float(system.residual(num * each)) / num for each, system in systems.items()}
        if self.num_held_out:
            points, observed = rows.table.take(rows.held_out)
            errors = {each: float(np.mean((observed - _call(f, points)) ** 2)) for each, f in functions.items()}
        scores = errors
        if self.chooses_without_rows:
            scores = {each: -float(system.log_evidence(num * each, num)) / num for each, system in systems.items()}
        return self._choose(rows, functions, scores, errors)

    def _pass(self, rows: _Rows, shift: Float[Array, " m"]) -> Statistics:
        """Return the sums over the rows."""
        statistics = Statistics.empty(len(rows.landmarks))
        for sections, targets, fitted in rows.sections(self.kernel, shift, "landmark ridge", self.progress):
            statistics = statistics.add(sections, fitted, targets)
        return statistics


class LandmarkLogistic(AbstractLandmarkMachine):
    r"""Kernel logistic regression with landmarks Z, for tables of millions of rows with labels 0 and 1.

    .. math:: \min_{f, b} -\frac1n \sum_i \log p(y_i \mid f(x_i) + b) + \frac\lambda2 \|f\|^2, \qquad
        f = \sum_{j=1}^m \alpha_j\, k(\cdot, z_j)

    The function is the log-odds. Newton's method reads the rows once per step; the minimum for one value of the
    regularization starts the next smaller one. A step that increases the objective is halved.

    Args:
        kernel, landmarks, method, num_held_out, precision, progress: As for `LandmarkRidge`.
        regularization: :math:`\lambda`, or several values to choose from by the log loss on the rows held out.

    Raises:
        TypeError: If a leaf of the kernel is a prior.
        ValueError: If a number is out of range.

    References:
        Marteau-Ferey, Bach and Rudi, Globally convergent Newton methods for ill-conditioned generalized self-concordant
        losses, 2019, section 4.
    """

    @property
    def chooses_without_rows(self) -> bool:
        return False

    def solve(self, rows: _Rows, whiteners: Whiteners) -> LandmarkFit:
        solution = (jnp.zeros(len(rows.landmarks)), jnp.zeros(()))

        def fit_from_last(value: float) -> RKHSFunction:
            nonlocal solution
            solution = self._newton(rows, whiteners, value, solution)
            return self._fitted(rows, solution)

        functions = _until_failure(self.regularization, fit_from_last)
        scores = dict.fromkeys(functions, 0.0)
        if self.num_held_out:
            points, labels = rows.table.take(rows.held_out)
            scores = {each: _log_loss(labels, _call(f, points)) for each, f in functions.items()}
        return self._choose(rows, functions, scores, {})

    def _newton(
        self, rows: _Rows, whiteners: Whiteners, value: float, start: tuple[Array, Array]
    ) -> tuple[Array, Array]:
        num, current, least, proposed = rows.table.num_rows - len(rows.held_out), start, np.inf, start
        gram, (tolerance, rounding) = whiteners.gram, _TOLERANCES[self.precision]
        for _ in range(_MAX_NEWTON):
            sums = functools.partial(self._pass, shift=whiteners.shift, solution=proposed)
            statistics, loss = rows.sum(sums, "landmark logistic", self.progress)
            objective = loss / num + 0.5 * value * float(proposed[0] @ gram @ proposed[0])
            if objective > least * (1 + rounding):
                proposed = jax.tree.map(lambda old, new: (old + new) / 2, current, proposed)
                continue
            at_minimum = least < np.inf and least - objective <= rounding * abs(least)
            current, least = proposed, objective
            proposed = whiteners.system(statistics, num * value).solve(num * value)
            change = abs(self._fitted(rows, proposed)(rows.landmarks) - self._fitted(rows, current)(rows.landmarks))
            if at_minimum or float(change.max()) < tolerance:
                return proposed
        raise ConvergenceError(
            f"Newton's method did not converge in {_MAX_NEWTON} passes with `regularization` {value}; make it larger"
        )

    def _pass(self, rows: _Rows, shift: Float[Array, " m"], solution: tuple[Array, Array]) -> tuple[Statistics, float]:
        """Return the sums of a step of Newton's method, and the sum of the losses."""
        solution = solution[0], solution[1] + solution[0] @ shift
        statistics, loss = Statistics.empty(len(rows.landmarks)), 0.0
        for sections, labels, fitted in rows.sections(self.kernel, shift, "landmark logistic", self.progress):
            if not bool(jnp.all((labels == 0) | (labels == 1))):
                raise ValueError("`y` must hold labels 0 and 1")
            weights, working, losses = _working(sections, labels, *solution)
            statistics = statistics.add(sections, fitted * weights, working)
            loss += float(fitted @ losses)
        return statistics, loss


@jax.jit
def _working(
    sections: Float[Array, "m b"], labels: Float[Array, " b"], coefficients: Float[Array, " m"], intercept: Array
) -> tuple[Array, Array, Array]:
    """Return the weights and targets of the least squares of a step of Newton's method, and the losses."""
    # Newton's step is a least squares fit to working targets (iteratively reweighted least squares).
    odds = coefficients @ sections + intercept
    probability = jax.nn.sigmoid(odds)
    weights = jnp.maximum(probability * (1 - probability), 1e-12)  # a certain row would divide by 0
    return weights, odds + (labels - probability) / weights, jax.nn.softplus(odds) - labels * odds


def _log_loss(labels: np.ndarray, odds: np.ndarray) -> float:
    return float(np.mean(np.logaddexp(0.0, odds) - labels * odds))


def _call(function: RKHSFunction, points: np.ndarray) -> np.ndarray:
    return call_in_chunks(function, points.astype(float))[0]
