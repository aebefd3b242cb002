r"""Value functions: the value of a coalition of features for the prediction at a point.

Two kinds of value functions have their own methods of computation. An imputation averages predictions in which absent
features are filled in, :math:`v(S) = \sum_b w_b(x, S)\, f(x_S, z_{b, S^c})`. A product value function averages the
absent features' factors of a product kernel separately from the factors of the present features, as required for exact
Shapley values in polynomial time.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from jaxtyping import Array, Float

from kpp.foundation.modules import AbstractModule
from kpp.games.players.players import CoalitionTable
from kpp.kernels import AbstractProductKernel
from kpp.typing import Points


def check_function(function: object) -> None:
    """Check that a function to value is an `RKHSFunction` or any other function of points."""
    if not callable(function):
        raise TypeError(f"`function` must be a kpp.RKHSFunction or a function of points, got {type(function).__name__}")


class AbstractValueFunction(AbstractModule):
    """The value of a coalition of features for the prediction at a point.

    A subclass is final, has its options as fields, and defines `__call__` and `base`.
    """

    @abstractmethod
    def __call__(self, function: Any, x: Any, coalitions: Any) -> CoalitionTable:
        """Value coalitions at points.

        Laws: the values are linear in the function, and the value of a constant function is the constant; the value of
            the full coalition is the prediction and the value of the empty coalition is the base; the value of a
            coalition at a point does not depend on the other coalitions and points in the call.

        Args:
            function: An `RKHSFunction`, possibly with draws.
            x: The points, (p, d).
            coalitions: Booleans, (c, d): True for the features that are present.

        Returns:
            The values, (c, p), led by draws, with the outputs last.

        Raises:
            ValueError: If `x` or `coalitions` are invalid.
            TypeError: If the value function does not accept this function.
        """

    @abstractmethod
    def base(self, function: Any) -> Float[Array, "..."]:
        """Return the value of the empty coalition.

        Args:
            function: The function that is explained.

        Returns:
            The base value: a scalar, led by draws, with the outputs last.

        Raises:
            TypeError: If it differs between points; use `base_at` then.
        """

    def base_at(self, function: Any, x: Any) -> Float[Array, "..."]:
        """Return the value of the empty coalition at points, which is `base` unless it differs between points.

        Returns:
            The base value: a scalar, led by draws, with the outputs last; with an axis of points (p,) before the
            outputs where it differs between them.
        """
        return self.base(function)


class AbstractProductValueFunction(AbstractValueFunction):
    """A value function that averages the absent features' factors over references, the same for every point.

    Such games have exact Shapley values in polynomial time; `kpp.games.shapley_values` computes them from the two
    methods here.
    """

    @abstractmethod
    def references(self, num_features: int) -> Float[Array, "m d"]:
        """Return the points that absent features are averaged over, each with weight 1/m."""

    @abstractmethod
    def absent_factors(
        self, term: AbstractProductKernel, references: Float[Array, "b d"], points: Points
    ) -> Float[Array, "d b n"]:
        """Return the factors c of absent features, not negative where the term is `nonnegative`."""
