r"""Effects of interventions from two or more data sets, of which neither, one or both are treated as uncertain.

The four models have the same arguments, which `kpp_models.AbstractEffectModel` describes. `IMP` has the mean of `IME`;
a Bayesian embedding changes the mean slightly.
"""

from __future__ import annotations

from typing import ClassVar

from kpp_models.fusion.model import AbstractEffectModel


class IME(AbstractEffectModel):
    r"""The interventional mean embedding: neither the embedding nor the function is uncertain.

    .. math:: E[T \mid do(X = x)] = m + \Phi(x)^\top (K_\Omega + \lambda I)^{-1} K_{Y \tilde Y}
        (a K_{\tilde Y \tilde Y} + \lambda_f I)^{-1} a (t - m)

    This is the mean of two ridge regressions. All variances are zero, and draws are the mean. The arguments are those
    of `AbstractEffectModel`.

    References:
        Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021,
        section 3.1.
    """

    bayesian_embedding: ClassVar[bool] = False
    uncertain_function: ClassVar[bool] = False


class IMP(AbstractEffectModel):
    r"""The interventional mean process: the function from outcome to target is uncertain, the embedding is not.

    .. math:: \mathrm{cov}(x, x') = E(x)\,[a K_{YY} - a^2 K_{Y \tilde Y} (a K_{\tilde Y \tilde Y} + \lambda_f I)^{-1}
        K_{\tilde Y Y}]\, E(x')^\top, \qquad E(x) = \Phi(x)^\top (K_\Omega + \lambda I)^{-1}

    The mean is the mean of `IME`. Only the targets contribute to the variance. The arguments are those of
    `AbstractEffectModel`.

    References:
        Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021,
        proposition 3.1.
    """

    bayesian_embedding: ClassVar[bool] = False
    uncertain_function: ClassVar[bool] = True


class BayesIME(AbstractEffectModel):
    r"""The Bayesian interventional mean embedding: the embedding is uncertain, the function is not.

    .. math:: \mathrm{cov}(x, x') = s\,[B\, F(x, x') - C\, G(x, x')], \qquad
        B = \alpha^\top R_{\tilde Y \tilde Y} \alpha = \int f^2 d\nu, \quad
        C = \alpha^\top R_{\tilde Y Y} R_{YY}^{-1} R_{Y \tilde Y} \alpha

    with :math:`\alpha = (a K_{\tilde Y \tilde Y} + \lambda_f I)^{-1} a (t - m)`. The targets do not contribute to the
    variance. The arguments are those of `AbstractEffectModel`.

    References:
        Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021,
        proposition 4.
    """

    bayesian_embedding: ClassVar[bool] = True
    uncertain_function: ClassVar[bool] = False


class BayesIMP(AbstractEffectModel):
    r"""The Bayesian interventional mean process: both the embedding and the function are uncertain.

    Both are Gaussian processes with the nuclear dominant kernel r, so that their draws have an inner product. The mean
    and the covariance of the effect are exact (module `random_functions`), also where outcomes are equal. Where
    distinct outcomes are so close that their kernel matrix is numerically singular, it gets 1e-10 of its mean diagonal.
    The covariance is the sum of a part from each data set and a part from their interaction. The distribution of the
    effect itself is not Gaussian; draws are from the Gaussian with these moments. The arguments are those of
    `AbstractEffectModel`.

    References:
        Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021,
        proposition 5.
    """

    bayesian_embedding: ClassVar[bool] = True
    uncertain_function: ClassVar[bool] = True
