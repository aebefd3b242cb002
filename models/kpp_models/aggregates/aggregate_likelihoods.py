r"""Likelihoods of aggregates: the law of each target given its latent value g.

==========  ==================================  ===========================  ==========
likelihood  law of y given g                    y                            exposure
==========  ==================================  ===========================  ==========
gaussian    N(g, noise_variance)                numbers                      none
student_t   g + noise of Student's t            numbers                      none
poisson     Poisson(exposure * exp(g))          counts                       optional
bernoulli   Bernoulli(logits g)                 0 and 1                      none
binomial    Binomial(exposure, logits g)        counts up to the exposure    trials
==========  ==================================  ===========================  ==========

A function of (g, exposure) that returns a NumPyro distribution is also a likelihood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array
from numpyro import distributions as dist

from kpp.foundation.validation import as_targets, check_same_rows
from kpp.gp import (
    AbstractPointwiseLikelihood,
    BernoulliLikelihood,
    BinomialLikelihood,
    FunctionLikelihood,
    GaussianLikelihood,
    PoissonLikelihood,
    StudentTLikelihood,
)
from kpp.gp.toolkit import AbstractCountLikelihood
from kpp.typing import AnyArray, Numbers

#: A name of `LIKELIHOODS`, or a function of (g, exposure).
Likelihood = str | Callable[..., dist.Distribution]
LIKELIHOODS = ("gaussian", "poisson", "bernoulli", "binomial", "student_t")


def check_likelihood(likelihood: object) -> None:
    """Raise ValueError, with the list of names, unless a likelihood is a known name or a function."""
    if not (callable(likelihood) or (isinstance(likelihood, str) and likelihood in LIKELIHOODS)):
        raise ValueError(
            f"`likelihood` must be one of {LIKELIHOODS} or a function of (g, exposure) that returns a NumPyro "
            f"distribution, got {likelihood!r}"
        )


def as_aggregate_targets(
    likelihood: Likelihood, y: Numbers, exposure: Numbers | Sequence[Numbers] | None = None
) -> tuple[Array, Array | None]:
    """Return the targets (M,) of a likelihood and their exposure (M,), or None, as float arrays.

    The exposure of "poisson" is the factor of the rate (people, area), that of "binomial" the number of trials, and
    that of a function its second argument; the others have none. Raises ValueError if they are invalid for the
    likelihood.
    """
    check_likelihood(likelihood)
    if likelihood in ("gaussian", "bernoulli", "student_t") and exposure is not None:
        raise ValueError(f"`exposure` must be None for the likelihood {likelihood!r}, which has none")
    if likelihood == "binomial" and exposure is None:
        raise ValueError("`exposure` must give the number of trials of every target for the likelihood 'binomial'")
    law = aggregate_likelihood(likelihood)
    if exposure is None:
        return law.read_targets(y), None
    known = as_targets(exposure, name="exposure")
    check_same_rows(as_targets(y).shape[0], known.shape[0], "y", "exposure")
    if isinstance(law, AbstractCountLikelihood):
        law = law.with_exposure(known)
    return law.read_targets(y), known


def aggregate_likelihood(
    likelihood: Likelihood,
    exposure: AnyArray | None = None,
    noise_variance: AnyArray | float = 1.0,
    degrees_of_freedom: Any = 4.0,
) -> AbstractPointwiseLikelihood:
    r"""Return the likelihood of M targets, without the targets.

    The noise variance is :math:`\sigma^2` of "gaussian", or the squared scale of "student_t"; no exposure means 1 for
    "poisson".
    """
    if likelihood == "poisson":
        return PoissonLikelihood(exposure=exposure)
    if likelihood == "bernoulli":
        return BernoulliLikelihood()
    if likelihood == "binomial":
        return BinomialLikelihood(exposure=exposure)
    if likelihood == "gaussian":
        return GaussianLikelihood(noise_variance=0.0, row_variances=noise_variance)  # sources and sizes of bags differ
    if likelihood == "student_t":
        return StudentTLikelihood(scale=jnp.sqrt(noise_variance), degrees_of_freedom=degrees_of_freedom)
    assert callable(likelihood)  # the only other kind that `check_likelihood` accepts
    return FunctionLikelihood(likelihood, exposure=exposure)
