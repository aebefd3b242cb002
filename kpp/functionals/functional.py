r"""Linear functionals of a function: values, averages, derivatives, and their combinations.

Nearly everything that kpp reports of a function f is linear in it. Under a Gaussian process q such numbers L f have one
law, which `GPPosterior.of` computes:

.. math:: L f \sim N\bigl(L \mu,\; L k L^\top - (L k_X R)(L k_X R)^\top\bigr)
"""

from __future__ import annotations

from abc import abstractmethod

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.foundation.modules import AbstractModule
from kpp.foundation.validation import as_finite_array
from kpp.functionals.sections import DirectedPoints, WithDerivatives, join_points
from kpp.functions import RKHSFunction
from kpp.kernels import AbstractKernel
from kpp.storage.serialization import data_class
from kpp.typing import Numbers, PointFunction


class AbstractFunctional(AbstractModule):
    r"""Some numbers that are linear in a function.

    The methods to write are `num_values` and `apply`. A class that knows a faster way than applying itself to both
    arguments of a kernel overrides `prior_covariance`, and a class whose `apply` needs an `RKHSFunction` overrides
    `representer`, too.
    """

    @property
    @abstractmethod
    def num_values(self) -> int:
        """The number q of values."""

    @abstractmethod
    def apply(self, function: PointFunction) -> Float[Array, "q *outputs"]:
        r"""Return the numbers of a function without draws.

        Law: the result is linear in the function; outputs of a function do not mix. Of a function
        :math:`\sum_i a_i k(x_i, \cdot)` it is :math:`\sum_i a_i\, L k(x_i, \cdot)`.

        Args:
            function: An `RKHSFunction` without draws, or any traceable function of points.

        Returns:
            The numbers, (q,), or (q, outputs).
        """

    def of(self, function: PointFunction) -> Float[Array, "*batch q *outputs"]:
        """Return the numbers of a function, draw by draw if it has draws.

        Args:
            function: An `RKHSFunction`, or any traceable function of points.

        Returns:
            The numbers, (*batch_shape, q), or (*batch_shape, q, outputs).
        """
        return function.map_draws(self.apply) if isinstance(function, RKHSFunction) else self.apply(function)

    def representer(self, kernel: AbstractKernel) -> PointFunction:
        r"""Return the function :math:`x \mapsto L k(x, \cdot)`, with q outputs.

        Law: it is `apply` of the kernel's section at x.

        Args:
            kernel: A kernel without draws.

        Returns:
            The function, from n points to (n, q).
        """
        return lambda x: self.apply(lambda z: kernel(z, x)).T

    def adjoint(self, kernel: AbstractKernel, coefficients: Float[Array, "q *outputs"]) -> RKHSFunction:
        r"""Return the function :math:`x \mapsto a^\top L k(x, \cdot)`, as a sum of sections of the kernel.

        Law: it is `representer` times the coefficients. The posterior mean of a process whose numbers L f have been
        observed is such a function.

        Args:
            kernel: A kernel without draws.
            coefficients: a, (q,) or (q, outputs).

        Returns:
            The function; of derivatives, its kernel and points are `WithDerivatives` and `DirectedPoints`.

        Raises:
            TypeError: If the class does not write its representer as sections; this is the default.
        """
        raise TypeError(
            f"{type(self).__name__} has no `adjoint`, so that a function that depends on its numbers cannot be taken "
            "apart by its kernel; `predict` gives its values"
        )

    def prior_covariance(
        self, kernel: AbstractKernel, other: AbstractFunctional | None = None
    ) -> Float[Array, "q q_other"]:
        r"""Return the covariance :math:`L k L'^\top` of the numbers under the prior of a Gaussian process.

        Law: it is `apply` of the other functional to the representer of this one; with itself it is symmetric and
        positive semi-definite.

        Args:
            kernel: The kernel of the process, without draws.
            other: The functional of the columns; this one by default.

        Returns:
            The covariances, (q, q'): rows are the numbers of this functional, columns those of the other one.
        """
        if isinstance(other, Combination):
            return other.prior_covariance(kernel, self).T
        columns = (self if other is None else other).representer(kernel)
        if isinstance(columns, RKHSFunction) or other is None:
            return self.apply(columns)
        return other.apply(self.representer(kernel)).T

    def moments(
        self, mean: RKHSFunction, root: Float[Array, "n r"]
    ) -> tuple[Float[Array, " q"], Float[Array, "q r"], Float[Array, "q q"]]:
        r"""Return the parts of the law :math:`L \mu`, :math:`L k_X R` and :math:`L k L^\top`.

        A class whose parts share work overrides it.

        Args:
            mean: The posterior mean :math:`\mu`, without draws.
            root: R, with a row for each point of the mean.
        """
        # As the outputs of one function they share kernel matrices.
        intercept = jnp.zeros(1 + root.shape[1], root.dtype).at[0].set(mean.intercept)
        both = RKHSFunction(mean.kernel, mean.points, jnp.column_stack([mean.coefficients, root]), intercept)
        numbers = self.apply(both)
        return numbers[:, 0], numbers[:, 1:], self.prior_covariance(mean.kernel)

    def check_space(self, function: RKHSFunction) -> None:
        """Raise ValueError if the numbers are not defined for functions of the space of a function.

        Every functional of function values is defined for all kernels.

        Args:
            function: A function of the space, possibly with draws.
        """
        return

    def __add__(self, other: AbstractFunctional) -> Combination:
        """Return the sum with a functional of as many numbers."""
        return _sum(self, other, 1.0)

    def __sub__(self, other: AbstractFunctional) -> Combination:
        """Return the difference to a functional of as many numbers."""
        return _sum(self, other, -1.0)

    def __rmatmul__(self, matrix: Numbers) -> Combination:
        """Return the functional of the products with a matrix (r, q), such as contrasts."""
        return Combination((self,), as_finite_array(matrix, "matrix"))

    __array_ufunc__ = None  # so that NumPy arrays on the left of `@` call the operator of the functional


