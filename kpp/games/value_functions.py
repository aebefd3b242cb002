r"""Value functions: what a coalition of features is worth for the prediction at a point.

Those of this module average the absent features apart from the present ones. For a product kernel, with factors
:math:`a_{ij} = k_j(x_j, X_{ij})` of the explained point and :math:`c_{bij}` of the m references,

.. math:: v(S) = \sigma^2 \sum_i \alpha_i \prod_{j \in S} a_{ij} \cdot \frac1m \sum_{b=1}^m \prod_{j \notin S} c_{bij},

summed over the product terms of the kernel, plus the intercept.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.functions import RKHSFunction
from kpp.games.batching import average_chunks, split_rows
from kpp.games.coalitions import as_coalitions
from kpp.kernels import RBF, AbstractKernel, AbstractProductKernel
from kpp.typing import AnyArray, RngKey
from kpp.validation import as_points, is_concrete

__all__ = ["AbstractProductValueFunction", "AbstractValueFunction", "Baseline", "Interventional"]

# Rows handed to a plain function at once, and elements of one array of factors.
_MAX_ROWS = 2**16
_MAX_ELEMENTS = 2**20


class AbstractValueFunction(eqx.Module):
    """What a coalition of features is worth for the prediction at a point.

    A subclass is final, has its options as fields, and defines `__call__` and `base`.
    """

    @abstractmethod
    def __call__(self, function: Any, x: Any, coalitions: Any) -> Float[Array, "*draws c p *outputs"]:
        """Value coalitions at points.

        Laws: the values are linear in the function, and a constant function is worth itself; the full coalition is
        worth the prediction and the empty one the base; a coalition or a point alone has the value that it has among
        others.

        Args:
            function: An `RKHSFunction`, perhaps with draws.
            x: The points, (p, d).
            coalitions: Booleans, (c, d): True for the features that are present.

        Returns:
            The values, (c, p), led by draws, with the outputs last.

        Raises:
            ValueError: If `x` or `coalitions` are not as said.
            TypeError: If the function is not one that the value function can take.
        """

    @abstractmethod
    def base(self, function: Any) -> Float[Array, "..."]:
        """Return the value of the empty coalition.

        Args:
            function: The function that is explained.

        Returns:
            The base value: a scalar, led by draws, with the outputs last; with an axis of points before the outputs
            where it depends on them.
        """


class AbstractProductValueFunction(AbstractValueFunction):
    """A value function that averages the absent features' factors over references, whatever the explained point.

    Such games have exact Shapley values in polynomial time; `kpp.games.shapley_values` finds them from the two methods
    here.
    """

    @abstractmethod
    def references(self, num_features: int) -> Float[Array, "m d"]:
        """Return the points that absent features are averaged over, each with weight 1/m."""

    @abstractmethod
    def absent_factors(
        self, term: AbstractProductKernel, references: Float[Array, "b d"], points: Any
    ) -> Float[Array, "d b n"]:
        """Return the factors c of absent features.

        Args:
            term: A product kernel.
            references: Some of the references, (b, d).
            points: The function's points, (n, d).
        """


class Interventional(AbstractProductValueFunction):
    r"""Absent features are replaced by those of background points, whatever the values of the present ones.

    .. math:: v(S) = \frac1m \sum_{b=1}^m f(x_S, z_{b, S^c})

    Args:
        background: The background points z, (m, d). Their mean prediction is the base value.

    References:
        Janzing, Minorics and Bloebaum, Feature relevance quantification in explainable AI: a causal problem, 2020;
        Chau, Hu, Gonzalez and Sejdinovic, RKHS-SHAP, 2022, eq. (6).
    """

    background: Float[AnyArray, "m d"] = eqx.field(converter=lambda value: as_points(value, "background"))

    def __call__(self, function: Any, x: Any, coalitions: Any) -> Float[Array, "*draws c p *outputs"]:
        """Value coalitions at points; the function may also be any callable from (n, d) to (n,) or (n, outputs)."""
        x = as_points(x, num_features=self.background.shape[1])
        coalitions = as_coalitions(coalitions, x.shape[1])
        if isinstance(function, RKHSFunction) and has_product_terms(function.kernel):
            return _product_values(self, function, x, jnp.asarray(coalitions))
        return _imputed_values(function, x, coalitions, jnp.asarray(self.background))

    def base(self, function: Any) -> Float[Array, "*draws *outputs"]:
        """Return the mean prediction over the background."""
        mean, axis = _mean_prediction(function, jnp.asarray(self.background)[None])
        return jnp.squeeze(mean, axis=axis)

    def references(self, num_features: int) -> Float[Array, "m d"]:
        """Return the background."""
        return as_points(self.background, "background", num_features=num_features)

    def absent_factors(
        self, term: AbstractProductKernel, references: Float[Array, "b d"], points: Any
    ) -> Float[Array, "d b n"]:
        """Return the kernel's factors between background and points."""
        return term.factors(references, points)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractValueFunction, RKHSFunction, Any]]:
        """Yield instances with a function and points: one kernel, a sum of kernels, several outputs."""
        for function, x in example_functions(rng_key):
            yield cls(function.points[:3] + 0.1), function, x


