r"""The explainer "integrated-gradients".

With a baseline b and path points :math:`z_k = b + t_k (x - b)` at the Gauss-Legendre nodes :math:`t_k` with weights
:math:`w_k`,

.. math:: \phi_j = (x_j - b_j) \int_0^1 \partial_j f\bigl(b + t (x - b)\bigr)\,dt
    = (x_j - b_j) \sum_k w_k\, \partial_j f(z_k),

which is linear in f: under the posterior of a Gaussian process the contributions at a point are jointly Gaussian.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp import AbstractExplainer, Explanation, GPPosterior, RKHSFunction
from kpp.explanations import AbstractPointsExplainer, Inputs, Law
from kpp.explanations.toolkit import LawOfDraws, describe_key, representatives
from kpp.foundation.validation import as_points, positive
from kpp.functionals import Gradient
from kpp.games import gauss_legendre
from kpp.kernels import RBF
from kpp.runtime.batching import in_blocks
from kpp.runtime.threads import num_cores, one_blas_thread
from kpp.typing import RngKey

# The numbers of nodes: the first one that is precise enough is taken.
_NODES = (8, 16, 32, 64, 128)
# Points at once: their path points and the points of the function make a matrix.
_INSTANCES = 32


class IntegratedGradients(AbstractPointsExplainer):
    r"""Integrated gradients of a function of an RKHS, or of a Gaussian process with its posterior.

    .. math:: \phi_j = (x_j - b_j) \int_0^1 \partial_j f\bigl(b + t (x - b)\bigr)\,dt

    The contributions add up to :math:`f(x) - f(b)`. For a Gaussian process they are drawn from their law, one draw for
    each draw of the hyperparameters and 200 if there is only one, with the covariance of the features at each point; a
    few draws of the hyperparameters stand for all in the covariance (see `kpp.explanations.Law`).

    Args:
        background: The background points, (m, d). The baseline b is their mean; give one row to choose it.
        tolerance: The number of nodes, 8 to 128, is the first for which contributions miss their sum by at most this
            share of the largest change of a prediction. The attribute ``completeness_gap`` has the largest miss.

    Raises:
        ValueError: If a feature is a category, or the functions of the kernel have no derivatives.

    References:
        Sundararajan, Taly and Yan, Axiomatic attribution for deep networks, 2017, equation 1.
    """

    background: Float[Array, "m d"] = eqx.field(converter=lambda value: as_points(value, "background"))
    tolerance: float = eqx.field(static=True, default=1e-8)

    requires: ClassVar = "rkhs_function"
    additive: ClassVar = True

    def __check_init__(self) -> None:
        positive(self.tolerance, "tolerance")

    @one_blas_thread()
    def explain_inputs(self, inputs: Inputs, *, rng_key: RngKey | None = None) -> Explanation:
        """Explain predictions; draws of the contributions take the key 0 if there is none."""
        function, baseline = inputs.function, jnp.mean(self.background, axis=0, keepdims=True)
        assert isinstance(function, RKHSFunction), "`requires` says so"
        self._check(inputs, function)
        base = np.asarray(function(baseline)).take(0, axis=len(function.batch_shape))
        change = inputs.predictions - np.expand_dims(base, len(function.batch_shape))
        for num_nodes in _NODES:
            values = _in_blocks(_contributions, function, inputs.x, baseline, num_nodes)
            gap = float(abs(values.sum(axis=len(function.batch_shape) + 1) - change).max())
            if gap <= self.tolerance * abs(change).max():
                break
        record = {"explainer": "integrated-gradients", "nodes": num_nodes, "completeness_gap": gap}
        arrays = {"values": values, "base_values": base, "predictions": inputs.predictions}
        drawn = representatives(inputs.predictor, function)
        if drawn is None:
            return inputs.explanation(record, **arrays)
        found = [_in_blocks(_covariances, draw, inputs.x, baseline, num_nodes) for draw in drawn.each()]
        law = LawOfDraws(tuple(Law.of_covariance(each, 1) for each in found), drawn.nearest)
        key = jax.random.key(0) if rng_key is None else rng_key
        record |= law.record(inputs.predictor) | {"rng_key": describe_key(key)}
        return inputs.explanation(record, draws=True, **law.draw(arrays, inputs.batch_shape, key))

    def _check(self, inputs: Inputs, function: RKHSFunction) -> None:
        """Raise ValueError if there are no derivatives."""
        categories = sorted(inputs.schema.categories)
        if categories:
            raise ValueError(
                f"integrated gradients need features that are numbers, and {', '.join(categories)} are categories; "
                'explainer="rkhs-shap" explains them'
            )
        Gradient(inputs.x[:1]).check_space(function)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
        points, x = jax.random.normal(rng_key, (6, 3)), jax.random.normal(rng_key, (2, 3)) + 0.3
        coefficients, kernel = jnp.sin(jnp.arange(12.0)), RBF(jnp.array([0.9, 1.0, 1.4]), 1.2)
        yield cls(points), RKHSFunction(kernel, points, coefficients[:6], 0.4), x
        draws = RKHSFunction.over_draws(kernel, points, coefficients.reshape(1, 2, 6), 0.4, batch_shape=(1, 2))
        yield cls(points[:1]), draws, x
        yield cls(points), RKHSFunction(kernel + 0.5, points, coefficients.reshape(6, 2)), x


def _in_blocks(solve: Any, function: Any, x: Array, baseline: Array, num_nodes: int) -> Float[np.ndarray, "..."]:
    nodes, weights = map(jnp.asarray, gauss_legendre(num_nodes))
    return in_blocks(
        lambda part, rows: solve(part, rows, baseline, nodes, weights),
        function,
        x,
        instances_at_once=_INSTANCES,
        label="integrated gradients",
        progress=False,
        threads=num_cores(),
    )


@eqx.filter_jit
def _contributions(
    function: RKHSFunction, x: Float[Array, "b d"], baseline: Array, nodes: Array, weights: Array
) -> Float[Array, "*draws b d *outputs"]:
    """Return the contributions; reverse mode takes the derivatives with respect to all features at once."""
    path = baseline[None] + nodes[:, None, None] * (x - baseline)[None]

    def of_draw(draw: RKHSFunction) -> Array:
        values, pullback = jax.vjp(draw, path.reshape(-1, x.shape[1]))
        units = jnp.eye(draw.coefficients[0].size).reshape(-1, *draw.output_shape)
        slopes = jax.lax.map(lambda unit: pullback(jnp.broadcast_to(unit, values.shape))[0], units)
        slopes = jnp.tensordot(weights, slopes.reshape(-1, *path.shape), axes=(0, 1), precision="highest")
        return jnp.moveaxis((x - baseline)[None] * slopes, 0, -1).reshape(*x.shape, *draw.output_shape)

    return function.map_draws(of_draw)


@eqx.filter_jit
def _covariances(
    posterior: GPPosterior, x: Float[Array, "b d"], baseline: Array, nodes: Array, weights: Array
) -> Float[Array, "b d d"]:
    """Return the covariance of the contributions at each point, under a posterior without draws."""
    kernel, num_features = posterior.mean.kernel, x.shape[1]

    def at_point(point: Array) -> Array:
        step = point[None] - baseline
        slopes = Gradient(baseline + nodes[:, None] * step)
        matrix = jnp.kron(weights[None], jnp.diag(step[0]))
        sections = matrix @ slopes.apply(lambda z: kernel(z, posterior.mean.points))
        reduction = jnp.matmul(sections, posterior.root, precision="highest")
        covariance = matrix @ slopes.prior_covariance(kernel) @ matrix.T - reduction @ reduction.T
        return (covariance + covariance.T) / 2

    return jax.lax.map(at_point, x).reshape(-1, num_features, num_features)
