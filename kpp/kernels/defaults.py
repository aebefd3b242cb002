"""A kernel to start with, made from the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from kpp.foundation.validation import positive
from kpp.kernels.base import AbstractKernel
from kpp.kernels.by_feature import select
from kpp.kernels.points.categorical import Categorical
from kpp.kernels.points.stationary import RBF
from kpp.typing import Numbers


@runtime_checkable
class _Columns(Protocol):
    """The part of `kpp.data.tables.Schema` that says which columns hold numbers."""

    @property
    def feature_names(self) -> Sequence[str]: ...

    @property
    def categories(self) -> frozenset[str]: ...


def default_kernel(
    schema: object, *, priors: bool = True, lengthscale: Numbers = 1.0, variance: float = 1.0
) -> AbstractKernel:
    r"""Return a product kernel for the columns of a table: `RBF` on numbers, `Categorical` on categories.

    .. math::

        k(x, x') = \sigma^2 \exp\Bigl(-\tfrac12 \sum_{j \in N} \frac{(x_j - x'_j)^2}{\ell_j^2}\Bigr)
        \prod_{j \in C} \bigl(\rho_j + (1 - \rho_j)\, 1\{x_j = x'_j\}\bigr)

    N are the columns of numbers, C those with levels and those of booleans, which are categories of two levels. With
    priors :math:`\ell_j \sim \mathrm{LogNormal}(\log s_j, 1)`, :math:`\rho_j \sim \mathrm{Beta}(1, 1)` and
    :math:`\sigma^2 \sim \mathrm{HalfNormal}(v)`. With :math:`s_j = v = 1` they are meant for numbers and targets with
    standard deviations near 1, because models never rescale data.

    Args:
        schema: The columns, a `kpp.data.tables.Schema`: the second value of ``kpp.data.tables.read_points(table)``.
        priors: Whether the parameters have priors. Without them :math:`\ell_j = s_j`, :math:`\rho_j = 1/2` and
            :math:`\sigma^2 = v`.
        lengthscale: s, positive: the scale of the lengthscales, one number or one for each column of numbers, in units
            of the columns; `median_heuristic` computes such numbers.
        variance: v, positive: the scale of the variance, in squared units of the targets.

    Returns:
        The kernel, whose parts name the columns that they use; fitting a model to the table resolves the names.

    Raises:
        TypeError: If `schema` is not a schema.
        ValueError: If a scale is not positive, or there is not one lengthscale for each column of numbers.

    Example:
        >>> from kpp.data import read_points
        >>> _, schema = read_points(x)
        >>> type(kernels.default_kernel(schema)).__name__
        'Selected'
    """
    if not isinstance(schema, _Columns):
        raise TypeError(
            f"`schema` must be a kpp.data.tables.Schema, got {type(schema).__name__}; "
            "`_, schema = kpp.data.tables.read_points(table)` learns the schema of a table"
        )
    categories = schema.categories
    numbers = tuple(name for name in schema.feature_names if name not in categories)
    coded = tuple(name for name in schema.feature_names if name in categories)
    scales = _scales(lengthscale, len(numbers))
    amplitude = dist.HalfNormal(positive(variance, "variance")) if priors else positive(variance, "variance")
    parts: list[AbstractKernel] = []
    if numbers:
        lengths = dist.LogNormal(jnp.log(scales), 1.0) if priors else scales
        parts.append(select(RBF(lengths, amplitude), numbers))
    if coded:
        ones = jnp.ones(len(coded))  # not `expand`, which lets NumPyro's Beta promote ranks
        correlation = dist.Beta(ones, ones) if priors else ones / 2
        parts.append(select(Categorical(correlation, 1.0 if numbers else amplitude), coded))
    return parts[0] if len(parts) == 1 else parts[0] * parts[1]


def _scales(lengthscale: Numbers, count: int) -> Float[Array, " count"]:
    scales = jnp.asarray(positive(lengthscale, "lengthscale"), jnp.result_type(float))
    if scales.shape not in ((), (count,)):
        raise ValueError(
            f"`lengthscale` must be one number or one for each of {count} columns of numbers, got shape {scales.shape}"
        )
    return jnp.broadcast_to(scales, (count,))