@data_class
class Combination(AbstractFunctional):
    r"""Linear combinations of the numbers of some functionals, :math:`M (L_1 f, \dots, L_s f)`.

    Sums, differences and contrasts are combinations: ``a - b`` and ``matrix @ a`` make them.

    Args:
        parts: The functionals, of q numbers together.
        matrix: M, (r, q); None for the numbers of all functionals, one after another.

    Raises:
        ValueError: If the matrix does not have a column for each number.
    """

    parts: tuple[AbstractFunctional, ...]
    matrix: Float[Array, "r q"] | None = None

    def __check_init__(self) -> None:
        columns = sum(part.num_values for part in self.parts)
        if self.matrix is not None and self.matrix.shape[1:] != (columns,):
            raise ValueError(f"`matrix` must have shape (r, {columns}), got shape {self.matrix.shape}")

    @property
    def num_values(self) -> int:
        return sum(part.num_values for part in self.parts) if self.matrix is None else self.matrix.shape[0]

    def apply(self, function: PointFunction) -> Float[Array, "q *outputs"]:
        return self._combine(jnp.concatenate([part.apply(function) for part in self.parts]))

    def representer(self, kernel: AbstractKernel) -> PointFunction:
        functions = [part.representer(kernel) for part in self.parts]
        return lambda x: self._combine(jnp.concatenate([function(x) for function in functions], axis=1).T).T

    def adjoint(self, kernel: AbstractKernel, coefficients: Float[Array, "q *outputs"]) -> RKHSFunction:
        weights = coefficients if self.matrix is None else jnp.tensordot(self.matrix.T, coefficients, axes=1)
        stops = np.cumsum([part.num_values for part in self.parts])[:-1]
        blocks = zip(self.parts, jnp.split(weights, stops), strict=True)
        functions = [part.adjoint(kernel, block) for part, block in blocks]
        points = join_points([function.points for function in functions])
        kernel = WithDerivatives(kernel) if isinstance(points, DirectedPoints) else kernel
        return RKHSFunction(kernel, points, jnp.concatenate([function.coefficients for function in functions]))

    def prior_covariance(
        self, kernel: AbstractKernel, other: AbstractFunctional | None = None
    ) -> Float[Array, "q q_other"]:
        columns = self if other is None else other
        return self._combine(jnp.concatenate([part.prior_covariance(kernel, columns) for part in self.parts]))

    def check_space(self, function: RKHSFunction) -> None:
        for part in self.parts:
            part.check_space(function)

    def _combine(self, numbers: Array) -> Array:
        return numbers if self.matrix is None else jnp.tensordot(self.matrix, numbers, axes=1, precision="highest")


def _sum(first: AbstractFunctional, second: AbstractFunctional, factor: float) -> Combination:
    if first.num_values != second.num_values:
        raise ValueError(
            f"`other` must have as many numbers as the functional, {first.num_values}, got {second.num_values}"
        )
    one = jnp.eye(first.num_values)
    return Combination((first, second), jnp.concatenate([one, factor * one], axis=1))
