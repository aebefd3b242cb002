"""Conjugate gradients solve the systems that dense factorizations solve, for all shifts, and say where they do not."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.linalg.conjugate_gradients import conjugate_gradients, solve_by_conjugate_gradients

RNG = np.random.default_rng(11)
ROOT = RNG.normal(size=(20, 20))
MATRIX = jnp.asarray(ROOT @ ROOT.T / 20 + 0.1 * np.eye(20))  # a condition number of some 30
RIGHT = jnp.asarray(RNG.normal(size=(20, 3)))
SHIFTS = np.array([0.0, 1e-3, 0.5, 40.0])
SETTINGS = {"tolerance": 1e-12, "max_steps": 100}


@functools.partial(jax.jit, static_argnames="max_steps")
def found(right=RIGHT, shifts=SHIFTS, max_steps=100):
    return conjugate_gradients(lambda v: MATRIX @ v, right, shifts, tolerance=1e-12, max_steps=max_steps)


def test_all_shifts_are_solved_by_the_products_of_one_system():
    expected = [np.linalg.solve(MATRIX + shift * np.eye(20), RIGHT) for shift in SHIFTS]
    solutions = found()
    np.testing.assert_allclose(solutions.value, expected, rtol=1e-9, atol=1e-10)
    # In exact arithmetic, as many steps as rows are enough.
    assert int(solutions.steps) <= 40
    assert int(found(shifts=SHIFTS[:1]).steps) == int(solutions.steps)


def test_a_column_of_zeros_has_the_solution_zero():
    right = RIGHT.at[:, 0].set(0.0)
    solutions = found(right).value
    np.testing.assert_array_equal(solutions[:, :, 0], 0.0)
    np.testing.assert_allclose(solutions[0, :, 1], np.linalg.solve(MATRIX, RIGHT[:, 1]), rtol=1e-9, atol=1e-10)
    np.testing.assert_array_equal(found(0.0 * RIGHT).value, 0.0)


@pytest.mark.parametrize("options", [{"max_steps": 5}, {"right": RIGHT.at[0, 0].set(jnp.nan)}])
def test_what_is_not_solved_is_nan(options):
    solutions = found(**options)
    assert np.isnan(solutions.value).all()
    assert not solutions.residual <= 1e-11


@pytest.mark.slow
def test_derivatives_of_a_solution_are_those_of_a_dense_one():
    def by_iterations(matrix, right):
        return solve_by_conjugate_gradients(lambda v: matrix @ v, right, **SETTINGS)

    def value(solve):
        return lambda size: jnp.sum(jnp.sin(solve(MATRIX + size * jnp.diag(jnp.arange(20.0)), RIGHT * size)))

    ours, theirs = value(by_iterations), value(jnp.linalg.solve)
    for derivative in (jax.grad, lambda f: jax.grad(jax.grad(f)), lambda f: jax.jacfwd(jax.grad(f))):
        np.testing.assert_allclose(jax.jit(derivative(ours))(0.3), jax.jit(derivative(theirs))(0.3), rtol=1e-8)
