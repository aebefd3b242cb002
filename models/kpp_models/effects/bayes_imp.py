r"""Effects of interventions from two data sets or more, with neither, one or both of them taken as uncertain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array
from numpyro import distributions as dist

from kpp.gp import refuse_below, scalar_field
from kpp.kernels import RBF
from kpp.typing import Leaf, RngKey
from kpp_models.effects.causal_link import CausalLink
from kpp_models.effects.data import InterventionData
from kpp_models.effects.model import AbstractEffectModel, as_links

__all__ = ["IME", "IMP", "BayesIME", "BayesIMP"]


class AbstractInterventionalMean(AbstractEffectModel):
    """The fields of the four models: they differ only in what they take as uncertain."""

    links: tuple[CausalLink, ...] = eqx.field(converter=as_links)
    noise_variance: Leaf = scalar_field("noise_variance")
    amplitude: Leaf = scalar_field("amplitude", default=1.0)
    mean: Leaf = scalar_field("mean", default=0.0)

    def __check_init__(self) -> None:
        """Refuse numbers out of range."""
        refuse_below(self.noise_variance, "noise_variance", zero_allowed=False)
        refuse_below(self.amplitude, "amplitude", zero_allowed=True)
        if not self.links:
            raise ValueError("`links` must hold at least one CausalLink, got none")

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractInterventionalMean, InterventionData, Array]]:
        """Yield models with data for the conformance suite."""
        keys = jax.random.split(rng_key, 3)
        z, noise = jax.random.normal(keys[0], (10, 1)), 0.1 * jax.random.normal(keys[1], (10, 3))
        x = z + jax.random.normal(keys[2], (10, 1))
        y = jnp.sin(x) - z + noise[:, :1]
        t = y[:, 0] ** 2 + noise[:, 1]
        prior = dist.LogNormal(0.0, 0.5)
        backdoor = CausalLink(
            RBF(prior.expand([1])), RBF(1.0), prior, adjustment="backdoor", adjusting_kernel=RBF(prior), width=3.0
        )
        yield cls((backdoor,), dist.HalfNormal(1.0)), InterventionData.create(x, y, z), t
        frontdoor = CausalLink(RBF(1.0), None, 0.2, adjustment="frontdoor", adjusting_kernel=RBF(1.5), amplitude=prior)
        yield cls((frontdoor,), prior, prior, dist.Normal(0.0, 1.0)), InterventionData.create(x, t[:, None], y), t


class IME(AbstractInterventionalMean):
    r"""The interventional mean embedding: both data sets taken for granted.

    .. math:: E[T \mid do(X = x)] = m + \Phi(x)^\top (K_\Omega + \lambda I)^{-1} K_{Y \tilde Y}
        (a K_{\tilde Y \tilde Y} + \lambda_f I)^{-1} a (t - m)

    Kernel ridge regression of the targets, averaged over the embedding that ridge regression finds. All variances are
    zero, and draws are the mean.

    Args:
        links: How each data set of the chain is modelled: a `CausalLink`, or one a data set.
        noise_variance: :math:`\lambda_f`, of the targets, in their squared units: a number or a prior.
        amplitude: a, which multiplies the kernel of f: a number or a prior.
        mean: m, in units of t: a number or a prior.

    Raises:
        ValueError: If a number is not a scalar or out of range.

    References:
        Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021,
        section 3.1.
    """

    bayesian_embedding: ClassVar[bool] = False
    uncertain_function: ClassVar[bool] = False


class IMP(AbstractInterventionalMean):
    r"""The interventional mean process: the function from outcome to target is uncertain, the embedding is not.

    .. math:: \mathrm{cov}(x, x') = E(x)\,[a K_{YY} - a^2 K_{Y \tilde Y} (a K_{\tilde Y \tilde Y} + \lambda_f I)^{-1}
        K_{\tilde Y Y}]\, E(x')^\top, \qquad E(x) = \Phi(x)^\top (K_\Omega + \lambda I)^{-1}

    The mean is that of `IME`. Of the parts of the variance only that of the targets is not zero.

    Args:
        links: How each data set of the chain is modelled: a `CausalLink`, or one a data set.
        noise_variance: :math:`\lambda_f`, of the targets, in their squared units: a number or a prior.
        amplitude: a, which multiplies the kernel of f: a number or a prior.
        mean: m, in units of t: a number or a prior.

    Raises:
        ValueError: If a number is not a scalar or out of range.

    References:
        Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021,
        proposition 3.1.
    """

    bayesian_embedding: ClassVar[bool] = False
    uncertain_function: ClassVar[bool] = True


class BayesIME(AbstractInterventionalMean):
    r"""The Bayesian interventional mean embedding: the embedding is uncertain, the function is ridge regression's.

    .. math:: \mathrm{cov}(x, x') = s\,[B\, F(x, x') - C\, G(x, x')], \qquad
        B = \alpha^\top R_{\tilde Y \tilde Y} \alpha = \int f^2 d\nu, \quad
        C = \alpha^\top R_{\tilde Y Y} R_{YY}^{-1} R_{Y \tilde Y} \alpha

    with :math:`\alpha = (a K_{\tilde Y \tilde Y} + \lambda_f I)^{-1} a (t - m)`. The variance due to the targets is
    zero.

    Args:
        links: How each data set of the chain is modelled: a `CausalLink`, or one a data set.
        noise_variance: :math:`\lambda_f`, of the targets, in their squared units: a number or a prior.
        amplitude: a, which multiplies the kernel of f: a number or a prior.
        mean: m, in units of t: a number or a prior.

    Raises:
        ValueError: If a number is not a scalar or out of range.

    References:
        Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021,
        proposition 4.
    """

    bayesian_embedding: ClassVar[bool] = True
    uncertain_function: ClassVar[bool] = False


class BayesIMP(AbstractInterventionalMean):
    r"""The Bayesian interventional mean process: both the embedding and the function are uncertain.

    Both are Gaussian processes with the nuclear dominant kernel r, so that their draws have an inner product. Its mean
    and covariance are exact (module `random_functions`); the covariance is the sum of what is due to D1, to D2
    and to both together. The law itself is not Gaussian; draws are from the Gaussian with these moments.

    Args:
        links: How each data set of the chain is modelled: a `CausalLink`, or one a data set.
        noise_variance: :math:`\lambda_f`, of the targets, in their squared units: a number or a prior.
        amplitude: a, which multiplies the kernel of f: a number or a prior.
        mean: m, in units of t: a number or a prior.

    Raises:
        ValueError: If a number is not a scalar or out of range.

    References:
        Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021,
        proposition 5.
    """

    bayesian_embedding: ClassVar[bool] = True
    uncertain_function: ClassVar[bool] = True
