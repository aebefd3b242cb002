r"""The kernel of a regression that is the sum of a baseline and a deviation from it, which stay separate."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.kernels import AbstractKernel
from kpp.kernels.toolkit import AbstractBatchKernel, Unprojected
from kpp.typing import AnyArray


class Sections(eqx.Module):
    """Points at which a `Decomposed` kernel means a combination of the two parts, :math:`a_i f_0(x_i) + b_i g(x_i)`.

    The weights are a and b, and the points may be `Unprojected`.
    """

    points: AnyArray | Unprojected
    weights: Float[Array, "n 2"]


# Points of the kernel: ordinary ones, or with the parts that they stand for.
Section = AnyArray | Unprojected | Sections


class Decomposed(AbstractBatchKernel):
    r"""The kernel of :math:`f = f_0 + g` with independent parts.

    .. math:: k(x, x') = k_0(x, x') + k_g(x, x')

    At `Sections` it is the covariance with :math:`a f_0 + b g`, so that a function :math:`\sum_i a_i k_0(\cdot, x_i) +
    \sum_i b_i k_g(\cdot, x_i)`, in which each part has its own coefficients, is spanned by sections of this kernel. For
    the baseline `Unprojected` points are ordinary points.
    """

    baseline: AbstractKernel
    deviation: AbstractKernel

    def __call__(self, x1: Section, x2: Section) -> Float[Array, "n1 n2"]:
        first, second = _as_sections(x1), _as_sections(x2)
        baseline = self.baseline(_bare(first.points), _bare(second.points))
        deviation = self.deviation(first.points, second.points)
        return _scaled(baseline, first, second, 0) + _scaled(deviation, first, second, 1)

    def gram(self, x: Section) -> Float[Array, "n n"]:
        sections = _as_sections(x)
        baseline, deviation = self.baseline.gram(_bare(sections.points)), self.deviation.gram(sections.points)
        return _scaled(baseline, sections, sections, 0) + _scaled(deviation, sections, sections, 1)

    def diagonal(self, x: Section) -> Float[Array, " n"]:
        sections = _as_sections(x)
        parts = self.baseline.diagonal(_bare(sections.points)), self.deviation.diagonal(sections.points)
        return jnp.sum(sections.weights**2 * jnp.stack(parts, axis=1), axis=1)


def _as_sections(x: Section) -> Sections:
    if isinstance(x, Sections):
        return x
    bare = _bare(x)
    return Sections(x, jnp.ones((bare.shape[0], 2), dtype=bare.dtype))


def _bare(x: AnyArray | Unprojected) -> AnyArray:
    return x.points if isinstance(x, Unprojected) else x


def _scaled(matrix: Array, first: Sections, second: Sections, part: int) -> Array:
    return first.weights[:, part][:, None] * matrix * second.weights[:, part][None, :]