class Baseline(AbstractProductValueFunction):
    r"""Absent features' kernel factors become 1, as if every point of the function agreed with x there.

    .. math:: v(S) = \sigma^2 \sum_i \alpha_i \prod_{j \in S} k_j(x_j, X_{ij})

    The base value is :math:`\sigma^2 \sum_i \alpha_i`, plus the intercept.
    """

    def __call__(self, function: Any, x: Any, coalitions: Any) -> Float[Array, "*draws c p *outputs"]:
        """Value coalitions at points."""
        x = as_points(x)
        coalitions = as_coalitions(coalitions, x.shape[1])
        return _product_values(self, function, x, jnp.asarray(coalitions))

    def base(self, function: Any) -> Float[Array, "*draws *outputs"]:
        """Return the value of the empty coalition."""
        zeros = np.zeros((1, function.points.shape[-1]))
        batch = len(function.batch_shape)
        return jnp.squeeze(self(function, zeros, zeros.astype(bool)), axis=(batch, batch + 1))

    def references(self, num_features: int) -> Float[Array, "m d"]:
        """Return one point, which stands for none."""
        return jnp.zeros((1, num_features))

    def absent_factors(
        self, term: AbstractProductKernel, references: Float[Array, "b d"], points: Any
    ) -> Float[Array, "d b n"]:
        """Return ones."""
        return jnp.ones((references.shape[1], references.shape[0], points.shape[0]), dtype=points.dtype)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractValueFunction, RKHSFunction, Any]]:
        """Yield instances with a function and points: one kernel, a sum of kernels, several outputs."""
        for function, x in example_functions(rng_key):
            yield cls(), function, x


def has_product_terms(kernel: AbstractKernel) -> bool:
    """Tell whether a kernel is a sum of product kernels."""
    try:
        kernel.product_terms()
    except TypeError:
        return False
    return True


def example_functions(rng_key: RngKey) -> Iterator[tuple[RKHSFunction, Float[Array, "p d"]]]:
    """Yield small functions with points: one kernel, a sum with a constant, several outputs."""
    points, x = jax.random.normal(rng_key, (5, 3)), jax.random.normal(rng_key, (2, 3)) - 0.5
    coefficients = jnp.cos(jnp.arange(10.0)).reshape(5, 2)
    kernel = RBF(lengthscale=jnp.array([0.8, 1.0, 1.5]), variance=1.3)
    yield RKHSFunction(kernel, points, coefficients[:, 0], 0.5), x
    yield RKHSFunction(kernel + 0.7, points, coefficients[:, 1], -0.2), x
    yield RKHSFunction(kernel, points, coefficients, jnp.array([0.5, -1.0])), x


@eqx.filter_jit
def _product_values(
    value_function: AbstractProductValueFunction, function: RKHSFunction, x: Array, coalitions: Array
) -> Float[Array, "*draws c p *outputs"]:
    """Value coalitions by the product terms of the kernel."""
    references = value_function.references(x.shape[1]).astype(x.dtype)

    def value(draw: RKHSFunction) -> Array:
        total = jnp.zeros((coalitions.shape[0], x.shape[0], *draw.output_shape), dtype=draw.coefficients.dtype)
        for term in draw.kernel.product_terms():
            absent = _absent_products(value_function, term, references, draw.points, coalitions)
            total = total + term.scale * _present_values(term, x, draw.points, coalitions, absent, draw.coefficients)
        return total + jnp.broadcast_to(draw.intercept, total.shape)

    return function.map_draws(value)


