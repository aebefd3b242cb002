r"""Labels of several classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from kpp.data.labels import read_classes
from kpp.gp.integrals.softmax_expectations import expected_log_sum_exp, log_softmax_probabilities
from kpp.gp.likelihoods.base import observed_field
from kpp.gp.likelihoods.multi_latent import AbstractMultiLatentLikelihood, Latents
from kpp.storage.serialization import data_class
from kpp.typing import AnyArray, RngKey


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
