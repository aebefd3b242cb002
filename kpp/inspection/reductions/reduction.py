"""The contributions of features to the reduction of a loss, for each row: an explainer of `kpp.explain`."""

# No `from __future__ import annotations`: Equinox reads annotation objects.

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Bool, Float, Int

from kpp import linalg
from kpp.explanations import AbstractPointsExplainer, DrawFunction, Explanation, Inputs
from kpp.explanations.functions.estimator_functions import output_names
from kpp.explanations.toolkit import describe_uncertainty, describe_value_function, freeze_groups, has_function_law
from kpp.foundation.validation import check_rng_key, count
from kpp.functionals import GPPosterior
from kpp.functionals.sections import join_points
from kpp.functions import RKHSFunction
from kpp.games import AbstractValueFunction, all_coalitions, sample_permutations, shapley_weights
from kpp.games.estimators.game import Game, read_game
from kpp.games.estimators.methods import enumerate_products
from kpp.games.toolkit import coalitions_of_permutations
from kpp.games.values.product_games import is_product_game
from kpp.gp.toolkit import draw_gaussian
from kpp.inference import Fit
from kpp.inspection.reductions.losses import NAMES, Loss, evaluate, gain_of_step, read_targets
from kpp.runtime.batching import call_in_chunks, even_size, rows_that_fit
from kpp.runtime.random import numpy_generator
from kpp.typing import RngKey

# The largest number of values of coalitions that are worked on at once.
_MAX_VALUES = 2**24
# How many rows with features of two rows a function is drawn at, in addition to the points of the posterior.
_MIXED = 200