def _absent_products(
    value_function: AbstractProductValueFunction,
    term: AbstractProductKernel,
    references: Array,
    points: Array,
    coalitions: Array,
) -> Float[Array, "c n"]:
    """Average the products of the absent features' factors over the references."""

    def add(total: Array, chunk: tuple[Array, Array]) -> tuple[Array, None]:
        factors = value_function.absent_factors(term, chunk[0], points)
        return total + jax.lax.map(lambda mask: chunk[1] @ _masked_product(factors, ~mask), coalitions), None

    chunks = average_chunks(references, _chunk_size(references, points))
    start = jnp.zeros((coalitions.shape[0], points.shape[0]), dtype=points.dtype)
    return jax.lax.scan(add, start, chunks)[0]


def _present_values(
    term: AbstractProductKernel, x: Array, points: Array, coalitions: Array, absent: Array, coefficients: Array
) -> Float[Array, "c p *outputs"]:
    """Multiply the products of the present features' factors with those of the absent ones, and sum over points."""

    def value(chunk: Array) -> Array:
        factors = term.factors(chunk, points)

        def one(coalition: tuple[Array, Array]) -> Array:
            weighted = _masked_product(factors, coalition[0]) * coalition[1][None]
            return jnp.matmul(weighted, coefficients, precision="highest")

        return jax.lax.map(one, (coalitions, absent))

    values = jax.lax.map(value, split_rows(x, _chunk_size(x, points)))
    values = jnp.moveaxis(values, 0, 1)
    return values.reshape(values.shape[0], -1, *values.shape[3:])[:, : x.shape[0]]


def _masked_product(factors: Float[Array, "d b n"], mask: Array) -> Float[Array, "b n"]:
    return jnp.prod(jnp.where(mask[:, None, None], factors, jnp.ones_like(factors)), axis=0)


def _chunk_size(rows: Array, points: Array) -> int:
    return max(1, min(rows.shape[0], _MAX_ELEMENTS // (rows.shape[1] * points.shape[0])))


def _imputed_values(
    function: Callable[[Any], Any], x: Array, coalitions: Any, background: Array
) -> Float[Array, "*draws c p *outputs"]:
    """Value coalitions of any function by averaging its predictions, some coalitions and points at a time."""
    num_coalitions, num_points, num_background = coalitions.shape[0], x.shape[0], background.shape[0]
    which = np.indices((num_coalitions, num_points)).reshape(2, -1)
    step = max(1, _MAX_ROWS // num_background)
    means = []
    for start in range(0, which.shape[1], step):
        rows, columns = which[:, start : start + step]
        imputed = jnp.where(coalitions[rows][:, None], x[columns][:, None], background[None])
        means.append(_mean_prediction(function, imputed))
    axis = means[0][1]
    values = jnp.concatenate([mean for mean, _ in means], axis=axis)
    return values.reshape(*values.shape[:axis], num_coalitions, num_points, *values.shape[axis + 1 :])


def _mean_prediction(function: Callable[[Any], Any], imputed: Float[Array, "k m d"]) -> tuple[Array, int]:
    """Return the mean predictions of k groups of m points, and the axis of the groups."""
    groups, size, num_features = imputed.shape
    rows: Any = imputed.reshape(-1, num_features)
    if is_concrete(rows) and not isinstance(function, RKHSFunction):
        rows = np.asarray(rows)
    predictions = jnp.asarray(function(rows))
    if isinstance(function, RKHSFunction):
        axis = len(function.batch_shape)
    else:
        axis = next((i for i, length in enumerate(predictions.shape) if length == groups * size), -1)
    if axis < 0:
        raise ValueError(
            "`function` must return one prediction a point, shape (n,) or (n, outputs), got shape "
            f"{predictions.shape} for {groups * size} points"
        )
    shape = predictions.shape
    return predictions.reshape(*shape[:axis], groups, size, *shape[axis + 1 :]).mean(axis + 1), axis
