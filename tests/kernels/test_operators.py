"""Sums, products and multiples are written with operators, whatever kind of number stands on which side."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from kpp.kernels import RBF, Constant, Linear, Matern52, Product, Scaled, Sum

NUMBERS = [2, 2.0, np.float64(2.0), np.float32(2.0), np.array(2.0), jnp.asarray(2.0), jnp.asarray(2)]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: f"{type(number).__name__}_{np.asarray(number).dtype}")
def test_numbers_on_either_side(number):
    left, right, above, below = number * RBF(), RBF() * number, RBF() + number, number + RBF()
    assert isinstance(left, Scaled)
    assert isinstance(right, Scaled)
    assert float(left.variance) == float(right.variance) == 2.0
    assert [type(part) for part in above.kernels] == [RBF, Constant]
    assert [type(part) for part in below.kernels] == [Constant, RBF]
    assert float(above.kernels[1].variance) == float(below.kernels[0].variance) == 2.0


def test_priors_as_numbers():
    prior = dist.HalfNormal(1.0)
    assert (prior * RBF()).variance is prior
    assert (RBF() * prior).variance is prior
    assert (RBF() + prior).kernels[1].variance is prior
    assert (prior + RBF()).kernels[0].variance is prior


def test_sums_and_products_are_flat():
    a, b, c = RBF(), Linear(), Matern52()
    assert [type(part) for part in (a + b + c + 1.0).kernels] == [RBF, Linear, Matern52, Constant]
    assert [type(part) for part in (a + (b + c)).kernels] == [RBF, Linear, Matern52]
    assert [type(part) for part in (a * b * c).kernels] == [RBF, Linear, Matern52]
    assert [type(part) for part in (a * b + c).kernels] == [Product, Matern52]
    assert [type(part) for part in (2.0 * (a + b) + c).kernels] == [Scaled, Matern52]


def test_sum_of_a_list():
    assert [type(part) for part in sum([RBF(), Linear(), Matern52()]).kernels] == [RBF, Linear, Matern52]
    assert isinstance(0.0 + RBF(), Sum)


def test_values(x, compiled, tolerance):
    kernel = 2.0 * RBF(0.7) * Linear() + Matern52() + 0.5
    rbf, linear, matern = (compiled.gram(part, x) for part in (RBF(0.7), Linear(), Matern52()))
    np.testing.assert_allclose(compiled.gram(kernel, x), 2.0 * rbf * linear + matern + 0.5, **tolerance())


@pytest.mark.parametrize("combine", [lambda k: k + "a", lambda k: k * "a", lambda k: k + None, lambda k: k * (1 + 1j)])
def test_what_is_no_number_is_refused(combine):
    with pytest.raises(TypeError, match="`variance` must be a real number, an array of them or a NumPyro distribution"):
        combine(RBF())


@pytest.mark.parametrize("combine", [lambda k: k + -1.0, lambda k: -2.0 * k])
def test_negative_numbers_are_refused(combine):
    with pytest.raises(ValueError, match=r"`variance` must be at least 0, got -"):
        combine(RBF())


@pytest.mark.parametrize("vector", [np.ones(3), jnp.ones(3)])
def test_vectors_are_no_multiples(vector, x):
    with pytest.raises(ValueError, match=r"`variance` must be one number, got shape \(3,\)"):
        (vector * RBF())(x, x)


@pytest.mark.parametrize("cls", [Sum, Product])
@pytest.mark.parametrize(
    ("kernels", "error", "message"),
    [
        ((), ValueError, "at least one kernel"),
        (RBF(), TypeError, "tuple of kernels, got RBF"),
        ((RBF(), 1.0), TypeError, "must hold kernels, got float"),
        (None, TypeError, "tuple of kernels, got NoneType"),
    ],
    ids=["none", "bare", "number", "missing"],
)
def test_composites_hold_kernels(cls, kernels, error, message):
    with pytest.raises(error, match=message):
        cls(kernels)


def test_lists_of_kernels_become_tuples():
    assert Sum([RBF(), Linear()]).kernels[0].lengthscale == 1.0
    assert isinstance(Product([RBF(), Linear()]).kernels, tuple)


def test_scaled_holds_a_kernel():
    with pytest.raises(TypeError, match="`kernel` must be a kernel, got float"):
        Scaled(1.0, 2.0)
