r"""Kernel logistic regression: the regularized fit by Newton's method, with approximate leave-one-out scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.data.labels import classes_field, read_labels
from kpp.data.tables import Schema
from kpp.functions import RKHSFunction
from kpp.gp import BernoulliLikelihood, ConditionedGP, condition, log_likelihood, read_data
from kpp.gp.toolkit import FeatureGP, example_points
from kpp.inference import Data
from kpp.inference.toolkit import Sample
from kpp.kernels import RBF, AbstractKernel, Linear
from kpp.typing import RngKey
from kpp_models.tables.machines.ridge import AbstractKernelMachine
from kpp_models.tables.numpyro_functions import gp_classification


class KernelLogistic(AbstractKernelMachine):
    r"""Kernel logistic regression with two classes, a regularized fit without priors.

    .. math:: \min_f \frac1n \sum_i \log(1 + e^{-s_i f(x_i)}) + \frac\lambda2 \|f\|^2, \qquad s_i = 2 y_i - 1, \quad
        f = \sum_i \alpha_i k(\cdot, x_i), \quad n \lambda \alpha_i = y_i - \sigma(f(x_i))

    The model has no intercept: add a constant to the kernel. `fit` gives one chain of one draw under every inference.
    The fit is the mode of the Gaussian-process classifier with kernel :math:`k / (n\lambda)`, which `numpyro_model`
    describes.

    Leave-one-out values of f are one Newton step from the full fit (the Laplace cavity means,
    `kpp.gp.toolkit.leave_one_out_latent`), and approximate refits that keep the total :math:`n\lambda`; they give the
    pointwise log likelihood and the scores of `select`.

    Args:
        kernel: k, with numbers as leaves.
        regularization: :math:`\lambda`, multiplied by the number of rows; greater than 0.
        classes: The two labels, as for `GPClassification`.

    Raises:
        ValueError: If `regularization` is not one finite number greater than 0.
        TypeError: If a leaf is a prior.

    References:
        Rasmussen and Williams (2006), algorithm 3.1 and section 6.4.
    """

    loo_loss_name = "loo_log_loss"
    with_priors = "kpp_models.GPClassification"
    classes: tuple[Any, Any] | None = classes_field()

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[KernelLogistic, Array, Array]]:
        x, y = example_points(rng_key)
        labels = (y > jnp.median(y)).astype(y.dtype)
        yield cls(RBF(jnp.array([0.8, 1.5])), regularization=0.01), x, labels
        yield cls(Linear(), regularization=0.1), x, labels

    def loo_log_probabilities(self, x: Float[Array, "n d"], y: Float[Array, " n"]) -> Float[Array, " n"]:
        r"""Return the log probability of each label under (approximately) the fit to all the others, of shape (n,)."""
        found = self._process(x, y).held_out
        assert found is not None
        return log_likelihood("logit", y, found()[0])

    def loo_loss(self, data: Data) -> Float[Array, ""]:
        return -jnp.mean(self.loo_log_probabilities(**data))

    def prepare(self, x: object, y: object) -> tuple[KernelLogistic, dict[str, Any], Schema]:
        model, data, schema = read_data(
            self, x, y, lambda y, name: read_labels(y, self.classes, name)[0], by_features=True
        )
        return dataclasses.replace(model, classes=read_labels(y, self.classes)[1]), data, schema

    @property
    def positive_class(self) -> Any:
        return None if self.classes is None else self.classes[1]

    def numpyro_model(self, x: Float[Array, "n d"], y: Float[Array, " n"] | None = None) -> None:
        """The NumPyro model: Gaussian-process classification, whose mode is the fit; it has no latent site."""
        gp_classification(x, y, self._scaled(x))

    def log_likelihood(self, sample: Sample, data: Data) -> dict[str, Array]:
        """Return the approximate leave-one-out log probability of every label; see the class."""
        return {"y": self.loo_log_probabilities(data["x"], data["y"])}

    def predictive(
        self, sample: Sample, data: Data, x: Float[Array, "p d"], *, covariance: bool = False
    ) -> dict[str, Array]:
        """Return the fitted log-odds and the probability of label 1; see `AbstractModel.predictive`."""
        mean = self.function_draw(sample, data)(x)
        return {"mean": mean, "probability": jax.nn.sigmoid(mean)}

    def draw_predictive(
        self, rng_key: RngKey, sample: Sample, data: Data, x: Float[Array, "p d"]
    ) -> Float[Array, " p"]:
        """Draw labels with the fitted probabilities."""
        chance = self.predictive(sample, data, x)["probability"]
        return jax.random.bernoulli(rng_key, chance).astype(chance.dtype)

    def function_draw(self, sample: Sample, data: Data) -> RKHSFunction:
        """Return the fitted log-odds, a function of the RKHS."""
        x = data["x"]
        coefficients = self._process(x, data["y"]).coefficients  # those of k / (n lambda), hence the division
        return RKHSFunction(self.kernel, x, coefficients / (x.shape[0] * self.regularization))

    def _process(self, x: Array, y: Array) -> ConditionedGP | FeatureGP:
        """Return the Gaussian process whose mode is the fit."""
        return condition(self._scaled(x), x, BernoulliLikelihood(y))

    def _scaled(self, x: Array) -> AbstractKernel:
        return self.kernel * (1.0 / (x.shape[0] * self.regularization))  # n lambda |f|^2 is f^T (K / (n lambda))^-1 f
