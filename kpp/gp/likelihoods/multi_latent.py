r"""The contract of a likelihood of n observations, each of which depends on several latent values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from jaxtyping import Array, Float

from kpp.gp.likelihoods.base import AbstractLikelihood
from kpp.typing import AnyArray

#: The latent values of n observations, or their means or variances, several for each.
Latents = Float[AnyArray, "n l"]

Likelihood = TypeVar("Likelihood", bound="AbstractMultiLatentLikelihood")


class AbstractMultiLatentLikelihood(AbstractLikelihood):
    r"""The likelihood of n observations, :math:`\prod_i p(y_i \mid f_{i1}, \ldots, f_{iL})`, for latent values (n, L).

    Law: `expected_log_density` and `marginal_log_density` are averages of `log_density`, and of its exponential, over
    independent normal latent values.
    """

    latent_ndim: ClassVar[int] = 2
    #: The names of the axes that one observation has; none if it is one number.
    observation_dims: ClassVar[tuple[str, ...]] = ()
    #: The names of the axes that quantities of `predict` have after that of the points.
    predictive_dims: ClassVar[dict[str, tuple[str, ...]]] = {}

    @property
    @abstractmethod
    def num_latents(self) -> int:
        """L, the number of latent values of an observation."""

    @abstractmethod
    def read_targets(self: Likelihood, y: object, name: str = "y") -> tuple[Likelihood, Array]:
        """Read the observations that a user gives.

        Returns:
            The likelihood, with what it learned from them, such as the names of classes; and the observations as an
            array, (n, ...), which may hold NaN where an entry is missing.

        Raises:
            ValueError: If they do not fit the likelihood.
        """

    @abstractmethod
    def predict(self, mean: Float[AnyArray, "p l"], variance: Float[AnyArray, "p l"]) -> dict[str, Array]:
        """Return predictive quantities besides the latent moments, each with the axis of the p points first."""

    def coordinates(self) -> dict[str, Sequence[Any]]:
        """Return the names along the axes of observations, latent values and predictions, by axis; none by default."""
        return {}
