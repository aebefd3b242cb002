r"""Gaussian-process regression with priors on the kernel, the noise and the mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.data.tables import Schema
from kpp.foundation.validation import as_finite_array, as_targets, check_same_rows, one_of
from kpp.gp import (
    AbstractGPModel,
    GaussianLikelihood,
    IterativeSettings,
    LinearMean,
    condition,
    replace_priors,
    scalar_field,
)
from kpp.gp.toolkit import (
    ConditionedProcess,
    QuasiseparableGP,
    check_functional_fits,
    check_mean_fits,
    check_times,
    condition_by_inducing,
    condition_iteratively,
    example_points,
    mean_field,
)
from kpp.inference import Data
from kpp.inference.toolkit import Sample
from kpp.kernels import RBF, AbstractKernel, Matern52, check_non_negative
from kpp.kernels.toolkit import check_positive
from kpp.priors import sample as draw_priors
from kpp.typing import Leaf, RngKey
from kpp_models.tables.inducing import AbstractInducing
from kpp_models.tables.numpyro_functions import gp_regression
from kpp_models.tables.observed import SIGNS, Observed, as_observed, condition_on_observed, observe_functionals

LATENTS = ("exact", "inducing", "iterative", "quasiseparable")
_ADVICE = "use latent='inducing' with `num_inducing` points, latent='iterative', or a kernel with finite features, or "


def _as_variances(value: Any) -> Array | None:
    if value is None:
        return None
    if np.ndim(value) != 1:
        raise ValueError(f"`row_variances` must hold one number per row, shape (n,), got shape {np.shape(value)}")
    variances = as_finite_array(value, "row_variances")
    check_non_negative(variances, "row_variances")
    return variances


class GPRegression(AbstractInducing, AbstractGPModel):
    r"""Gaussian-process regression: exact, with inducing points, by conjugate gradients, or in linear time on a column.

    .. math:: y_i = f(x_i) + \epsilon_i, \qquad f \sim GP(m, k), \qquad \epsilon_i \sim N(0, \sigma^2 + s_i)

    f is integrated out in closed form, so that inference is only about the hyperparameters. The pointwise log
    likelihood is leave-one-out, :math:`\log p(y_i \mid y_{-i}, \theta)`, in closed form.

    With ``latent="inducing"`` the function is summarized by its values at w inducing points: the evidence is replaced
    by the collapsed bound (`kpp.gp.toolkit.InducingBound`), whose time is of order n w^2 in place of n^3. Every
    inference works on it. Leave-one-out is then that of the approximation.

    With ``latent="iterative"`` no kernel matrix is in memory, and time is of order n^2 per step of conjugate gradients.
    The posterior is exact up to a tolerance. The log determinant in the evidence is estimated with fixed random vectors
    (`kpp.gp.toolkit.iterative_log_density`), so that the evidence is a smooth function of the hyperparameters;
    `kpp.MAP` is the inference for it. Leave-one-out, draws of the training data and `Fit.function_posterior` are
    approximate; see `kpp.gp.toolkit.condition_iteratively`.

    With ``latent="quasiseparable"`` x is one sorted column, such as time, and results are exact in time of order n, by
    tinygp (the extra ``tinygp``). The kernel is made of Matern12, Matern32, Matern52 and kernels of finitely
    many features, by sums, products and multiples: a season is ``HilbertSpace(Periodic(...), num_basis)``. Times may
    repeat; those of missing observations are left out. `kpp_models.components` divides the function.

    Args:
        kernel: k, with numbers or priors as leaves.
        noise_variance: :math:`\sigma^2`, in squared units of y; a number (at least 0) or a prior.
        mean: m, in units of y: a number, a prior, or a module from points (n, d) to (n,) that may hold priors, such as
            `kpp.gp.LinearMean`.
        row_variances: s, (n,), in squared units of y, at least 0: what is known of the variance of each row, such as
            the squared standard error of a measurement. A new observation has the variance :math:`\sigma^2`.
        latent: "exact", "inducing", "iterative" or "quasiseparable".
        num_inducing: w, the number of inducing points that k-means chooses among the points, with "inducing".
        inducing_points: The inducing points, (w, d), or a prior for them, in place of `num_inducing`.
        learn_inducing: Whether the inducing points are learned, with a normal prior centered at those chosen.
        seed: The seed of k-means.
        observed: What is known of f beside the rows: one or several `kpp_models.Observed`, of derivatives, averages,
            totals or signs, with latent="exact". Leave-one-out is of the rows, given these. Signs are sampled together
            with the hyperparameters: use `kpp.NUTS`.
        iterative: The settings of conjugate gradients, with "iterative"; by default `kpp.gp.IterativeSettings()`.

    Raises:
        ValueError: If a number is not a scalar, not finite, or a variance is negative, or inducing points or settings
            are given or missing against `latent`.

    Example:
        >>> model = kpp_models.GPRegression(kpp.kernels.RBF(1.5), noise_variance=0.01)
        >>> model.fit(jax.random.key(0), x, y).function()(x[:2]).round(2).tolist()
        [[[0.1, 0.65]]]

    References:
        Rasmussen and Williams (2006), algorithm 2.1 and section 5.4; Titsias, Variational learning of inducing
        variables in sparse Gaussian processes, 2009; Gardner, Pleiss, Bindel, Weinberger and Wilson, GPyTorch: Blackbox
        matrix-matrix Gaussian process inference, 2018.
    """

    kernel: AbstractKernel
    noise_variance: Leaf = scalar_field("noise_variance")
    mean: Any = mean_field(default=0.0)
    row_variances: Array | None = eqx.field(converter=_as_variances, default=None)
    latent: str = eqx.field(static=True, default="exact")
    iterative: IterativeSettings | None = eqx.field(default=None, kw_only=True)
    observed: tuple[Observed, ...] = eqx.field(converter=as_observed, default=(), kw_only=True)

    def __check_init__(self) -> None:
        check_non_negative(self.noise_variance, "noise_variance")
        one_of(self.latent, "latent", LATENTS)
        if self.iterative is not None and self.latent != "iterative":
            raise ValueError(f"`iterative` goes with latent='iterative', got settings with latent={self.latent!r}")
        if self.observed and self.latent != "exact":
            raise ValueError(f"`observed` needs latent='exact', got latent={self.latent!r}")
        if self.latent != "exact":
            check_positive(self.noise_variance, "noise_variance")

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[GPRegression, Array, Array]]:
        x, y = example_points(rng_key)
        prior = dist.LogNormal(0.0, 0.5)
        yield cls(RBF(lengthscale=prior.expand([2]), variance=prior), noise_variance=dist.HalfNormal(1.0)), x, y
        yield cls(Matern52(1.0), noise_variance=prior, mean=dist.Normal(0.0, 1.0)), x, y + 3.0
        mean, variances = LinearMean(dist.Normal(0.0, 1.0).expand([2]), 0.5), jnp.linspace(0.1, 0.5, 12)
        yield cls(RBF(prior), noise_variance=0.1, mean=mean, row_variances=variances), x, y
        yield cls(RBF(prior), noise_variance=prior, latent="inducing", num_inducing=5, learn_inducing=True), x, y

    def prepare(self, x: object, y: object) -> tuple[GPRegression, dict[str, Any], Schema]:
        linear = self.latent == "quasiseparable"
        columns = 1 if linear else None if self._settings is None else self._settings.num_columns
        model, data, schema = self.read_and_place(
            x, y, as_targets, by_features=not self.observed, num_columns=columns, advice=_ADVICE
        )
        for one in self.observed:
            check_functional_fits(one.functional, model.kernel, data["x"], "observed")
        if linear:
            check_times(model.kernel, data["x"])
        check_mean_fits(self.mean, data["x"])
        if self.row_variances is None:
            return model, data, schema
        check_same_rows(data["y"].shape[0], self.row_variances.shape[0], "y", "row_variances")
        return model, data | {"row_variances": self.row_variances.astype(data["y"].dtype)}, schema

    def numpyro_model(
        self, x: Float[Array, "n d"], y: Float[Array, " n"] | None = None, row_variances: Array | None = None
    ) -> None:
        """The NumPyro model: `gp_regression` with these fields, or `observe_functionals`."""
        if self.observed:
            observe_functionals(x, y, replace_priors(self, draw_priors), row_variances)
            return
        inducing, settings = self.inducing_points, self._settings
        linear = self.latent == "quasiseparable"
        gp_regression(x, y, self.kernel, self.noise_variance, self.mean, row_variances, inducing, settings, linear)

    def posterior(self, sample: Sample, data: Data) -> ConditionedProcess:
        r"""Return the posterior, exact: :math:`\alpha = (K + \Sigma)^{-1}(y - m)`; see `kpp.gp.condition`."""
        model = self.at(sample)
        likelihood = GaussianLikelihood(data["y"], model.noise_variance, data.get("row_variances"))
        if model.inducing_points is not None:
            return condition_by_inducing(model.kernel, model.inducing_points, data["x"], likelihood, model.mean)
        if self._settings is not None:
            return condition_iteratively(model.kernel, data["x"], likelihood, model.mean, self._settings)
        if self.latent == "quasiseparable":
            return QuasiseparableGP(model.kernel, data["x"], likelihood, model.mean)
        if model.observed:
            return condition_on_observed(data["x"], likelihood, model, sample)
        return condition(model.kernel, data["x"], likelihood, model.mean)

    def site_dims(self, data: Data) -> dict[str, tuple[str, ...]]:
        return super().site_dims(data) | {"observed": ("number",), SIGNS: ("sign",)}

    @property
    def observes_points(self) -> bool:
        """Whether every observation is of one row, as without `observed`."""
        return not self.observed

    @property
    def _settings(self) -> IterativeSettings | None:
        """The settings of conjugate gradients, if they are used."""
        return (self.iterative or IterativeSettings()) if self.latent == "iterative" else None
