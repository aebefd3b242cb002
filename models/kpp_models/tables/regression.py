r"""Gaussian-process regression, exact, with priors on the kernel, the noise and the mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.gp import (
    AbstractGPModel,
    ConditionedProcess,
    GaussianLikelihood,
    condition,
    example_points,
    read_data,
    scalar_field,
)
from kpp.inference import Data, Sample
from kpp.kernels import RBF, AbstractKernel, Matern52, check_non_negative
from kpp.tables import Schema
from kpp.typing import Leaf, RngKey
from kpp.validation import as_targets
from kpp_models.tables.numpyro_models import gp_regression

__all__ = ["GPRegression"]


class GPRegression(AbstractGPModel):
    r"""Exact Gaussian-process regression.

    .. math:: y_i = f(x_i) + \epsilon_i, \qquad f \sim GP(m, k), \qquad \epsilon_i \sim N(0, \sigma^2)

    f is integrated out in closed form, so that inference is only about the hyperparameters. The pointwise log
    likelihood is leave-one-out, :math:`\log p(y_i \mid y_{-i}, \theta)`, in closed form.

    Args:
        kernel: k, with numbers or priors as leaves.
        noise_variance: :math:`\sigma^2`, in squared units of y; a number (at least 0) or a prior.
        mean: m, in units of y; a number or a prior.

    Raises:
        ValueError: If a number is not a scalar, not finite, or `noise_variance` is negative.

    References:
        Rasmussen and Williams (2006), algorithm 2.1 and section 5.4.
    """

    kernel: AbstractKernel
    noise_variance: Leaf = scalar_field("noise_variance")
    mean: Leaf = scalar_field("mean", default=0.0)

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

    def prepare(self, x: object, y: object) -> tuple[GPRegression, dict[str, Any], Schema]:
        """Read the data; see `AbstractModel.prepare`."""
        return read_data(self, x, y, as_targets, by_features=True)

    def numpyro_model(self, x: Float[Array, "n d"], y: Float[Array, " n"] | None = None) -> None:
        """The NumPyro model: `gp_regression` with this kernel, noise and mean."""
        gp_regression(x, y, self.kernel, self.noise_variance, self.mean)

    def posterior(self, sample: Sample, data: Data) -> ConditionedProcess:
        r"""Return the posterior, exact: :math:`\alpha = (K + \sigma^2 I)^{-1}(y - m)`; see `kpp.gp.condition`."""
        model = self.at(sample)
        return condition(model.kernel, data["x"], GaussianLikelihood(data["y"], model.noise_variance), model.mean)
