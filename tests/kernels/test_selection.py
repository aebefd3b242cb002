"""`on` lets a kernel see some features, by position or by name."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from kpp.kernels import RBF, Linear, Matern32, Matern52, Periodic, ProductKernel, resolve_features
from kpp.kernels.by_feature import names_of_sites

NAMES = ["age", "sex", "bmi"]


@pytest.mark.parametrize("features", [(2, 0), [2, 0], np.array([2, 0])], ids=repr)
def test_the_kernel_sees_the_columns_in_order(features, x, compiled, tolerance):
    kernel, inner = RBF(jnp.array([0.5, 2.0])).on(features), RBF(jnp.array([0.5, 2.0]))
    columns = x[:, np.array([2, 0])]
    np.testing.assert_allclose(compiled.gram(kernel, x), compiled.gram(inner, columns), **tolerance())
    np.testing.assert_allclose(
        compiled.call(kernel, x[:4], x), compiled.call(inner, columns[:4], columns), **tolerance()
    )
    assert kernel.features == (2, 0)


@pytest.mark.parametrize("features", [1, (1,), np.int64(1)], ids=repr)
def test_one_feature_needs_no_tuple(features):
    assert Matern32().on(features).features == (1,)


def test_a_name_is_not_taken_letter_by_letter():
    assert Matern32().on("bmi").features == ("bmi",)


def test_lengthscales_are_named_after_the_features_they_belong_to():
    """In sums, products and scaled kernels; a selection in a selection counts the features that are left."""
    scales = dist.LogNormal(0.0, 1.0).expand([2])
    first = RBF(scales).on(("bmi", "age")) * RBF(dist.LogNormal(0.0, 1.0)).on("sex")
    nested = RBF(scales).on((1, 0)).on(("age", "bmi"))
    kernel = resolve_features(dist.LogNormal(0.0, 1.0) * (first + nested) + RBF(scales), NAMES)
    assert names_of_sites("kernel", kernel, NAMES) == {
        "kernel.kernels.0.kernel.kernels.0.kernels.0.kernel.lengthscale": ("bmi", "age"),
        "kernel.kernels.0.kernel.kernels.1.kernel.kernel.lengthscale": ("bmi", "age"),
    }


def test_names_become_positions_everywhere(x, tolerance):
    kernel = 2.0 * RBF(dist.LogNormal(0.0, 1.0)).on(("bmi", "age")) + Matern52().on("sex") * Periodic().on(0) + 1.0
    resolved = resolve_features(kernel, NAMES)
    assert resolved.kernels[0].kernel.features == (2, 0)
    assert isinstance(resolved.kernels[0].kernel.kernel.lengthscale, dist.Distribution)
    assert [part.features for part in resolved.kernels[1].kernels] == [(1,), (0,)]
    again = resolve_features({"a": Linear().on("bmi")}, NAMES)["a"]
    np.testing.assert_allclose(again.gram(x), np.outer(x[:, 2], x[:, 2]), **tolerance())


def test_a_selection_inside_counts_among_the_features_let_through(x, tolerance):
    by_name = resolve_features((Linear().on("age") + Linear().on(0)).on(("bmi", "age")), NAMES)
    expected = np.outer(x[:, 0], x[:, 0]) + np.outer(x[:, 2], x[:, 2])
    np.testing.assert_allclose(by_name.gram(x), expected, **tolerance())


def test_kernels_without_names_are_kept(kernel):
    assert repr(resolve_features(kernel, NAMES)) == repr(kernel)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ("weight", r"names 'weight', which is not among the features \['age', 'sex', 'bmi'\]"),
        ((0, 3), r"holds the position 3, but the points have 3 features"),
    ],
)
def test_unknown_features_are_refused_when_resolved(features, message):
    with pytest.raises(ValueError, match=message):
        resolve_features(RBF().on(features) + 1.0, NAMES)


@pytest.mark.parametrize("use", [lambda k, x: k(x, x), lambda k, x: k.gram(x), lambda k, x: k.evaluate(x[0], x[1])])
def test_features_that_points_do_not_have_are_refused(use, x):
    for kernel in (RBF().on((0, 3)), RBF().on(3).product_terms()[0]):
        with pytest.raises(ValueError, match="`features` holds the position 3, but the points have 3 features"):
            use(kernel, x)
    with pytest.raises(ValueError, match=r"`features` holds the names \['bmi'\].*resolve_features"):
        use(RBF().on("bmi"), x)


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        ((), ValueError, "at least one feature"),
        ((0, 0), ValueError, "each feature once"),
        (-1, ValueError, "from 0, got -1"),
        ((0.5,), TypeError, "positions or names, got float 0.5"),
        ((True,), TypeError, "positions or names, got bool"),
    ],
)
def test_what_names_no_features_is_refused(features, error, message):
    with pytest.raises(error, match=f"`features` .*{message}"):
        RBF().on(features)


def test_a_selection_can_be_a_part_of_a_product_kernel(x, tolerance):
    kernel = ProductKernel((Matern32().on(0), RBF(), RBF()))
    expected = ProductKernel((Matern32(), RBF(), RBF()))
    np.testing.assert_allclose(kernel.gram(x), expected.gram(x), **tolerance())
