r"""Gaussian-process regression, exact, with priors on the kernel, the noise and the mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.gp import (
    AbstractGPModel,
    ConditionedProcess,
    GaussianLikelihood,
    LinearMean,
    check_mean_fits,
    condition,
    example_points,
    mean_field,
    read_data,
    scalar_field,
)
from kpp.inference import Data, Sample
from kpp.kernels import RBF, AbstractKernel, Matern52, check_non_negative
from kpp.tables import Schema
from kpp.typing import Leaf, RngKey
from kpp.validation import as_finite_array, as_targets, check_same_rows
from kpp_models.tables.numpyro_models import gp_regression

__all__ = ["GPRegression"]


def _as_variances(value: Any) -> Array | None:
    if value is None:
        return None
    if np.ndim(value) != 1:
        raise ValueError(f"`row_variances` must hold one number per row, shape (n,), got shape {np.shape(value)}")
    variances = as_finite_array(value, "row_variances")
    check_non_negative(variances, "row_variances")
    return variances


class GPRegression(AbstractGPModel):
    r"""Exact Gaussian-process regression.

    .. math:: y_i = f(x_i) + \epsilon_i, \qquad f \sim GP(m, k), \qquad \epsilon_i \sim N(0, \sigma^2 + s_i)

    f is integrated out in closed form, so that inference is only about the hyperparameters. The pointwise log
    likelihood is leave-one-out, :math:`\log p(y_i \mid y_{-i}, \theta)`, in closed form.

    Args:
        kernel: k, with numbers or priors as leaves.
        noise_variance: :math:`\sigma^2`, in squared units of y; a number (at least 0) or a prior.
        mean: m, in units of y: a number, a prior, or a module from points (n, d) to (n,) that may hold priors, such as
            `kpp.gp.LinearMean`. With a module, `function` and what needs it are not available.
        row_variances: s, (n,), in squared units of y, at least 0: what is known of the variance of each row, such as
            the squared standard error of a measurement. A new observation has the variance :math:`\sigma^2`.

    Raises:
        ValueError: If a number is not a scalar, not finite, or a variance is negative.

    References:
        Rasmussen and Williams (2006), algorithm 2.1 and section 5.4.
    """

    kernel: AbstractKernel
    noise_variance: Leaf = scalar_field("noise_variance")
    mean: Any = mean_field(default=0.0)
    row_variances: Array | None = eqx.field(converter=_as_variances, default=None)

    def __check_init__(self) -> None:
        """Raise ValueError if the variance is negative."""
        check_non_negative(self.noise_variance, "noise_variance")

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[GPRegression, Array, Array]]:
        """Yield models with points and targets for the conformance suite."""
        x, y = example_points(rng_key)
        prior = dist.LogNormal(0.0, 0.5)
        yield cls(RBF(lengthscale=prior.expand([2]), variance=prior), noise_variance=dist.HalfNormal(1.0)), x, y
        yield cls(Matern52(1.0), noise_variance=prior, mean=dist.Normal(0.0, 1.0)), x, y + 3.0
        mean, variances = LinearMean(dist.Normal(0.0, 1.0).expand([2]), 0.5), jnp.linspace(0.1, 0.5, 12)
        yield cls(RBF(prior), noise_variance=0.1, mean=mean, row_variances=variances), x, y

    def prepare(self, x: object, y: object) -> tuple[GPRegression, dict[str, Any], Schema]:
        """Read the data; see `AbstractModel.prepare`."""
        model, data, schema = read_data(self, x, y, as_targets, by_features=True)
        check_mean_fits(self.mean, data["x"])
        if self.row_variances is None:
            return model, data, schema
        check_same_rows(data["y"].shape[0], self.row_variances.shape[0], "y", "row_variances")
        return model, data | {"row_variances": self.row_variances.astype(data["y"].dtype)}, schema

    def numpyro_model(
        self, x: Float[Array, "n d"], y: Float[Array, " n"] | None = None, row_variances: Array | None = None
    ) -> None:
        """The NumPyro model: `gp_regression` with this kernel, noise and mean."""
        gp_regression(x, y, self.kernel, self.noise_variance, self.mean, row_variances)

    def posterior(self, sample: Sample, data: Data) -> ConditionedProcess:
        r"""Return the posterior, exact: :math:`\alpha = (K + \Sigma)^{-1}(y - m)`; see `kpp.gp.condition`."""
        model = self.at(sample)
        likelihood = GaussianLikelihood(data["y"], model.noise_variance, data.get("row_variances"))
        return condition(model.kernel, data["x"], likelihood, model.mean)
