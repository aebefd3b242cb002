r"""Observations of linear functionals of a regression function, beside those of its values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpyro
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp import linalg
from kpp.foundation.validation import as_finite_array, check_type
from kpp.functionals import AbstractFunctional, Combination, Values
from kpp.gp import (
    BernoulliLikelihood,
    ConditionedGP,
    GaussianLikelihood,
    GaussianProcessMarginal,
    condition,
    scalar_field,
)
from kpp.gp.toolkit import LatentObservations, PriorMean, prior_law
from kpp.kernels import AbstractKernel, check_non_negative
from kpp.kernels.toolkit import check_positive
from kpp.storage.serialization import data_class
from kpp.typing import Leaf, Numbers

SIGNS = "signs_whitened"


def _as_values(value: Numbers) -> Array:
    return as_finite_array(value, "values")


@data_class
class Observed(eqx.Module):
    r"""Observations of q numbers that are linear in a function, such as derivatives, totals or differences.

    .. math:: z = L f + \epsilon, \qquad \epsilon_i \sim N(0, \sigma_z^2)

    With ``only_signs`` the signs of z are observed, :math:`P(z_i > 0 \mid f) = \Phi((L f)_i / \sigma_z)`. Positive signs
    of derivatives at many points make a function increase.

    Args:
        functional: L. Its points have the columns of x, in their order, as ``fit.schema.read(table)`` returns them.
        values: z, (q,), in units of L f; or signs, 1 and -1. One number is used for all.
        noise_variance: :math:`\sigma_z^2`, in squared units of L f, a number or a prior. With 0 the numbers are kept
            exactly, such as totals; signs need a positive one.
        only_signs: Whether `values` are signs.

    Raises:
        TypeError: If `functional` is not a functional.
        ValueError: If there is not one value for each number, one is not finite, or not a sign; or a variance is
            negative.

    References:
        Riihimäki and Vehtari, Gaussian processes with monotonicity information, 2010.
    """

    functional: AbstractFunctional
    values: Float[Array, " q"] = eqx.field(converter=_as_values)
    noise_variance: Leaf = scalar_field("noise_variance", default=0.0)
    only_signs: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        check_type(self.functional, "functional", ("AbstractFunctional",))
        shape = (self.functional.num_values,)
        if self.values.shape != shape:
            raise ValueError(
                f"`values` must hold one value for each number of `functional`, shape {shape}, got shape "
                f"{self.values.shape}"
            )
        (check_positive if self.only_signs else check_non_negative)(self.noise_variance, "noise_variance")
        if self.only_signs and not bool(jnp.all(jnp.abs(self.values) == 1)):
            raise ValueError(f"`values` must hold signs, 1 or -1, with `only_signs`, got {self.values}")


def as_observed(value: Observed | Iterable[Observed]) -> tuple[Observed, ...]:
    """Convert the field `observed` of a model: one or several `Observed`."""
    observed = tuple(value) if isinstance(value, Iterable) else (value,)
    for one in observed:
        check_type(one, "observed", ("Observed",))
    return observed


def observe_functionals(
    x: Array, y: Array | None, kernel: AbstractKernel, noise: Leaf, mean: PriorMean, observed: Sequence[Observed]
) -> None:
    r"""Observe rows and functionals of a Gaussian process without priors, in a NumPyro model.

    The site ``y`` is given the functionals, :math:`p(y \mid z)`, and ``observed`` has the density of z alone. For
    signs, the whitened :math:`L f` given all numbers is sampled, site ``signs_whitened``.
    """
    given, signs = _condition_on_numbers(kernel, mean, observed, x.dtype)
    rows = Values(x)
    center, gram = prior_law(kernel, rows, mean) if given is None else given.law_of(rows)
    y = numpyro.sample("y", GaussianProcessMarginal(center, gram, noise), obs=y)
    if given is not None:
        law = GaussianProcessMarginal(*prior_law(kernel, given.points, mean), given.likelihood.variances)
        numpyro.sample("observed", law, obs=given.likelihood.y)
    if signs is not None:
        functional, values, variances = signs
        process = condition(kernel, rows, GaussianLikelihood(y, 0.0, noise), mean, given=given)
        white = numpyro.sample(SIGNS, dist.Normal(0.0, 1.0).expand(values.shape).to_event(1))
        latent, _ = _latent(process, functional, white)
        with numpyro.plate("sign", len(values)):
            law = LatentObservations(BernoulliLikelihood(link="probit"), latent / jnp.sqrt(variances))
            numpyro.sample("observed_signs", law, obs=(values + 1) / 2)


def condition_on_observed(
    kernel: AbstractKernel,
    x: Array,
    likelihood: GaussianLikelihood,
    mean: PriorMean,
    observed: Sequence[Observed],
    white: Array | None,
) -> ConditionedGP:
    """Condition a Gaussian process on rows and functionals, given whitened values of those of which signs are known."""
    given, signs = _condition_on_numbers(kernel, mean, observed, x.dtype)
    rows = Values(x)
    if signs is not None:
        process = condition(kernel, rows, likelihood, mean, given=given)
        values = GaussianLikelihood(*_latent(process, signs.functional, white))
        given = condition(kernel, signs.functional, values, mean, given=given)
    return condition(kernel, rows, likelihood, mean, given=given)


class _Stacked(NamedTuple):
    """Several observations as one."""

    functional: Combination
    values: Float[Array, " q"]
    variances: Float[Array, " q"]


def _stack(observed: Sequence[Observed], dtype: Any) -> _Stacked | None:
    if not observed:
        return None
    variances = [jnp.broadcast_to(one.noise_variance, one.values.shape) for one in observed]
    values = jnp.concatenate([one.values for one in observed]).astype(dtype)
    return _Stacked(Combination(tuple(one.functional for one in observed)), values, jnp.concatenate(variances))


def _condition_on_numbers(
    kernel: AbstractKernel, mean: PriorMean, observed: Sequence[Observed], dtype: Any
) -> tuple[ConditionedGP | None, _Stacked | None]:
    """Condition on the observed numbers, if there are some; return the process, and the observed signs."""
    numbers = _stack([one for one in observed if not one.only_signs], dtype)
    signs = _stack([one for one in observed if one.only_signs], dtype)
    if numbers is None:
        return None, signs
    return condition(
        kernel, numbers.functional, GaussianLikelihood(numbers.values, 0.0, numbers.variances), mean
    ), signs


def _latent(process: ConditionedGP, functional: AbstractFunctional, white: Array) -> tuple[Array, Array]:
    """Return the numbers of a process for whitened ones, and the variance of the nugget that they contain."""
    mean, covariance = process.law_of(functional)
    scale = jnp.mean(jnp.diagonal(functional.prior_covariance(process.kernel)))
    nugget = linalg.max_relative_jitter(covariance.dtype) * scale
    return mean + linalg.cholesky(linalg.add_diagonal(covariance, nugget)) @ white, nugget
