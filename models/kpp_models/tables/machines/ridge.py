r"""Kernel ridge regression, fitted in closed form, and kernel logistic regression, fitted by Newton's method.

Leave-one-out scores, approximate for logistic regression, choose the hyperparameters.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.data.labels import classes_field, read_labels
from kpp.data.tables import Schema
from kpp.foundation.validation import as_targets
from kpp.functions import RKHSFunction
from kpp.gp import BernoulliLikelihood, ConditionedGP, condition, log_likelihood, read_data, scalar_field
from kpp.gp.toolkit import FeatureGP, example_points, few_features, normal_log_density, refuse_priors_in
from kpp.inference import AbstractModel, Data
from kpp.inference.toolkit import Sample
from kpp.kernels import RBF, AbstractKernel, Linear
from kpp.kernels.toolkit import check_positive
from kpp.linalg.toolkit import AbstractRidge, DenseRidge, FeatureRidge
from kpp.typing import Leaf, RngKey
from kpp_models.tables.machines.grid_search import Selection, select_from_grid
from kpp_models.tables.numpyro_functions import gp_classification, gp_regression


class AbstractLeastSquares(AbstractModel):
    """A fit by least squares, whose noise variance is the mean squared leave-one-out residual."""

    @abc.abstractmethod
    def held_out_residuals(self, data: Data) -> Float[Array, " n"]:
        """Return the leave-one-out residuals, (n,)."""

    def log_likelihood(self, sample: Sample, data: Data) -> dict[str, Array]:
        """Return the leave-one-out log likelihood of every target, with the mean squared residual as variance."""
        residuals = self.held_out_residuals(data)
        # Residuals that are all 0 have a density of the largest size that is finite.
        variance = jnp.maximum(jnp.mean(residuals**2), jnp.finfo(residuals.dtype).tiny)
        variance = jnp.broadcast_to(variance, residuals.shape)
        return {"y": normal_log_density(residuals, jnp.zeros_like(residuals), variance)}

    def predictive(
        self, sample: Sample, data: Data, x: Float[Array, "p d"], *, covariance: bool = False
    ) -> dict[str, Array]:
        """Return the fitted values and the mean squared leave-one-out error; see `AbstractModel.predictive`."""
        mean = self.function_draw(sample, data)(x)
        variance = jnp.mean(self.held_out_residuals(data) ** 2)
        return {"mean": mean, "noise_variance": jnp.broadcast_to(variance, mean.shape)}

    def draw_predictive(
        self, rng_key: RngKey, sample: Sample, data: Data, x: Float[Array, "p d"]
    ) -> Float[Array, " p"]:
        """Draw the fitted values plus normal noise of the leave-one-out variance."""
        found = self.predictive(sample, data, x)
        noise = jax.random.normal(rng_key, found["mean"].shape, dtype=found["mean"].dtype)
        return found["mean"] + jnp.sqrt(found["noise_variance"]) * noise


class AbstractKernelMachine(AbstractModel):
    """A regularized fit without priors, whose numbers can be chosen by their mean leave-one-out loss."""

    kernel: AbstractKernel
    regularization: Leaf = scalar_field("regularization")
    loo_loss_name: ClassVar[str]
    with_priors: ClassVar[str]  # the model to take in place of this one

    def __check_init__(self) -> None:
        refuse_priors_in(self, self.with_priors)
        check_positive(self.regularization, "regularization", infinity_allowed=False)

    @abc.abstractmethod
    def loo_loss(self, data: Data) -> Float[Array, ""]:
        """Return the mean leave-one-out loss, lower is better."""

    def select(self, x: object, y: object, *, grid: Mapping[str, Any]) -> Selection[Self]:
        """Choose hyperparameters from a grid by the mean leave-one-out loss, without refits.

        The loss of kernel ridge regression is the squared error, exactly; of kernel logistic regression the log loss,
        approximately.

        Args:
            x: The points: an array of shape (n, d) or a data frame.
            y: The targets or labels, of shape (n,).
            grid: For each path of a leaf (``"regularization"``, ``"kernel.lengthscale"``) the values to try,
                of shape (g,), or (g, d) for a leaf of shape (d,).

        Returns:
            The model with the best combination, the values chosen, and the loss of every combination.

        Raises:
            ValueError: If x, y or the grid are invalid.
        """
        model, data, _ = self.prepare(x, y)
        found: Selection[Any] = select_from_grid(model, grid, type(self).loo_loss, self.loo_loss_name, data)
        return found.with_names_of(self)


class KernelRidge(AbstractKernelMachine, AbstractLeastSquares):
    r"""Kernel ridge regression, a fit in closed form without priors.

    .. math:: \min_f \frac1n \sum_i (y_i - f(x_i))^2 + \lambda \|f\|^2, \qquad
        f = \sum_i \alpha_i k(\cdot, x_i), \quad \alpha = (K + n \lambda I)^{-1} y

    The model has no intercept: center y, or add a constant to the kernel. scikit-learn's `alpha` is :math:`n\lambda`.
    `fit` gives one chain of one draw under every inference.

    The leave-one-out residuals are :math:`e_i = \alpha_i / [(K + n\lambda I)^{-1}]_{ii}`, which equal those of refits
    that keep the total :math:`n\lambda`. Their mean square is the noise variance of predictions and of the pointwise
    log likelihood, :math:`\log N(e_i; 0, \overline{e^2})`. `numpyro_model` is the Gaussian process whose posterior mean
    the fit is, with noise variance :math:`n\lambda`.

    Args:
        kernel: k, with numbers as leaves.
        regularization: :math:`\lambda`, multiplied by the number of rows; greater than 0.

    Raises:
        ValueError: If `regularization` is not one finite number greater than 0.
        TypeError: If a leaf is a prior.

    Example:
        >>> ridge = kpp_models.KernelRidge(kpp.kernels.RBF(1.5), 1e-3)
        >>> machine = ridge.fit(jax.random.key(0), x, y)
        >>> machine.function()(x[:2]).shape
        (1, 1, 2)

    References:
        Rasmussen and Williams (2006), sections 5.4.2 and 6.2.
    """

    loo_loss_name = "loo_squared_error"
    with_priors = "kpp_models.GPRegression"

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[KernelRidge, Array, Array]]:
        x, y = example_points(rng_key)
        yield cls(RBF(jnp.array([0.8, 1.5])), regularization=0.01), x, y
        yield cls(Linear(), regularization=0.1), x, y

    def loo_residuals(self, x: Float[Array, "n d"], y: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the leave-one-out residuals: each target minus the fit to all the others, of shape (n,)."""
        return self._system(x).leave_one_out(y)  # R&W equation 5.12: alpha_i / [(K + n lambda I)^-1]_ii

    def loo_loss(self, data: Data) -> Float[Array, ""]:
        return jnp.mean(self.loo_residuals(**data) ** 2)

    def prepare(self, x: object, y: object) -> tuple[KernelRidge, dict[str, Any], Schema]:
        return read_data(self, x, y, as_targets, by_features=True)

    def numpyro_model(self, x: Float[Array, "n d"], y: Float[Array, " n"] | None = None) -> None:
        """The NumPyro model: Gaussian-process regression, whose posterior mean is the fit; it has no latent site."""
        gp_regression(x, y, self.kernel, x.shape[0] * self.regularization)  # R&W 6.2: its mean is (K + n lambda I)^-1 y

    def held_out_residuals(self, data: Data) -> Float[Array, " n"]:
        return self.loo_residuals(data["x"], data["y"])

    def function_draw(self, sample: Sample, data: Data) -> RKHSFunction:
        r"""Return the fit, :math:`\alpha = (K + n\lambda I)^{-1} y`."""
        return RKHSFunction(self.kernel, data["x"], self._system(data["x"]).solve(data["y"]))

    def _system(self, x: Array) -> AbstractRidge:
        ridge = x.shape[0] * self.regularization
        features = few_features(self.kernel, x, ridge)
        if features is not None:
            return FeatureRidge.create(features, ridge)
        return DenseRidge.create(self.kernel.gram(x), ridge, what="the matrix K + n * regularization * I")


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
