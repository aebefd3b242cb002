"""Factors, restrictions and terms are those of the kernel they come from."""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.kernels import (
    RBF,
    AbstractProductKernel,
    Categorical,
    Constant,
    Linear,
    Matern52,
    Periodic,
    Polynomial,
    Product,
    ProductKernel,
    RationalQuadratic,
)

ARD = jnp.array([0.5, 1.0, 3.0])
MASKS = [np.array(bits) for bits in itertools.product([False, True], repeat=3)]


@pytest.mark.slow_variants("sum_of_selections")
def test_terms_sum_to_the_kernel(sum_of_products, x, compiled, tolerance):
    terms = sum_of_products.product_terms()
    assert all(isinstance(term, AbstractProductKernel) for term in terms)
    matrices = zip(*(compiled.matrices(term, x) for term in terms), strict=True)
    for parts, whole in zip(matrices, compiled.matrices(sum_of_products, x), strict=True):
        np.testing.assert_allclose(sum(parts), whole, **tolerance())


@pytest.mark.slow_variants("sum_of_selections")
def test_scale_times_factors_is_the_kernel(sum_of_products, x, compiled, tolerance):
    for term in sum_of_products.product_terms():
        factors = compiled.factors(term, x[:4], x)
        assert factors.shape == (3, 4, 6)
        product = np.asarray(term.scale) * np.prod(factors, axis=0)
        np.testing.assert_allclose(product, compiled.matrices(term, x)[0], **tolerance())
        np.testing.assert_allclose(term.evaluate_factors(x[0], x[2]), factors[:, 0, 2], **tolerance())


def test_each_factor_depends_on_its_feature_only(sum_of_products, x, compiled):
    for term in sum_of_products.product_terms():
        factors = compiled.factors(term, x[:4], x)
        for feature in range(3):
            moved = x + 0.37 * np.arange(6.0)[:, None] * (np.arange(3) == feature)
            others = np.delete(np.arange(3), feature)
            np.testing.assert_allclose(compiled.factors(term, moved[:4], moved)[others], factors[others], rtol=1e-13)


@pytest.mark.slow_variants("sum_of_selections")
def test_restrictions_are_products_of_the_remaining_factors(sum_of_products, x, compiled, tolerance):
    for term in sum_of_products.product_terms():
        factors = compiled.factors(term, x[:4], x)
        expected = [np.prod(factors[mask], axis=0) for mask in MASKS]
        found = [compiled.restricted(term, mask, x[:4], x) for mask in MASKS]
        np.testing.assert_allclose(found, expected, **tolerance())
        many = jax.jit(jax.vmap(lambda mask, k=term: k.restrict(mask)(x[:4], x)))(jnp.asarray(MASKS))
        np.testing.assert_allclose(many, expected, **tolerance())


@pytest.mark.slow_variants("sum_of_selections")
def test_restrictions_of_restrictions(sum_of_products, x, compiled, tolerance):
    first, second = np.array([True, True, False]), np.array([False, True, True])
    for term in sum_of_products.product_terms():
        twice = term.restrict(first).restrict(second)
        assert float(twice.scale) == 1.0
        np.testing.assert_allclose(
            compiled.call(twice, x[:4], x), compiled.restricted(term, first & second, x[:4], x), **tolerance()
        )


@pytest.mark.slow
def test_composites_of_one_term_are_product_kernels(x, compiled, tolerance):
    kernel = 2.0 * (RBF(ARD, 1.3) * Periodic(ARD, variance=0.5))
    assert float(kernel.scale) == pytest.approx(1.3)
    rbf, periodic = compiled.factors(RBF(ARD), x[:4], x), compiled.factors(Periodic(ARD), x[:4], x)
    np.testing.assert_allclose(compiled.factors(kernel, x[:4], x), rbf * periodic, **tolerance())
    mask = np.array([False, True, False])
    np.testing.assert_allclose(compiled.restricted(kernel, mask, x[:4], x), (rbf * periodic)[1], **tolerance())


