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
from kpp.gp import BernoulliLikelihood, ConditionedGP, GaussianLikelihood, GaussianProcessMarginal, scalar_field
from kpp.gp.toolkit import LatentObservations, condition_functional, prior_law
from kpp.inference.toolkit import Sample
from kpp.kernels import check_non_negative
from kpp.kernels.toolkit import check_positive
from kpp.storage.serialization import data_class
from kpp.typing import Leaf

SIGNS = "signs_whitened"


@data_class
class Observed(eqx.Module):
    r"""Observations of q numbers that are linear in a function, such as derivatives, totals or differences.

    .. math:: z = L f + \epsilon, \qquad \epsilon_i \sim N(0, \sigma_z^2)

    With ``only_signs`` the signs of z are observed, :math:`P(z_i > 0 \mid f) = \Phi((L f)_i / \sigma_z)`. Positive
    signs of derivatives at many points make a function increase.

    Args:
        functional: L. Its points have the columns of x, in their order, as ``fit.schema.read(table)`` returns them.
        values: z, (q,), in units of L f; or signs, 1 and -1. One number is used for all.
        noise_variance: :math:`\sigma_z^2`, in squared units of L f, a number or a prior. With 0 the numbers, such as
            totals, are kept exactly. Signs need a positive variance; the smaller it is, the rarer are wrong signs.
        only_signs: Whether `values` are signs.

    Raises:
        TypeError: If `functional` is not a functional.
        ValueError: If there is not one value for each number, one is not finite, or not a sign; or a variance is
            negative.

    References:
        Riihimäki and Vehtari, Gaussian processes with monotonicity information, 2010.
    """

    functional: AbstractFunctional
    values: Float[Array, " q"] = eqx.field(converter=lambda value: as_finite_array(value, "values"))
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


def observe_functionals(x: Array, y: Array | None, model: Any, row_variances: Array | None) -> None:
    r"""Observe rows and functionals, in the NumPyro model of a `GPRegression` without priors.

    The site ``y`` is given the functionals, :math:`p(y \mid z)`, and ``observed`` has the density of z alone. For
    signs, the whitened :math:`L f` given all numbers is sampled, site ``signs_whitened``.
    """
    kernel, mean = model.kernel, model.mean
    noise = model.noise_variance if row_variances is None else model.noise_variance + row_variances
    numbers, signs = (_stack(model.observed, only_signs, x.dtype) for only_signs in (False, True))
    given, rows = _given(model, numbers), Values(x)
    center, gram = prior_law(kernel, rows, mean) if given is None else given.law_of(rows)
    y = numpyro.sample("y", GaussianProcessMarginal(center, gram, noise), obs=y)  # p(y, z) = p(y | z) p(z)
    if numbers is not None:
        law = GaussianProcessMarginal(*prior_law(kernel, numbers.functional, mean), numbers.variances)
        numpyro.sample("observed", law, obs=numbers.values)
    if signs is not None:
        process = condition_functional(kernel, rows, GaussianLikelihood(y, 0.0, noise), mean, given=given)
        white = numpyro.sample(SIGNS, dist.Normal(0.0, 1.0).expand(signs.values.shape).to_event(1))
        latent, _ = _latent(process, signs.functional, white)
        with numpyro.plate("sign", len(signs.values)):
            of_signs = LatentObservations(BernoulliLikelihood(link="probit"), latent / jnp.sqrt(signs.variances))
            numpyro.sample("observed_signs", of_signs, obs=(signs.values + 1) / 2)


def condition_on_observed(x: Array, likelihood: GaussianLikelihood, model: Any, sample: Sample) -> ConditionedGP:
    """Condition a `GPRegression` without priors on rows and functionals, under one draw."""
    kernel, mean, rows = model.kernel, model.mean, Values(x)
    numbers, signs = (_stack(model.observed, only_signs, x.dtype) for only_signs in (False, True))
    given = _given(model, numbers)
    if signs is not None:
        process = condition_functional(kernel, rows, likelihood, mean, given=given)
        values = GaussianLikelihood(*_latent(process, signs.functional, sample[SIGNS]))
        given = condition_functional(kernel, signs.functional, values, mean, given=given)
    return condition_functional(kernel, rows, likelihood, mean, given=given)


class _Stacked(NamedTuple):
    """Several observations as one."""

    functional: Combination
    values: Float[Array, " q"]
    variances: Float[Array, " q"]


def _stack(observed: Sequence[Observed], only_signs: bool, dtype: Any) -> _Stacked | None:
    """Return the observations of numbers, or those of signs, as one."""
    chosen = [one for one in observed if one.only_signs == only_signs]
    if not chosen:
        return None
    variances = [jnp.broadcast_to(one.noise_variance, one.values.shape) for one in chosen]
    values = jnp.concatenate([one.values for one in chosen]).astype(dtype)
    return _Stacked(Combination(tuple(one.functional for one in chosen)), values, jnp.concatenate(variances))


def _given(model: Any, numbers: _Stacked | None) -> ConditionedGP | None:
    """Condition on the observed numbers, if there are some."""
    if numbers is None:
        return None
    likelihood = GaussianLikelihood(numbers.values, 0.0, numbers.variances)
    return condition_functional(model.kernel, numbers.functional, likelihood, model.mean)


def _latent(process: ConditionedGP, functional: AbstractFunctional, white: Array) -> tuple[Array, Array]:
    """Return the numbers of a process for whitened ones, and the variance of the nugget that they contain."""
    mean, covariance = process.law_of(functional)
    scale = jnp.mean(jnp.diagonal(functional.prior_covariance(process.kernel)))
    nugget = linalg.max_relative_jitter(covariance.dtype) * scale  # numbers may determine each other: singular
    return mean + linalg.cholesky(linalg.add_diagonal(covariance, nugget)) @ white, nugget
