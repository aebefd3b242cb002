"""The explainers "kernel-shap" and "shapley-sampling": Shapley values of any function, with standard errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from kpp import AbstractExplainer, Explanation, RKHSFunction
from kpp.causal import CausalDAG, CausalOrder
from kpp.causal.toolkit import as_order
from kpp.explanations import AbstractPointsExplainer, Inputs
from kpp.explanations.toolkit import describe_estimate, describe_value_function, freeze_groups, solve_in_blocks
from kpp.foundation.validation import count, one_of, positive
from kpp.games import (
    AbstractValueFunction,
    GaussianConditional,
    Interventional,
    ShapleyEstimate,
    asymmetric_shapley_values,
    direct_and_indirect_effects,
    estimate_shapley,
)
from kpp.games.toolkit import check_effects
from kpp.runtime.batching import even_size
from kpp.typing import AnyArray, RngKey
from kpp_surrogates.converters import as_background
from kpp_surrogates.example_functions import function_with_draws, points, product, two_outputs

# Instances per batch, and the largest number of entries of a table of the values of coalitions.
_INSTANCES, _MAX_ENTRIES = 1024, 2**25
# How many coalitions may be valued by default, without and with a tolerance.
_COALITIONS, _MOST_COALITIONS = 2048, 2**15


class KernelSHAP(AbstractPointsExplainer):
    r"""Shapley values by a least squares fit to the values of sampled coalitions, exact where that is affordable.

    .. math:: \min_\phi \sum_k \Bigl(v(S_k) - v(\emptyset) - \sum_{j \in S_k} \phi_j\Bigr)^2
        \quad\text{subject to}\quad \sum_j \phi_j = f(x) - v(\emptyset)

    over coalitions that are drawn by the Shapley kernel, each with its complement; because they are drawn by the
    kernel, they are not weighted by it. The value of a coalition is the mean prediction when the absent features are
    replaced by those of the background points, unless there is another value function.

    Args:
        background: The background points, (m, d), whose mean prediction is the base value.
        method: "auto" uses quadrature for an RKHS function with a product kernel, and for any other function a
            least squares fit, which is exact if the budget covers all coalitions; "quadrature", "enumeration" or
            "least-squares" select a method.
        design: How coalitions are selected. "random" draws them by the Shapley kernel. "active" is for slow functions:
            a Gaussian process on coalitions takes the place of the least squares fit, and the next coalition is the one
            that reduces the variances of its Shapley values most. All points share the coalitions. Standard errors are
            posterior standard deviations.
        num_coalitions: How many different coalitions may be valued, the empty and the full one among them; by default
            2048 and two for each player, which covers all of up to 11 players. With the active design 16 for each
            player, and at least two more than players.
        tolerance: The largest standard error that is accepted, in the unit of the predictions. More and more
            coalitions are valued until then, up to `num_coalitions` or by default 32768; with the active design 64 for
            each player. The attributes of the explanation say whether it was reached.
        groups: Features that form one player: a mapping from the name of a player to names or positions of features.
        progress: Whether to show a progress bar.
        value_function: Another value function than the interventional one, such as `kpp.games.Causal`. By its
            registered name, `kpp.explain` builds it on the same background.
        order: A causal graph or order of the players (see `kpp.causal.as_graph`). Then the values are asymmetric
            Shapley values, exact averages over the orders in which causes come first; see
            `kpp.games.asymmetric_shapley_values`. Method, budget and tolerance do not matter then.
        effects: Whether to split each value into its direct and its indirect effect, for a value function that fills in
            absent features beside the present ones, and up to 14 players; see `kpp.games.direct_and_indirect_effects`.

    Example:
        >>> options = {"explainer": "kernel-shap", "background": np.zeros((1, 2)), "progress": False}
        >>> kpp.explain(lambda rows: rows[:, 0] * rows[:, 1], np.array([[2.0, 3.0]]), **options).values.values
        array([[3., 3.]])

    References:
        Lundberg and Lee, A unified approach to interpreting model predictions, 2017; Covert and Lee, Improving
        KernelSHAP: practical Shapley value estimation using linear regression, 2021.
    """

    background: Float[AnyArray, "m d"] = eqx.field(converter=as_background)
    method: str = eqx.field(static=True, default="auto")
    num_coalitions: int | None = eqx.field(static=True, default=None)
    tolerance: float | None = eqx.field(static=True, default=None)
    groups: Any = eqx.field(static=True, default=None, converter=freeze_groups)
    progress: bool = eqx.field(static=True, default=True)
    value_function: AbstractValueFunction | None = None
    order: CausalDAG | CausalOrder | None = eqx.field(static=True, default=None, converter=as_order)
    effects: bool = eqx.field(static=True, default=False)
    design: str = eqx.field(static=True, default="random")

    requires: ClassVar = "callable"
    additive: ClassVar = True

    def __check_init__(self) -> None:
        one_of(self.method, "method", ("auto", "quadrature", "enumeration", "least-squares"))
        one_of(self.design, "design", ("random", "active"))
        if self.design == "active" and self.method != "auto":
            raise ValueError(f"`method` must be 'auto' with `design` 'active', got {self.method!r}")
        _check_sampling(self.num_coalitions, self.tolerance)
        if self.effects:
            check_effects(self._game(), self.order)

    def _game(self) -> AbstractValueFunction:
        return Interventional(np.asarray(self.background)) if self.value_function is None else self.value_function

    def explain_inputs(self, inputs: Inputs, *, rng_key: RngKey | None = None) -> Explanation:
        """Explain predictions; a random key is needed only where coalitions are sampled."""
        in_rkhs = isinstance(inputs.function, RKHSFunction)
        method = "least-squares" if self.method == "auto" and not in_rkhs else self.method
        method = "active" if self.design == "active" else method
        options: dict[str, Any] = {"order": self.order, "effects": self.effects}
        return _explain(self, inputs, self._game(), "kernel-shap", method, rng_key, **options)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
        background, x = points(rng_key)
        yield cls(background), two_outputs, x
        yield cls(background, num_coalitions=12), product, x
        yield cls(background, groups={"pair": [0, 2]}, method="enumeration"), product, x
        yield cls(background), function_with_draws(background), x
        yield cls(background, value_function=GaussianConditional(background)), product, x
        yield cls(background, num_coalitions=12, design="active"), two_outputs, x


class ShapleySampling(AbstractPointsExplainer):
    r"""Shapley values as mean marginal contributions over sampled orders in which the features join.

    .. math:: \hat\phi_j = \frac1K \sum_{k=1}^K \bigl(v(S_{kj} \cup j) - v(S_{kj})\bigr)

    where :math:`S_{kj}` are the features before j in order k. Each order comes with its reverse. The values of each
    order add up to the prediction, and therefore so does their mean.

    Args:
        background: The background points, (m, d), whose mean prediction is the base value.
        num_coalitions: How many different coalitions may be valued, the empty and the full one among them; by default
            2048 and two for each player. A budget that covers all coalitions gives the exact values.
        tolerance: The largest standard error that is accepted, in the unit of the predictions. More and more
            coalitions are valued until then, up to `num_coalitions` or by default 32768. The attributes of the
            explanation say whether it was reached.
        groups: Features that form one player: a mapping from the name of a player to names or positions of features.
        progress: Whether to show a progress bar.

    Example:
        >>> options = {"explainer": "shapley-sampling", "background": x, "progress": False}
        >>> found = kpp.explain(lambda rows: rows[:, 0], x[:1], rng_key=jax.random.key(0), **options)
        >>> found.values.round(2).values
        array([[0.4, 0. ]])

    References:
        Castro, Gomez and Tejada, Polynomial calculation of the Shapley value based on sampling, 2009; Strumbelj and
        Kononenko, Explaining prediction models and individual predictions with feature contributions, 2014.
    """

    background: Float[AnyArray, "m d"] = eqx.field(converter=as_background)
    num_coalitions: int | None = eqx.field(static=True, default=None)
    tolerance: float | None = eqx.field(static=True, default=None)
    groups: Any = eqx.field(static=True, default=None, converter=freeze_groups)
    progress: bool = eqx.field(static=True, default=True)

    requires: ClassVar = "callable"
    additive: ClassVar = True

    def __check_init__(self) -> None:
        _check_sampling(self.num_coalitions, self.tolerance)

    def explain_inputs(self, inputs: Inputs, *, rng_key: RngKey | None = None) -> Explanation:
        """Explain predictions; a random key is needed where the budget does not cover all coalitions."""
        game = Interventional(np.asarray(inputs.background))
        return _explain(self, inputs, game, "shapley-sampling", "permutation", rng_key)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
        background, x = points(rng_key)
        yield cls(background, num_coalitions=18), two_outputs, x
        yield cls(background, groups={"pair": [0, 2]}), product, x


def _check_sampling(num_coalitions: int | None, tolerance: float | None) -> None:
    if num_coalitions is not None:
        count(num_coalitions, "num_coalitions")
    if tolerance is not None:
        positive(tolerance, "tolerance")


def _explain(
    explainer: KernelSHAP | ShapleySampling,
    inputs: Inputs,
    game: AbstractValueFunction,
    name: str,
    method: str,
    rng_key: RngKey | None,
    *,
    order: CausalDAG | CausalOrder | None = None,
    effects: bool = False,
) -> Explanation:
    """Explain by an estimator of Shapley values."""
    budget = explainer.num_coalitions

    def solve(part: RKHSFunction | Callable[..., Any], rows: Float[Array, "b d"]) -> tuple[ShapleyEstimate, Any]:
        if order is not None:
            return asymmetric_shapley_values(game, part, rows, order, groups=inputs.players), None
        options: dict[str, Any] = {"groups": inputs.players, "rng_key": rng_key, "num_coalitions": budget}
        estimate = estimate_shapley(game, part, rows, method=method, tolerance=explainer.tolerance, **options)
        if not effects:
            return estimate, None
        parts = direct_and_indirect_effects(check_effects(game), part, rows, groups=inputs.players)
        return estimate, parts._asdict()

    # The values of all coalitions of a block must fit into memory.
    most = budget or (_COALITIONS if explainer.tolerance is None else _MOST_COALITIONS)
    size = even_size(len(inputs.rows), min(_INSTANCES, _MAX_ENTRIES // (inputs.num_targets * most)))
    blocks: dict[str, Any] = {"instances_at_once": size, "row_axis": inputs.row_axis, "progress": explainer.progress}
    estimate, parts = solve_in_blocks(solve, inputs.function, inputs.x, label=f"explain by {name}", **blocks)
    record = {"explainer": name, **describe_value_function(game), **describe_estimate(estimate, rng_key)}
    if order is not None:
        record["order"] = str(order)
    if estimate.method == "active" and estimate.standard_errors is not None:
        record["standard_errors"] = "posterior standard deviations of a Gaussian process on coalitions"
    return inputs.explanation(
        record,
        values=estimate.values,
        standard_errors=estimate.standard_errors,
        base_values=np.asarray(game.base(inputs.function)),
        effects=parts,
    )