@pytest.mark.parametrize(
    ("kernel", "count"),
    [
        (RBF() + 1.0, 2),
        (Linear(ARD), 3),
        ((RBF() + 1.0) * (Linear(ARD) + 2.0), 8),
        (Product((RBF(),)), 1),
        ((RBF() + Linear()).on(2), 1),
        (Matern52(ARD[:1]).on(0) + Linear(ARD[:2]).on((0, 1)), 3),
    ],
    ids=repr,
)
def test_products_of_sums_are_multiplied_out(kernel, count, x, tolerance):
    assert len(kernel.product_terms()) == count
    of_terms = eqx.filter_jit(lambda kernel: (sum(term(x, x) for term in kernel.product_terms()), kernel(x, x)))
    np.testing.assert_allclose(*of_terms(kernel), **tolerance())


@pytest.mark.parametrize(
    ("kernel", "scale"),
    [
        (ProductKernel((RBF(0.7, 2.0), Matern52(1.0, 3.0))), 6.0),
        (ProductKernel((2.0 * (3.0 * RBF(0.7, 2.0)), RBF())), 12.0),
        (ProductKernel((RBF(0.7, 2.0) * Categorical(0.5, 3.0), RationalQuadratic(1.0, variance=0.5))), 3.0),
        (ProductKernel((Linear(2.0) + 3.0, Polynomial(2, variance=5.0))), 5.0),
        (Matern52(1.0, 2.0).on(1), 2.0),
        (ProductKernel((Constant(2.0), Periodic(1.0, variance=3.0))), 6.0),
        (ProductKernel((Matern52(1.0, 2.0).on(0), RBF())), 2.0),
    ],
    ids=repr,
)
def test_the_scale_collects_the_variances_of_the_parts(kernel, scale, x, tolerance):
    np.testing.assert_allclose(float(kernel.scale), scale, **tolerance())
    both = eqx.filter_jit(lambda kernel, x: (kernel.restrict(np.array([True, True]))(x, x), kernel(x, x)))
    unit, whole = map(np.asarray, both(kernel, x[:, :2]))
    np.testing.assert_allclose(scale * unit, whole, **tolerance())


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Matern52(), "Matern52 is not a sum of product kernels.*ProductKernel"),
        (Linear(), r"Linear .*`Linear\(variance=jnp.full\(d, value\)\)`; got one number"),
        (RBF() * Polynomial(2), "Polynomial is not a sum"),
        (Matern52().on((0, 1)), "Matern52 is not a sum"),
    ],
    ids=repr,
)
def test_what_is_no_sum_of_product_kernels_says_so(kernel, message):
    with pytest.raises(TypeError, match=message):
        kernel.product_terms()


@pytest.mark.parametrize("member", ["scale", "factors", "restrict"])
def test_a_sum_is_not_one_product_kernel(member, x):
    kernel = RBF() + 1.0
    use = {
        "scale": lambda: kernel.scale,
        "factors": lambda: kernel.factors(x, x),
        "restrict": lambda: kernel.restrict([True]),
    }
    with pytest.raises(TypeError, match="sum of 2 product kernels, not one"):
        use[member]()


@pytest.mark.parametrize(
    "kernel", [RBF(), Categorical(0.5), RBF().on((0, 1)), ProductKernel((RBF(), RBF(), RBF()))], ids=repr
)
@pytest.mark.parametrize("mask", [np.array([1.0, 0.0, 1.0]), np.array(True), np.ones((2, 3), dtype=bool)], ids=repr)
def test_masks_are_vectors_of_booleans(kernel, mask):
    with pytest.raises(ValueError, match=r"`mask` must be a vector of booleans"):
        kernel.restrict(mask)


def test_a_mask_of_the_wrong_length_is_refused(x):
    with pytest.raises(ValueError, match=r"`mask` has shape \(2,\), but the kernel has 3 factors"):
        Categorical(0.5).restrict(np.array([True, False]))(x, x)


@pytest.mark.parametrize("inside", [RBF(0.9, 0.5), Linear(0.5), Matern52(0.9, 0.5), Polynomial(2, variance=0.5)])
def test_a_variance_inside_a_factor_is_a_factor_of_the_scale(inside, x):
    """So equal kernels have equal games: whether a factor or the product is multiplied makes no difference."""
    plain = eqx.tree_at(lambda kernel: kernel.variance, inside, jnp.ones(()))
    one, other = ProductKernel((inside, RBF(0.9))), 0.5 * ProductKernel((plain, RBF(0.9)))
    (term,) = other.product_terms()
    np.testing.assert_allclose(one.scale, term.scale, rtol=1e-15)
    np.testing.assert_allclose(one.factors(x[:, :2], x[:, :2]), term.factors(x[:, :2], x[:, :2]), rtol=1e-15)
