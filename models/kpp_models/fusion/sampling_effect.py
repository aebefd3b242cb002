r"""The effect of an intervention by two regressions and Monte Carlo, as in causal Bayesian optimization."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp import linalg
from kpp.data.tables import Schema
from kpp.foundation.validation import count
from kpp.functions import RKHSFunction
from kpp.gp import replace_priors
from kpp.gp.toolkit import check_kernel_fits, draw_gaussian
from kpp.inference import Data
from kpp.inference.toolkit import Sample
from kpp.kernels import RBF, AbstractKernel, Scaled, resolve_features
from kpp.priors import sample as draw_priors
from kpp.runtime.memory import check_count
from kpp.typing import Numbers, RngKey
from kpp_models.fusion.causal_link import CausalLink
from kpp_models.fusion.data import InterventionData
from kpp_models.fusion.embedding_evidence import SharedCovariance, fitted_amplitude
from kpp_models.fusion.model import AbstractChainModel, example_data
from kpp_models.tables.regression import GPRegression


class _Regression(NamedTuple):
    r"""Gaussian-process regressions of several outputs that share a covariance, :math:`y = m + N(0, s (K + \lambda))`.

    The coefficients are :math:`(K + \lambda I)^{-1} (Y - m)`, and `factor` is the Cholesky factor of the matrix.
    """

    factor: Array
    coefficients: Array
    mean: Array
    noise_variance: Array
    amplitude: Array

    @classmethod
    def fit(cls, gram: Array, outputs: Array, noise_variance: Array, amplitude: Array | None) -> _Regression:
        factor = linalg.cholesky(linalg.add_diagonal(gram, noise_variance), what="the kernel matrix of the treatments")
        mean = jnp.mean(outputs, axis=0, keepdims=True)
        if amplitude is None:
            amplitude = fitted_amplitude(outputs - mean, factor)
        return cls(factor, linalg.cho_solve(factor, outputs - mean), mean, noise_variance, amplitude)

    def draw(self, cross: Array, prior: Array, normals: Array) -> Float[Array, "p d"]:
        """Return new outputs at p points, from one standard normal per output that all points share."""
        explained = jnp.sum(jnp.square(linalg.solve_lower(self.factor, cross)), axis=0)
        variance = self.amplitude * (jnp.maximum(prior - explained, 0.0) + self.noise_variance)
        return self.mean + cross.T @ self.coefficients + jnp.sqrt(variance)[:, None] * normals[None]


class SamplingEffect(AbstractChainModel):
    r"""The effect of a treatment by sampling outcomes and functions, each from a Gaussian process.

    .. math::

        y_l(x) \sim p(y \mid do(x)), \quad f_r \sim p(f \mid D_2), \qquad
        \hat E[T \mid do(x)] = \mathrm{mean}_{l,r}\, f_r(y_l(x)), \quad
        \hat\sigma^2(x) = \mathrm{var}_{l,r}\, f_r(y_l(x))

    This is the method of causal Bayesian optimization, for comparison. D1 is modeled by regressions of the outcome on
    the treatment and the variables for adjustment, :math:`y \sim N(m, s(K_\Omega + \lambda I))`, and at the front door
    of the mediators on treatments; outcomes are drawn from them, with covariates (at the front door: treatments) drawn
    from the data. The variance is the published one: it includes the spread of outcomes under the intervention, which
    does not decrease with more data. Outcomes are assumed to be normal given treatment and covariates.

    The average over draws of f is computed in closed form, which is the limit of many draws. All treatments share the
    random numbers of each draw of outcomes (the same covariates, the same quantiles of noise), so that the effect is a
    smooth function, and its covariance is that of the draws,

    .. math:: \mathrm{mean}_l\, c_f(y_l(x), y_l(x')) + \mathrm{cov}_l\,[m_f(y_l(x)), m_f(y_l(x'))]

    Args:
        links: The model of each data set of the chain, the same `CausalLink` as for `BayesIMP`: here
            `noise_variance` is the ratio of noise to signal, `amplitude` s multiplies both (None for the value of
            highest evidence). `width` and `landmarks` are ignored; kernels of outcomes are used only if another link
            follows.
        noise_variance: The variance of the targets' noise: a number or a prior.
        amplitude: The factor of the kernel of f: a number or a prior.
        mean: The prior mean of f, in units of t: a number or a prior.
        function_kernel: The kernel of f, with numbers or priors; None for the last `outcome_kernel`.
        num_samples: L, how many outcomes are drawn.
        seed: The seed of the random numbers of the draws.

    Raises:
        ValueError: If a number is not a scalar or out of range.

    References:
        Aglietti, Lu, Paleyes and González, Causal Bayesian optimization, 2020, section 3.2; Chau, Ton, Gonzalez, Teh
        and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021, section 4.
    """

    function_kernel: AbstractKernel | None = None
    num_samples: int = eqx.field(static=True, default=200)
    seed: int = eqx.field(static=True, default=0)

    def __check_init__(self) -> None:
        check_count(count(self.num_samples, "num_samples", 2), "num_samples", 2)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[SamplingEffect, InterventionData, Array]]:
        x, y, z, t = example_data(rng_key)
        prior = dist.LogNormal(0.0, 0.5)
        backdoor = CausalLink(RBF(prior), None, prior, adjustment="backdoor", adjusting_kernel=RBF(1.0))
        yield cls((backdoor,), dist.HalfNormal(1.0), num_samples=20), InterventionData.create(x, y, z), t
        frontdoor = CausalLink(RBF(prior), RBF(1.0), 0.2, adjustment="frontdoor", adjusting_kernel=RBF(1.5))
        model = cls((frontdoor,), prior, function_kernel=RBF(prior), num_samples=20)
        yield model, InterventionData.create(x, t[:, None], y), t

    def prepare(
        self, x: object, y: Numbers, *, mediators: Numbers | None = None
    ) -> tuple[SamplingEffect, dict[str, Any], Schema]:
        model, data, chain = self._read(x, y, mediators, bayesian=False)
        if self.function_kernel is not None:
            kernel = resolve_features(self.function_kernel, chain[-1].outcome_schema.feature_names)
            check_kernel_fits(kernel, data["mediators"], "function_kernel", "mediators")
            model = dataclasses.replace(model, function_kernel=kernel)
        return model, data, chain[0].treatment_schema

    def numpyro_model(
        self, links: Sequence[Data], mediators: Float[Array, "M dy"], y: Float[Array, " M"] | None = None
    ) -> None:
        """The NumPyro model; its arguments are the data that `prepare` returns.

        The outcomes are observed, under ``links.0.outcome`` and so on, and mediators of a front door under
        ``links.0.adjusting``. Without targets these are drawn.
        """
        model = replace_priors(self, draw_priors)
        model._targets.numpyro_model(mediators, y)
        for number, table in enumerate(links):
            for name, (gram, outputs, noise, amplitude) in model._regressions(number, table).items():
                law = SharedCovariance(linalg.add_diagonal(gram, noise), outputs.shape[1], amplitude)
                numpyro.sample(f"links.{number}.{name}", law, obs=outputs - jnp.mean(outputs, axis=0, keepdims=True))

    def log_likelihood(self, sample: Sample, data: Data) -> dict[str, Array]:
        return self._at(sample)._targets.log_likelihood({}, _target_data(data))

    def predictive(
        self, sample: Sample, data: Data, x: Float[Array, "p d"], *, covariance: bool = False
    ) -> dict[str, Array]:
        """Return mean and variance of the samples, and the covariance if requested; see `AbstractModel.predictive`."""
        model = self._at(sample)
        function = model._targets.posterior_draw({}, _target_data(data))
        draw = model._sampler(data)

        def add(total: Array, key: Array) -> tuple[Array, Array]:
            places = draw(key, x)
            spread = function.covariance(places, places) if covariance else function.variance(places)
            return total + spread / model.num_samples, function.mean(places)

        keys = jax.random.split(jax.random.key(model.seed), model.num_samples)
        start = jnp.zeros((x.shape[0],) * (2 if covariance else 1), dtype=x.dtype)
        spread, means = jax.lax.scan(add, start, keys)
        mean = jnp.mean(means, axis=0)
        apart = means - mean[None]
        if not covariance:
            return {"mean": mean, "latent_variance": spread + jnp.mean(jnp.square(apart), axis=0)}
        spread = (spread + spread.T) / 2 + apart.T @ apart / model.num_samples  # law of total covariance
        return {"mean": mean, "latent_variance": jnp.maximum(jnp.diagonal(spread), 0.0), "latent_covariance": spread}

    def draw_predictive(self, rng_key: RngKey, sample: Sample, data: Data, x: Float[Array, "p d"]) -> Array:
        """Draw the effect at p treatments jointly, from the Gaussian that has the moments of the samples."""
        found = self.predictive(sample, data, x, covariance=True)
        return draw_gaussian(rng_key, found["mean"], found["latent_covariance"], jnp.mean(found["latent_variance"]))

    def replicate(self, rng_key: RngKey, sample: Sample, data: Data) -> dict[str, Array]:
        return {"y": self._at(sample)._targets.draw_predictive(rng_key, {}, _target_data(data), data["mediators"])}

    def function_draw(self, sample: Sample, data: Data) -> RKHSFunction:
        """Raise TypeError: an average over samples is not a combination of kernel sections of the treatment."""
        raise TypeError(
            "SamplingEffect is no function in an RKHS of the treatment; use kpp_models.BayesIMP, or `predict`"
        )

    def site_dims(self, data: Data) -> dict[str, tuple[str, ...]]:
        names = [(number, name) for number in range(len(self.links)) for name in ("outcome", "adjusting")]
        return {f"links.{number}.{name}": (f"row_{number}", f"{name}_{number}") for number, name in names}

    @property
    def _targets(self) -> GPRegression:
        """The regression of the targets on outcomes, without priors."""
        kernel = self.links[-1].space.kernel if self.function_kernel is None else self.function_kernel
        return GPRegression(Scaled(kernel, self.amplitude), self.noise_variance, self.mean)

    def _regressions(self, number: int, table: Data) -> dict[str, tuple[Array, Array, Array, Array | None]]:
        """Return Gram matrix, outputs, noise variance and amplitude of each regression of a link."""
        link, kernel = self.links[number], self._treatment_kernel(number)
        gram = link.adjust(table["adjusting"]).gram(kernel, table["treatment"])
        found = {"outcome": (gram, table["outcome"], link.noise_variance, link.amplitude)}
        if link.adjustment == "frontdoor":
            noise = link.noise_variance if link.adjusting_noise_variance is None else link.adjusting_noise_variance
            found["adjusting"] = (kernel.gram(table["treatment"]), table["adjusting"], noise, link.amplitude)
        return found

    def _sampler(self, data: Data) -> Any:
        """Return the function from a random key and treatments (p, d) to one draw of outcomes at each, (p, dy)."""
        fitted = [
            {name: _Regression.fit(*parts) for name, parts in self._regressions(number, table).items()}
            for number, table in enumerate(data["links"])
        ]

        def draw(key: Array, x: Array) -> Array:
            for number, table in enumerate(data["links"]):
                key, own = jax.random.split(key)
                x = self._draw_outcome(number, table, fitted[number], own, x)
            return x

        return draw

    def _draw_outcome(self, number: int, table: Data, fitted: dict[str, _Regression], key: Array, x: Array) -> Array:
        """Draw the outcomes of one link at p treatments, (p, dy)."""
        link, kernel = self.links[number], self._treatment_kernel(number)
        keys = jax.random.split(key, 3)
        row = jax.random.randint(keys[0], (1,), 0, table["treatment"].shape[0])
        normals = jax.random.normal(keys[1], table["outcome"].shape[1:], dtype=x.dtype)
        cross, prior = kernel(table["treatment"], x), kernel.diagonal(x)
        adjusting = link.adjusting_kernel
        if adjusting is not None and link.adjustment == "backdoor":
            covariates = table["adjusting"][row]
            cross = cross * adjusting(table["adjusting"], covariates)
            prior = prior * adjusting.diagonal(covariates)
        elif adjusting is not None:
            noise = jax.random.normal(keys[2], table["adjusting"].shape[1:], dtype=x.dtype)
            mediators = fitted["adjusting"].draw(cross, prior, noise)
            natural = table["treatment"][row]
            cross = kernel(table["treatment"], natural) * adjusting(table["adjusting"], mediators)
            prior = kernel.diagonal(natural) * adjusting.diagonal(mediators)
        return fitted["outcome"].draw(cross, prior, normals)


def _target_data(data: Data) -> dict[str, Array]:
    return {"x": data["mediators"], "y": data["y"]}