class LossReduction(AbstractPointsExplainer):
    r"""Shapley values of the reduction of the loss of each row, whose mean over rows is the importance SAGE.

    .. math:: v_i(S) = \ell(y_i, f_\emptyset(x_i)) - \ell(y_i, f_S(x_i))

    The game gives :math:`f_S`. The fields are arguments of `kpp.importance`; if there are more coalitions than
    `num_coalitions`, orders of the features are sampled.

    References:
        Covert, Lundberg and Lee, Understanding global feature contributions with additive importance measures, 2020,
        definition 1.
    """

    value_function: AbstractValueFunction
    y: Any
    loss: Loss = eqx.field(static=True, default="squared")
    groups: Any = eqx.field(static=True, default=None, converter=freeze_groups)
    num_draws: int = eqx.field(static=True, default=100)
    num_coalitions: int = eqx.field(static=True, default=4096)

    requires: ClassVar = "callable"
    additive: ClassVar = True

    def __check_init__(self) -> None:
        if not callable(self.loss) and self.loss not in NAMES:
            raise ValueError(f"`loss` must be one of {NAMES} or a function, got {self.loss!r}")
        count(self.num_draws, "num_draws")
        count(self.num_coalitions, "num_coalitions", 4)

    def explain_inputs(self, inputs: Inputs, *, rng_key: RngKey | None = None) -> Explanation:
        """Explain the reduction of the loss of each row.

        A random key is required where orders are sampled. Draws of functions take the key 0 if there is none.
        """
        function, record = _function_of(inputs, self.num_draws, jax.random.key(0) if rng_key is None else rng_key)
        predictions, axis = call_in_chunks(function, inputs.rows)
        outputs = predictions.shape[-1] if predictions.ndim > axis + 1 else None
        classes = getattr(getattr(inputs.predictor, "model", None), "classes", None) or output_names(function)
        y = read_targets(self.y, self.loss, len(inputs.rows), outputs, classes)
        game = read_game(self.value_function, function, inputs.x, inputs.players)
        steps = Steps.create(game.num_players, self.num_coalitions, rng_key)
        found = reductions(game, steps, self.loss, y, predictions.size // len(inputs.rows))
        draws = predictions.shape[:axis]
        record |= describe_value_function(self.value_function) | {"explainer": "loss-reduction"}
        record |= {"loss": self.loss if isinstance(self.loss, str) else getattr(self.loss, "__name__", "function")}
        record |= {"method": steps.method, "coalitions": len(steps.coalitions), "rows": _origin(inputs)}
        record |= found.statistics(game.varying, _is_whole(record, draws), record["rows"])
        values = np.zeros((*found.values.shape[:2], len(game.varying)))
        values[..., game.varying] = found.values
        arrays = {"values": values, "base_values": found.base, "predictions": found.full}
        arrays = {name: array.reshape((*draws, *array.shape[1:])) for name, array in arrays.items()}
        # A loss has one output, whatever the predictor has: its names are not those of the losses.
        unnamed = dataclasses.replace(inputs, function=len, predictor=None)
        return unnamed.explanation(record, draws=axis > 0, **arrays)


class Steps(NamedTuple):
    """Coalitions that players join, q times each."""

    coalitions: Bool[np.ndarray, "c g"]
    before: Int[np.ndarray, "q g"]  # positions of the coalitions without each player
    after: Int[np.ndarray, "q g"]  # of the same coalitions with the player
    weights: Float[np.ndarray, "q g"]  # of these steps, which sum to 1 for each player
    num_orders: int = 0  # that were sampled; 0 if all coalitions are there

    @classmethod
    def create(cls, num_players: int, num_coalitions: int, rng_key: RngKey | None) -> "Steps":
        """Take all coalitions, or those of sampled orders and their reverses, if there are more than a number."""
        if 2**num_players <= num_coalitions:
            coalitions, numbers = all_coalitions(num_players), np.arange(2**num_players)
            before = np.stack([numbers[numbers >> j & 1 == 0] for j in range(num_players)], axis=1)
            weights = shapley_weights(num_players)[coalitions.sum(axis=1)[before]]
            return cls(coalitions, before, before + 2 ** np.arange(num_players), weights)
        num_orders = max(2, (num_coalitions - 2) // (2 * (num_players - 1)))
        orders = sample_permutations(check_rng_key(rng_key), num_players, num_orders)
        coalitions, index = coalitions_of_permutations(orders)
        place = np.argsort(orders, axis=1)[:, None]
        lower, upper = (np.take_along_axis(index, place + step, axis=2) for step in (0, 1))
        # The complements of what was present before and after a step are those of the step of the reverse order.
        before, after = np.concatenate([lower[:, 0], upper[:, 1]]), np.concatenate([upper[:, 0], lower[:, 1]])
        # Half: each order also counts reversed.
        return cls(coalitions, before, after, np.full(before.shape, 0.5 / num_orders), num_orders)

    @property
    def method(self) -> str:
        """The name of the method."""
        return "permutation" if self.num_orders else "enumeration"

    @property
    def operator(self) -> Float[np.ndarray, "g c"]:
        """The matrix that takes the losses of coalitions to the contributions to their reduction."""
        num_players = self.coalitions.shape[1]
        matrix, players = np.zeros((num_players, len(self.coalitions))), np.arange(num_players)
        np.add.at(matrix, (players, self.before), self.weights)
        np.subtract.at(matrix, (players, self.after), self.weights)
        return matrix


class Reductions(NamedTuple):
    """The contributions to the reduction of the loss, for s draws, p rows and g players."""

    values: Float[np.ndarray, "s p g"]
    base: Float[np.ndarray, "s p"]  # minus the losses of the empty coalition
    full: Float[np.ndarray, "s p"]  # minus the losses of the full coalition
    slopes: Float[np.ndarray, "p g"]  # at first order, of a predictor without draws
    mean_losses: Float[np.ndarray, " c"]  # of the coalitions over draws and rows
    steps: Steps

    def statistics(self, varying: Bool[np.ndarray, " d"], is_whole: bool, rows: str) -> dict[str, list[float]]:
        """Return the p values of the players, if there is a test, and standard errors of sampled orders."""
        found = {}
        if is_whole:
            means = self.values.mean(axis=1)
            found["p_values"] = (1.0 + (means <= 0).sum(axis=0)) / (1.0 + len(means))
        elif len(self.values) == 1 and rows != "in sample" and len(self.slopes) > 1:
            error = self.slopes.std(axis=0, ddof=1) / len(self.slopes) ** 0.5
            ratio = self.slopes.mean(axis=0) / np.where(error > 0, error, np.inf)
            found["p_values"] = np.where(error > 0, scipy.special.ndtr(-ratio), 1.0)
        if self.steps.num_orders:
            gains = self.mean_losses[self.steps.before] - self.mean_losses[self.steps.after]
            pairs = gains.reshape(2, -1, gains.shape[1]).mean(axis=0)
            found["standard_errors"] = pairs.std(axis=0, ddof=1) / self.steps.num_orders**0.5
        fill = {"p_values": 1.0, "standard_errors": 0.0}
        return {name: _spread(numbers, varying, fill[name]) for name, numbers in found.items()}


def reductions(game: Game, steps: Steps, loss: Loss, y: Float[np.ndarray, " p"], num_targets: int) -> Reductions:
    """Compute the contributions for some rows and one draw at a time; a row has draws times outputs targets."""
    operator, parts = steps.operator, []
    none, every = (int(np.flatnonzero(steps.coalitions.sum(axis=1) == n)[0]) for n in (0, game.num_players))
    size = even_size(len(y), rows_that_fit(len(y), len(steps.coalitions) * num_targets, _MAX_VALUES))
    for start in range(0, len(y), size):
        chosen = slice(start, start + size)
        part, targets, found = dataclasses.replace(game, x=game.x[chosen]), y[chosen], []
        for table in _tables(part, steps):
            losses = evaluate(loss, targets, table)
            found.append(((operator @ losses).T, -losses[none], -losses[every], losses.sum(axis=1)))
        slopes = _slopes(steps, loss, targets, table) if len(found) == 1 else np.zeros((len(targets), 0))
        parts.append((*(np.stack(arrays) for arrays in zip(*found, strict=True)), slopes))
    values, base, full, losses, slopes = zip(*parts, strict=True)
    return Reductions(
        values=np.concatenate(values, axis=1),
        base=np.concatenate(base, axis=1),
        full=np.concatenate(full, axis=1),
        slopes=np.concatenate(slopes),
        mean_losses=np.sum(losses, axis=0).mean(axis=0) / len(y),
        steps=steps,
    )


def _tables(game: Game, steps: Steps) -> Iterator[Float[np.ndarray, "c p *outputs"]]:
    """Yield the predictions for coalitions, of one draw after the other."""
    function = game.function
    if not steps.num_orders and is_product_game(game.value_function, function) and not function.output_shape:
        together = _draws_as_outputs(function)
        if together is not None:
            every = enumerate_products(_whole_table, game.value_function, together, game.x, players=game.players)
            yield from np.moveaxis(np.asarray(every) + np.asarray(together.intercept), (2, 1), (0, 1))
            return
        for position in np.ndindex(*function.batch_shape):
            draw = function.at_draw(position) if position else function
            values = enumerate_products(_whole_table, game.value_function, draw, game.x, players=game.players)
            yield np.asarray(values).T + np.asarray(draw.intercept)
        return
    table, num_draw_axes = game.table(steps.coalitions)
    found = np.asarray(table)
    found = found.reshape(*found.shape[:2], -1, *found.shape[2 + num_draw_axes :])
    for draw in range(found.shape[2]):
        yield found[:, :, draw]


def _draws_as_outputs(function: RKHSFunction) -> RKHSFunction | None:
    """Return a function whose outputs are the draws, if all draws have the same kernel and points."""
    if not function.batch_shape:
        return None
    draw = function.at_draw((0,) * len(function.batch_shape))
    parts = zip(*(jax.tree.leaves((one.kernel, one.points)) for one in (function, draw)), strict=True)
    if not all(np.equal(np.asarray(of_all), np.asarray(of_one)).all() for of_all, of_one in parts):
        return None
    coefficients = function.coefficients.reshape(-1, function.num_points).T
    return RKHSFunction(draw.kernel, draw.points, coefficients, function.intercept.ravel())


def _whole_table(table: Float[Array, "c *outputs"]) -> Float[Array, "c *outputs"]:
    return table  # defined at module level, because JAX compiles a new function again


def _slopes(steps: Steps, loss: Loss, y: np.ndarray, table: Float[np.ndarray, "c p *outputs"]) -> np.ndarray:
    r"""Return contributions at first order, (p, g), :math:`-\ell'(y, f_S) (f_{S \cup j} - f_S)`.

    They have mean zero for a feature that is independent of the targets and of the other features: then the mean step
    is zero, and the loss itself would rise by what the predictor has made of the noise.
    """
    found = []
    for before, after, weights in zip(steps.before.T, steps.after.T, steps.weights.T, strict=True):
        found.append(weights @ gain_of_step(loss, y, table[before], table[after] - table[before]))
    return np.stack(found, axis=1)


def _spread(numbers: np.ndarray, varying: np.ndarray, fill: float) -> list[float]:
    """Return the numbers of all players; null players have `fill`."""
    values = np.full(len(varying), fill)
    values[varying] = numbers
    return values.tolist()


def _is_whole(record: dict[str, Any], draws: tuple[int, ...]) -> bool:
    """Return whether draws hold the law of the function; a predictor that brings its own draws is believed."""
    return bool(draws) and record["uncertainty"] in ("full", "function only", "draws of the predictor")


def _function_of(inputs: Inputs, num_draws: int, rng_key: RngKey) -> tuple[Any, dict[str, Any]]:
    """Return the function whose loss is explained, with draws if there are some, and what they hold."""
    predictor, function = inputs.predictor, inputs.function
    response = _response_of(predictor, inputs.rows, num_draws)
    if response is not None:
        return response, describe_uncertainty(predictor, has_law=False, num_draws=2) or {"uncertainty": "full"}
    posterior = _posterior_of(predictor, num_draws)
    if posterior is not None and np.ndim(jax.tree.leaves(posterior.mean.points)[0]) == 2:
        rows = inputs.rows if inputs.background is None else np.concatenate([inputs.rows, inputs.background])
        record = describe_uncertainty(predictor, has_law=True)
        return draw_functions(posterior, rng_key, rows, num_draws), record
    if isinstance(function, RKHSFunction):
        function = function.unfold()
    return function, {"uncertainty": "draws of the predictor" if inputs.row_axis else "rows only"}


def _response_of(predictor: Any, rows: Float[np.ndarray, "p d"], num_draws: int) -> DrawFunction | None:
    """Return the mean response of a fit as a function, if it is not the function of the model itself."""
    if not isinstance(predictor, Fit):
        return None
    predicted = predictor.thin(1)[0].predict(rows[:1])
    names = [name for name in ("probability", "response_mean") if name in predicted]
    if not names:
        return None
    inference = dataclasses.replace(predictor.inference, progress=False)  # type: ignore[call-arg]
    fit = dataclasses.replace(predictor.thin(num_draws)[0], inference=inference)
    return DrawFunction(lambda x: fit.predict(x)[names[0]])


def _posterior_of(predictor: Any, num_draws: int) -> GPPosterior | None:
    """Return the posterior of a Gaussian process with at most a number of draws; without draws if there is one."""
    if not has_function_law(predictor):
        return None
    if isinstance(predictor, GPPosterior):
        return predictor
    posterior = predictor.thin(num_draws)[0].function_posterior()
    return posterior.at_draw((0, 0)) if posterior.batch_shape == (1, 1) else posterior


def _origin(inputs: Inputs) -> str:
    """Return whether the predictor has seen the rows: "in sample", "new", or "not known"."""
    seen = getattr(inputs.predictor, "data", {}).get("x")
    if seen is None or np.ndim(seen) != 2 or np.shape(seen)[1] != inputs.rows.shape[1]:
        return "not known"
    known = set(map(bytes, np.ascontiguousarray(np.asarray(seen, inputs.rows.dtype))))
    return "in sample" if any(bytes(row) in known for row in np.ascontiguousarray(inputs.rows)) else "new"


def draw_functions(
    posterior: GPPosterior, rng_key: RngKey, rows: Float[np.ndarray, "p d"], num_draws: int
) -> RKHSFunction:
    r"""Draw functions from the posterior of a Gaussian process.

    The values at points Z are drawn jointly from their law and interpolated, :math:`f = \mu + k(\cdot, Z) K_{ZZ}^{-1}
    (f_Z - \mu_Z)`. Z are the points of the posterior and 200 rows with features of two of `rows`, as coalitions have
    them. The deviation of f elsewhere from this interpolation is left out. Each draw of the posterior gives one
    function, or `num_draws` functions are drawn; their ``batch_shape`` is (chain, draw). Raises ValueError if the
    posterior covariance is not positive definite, as may be in single precision.
    """
    single, shared = not posterior.batch_shape, posterior.shared
    points = join_points([shared.mean.points, jnp.asarray(_mixed_rows(rng_key, rows))])
    shape = (1, num_draws) if single else posterior.batch_shape
    keys = jax.random.split(rng_key, shape)

    def deviations(draw: GPPosterior, keys: Array) -> Float[Array, "s q"]:
        gram, n = draw.mean.kernel.gram(points), len(draw.root)
        scale = jnp.mean(jnp.diagonal(gram))
        factor = linalg.cholesky(linalg.add_diagonal(gram, linalg.max_relative_jitter(gram.dtype) * scale))
        whitened = jnp.matmul(gram[:n, :n], draw.root, precision="highest")
        covariance = gram[:n, :n] - jnp.matmul(whitened, whitened.T, precision="highest")

        def draw_once(key: Array) -> Array:
            # The data say nothing of the values at the mixed rows that those at the first points do not say.
            known, mixed = jax.random.split(key)
            values = draw_gaussian(known, jnp.zeros(n, gram.dtype), covariance, scale)
            noise = jax.random.normal(mixed, (len(gram) - n,), gram.dtype)
            return jnp.concatenate([linalg.solve_lower(factor[:n, :n], values), noise])

        return linalg.cho_solve(factor, factor @ jax.lax.map(draw_once, keys).T).T

    if single:
        found = jax.jit(deviations)(shared, keys[0])[None]
    else:
        found = shared.map_draws(lambda draw, key: deviations(draw, key[None])[0], keys)
    if not np.isfinite(np.asarray(found)).all():
        raise ValueError(
            f"`predictor` has a posterior covariance that is not positive definite in {found.dtype}; "
            'call jax.config.update("jax_enable_x64", True) at the top of the program, and fit again'
        )
    mean = shared.mean
    coefficients = jnp.broadcast_to(mean.coefficients, (*shape, mean.num_points))
    coefficients = found.at[..., : mean.num_points].add(coefficients)
    intercept = jnp.broadcast_to(mean.intercept, shape)
    drawn = RKHSFunction.over_draws(mean.kernel, points, coefficients, intercept, batch_shape=shape)
    return posterior.mean.with_spanned(drawn.unfold())


def _mixed_rows(rng_key: RngKey, rows: Float[np.ndarray, "p d"]) -> Float[np.ndarray, "q d"]:
    """Return rows with a random part of the features of one row, and the others of another row."""
    generator = numpy_generator(rng_key)
    first, second = rows[generator.integers(len(rows), size=(2, _MIXED))]
    sizes = generator.integers(rows.shape[1] + 1, size=(_MIXED, 1))
    present = np.argsort(generator.random((_MIXED, rows.shape[1])), axis=1) < sizes
    return np.where(present, first, second)
