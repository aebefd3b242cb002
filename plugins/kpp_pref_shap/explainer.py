"""The explainer "pref-shap"."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from kpp import AbstractExplainer, Explanation, GPPosterior, RKHSFunction
from kpp.explanations import AbstractPointsExplainer, Inputs, Law
from kpp.explanations.toolkit import (
    LawOfDraws,
    describe_estimate,
    describe_key,
    describe_value_function,
    freeze_groups,
    representatives,
    solve_in_blocks,
)
from kpp.foundation.validation import count, one_of, positive
from kpp.games import AbstractValueFunction, ShapleyEstimate, estimate_shapley
from kpp.games.toolkit import Players, num_nodes
from kpp.kernels import RBF, GeneralizedPreferential, Preferential
from kpp.runtime.threads import one_blas_thread
from kpp.typing import AnyArray, RngKey
from kpp_pref_shap.concatenation import as_concatenated, has_product_items, items_by_quadrature
from kpp_pref_shap.context_game import PreferentialContext
from kpp_pref_shap.game import AbstractPreferenceGame
from kpp_pref_shap.inputs import read_contexts, read_duels
from kpp_pref_shap.item_game import PreferentialItems
from kpp_pref_shap.law import num_steps, prior_covariance, whitened_draws
from kpp_pref_shap.pair_functions import PairPoints, as_known, split_points
from kpp_pref_shap.teams import posterior_of_members

# Instances per batch, entries of a table of values, and the most players whose coalitions are enumerated by default.
_INSTANCES, _MAX_ENTRIES, _MAX_PLAYERS = 4096, 2**26, 14


class PrefShap(AbstractPointsExplainer):
    r"""Shapley values of a preference between two items.

    .. math:: g(x, x') = \sum_j \phi_j(x, x'), \qquad \phi_j(x', x) = -\phi_j(x, x')

    A feature of the items is one player, present or absent for both items, so that an explanation changes its sign if
    the items are exchanged. The value function determines what is explained:

    * `PreferentialItems`: which features of the items decided a duel, `x` being pairs (p, 2, d), or a tuple of pairs
      and contexts (p, c); with its `opponents`, which features of an item, (p, d), decide its matches with them all.
    * `PreferentialContext`: which features of the context decided a duel; with its `matches`, which features of a
      context, (p, c), decide those matches on average.

    `x` may also be `kpp.preferences.Matches`, explained with the winner first. Duels of teams (`Matches.from_teams`, or
    `kpp.kernels.toolkit.PaddedBags` of pairs) get the values of the features of all members together, which are the
    averages over the duels of their members; the background holds members. The data shown with the values are
    differences, first item minus second one (or minus the mean opponent), which color the plots; contexts are shown
    unchanged.

    Values are exact up to 14 players, whose coalitions are enumerated. Interventional values of items are exact for any
    number of players, by quadrature, if the kernel of items is a sum of product kernels. Other values are sampled,
    with standard errors. The draws of a posterior are explained one by one. For the duels of a Gaussian process whose
    kernels of items are sums of product kernels, the values are drawn from the whole posterior, of the hyperparameters
    and of the function given them, wherever this is affordable. The attribute ``uncertainty`` of the explanation
    says what the draws hold; see `kpp.explanations.toolkit.describe_uncertainty`.

    Args:
        value_function: The game, `PreferentialItems` or `PreferentialContext`.
        method: "enumeration", "quadrature", "least-squares", "permutation", or "auto" as above.
        num_coalitions: How many coalitions the sampling methods may value.
        tolerance: The largest standard error that the sampling methods may have, in the unit of the predictions.
            They value more and more coalitions until then, up to `num_coalitions` or by default 32768. The attributes
            of the explanation say whether it was reached.
        groups: Features that form one player: a
            mapping from the name of a player to names or positions of features.
        covariance: "auto" draws the values from their law: one draw for each draw of the hyperparameters, and 200 if
            there is only one. Each draw has the covariance of the nearest of up to 8 draws; `kpp_pref_shap.law` says
            how much computation is affordable. None explains posterior means only.
        instances_at_once: How many instances are worked on at once; by default what fits into memory.
        progress: Whether to show progress bars.

    References:
        Chau, Towards trustworthy machine learning with kernels, 2023, chapter 7, table 7.1; Hu, Chau, Ferrando Huertas
        and Sejdinovic, Explaining preferences with Shapley values, 2022.
    """

    value_function: PreferentialItems | PreferentialContext
    method: str = eqx.field(static=True, default="auto")
    num_coalitions: int | None = eqx.field(static=True, default=None)
    tolerance: float | None = eqx.field(static=True, default=None)
    groups: Any = eqx.field(static=True, default=None, converter=freeze_groups)
    covariance: str | None = eqx.field(static=True, default="auto")
    instances_at_once: int | None = eqx.field(static=True, default=None)
    progress: bool = eqx.field(static=True, default=True)

    requires: ClassVar = "pairs"
    additive: ClassVar = True

    def __check_init__(self) -> None:
        if not isinstance(self.value_function, PreferentialItems | PreferentialContext):
            raise TypeError(
                "`value_function` must be PreferentialItems or PreferentialContext, got "
                f"{type(self.value_function).__name__}"
            )
        one_of(self.method, "method", ("auto", "quadrature", "enumeration", "least-squares", "permutation"))
        for name in ("num_coalitions", "instances_at_once"):
            if getattr(self, name) is not None:
                count(getattr(self, name), name)
        if self.tolerance is not None:
            positive(self.tolerance, "tolerance")
        one_of(self.covariance, "covariance", ("auto", None))

    def read_inputs(self, predictor: Any, x: Any) -> Inputs:
        game = self.value_function
        if isinstance(game, PreferentialContext):
            return read_contexts(predictor, x, game.contexts, game.matches, self.groups)
        return read_duels(predictor, x, game.opponents, self.groups, has_contexts=game.contexts is not None)

    @one_blas_thread()
    def explain_inputs(self, inputs: Inputs, *, rng_key: RngKey | None = None) -> Explanation:
        """Explain preferences.

        A random key is required where coalitions are sampled. Draws of the values take the key 0 if there is none.
        """
        arrays, estimate = self._values(inputs, rng_key)
        record = {"explainer": "pref-shap", **describe_value_function(self.value_function), "explains": self._explains}
        record |= describe_estimate(estimate, rng_key)
        law = self._laws(inputs) if self.covariance == "auto" else None
        if law is not None:
            key = jax.random.key(0) if rng_key is None else rng_key
            # Another stream than the one of sampled coalitions.
            arrays = law.draw(arrays, inputs.batch_shape, jax.random.fold_in(key, 1))
            record |= law.record(inputs.predictor) | {"rng_key": describe_key(key)}
        return inputs.explanation(record, draws=law is not None or bool(inputs.batch_shape), **arrays)

    @property
    def _explains(self) -> str:
        game = self.value_function
        if isinstance(game, PreferentialContext):
            return "contexts of duels" if game.matches is None else "contexts"
        return "duels" if game.opponents is None else "items against opponents"

    def _laws(self, inputs: Inputs) -> LawOfDraws | None:
        """Return the law of the values, if there is one and it is affordable."""
        assert isinstance(inputs.function, RKHSFunction), "`requires` says so"
        drawn = representatives(inputs.predictor, inputs.function)
        if drawn is None or not isinstance(self.value_function, PreferentialItems):
            return None
        first, num_draws = next(drawn.each()), len(drawn.nearest)
        first = posterior_of_members(first)
        pairs, _ = SideBySide(self.value_function, first.mean).split(inputs.x)
        steps = num_steps(self.value_function, first, pairs, inputs.players)
        if steps > Law.affordable_products:
            return None
        if len(drawn.chosen) * steps > Law.affordable_products:
            return LawOfDraws((self._law(first, inputs),), np.zeros(num_draws, int))
        return LawOfDraws(tuple(self._law(each, inputs) for each in drawn.each()), drawn.nearest)

    def _law(self, posterior: GPPosterior, inputs: Inputs) -> Law:
        """Return the law of the values under the posterior at one value of the hyperparameters."""
        posterior = posterior_of_members(posterior)
        pairs, contexts = SideBySide(self.value_function, posterior.mean).split(inputs.x)
        assert isinstance(self.value_function, PreferentialItems), "`num_steps` has checked it"
        covariance = prior_covariance(self.value_function, posterior, pairs, contexts, inputs.players)
        whitened = dataclasses.replace(inputs, function=whitened_draws(posterior))
        means, _ = self._values(whitened, jax.random.key(0))
        values = np.asarray(means["values"])[0]
        covariance = covariance - np.einsum("rpi,rqj->pqij", values, values, optimize=True)
        return Law.of_covariance(covariance, self.value_function.background.shape[0])

    def _values(self, inputs: Inputs, rng_key: RngKey | None) -> tuple[dict[str, Any], ShapleyEstimate]:
        """Return values, errors, base values and predictions, and the record of their estimation."""
        assert isinstance(inputs.function, RKHSFunction), "`requires` says so"
        game, players, method = self.value_function, inputs.players, self._method(inputs.function, inputs.players)

        def solve(function: RKHSFunction, rows: Float[Array, "b columns"]) -> tuple[ShapleyEstimate, Any]:
            packed = SideBySide(game, function)
            points = packed.unpack(rows)
            known = self._known_values(packed, points)
            if method == "quadrature":
                values = self._by_quadrature(function, *packed.split(rows), packed.players(players))
                return ShapleyEstimate(values, None, method, True, None, num_nodes(players.num_players)), known
            estimate = estimate_shapley(
                packed,
                as_concatenated(function),
                rows,
                method=method,
                num_coalitions=self.num_coalitions,
                tolerance=self.tolerance,
                groups=packed.players(players),
                rng_key=rng_key,
            )
            return estimate, known

        size = self.instances_at_once or self._instances_at_once(inputs.function, players)
        estimate, (predictions, base) = solve_in_blocks(
            solve, inputs.function, inputs.x, instances_at_once=size, progress=self.progress
        )
        arrays = {
            "values": estimate.values,
            "standard_errors": estimate.standard_errors,
            "base_values": game.base(inputs.function) if base is None else base,
            "predictions": predictions,
        }
        return arrays, estimate

    def _known_values(
        self, packed: SideBySide, x: PairPoints
    ) -> tuple[Float[np.ndarray, "*draws p"], Float[AnyArray, "*draws p"] | None]:
        """Return the predictions of instances, and their base values, or None if all instances share one."""
        game, function = self.value_function, packed.function
        if not isinstance(game, PreferentialContext) or game.matches is not None:
            return game.predictions(function, x), None
        if game.end_points == "raw":
            return game.predictions(function, x), game.base_at(function, x)
        ends = np.repeat([[False], [True]], game.contexts.shape[1], axis=1)  # both by one compiled program
        values = np.asarray(game(function, x, ends))
        return values[..., 1, :], values[..., 0, :]

    def _method(self, function: RKHSFunction, players: Players) -> str:
        """Choose quadrature if it is requested, or if it is the only exact method."""
        game = self.value_function
        interventional = isinstance(game, PreferentialItems) and game.conditional == "interventional"
        possible = interventional and has_product_items(function)
        if self.method == "quadrature" and not possible:
            raise TypeError(
                "`method` 'quadrature' needs PreferentialItems with `conditional` 'interventional', and kernels of "
                "items that are sums of product kernels"
            )
        return (
            "quadrature" if possible and self.method == "auto" and players.num_players > _MAX_PLAYERS else self.method
        )

    def _by_quadrature(
        self, function: RKHSFunction, pairs: Float[AnyArray, "p 2 d"], contexts: AnyArray | None, players: Players
    ) -> Float[Array, "*draws p g"]:
        """Solve a game of items by quadrature, one context and one opponent after another."""
        game = self.value_function
        assert isinstance(game, PreferentialItems), "`_method` has checked it"
        solve = functools.partial(items_by_quadrature, game.background, function)

        def by_context(duels: Float[AnyArray, "p 2 d"]) -> Float[Array, "*draws p g"]:
            if contexts is None or game.contexts is not None:
                return solve(duels, game.contexts, players)
            each = zip(duels, contexts, strict=True)
            return jnp.concatenate([solve(duel[None], context[None], players) for duel, context in each], axis=-2)

        if game.opponents is None:
            return by_context(pairs)
        others = (np.broadcast_to(opponent, pairs[:, 1].shape) for opponent in np.asarray(game.opponents))
        values = [by_context(np.stack([pairs[:, 0], other], axis=1)) for other in others]
        return jnp.mean(jnp.stack(values), axis=0)

    def _instances_at_once(self, function: RKHSFunction, players: Players) -> int:
        draws = int(np.prod(function.batch_shape))
        return max(1, min(_INSTANCES, _MAX_ENTRIES // (draws * 2 ** min(players.num_players, _MAX_PLAYERS))))

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
        pairs, x = jax.random.normal(rng_key, (5, 2, 3)), jax.random.normal(rng_key, (2, 2, 3)) - 0.5
        coefficients, kernel = jnp.cos(jnp.arange(10.0)), RBF(lengthscale=jnp.array([0.8, 1.0, 1.5]))
        general = GeneralizedPreferential(kernel + 0.7)
        function = RKHSFunction(general, pairs, coefficients[:5])
        draws = RKHSFunction.over_draws(general, pairs, coefficients.reshape(1, 2, 5), batch_shape=(1, 2))
        yield cls(PreferentialItems(pairs[:3, 0], 0.01)), draws, x
        game = PreferentialItems(pairs[:3, 0], conditional="interventional")
        utility = RKHSFunction(general + 0.5 * Preferential(kernel), pairs, coefficients[:5])
        yield cls(game, method="quadrature", groups={"both": [0, 2]}), utility, x
        yield cls(game, method="least-squares", num_coalitions=10), function, x


class SideBySide(AbstractValueFunction):
    """A game of preferences in the form for the estimators of `kpp.games`.

    A point is one row with both items and the context of a duel: (p, 2 d) or, with contexts, (p, 2 d + c).
    """

    game: AbstractPreferenceGame
    function: RKHSFunction  # on pairs; calls receive the same function as a function of rows

    def __call__(
        self, function: RKHSFunction, x: Float[Array, "p columns"], coalitions: Bool[AnyArray, "k columns"]
    ) -> Float[Array, "*draws k p"]:
        return self.game(self.function, self.unpack(x), coalitions[:, self._columns])

    def base(self, function: RKHSFunction) -> Float[Array, "*draws"]:
        return self.game.base(self.function)

    def players(self, players: Players) -> Players:
        """Return players of features of an item as players of both items' columns, or shifted to the contexts."""
        d, contexts = self._num_features, split_points(self.function.points)[1]
        shifts = (2 * d,) if self.game.plays_contexts else (0, d)
        groups = tuple(tuple(j + shift for shift in shifts for j in group) for group in players.groups)
        return Players(players.names, groups, 2 * d + (0 if contexts is None else contexts.shape[-1]))

    def split(
        self, rows: Float[AnyArray, "p columns"]
    ) -> tuple[Float[AnyArray, "p 2 d"], Float[AnyArray, "p c"] | None]:
        """Return the pairs and, if the function has them, the contexts of rows."""
        d, rows = self._num_features, as_known(rows)
        contexts = rows[:, 2 * d :]
        return rows[:, : 2 * d].reshape(-1, 2, d), contexts if contexts.shape[1] else None

    def unpack(self, rows: Float[AnyArray, "p columns"]) -> PairPoints:
        """Return the points of rows in the form that the game takes."""
        return self.game.points(*self.split(rows))

    @property
    def _num_features(self) -> int:
        return split_points(self.function.points)[0].shape[-1]

    @property
    def _columns(self) -> slice:
        """The columns of coalitions that are used: those of the first item, or of the context."""
        return slice(2 * self._num_features, None) if self.game.plays_contexts else slice(0, self._num_features)
