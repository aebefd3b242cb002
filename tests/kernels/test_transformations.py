"""Kernels go through jit, vmap and flattening unchanged."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.kernels import RBF, Matern52, median_heuristic


def test_jit_changes_nothing(kernel, x, compiled, tolerance):
    np.testing.assert_allclose(compiled.matrices(kernel, x)[1], kernel.gram(x), **tolerance())


def test_vmap_over_kernels_is_a_loop(kernel, x, compiled, arrays_of, tolerance):
    arrays, restore = arrays_of(kernel)
    several = [jax.tree.map(lambda leaf, f=factor: f * np.asarray(leaf), arrays) for factor in (1.0, 0.9)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *several)
    batch = jax.jit(jax.vmap(lambda leaves: restore(leaves).gram(x)))(stacked)
    expected = [compiled.matrices(restore(leaves), x)[1] for leaves in several]
    np.testing.assert_allclose(batch, expected, **tolerance())


def test_flattening_and_back_gives_the_same_kernel(every_kernel):
    leaves, structure = jax.tree.flatten(every_kernel)
    copy = jax.tree.unflatten(structure, leaves)
    assert eqx.tree_equal(copy, every_kernel)
    assert repr(copy) == repr(every_kernel)


@pytest.mark.parametrize("build", [lambda s: RBF(s), lambda s: s * Matern52(2.0) + s, lambda s: RBF(s).on(0)])
def test_kernels_can_be_built_inside_jit(build, x, tolerance):
    compiled = jax.jit(lambda s: build(s).gram(x))(0.7)
    np.testing.assert_allclose(compiled, build(0.7).gram(x), **tolerance())


def test_known_arrays_are_checked_inside_jit():
    known = jnp.array([1.0, -1.0, 2.0])
    with pytest.raises(ValueError, match="lengthscale"):
        jax.jit(lambda x: RBF(known).gram(x))(jnp.ones((2, 3)))


def test_one_shape_is_traced_once(x):
    traces = []

    @eqx.filter_jit
    def gram(kernel, x):
        traces.append(1)
        return kernel.gram(x)

    for lengthscale in (0.5, 1.0, 2.0):
        gram(RBF(lengthscale) + 1.0, x)
    assert len(traces) == 1


def test_the_median_heuristic_refuses_traced_data(x):
    with pytest.raises(TypeError, match=r"`x` .* outside jax\.jit"):
        jax.jit(median_heuristic)(x)
