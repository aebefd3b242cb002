"""The laws of linear functionals. Each is a check of one example: a functional and an `RKHSFunction` without draws."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from kpp.functionals import AbstractFunctional, Values
from kpp.functions import RKHSFunction
from kpp.testing.compare import assert_close, laws_in


def numbers_have_one_axis_and_that_of_outputs(functional: AbstractFunctional, function: RKHSFunction) -> None:
    """of(function) has shape (q,), and (q, outputs) for several outputs, and is finite."""
    size = functional.num_values
    for some, shape in ((function, (size,)), (_sections(function), (size, function.num_points))):
        found = functional.of(some)
        assert found.shape == shape, f"`of` returns shape {found.shape}, expected {shape}"
        assert np.isfinite(found).all(), "`of` returns NaN or infinity"


def numbers_are_linear_in_the_function(functional: AbstractFunctional, function: RKHSFunction) -> None:
    """Of a sum of sections they are the sum of those of the sections."""
    combined = np.asarray(functional.of(_sections(function))) @ np.asarray(function.coefficients)
    without = functional.of(RKHSFunction(function.kernel, function.points, function.coefficients))
    assert_close(without, combined, "numbers of a sum and sums of numbers", 100)


def draws_are_taken_one_by_one(functional: AbstractFunctional, function: RKHSFunction) -> None:
    """The numbers of a function with draws are those of each draw."""
    both = jnp.stack([function.coefficients, 2 * function.coefficients])
    draws = RKHSFunction.over_draws(function.kernel, function.points, both, batch_shape=(2,))
    zero = RKHSFunction(function.kernel, function.points, function.coefficients)
    expected = np.asarray(functional.of(zero))
    assert_close(functional.of(draws), np.stack([expected, 2 * expected]), "numbers of draws and of each draw", 100)


def the_representer_is_the_value_of_a_section(functional: AbstractFunctional, function: RKHSFunction) -> None:
    """representer(kernel)(x) = of(k(x, .))."""
    found = functional.representer(function.kernel)(function.points)
    assert_close(
        found, np.asarray(functional.of(_sections(function))).T, "the representer and numbers of sections", 100
    )


def the_prior_covariance_is_symmetric_and_not_negative(functional: AbstractFunctional, function: RKHSFunction) -> None:
    """prior_covariance(kernel) is symmetric and positive semi-definite."""
    covariance = np.asarray(functional.prior_covariance(function.kernel))
    assert_close(covariance, covariance.T, "the prior covariance and its transpose", 100)
    lowest = float(np.linalg.eigvalsh(covariance)[0])
    assert lowest >= -1e-8 * float(np.abs(covariance).max()), f"the lowest eigenvalue is {lowest:.3g}"


def the_prior_covariance_is_that_of_both_arguments(functional: AbstractFunctional, function: RKHSFunction) -> None:
    """prior_covariance(kernel, values at points) holds the numbers of the kernel's sections at these points."""
    points = Values(function.points)
    expected = np.asarray(functional.of(_sections(function)))
    assert_close(functional.prior_covariance(function.kernel, points), expected, "covariances with values", 100)
    assert_close(points.prior_covariance(function.kernel, functional), expected.T, "covariances of values", 100)


LAWS = laws_in(globals())


def _sections(function: RKHSFunction) -> RKHSFunction:
    """Return the kernel's sections at the points of a function, as the outputs of one function."""
    return RKHSFunction(function.kernel, function.points, jnp.eye(function.num_points))
