r"""Sensitivity indices of a function or of a posterior of functions, by the method that fits its form.

Of any function of independent players they are variances of conditional expectations, by a grid or by sampling.

A function on the grid of all combinations of the players' rows is a sum of orthogonal components, one per set of
players, whose variances :math:`\sigma_S^2` give all indices (Owen, 2014):

.. math:: \text{first order } \sigma_{\{j\}}^2, \qquad \text{total } \sum_{S \ni j} \sigma_S^2, \qquad
    \text{Shapley } \sum_{S \ni j} \sigma_S^2 / |S|.

A grid that is too large is sampled. With two independent rows a and b, :math:`a_b^j` with player j from b, and the rows
:math:`z_0 = a, z_1, \ldots, z_g = b` whose players come from b one after the other in a random order,

.. math:: \text{first order } E[(f(b) - m)(f(a_b^j) - f(a))], \qquad
    \text{total } \tfrac12 E[(f(a) - f(a_b^j))^2], \qquad
    \text{Shapley } E[(f(a) - m')(f(z_{k-1}) - f(z_k))]

where j joins in step k. The means m and m' of the two values on the right reduce the error and leave the expectations.

References:
    Owen, Sobol' indices and Shapley value, 2014;
    Jansen, Analysis of variance designs for model output, 1999;
    Goda, A simple algorithm for global sensitivity analysis with Shapley effects, 2021.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.stats import qmc

from kpp.functionals import GPPosterior
from kpp.functionals.sections import join_points
from kpp.functions import RKHSFunction
from kpp.games import AbstractValueFunction, all_coalitions, shapley_values_from_table
from kpp.games.toolkit import Players
from kpp.inspection.variances.product_variances import Sections, prior_indices, section_indices
from kpp.kernels.toolkit import has_product_terms
from kpp.linalg import cholesky, solve_lower
from kpp.linalg.pivoted import pivoted_whitener
from kpp.runtime.batching import call_in_chunks, even_size, map_blocks, progress_bar, rows_that_fit
from kpp.typing import AnyArray, PointFunction

# The largest number of rows of a grid, and of values at once.
_MAX_GRID, _MAX_VALUES = 2**16, 2**24

#: A function from rows (k, d) to the predictions of s functions, (s, k).
Predict = Callable[[Float[np.ndarray, "k d"]], Float[np.ndarray, "s k"]]


class Levels(NamedTuple):
    """The different rows of a player, (k, columns), and their shares, (k,)."""

    rows: Float[np.ndarray, "k c"]
    shares: Float[np.ndarray, " k"]


def levels_of(rows: Float[np.ndarray, "m d"], players: Players) -> list[Levels]:
    """Return the levels of each player."""
    found = [np.unique(rows[:, list(group)], axis=0, return_counts=True) for group in players.groups]
    return [Levels(values, counts / len(rows)) for values, counts in found]


def fits_grid(levels: list[Levels], num_functions: int) -> bool:
    """Return whether a grid has few enough rows for a number of functions."""
    return math.prod(len(level.rows) for level in levels) <= min(_MAX_GRID, _MAX_VALUES // num_functions)


def grid_indices(predict: Predict, levels: list[Levels], players: Players) -> Float[np.ndarray, "3 s g"]:
    """Compute the indices of functions of a few levels exactly, in units of variance."""
    shape = tuple(len(level.rows) for level in levels)
    places = np.indices(shape).reshape(len(shape), -1)
    grid = np.empty((places.shape[1], players.num_features))
    for group, level, place in zip(players.groups, levels, places, strict=True):
        grid[:, list(group)] = level.rows[place]
    values = predict(grid).reshape(-1, *shape)
    active = [axis for axis, size in enumerate(shape) if size > 1]
    components = _components(values.squeeze(tuple(a + 1 for a in range(len(shape)) if a not in active)), levels, active)
    sets = np.indices((2,) * len(active)).reshape(len(active), -1).astype(bool)
    sizes = np.maximum(sets.sum(axis=0), 1)
    weights = np.stack([sets & (sizes == 1), sets, sets / sizes])  # Owen (2014)
    indices = np.zeros((3, len(values), len(shape)))
    indices[:, :, active] = np.einsum("mac,sc->msa", weights, components)
    return indices


def _components(values: np.ndarray, levels: list[Levels], active: list[int]) -> Float[np.ndarray, "s sets"]:
    """Return the variances of the components, of sets of active players in the order of `numpy.indices`."""
    for axis, player in enumerate(active, start=1):
        shares = levels[player].shares
        values = np.moveaxis(values, axis, -1)
        mean = (values @ shares)[..., None]
        parts = np.concatenate([mean, (values - mean) * np.sqrt(shares)], axis=-1)  # squares sum to variances
        values = np.moveaxis(parts, -1, axis)
    energy = values**2
    for axis in range(1, energy.ndim):
        energy = np.add.reduceat(energy, [0, 1], axis=axis)  # the mean, and all contrasts together
    return energy.reshape(len(energy), -1)


def sampled_indices(
    predict: Predict, rows: Float[np.ndarray, "m d"], players: Players, num_rows: int, generator: np.random.Generator
) -> tuple[Float[np.ndarray, "3 s g"], Float[np.ndarray, "3 s g"]]:
    """Estimate the indices of functions from pairs of random rows, and their standard errors, in units of variance.

    The pairs are a scrambled Sobol sequence, which fills the space more evenly than independent pairs do. The standard
    errors are those of independent pairs. So the true errors are smaller: for smooth functions of few features by a
    factor of 2 to 10. Each pair takes 2 g + 1 predictions.
    """
    power = math.ceil(math.log2(num_rows))
    sequence = qmc.Sobol(3 * players.num_players, rng=generator).random_base2(power)[:num_rows]
    num_functions = len(predict(rows[:1]))
    size = rows_that_fit(num_rows, (2 * players.num_players + 1) * num_functions, _MAX_VALUES)
    sums = squares = np.zeros((3, num_functions, players.num_players))
    for start in range(0, num_rows, size):
        terms = _terms(predict, rows, players, sequence[start : start + size])
        sums, squares = sums + terms.sum(axis=-1), squares + (terms**2).sum(axis=-1)
    means = sums / num_rows
    variances = np.maximum(squares / num_rows - means**2, 0.0) / (num_rows - 1)
    return means, np.sqrt(variances)


def _terms(predict: Predict, rows: np.ndarray, players: Players, uniform: np.ndarray) -> Float[np.ndarray, "3 s g k"]:
    """Return for k pairs of rows the terms whose means are the indices, from uniform numbers (k, 3 g)."""
    count, num = players.num_players, len(uniform)
    *pairs, order = np.split(uniform, 3, axis=1)
    first, second = (draw_product(rows, players, part) for part in pairs)
    ranks = order.argsort(axis=1).argsort(axis=1)
    chain = ranks < np.arange(1, count + 1)[:, None, None]
    single = np.broadcast_to(np.eye(count, dtype=bool)[:, None], chain.shape)
    masks = np.concatenate([chain, single])[:, :, players.membership]
    stacked = np.concatenate([first[None], np.where(masks, second, first)])
    values = predict(stacked.reshape(-1, rows.shape[1])).reshape(-1, 2 * count + 1, num)
    base, steps, alone = values[:, :1], values[:, : count + 1], values[:, count + 1 :]
    gains = steps[:, :-1] - steps[:, 1:]
    shapley = (base - (steps[:, :-1] + steps[:, 1:]) / 2) * gains  # Goda (2021), with the mean of both values as m'
    orders = np.broadcast_to(ranks.T[None], shapley.shape)
    main = (steps[:, -1:] - (base + alone) / 2) * (alone - base)
    return np.stack([main, (base - alone) ** 2 / 2, np.take_along_axis(shapley, orders, axis=1)])  # Jansen (1999)


def draw_product(
    rows: Float[np.ndarray, "m d"], players: Players, uniform: Float[np.ndarray, "k g"]
) -> Float[np.ndarray, "k d"]:
    """Return rows whose players are independent: the quantiles of each player at uniform numbers.

    A player of several features takes them from one row; its rows are in the order of its first feature.
    """
    places = (uniform * len(rows)).astype(int)
    drawn = np.empty((len(uniform), rows.shape[1]))
    for group, place in zip(players.groups, places.T, strict=True):
        columns = rows[:, list(group)]
        drawn[:, list(group)] = columns[np.lexsort(columns.T[::-1])[place]]
    return drawn


# The products of kernel factors that all draws of the hyperparameters may take, some 7 seconds of one core, and the
# smallest number of these draws.
_AFFORDABLE, _FEWEST = 5e10, 8
# A draw of a function is represented by its values at points, as many as leave out at most this share of the posterior
# variance, between the least and the largest number. On three features standard deviations of indices were 2 % too
# small at a share of .05, and 7 % at .15. Where the rest does not add its mean, the share is smaller.
_LEFT_OUT, _LEFT_OUT_WITHOUT_MEAN, _FEWEST_POINTS, _MOST_POINTS = 0.05, 0.01, 20, 800
# With 442 rows of ten features it takes some 400 points.
_USUAL_POINTS = 400
# The share left out is measured at this number of points.
_CHECKED = 500


class Question(NamedTuple):
    """What is asked of a function."""

    rows: Float[np.ndarray, "m d"]  # they give the law of the features
    players: Players
    value_function: AbstractValueFunction | None  # the game of dependent features
    num_rows: int  # pairs of rows that are sampled where nothing exact applies
    generator: np.random.Generator
    progress: bool


class Indices(NamedTuple):
    """Indices in units of variance."""

    values: Float[np.ndarray, "3 s g"]
    method: str
    errors: Float[np.ndarray, "3 s g"] | None = None  # of the sampling of rows
    mean: Float[np.ndarray, "3 g"] | None = None  # the exact posterior means, if they are known
    left_out: float | None = None  # the share of the posterior variance that the draws lack
    used: tuple[int, int] | None = None  # how many draws of the hyperparameters, of how many
    batch_shape: tuple[int, ...] = ()


def indices_of_posterior(predictor: Any, function: RKHSFunction, question: Question, num_draws: int) -> Indices:
    """Compute indices of draws of the function of a Gaussian process."""
    chosen = _affordable(function, question, num_draws)
    per_draw = -(-num_draws // len(chosen))
    found: list[Indices] = []
    points, checked = (_random_rows(question, num) for num in (_MOST_POINTS, _CHECKED))
    with progress_bar(len(chosen), "sensitivity", unit="draw", show=question.progress) as bar:
        for posterior in _posteriors(predictor, function, chosen):
            if not found:
                shares = np.asarray(shares_left_out(posterior, points, checked))
                most = _LEFT_OUT if _is_closed(posterior.mean, question) else _LEFT_OUT_WITHOUT_MEAN
                points = points[: max(_FEWEST_POINTS, np.count_nonzero(shares > most) + 1)]
            found.append(_of_posterior(FiniteDraws.of(posterior, points, checked), question, per_draw))
            bar.update()
    means = [part.mean for part in found if part.mean is not None]
    return _joined(found)._replace(
        mean=np.mean(means, axis=0) if means else None,
        left_out=float(np.mean([part.left_out for part in found])),
        used=(len(chosen), math.prod(function.batch_shape)),
    )


def indices_of_functions(function: RKHSFunction, question: Question, num_draws: int) -> Indices:
    """Compute indices of an RKHS function, or of some of its draws."""
    chosen = _affordable(function, question, num_draws)
    places = [_place(int(position), function.batch_shape) for position in chosen]
    draws = [function.at_draw(place) if place else function for place in places]
    found = [_of_outputs(draw, np.asarray(draw.coefficients)[:, None], question) for draw in draws]
    return _joined(found)._replace(
        used=(len(chosen), math.prod(function.batch_shape)) if function.batch_shape else None
    )


def indices_of_callable(function: PointFunction, question: Question) -> Indices:
    """Compute indices of any function of points, whose predictions may have draws."""
    values, axis = call_in_chunks(function, question.rows[:1])
    if values.ndim > axis + 1:
        raise ValueError(
            f"`predictor` must have one output, got {values.shape[axis + 1 :]} outputs; give a function that returns "
            "one of them"
        )

    def predict(rows: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "s k"]:
        return call_in_chunks(function, rows)[0].reshape(-1, len(rows)).astype(float)

    return _of_predictions(function, predict, question)._replace(batch_shape=values.shape[:axis])


def _of_posterior(draws: FiniteDraws, question: Question, num: int) -> Indices:
    """Compute the indices of draws under one value of the hyperparameters; the rest of the function adds its mean."""
    mean = np.asarray(draws.mean.coefficients)[:, None]
    columns = np.concatenate([mean, draws.draw(num, question.generator)], axis=1)
    if not _is_closed(draws.mean, question):
        return _of_outputs(draws.mean, columns[:, 1:], question)._replace(left_out=draws.left_out)
    covariance = np.stack([root @ root.T for root in (draws.root, draws.basis)])
    sections = Sections(draws.mean.kernel, draws.mean.points, columns, covariance)
    indices, moments = section_indices(sections, question.rows, question.players)
    reduction, drawn = moments[:, 0], moments[:, 1]
    prior = prior_indices(draws.mean.kernel, question.rows, question.players)
    values = indices[:, 1:] + np.maximum(prior - reduction - drawn, 0.0)[:, None]
    return Indices(values, "closed form", mean=indices[:, 0] + prior - reduction, left_out=draws.left_out)


def _is_closed(function: RKHSFunction, question: Question) -> bool:
    """Return whether indices of functions with the kernel of a function have a closed form."""
    return question.value_function is None and has_product_terms(function.kernel)


def _of_outputs(function: RKHSFunction, columns: Float[np.ndarray, "N s"], question: Question) -> Indices:
    """Compute the indices of functions with the kernel and the points of one function."""
    intercept = jnp.broadcast_to(function.intercept, columns.shape[1:])
    drawn = RKHSFunction(function.kernel, function.points, columns, intercept).unfold()
    if _is_closed(drawn, question):
        none = np.zeros((0, drawn.num_points, drawn.num_points))
        sections = Sections(drawn.kernel, drawn.points, np.asarray(drawn.coefficients), none)
        return Indices(section_indices(sections, question.rows, question.players)[0], "closed form")
    return _of_predictions(drawn, lambda rows: call_in_chunks(drawn, rows)[0].T.astype(float), question)


def _of_predictions(function: PointFunction, predict: Predict, question: Question) -> Indices:
    rows, players = question.rows, question.players
    if question.value_function is not None:
        return Indices(coalition_indices(question.value_function, function, rows, players), "coalitions")
    levels = levels_of(rows, players)
    if fits_grid(levels, len(predict(rows[:1]))):
        return Indices(grid_indices(predict, levels, players), "grid")
    values, errors = sampled_indices(predict, rows, players, question.num_rows, question.generator)
    return Indices(values, f"{question.num_rows} pairs of rows", errors)


def _joined(found: list[Indices]) -> Indices:
    """Join the draws of several values of the hyperparameters."""
    errors = [part.errors for part in found if part.errors is not None]
    values = np.concatenate([part.values for part in found], axis=1)
    return Indices(values, found[0].method, np.concatenate(errors, axis=1) if errors else None)


def _random_rows(question: Question, num: int) -> Float[np.ndarray, "num d"]:
    """Draw points where the indices need the function: with independent players, or rows."""
    if question.value_function is None:
        return draw_product(
            question.rows, question.players, question.generator.random((num, question.players.num_players))
        )
    return question.generator.permutation(question.rows)[:num]


def _posteriors(predictor: Any, function: RKHSFunction, chosen: np.ndarray) -> Iterator[GPPosterior]:
    """Yield the posteriors at some draws of the hyperparameters."""
    posterior = predictor if isinstance(predictor, GPPosterior) else predictor.function_posterior(at=chosen)
    if not posterior.batch_shape:
        yield posterior
        return
    places = chosen if isinstance(predictor, GPPosterior) else range(len(chosen))
    for position in places:
        yield posterior.at_draw(_place(int(position), posterior.batch_shape))


def _affordable(function: RKHSFunction, question: Question, num_draws: int) -> np.ndarray:
    products = (function.num_points + _USUAL_POINTS) ** 2 * question.rows.size
    wanted = max(1, min(num_draws, max(_FEWEST, int(_AFFORDABLE / products))))
    available = math.prod(function.batch_shape)
    return np.linspace(0, available - 1, min(available, wanted)).round().astype(int)


def _place(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(int, np.unravel_index(position, shape))) if shape else ()


class FiniteDraws(NamedTuple):
    r"""Draws of the whole function of a Gaussian process, by its values at some points, up to a rest.

    Given its values at points E, a process under the posterior covariance c is

    .. math:: f = m + c(\cdot, E) W^\top \xi + r, \qquad W c_{EE} W^\top = I, \quad \xi \sim N(0, I),

    with a rest r that is independent of :math:`\xi`. A draw of :math:`\xi` gives a function in the span of kernel
    sections; of the rest only its covariance is kept.

    Attributes:
        mean: The posterior mean, whose points are followed by E with coefficients of 0, N points in all.
        basis: The coefficients of the functions :math:`c(\cdot, E) W^\top`, (N, e).
        root: R, with rows of 0 for E: the posterior covariance is :math:`k - k(\cdot, Z) R R^\top k(Z, \cdot)`, (N, r).
        left_out: The share of the posterior variance that the rest has at points that were given.
    """

    mean: RKHSFunction
    basis: Float[np.ndarray, "N e"]
    root: Float[np.ndarray, "N r"]
    left_out: float

    @classmethod
    def of(cls, posterior: GPPosterior, points: Float[AnyArray, "e d"], checked: Float[AnyArray, "p d"]) -> FiniteDraws:
        """Represent a function by its values at points (e, d); the rest is measured at other points (p, d)."""
        shared, points = posterior.shared, jnp.asarray(points)
        basis, left_out = _represent(shared, points, jnp.asarray(checked))
        old, count = shared.mean, len(points)
        coefficients = np.pad(np.asarray(old.coefficients), (0, count))
        spanned = RKHSFunction(old.kernel, join_points([old.points, points]), coefficients, old.intercept)
        mean = posterior.mean.with_spanned(spanned)
        basis, root = (jnp.pad(part, ((0, mean.num_points - len(part)), (0, 0))) for part in (basis, shared.root))
        return cls(mean, np.asarray(basis), np.asarray(root), float(left_out))

    def draw(self, num: int, generator: np.random.Generator) -> Float[np.ndarray, "N num"]:
        """Draw the coefficients of functions, (N, num)."""
        noise = generator.standard_normal((self.basis.shape[1], num))
        return np.asarray(self.mean.coefficients)[:, None] + self.basis @ noise


@eqx.filter_jit
def shares_left_out(
    posterior: GPPosterior, points: Float[AnyArray, "e d"], checked: Float[AnyArray, "p d"]
) -> Float[Array, " e"]:
    """Return the share of the posterior variance that is left given the values at the first 1, 2, ..., e points."""
    factor = cholesky(posterior.covariance(points, points), what="the posterior covariance")
    # Each row of L^-1 c(E, .) is what its point adds to those before it.
    known = jnp.cumsum(jnp.sum(solve_lower(factor, posterior.covariance(points, checked)) ** 2, axis=1))
    return 1 - known / jnp.sum(posterior.variance(checked))


@eqx.filter_jit
def _represent(
    posterior: GPPosterior, points: Float[Array, "e d"], checked: Float[Array, "p d"]
) -> tuple[Float[Array, "N e"], Float[Array, ""]]:
    whitener = pivoted_whitener(posterior.covariance(points, points), what="the posterior covariance")
    # c(., E) = k(., E) - k(., X) R R^T k(X, E), by sections at X and at E.
    basis = jnp.concatenate([-posterior.root @ posterior.whitened(points).T, jnp.eye(len(points))]) @ whitener.T
    known = jnp.sum((posterior.covariance(checked, points) @ whitener.T) ** 2)
    total = jnp.sum(posterior.variance(checked))
    return basis, jnp.where(total > 0, jnp.maximum(1 - known / total, 0.0), 0.0)


# The largest number of players whose coalitions are enumerated, and of values at once.
_MAX_PLAYERS, _MAX_TABLE = 12, 2**22


def coalition_indices(
    value_function: AbstractValueFunction, function: PointFunction, x: Float[np.ndarray, "p d"], players: Players
) -> Float[np.ndarray, "3 s g"]:
    r"""Compute the indices of a game, in units of variance, from the values of all coalitions.

    .. math:: V(S) = \mathrm{Var}_x\bigl(v(S)(x)\bigr), \qquad \text{first order } V(\{j\}), \qquad
        \text{total } V(D) - V(D \setminus \{j\}), \qquad \text{Shapley effect } \phi_j(V),

    with a value function v such as :math:`E[f \mid x_S]`, and the rows as the law of x. Raises ValueError if there are
    more than 12 players whose columns vary; those of others are 0.

    References:
        Song, Nelson and Staum, Shapley effects for global sensitivity analysis: theory and computation, 2016;
        Owen and Prieur, On Shapley value for measuring importance of dependent inputs, 2017.
    """
    varies = np.array([np.ptp(x[:, list(group)], axis=0).any() for group in players.groups])
    kept = players.keep(varies) if varies.any() else players
    count = kept.num_players
    if count > _MAX_PLAYERS:
        raise ValueError(
            f"`groups` must form at most {_MAX_PLAYERS} players for the value function "
            f"{type(value_function).__name__}, whose 2^g coalitions are valued, got {count}"
        )
    is_rkhs = isinstance(function, RKHSFunction)

    def variances(coalitions: Bool[np.ndarray, "c g"]) -> Float[np.ndarray, "c s"]:
        values = np.asarray(value_function(function, x, kept.expand(coalitions)))
        if is_rkhs:
            return values.var(axis=1)
        return np.moveaxis(values.var(axis=-1).reshape(-1, len(coalitions)), 0, 1)

    outputs = function.output_shape[0] if isinstance(function, RKHSFunction) else 1
    coalitions = all_coalitions(count)
    table = map_blocks(variances, coalitions, even_size(len(coalitions), _MAX_TABLE // (len(x) * outputs)))
    single = 2 ** np.arange(count)
    first, total = table[single] - table[0], table[-1] - table[len(table) - 1 - single]
    indices = np.zeros((3, table.shape[1], players.num_players))
    found = np.stack([first, total, np.asarray(shapley_values_from_table(table))])
    indices[:, :, varies if varies.any() else slice(None)] = found.swapaxes(1, 2)
    return indices
