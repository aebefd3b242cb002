r"""The contract of a likelihood of n observations with several latent values each, and labels of several classes."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from kpp.data.labels import read_classes
from kpp.gp.integrals.softmax_expectations import expected_log_sum_exp, log_softmax_probabilities
from kpp.gp.likelihoods.base import AbstractLikelihood, observed_field
from kpp.storage.serialization import data_class
from kpp.typing import AnyArray, RngKey

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

    @property
    def mixing_matrix(self) -> Float[Array, "p l"]:
        """The matrix (P, L) from the latent values to those that users see as outputs; by default they are the same."""
        return jnp.eye(self.num_latents)

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


@data_class
class SoftmaxLikelihood(AbstractMultiLatentLikelihood):
    r"""Labels of C classes, :math:`P(y_i = c \mid f_i) = e^{f_{ic}} / \sum_j e^{f_{ij}}`, one latent value per class.

    Args:
        y: The codes of the classes, 0 to C - 1, (n,), or None.
        classes: The labels of the classes, in order, at least two. By default those of the data that a model is fitted
            to, in the order of a categorical column, else ascending.
    """

    predictive_dims: ClassVar[dict[str, tuple[str, ...]]] = {"class_probability": ("class",)}

    y: Any = observed_field()
    classes: tuple[Any, ...] | None = eqx.field(
        static=True, converter=lambda value: None if value is None else tuple(value), default=None
    )

    def __check_init__(self) -> None:
        if self.classes is not None and (len(self.classes) < 2 or len(set(self.classes)) != len(self.classes)):
            raise ValueError(f"`classes` must be at least two different labels, got {self.classes!r}")

    @property
    def num_latents(self) -> int:
        """The number of classes.

        Raises:
            ValueError: If `classes` are not known yet.
        """
        if self.classes is None:
            raise ValueError("`classes` must be given, or read from data by a model's `fit`, got None")
        return len(self.classes)

    @property
    def support(self) -> Any:
        return constraints.integer_interval(0, self.num_latents - 1)

    def read_targets(self, y: object, name: str = "y") -> tuple[SoftmaxLikelihood, Float[Array, " n"]]:
        """Read labels of any type as codes."""
        codes, classes = read_classes(y, self.classes, name)
        return dataclasses.replace(self, classes=classes), codes

    def coordinates(self) -> dict[str, Sequence[Any]]:
        return {} if self.classes is None else {"class": list(self.classes), "latent": list(self.classes)}

    def log_density(self, f: Latents) -> Float[Array, " n"]:
        return self._of_labels(jax.nn.log_softmax(jnp.asarray(f), axis=1))

    def expected_log_density(self, mean: Latents, variance: Latents) -> Float[Array, " n"]:
        mean, variance = jnp.asarray(mean), jnp.asarray(variance)
        return self._of_labels(mean) - expected_log_sum_exp(mean, variance)

    def marginal_log_density(self, mean: Latents, variance: Latents) -> Float[Array, " n"]:
        return self._of_labels(log_softmax_probabilities(mean, variance))

    def draw(self, rng_key: RngKey, f: Float[AnyArray, "p l"]) -> Float[Array, " p"]:
        f = jnp.asarray(f)
        return jax.random.categorical(rng_key, f, axis=1).astype(f.dtype)

    def predict(self, mean: Float[AnyArray, "p l"], variance: Float[AnyArray, "p l"]) -> dict[str, Array]:
        """Return the ``class_probability``, (p, C)."""
        return {"class_probability": jnp.exp(log_softmax_probabilities(mean, variance))}

    def _of_labels(self, values: Float[Array, "n l"]) -> Float[Array, " n"]:
        """Return the entry of each row that belongs to its label."""
        return jnp.take_along_axis(values, jnp.asarray(self.y).astype(int)[:, None], axis=1)[:, 0]
