"""The laws of a kernel. Each is a check of one example: a concrete kernel and a batch of points."""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.typing import DTypeLike
from jaxtyping import PyTree

from kpp.kernels import AbstractKernel, AbstractProductKernel
from kpp.priors import prior_sites, sample
from kpp.testing.compare import assert_close, assert_raises, laws_in, num_points, rows, spec_copy, tree_copy
from kpp.typing import Leaf

_STEP = 1e-6

_combine = eqx.filter_jit(lambda kernel, x, coefficients: kernel.combine_sections(x, x, coefficients))
_factors = eqx.filter_jit(lambda kernel, x: kernel.factors(x, x))
_features = eqx.filter_jit(lambda kernel, x: kernel.finite_features(x))


def _compute_values(
    kernel: AbstractKernel, x1: PyTree, x2: PyTree
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The matrix of two batches, the Gram matrix and diagonal of the first, and the kernel at their first points."""
    first, second = (jax.tree.map(lambda leaf: leaf[0], points) for points in (x1, x2))
    return kernel(x1, x2), kernel.gram(x1), kernel.diagonal(x1), kernel.evaluate(first, second)


# Compiling takes nearly all of the time. The laws therefore share two programs per example: values and derivatives.
_values = eqx.filter_jit(_compute_values)


@eqx.filter_jit
@eqx.filter_value_and_grad
def _total(kernel_and_points: tuple[AbstractKernel, PyTree]) -> jax.Array:
    """A number that depends on every entry of the Gram matrix and of the diagonal, each in another way."""
    kernel, x = kernel_and_points
    matrix = kernel(x, x)
    weights = np.cos(np.arange(matrix.size)).reshape(matrix.shape).astype(matrix.dtype)
    return jnp.sum(weights * matrix) + jnp.sum(weights[0] * kernel.diagonal(x))


def evaluates_to_a_scalar(kernel: AbstractKernel, x: PyTree) -> None:
    """Evaluate takes two points and returns a finite scalar."""
    first, second = rows(x, 0), rows(x, 1)
    shape = np.shape(eqx.filter_eval_shape(lambda kernel: kernel.evaluate(first, second), kernel))
    assert shape == (), f"`evaluate` returns shape {shape}"
    *_, value = _values(kernel, x, x)
    assert np.isfinite(value), f"`evaluate` returns {value}"


def symmetric(kernel: AbstractKernel, x: PyTree) -> None:
    """k(x, x') = k(x', x)."""
    shifted = rows(x, np.roll(np.arange(num_points(x)), 1))
    assert_close(_matrix(kernel, x, shifted), _matrix(kernel, shifted, x).T, "k(x1, x2) and the transpose of k(x2, x1)")


def positive_semi_definite(kernel: AbstractKernel, x: PyTree) -> None:
    """Gram matrices have no negative eigenvalue, also with duplicated rows."""
    allowed = 1e-10 if _dtype(x) == np.float64 else 1e-4
    for points in (x, _with_duplicates(x)):
        eigenvalues = np.linalg.eigvalsh(np.asarray(_matrix(kernel, points, points), dtype=float))
        lowest, highest = eigenvalues[0], max(eigenvalues[-1], 0.0)
        assert lowest >= -allowed * highest, f"the lowest eigenvalue is {lowest:.3g}, the highest {highest:.3g}"


def gram_and_diagonal_agree_with_call(kernel: AbstractKernel, x: PyTree) -> None:
    """gram(x) = k(x, x), and diagonal(x) is its diagonal."""
    matrix, gram, diagonal, _ = _values(kernel, x, x)
    assert_close(gram, matrix, "gram(x) and k(x, x)")
    assert_close(diagonal, np.diagonal(matrix), "diagonal(x) and the diagonal of k(x, x)")


def batches_agree_with_single_points(kernel: AbstractKernel, x: PyTree) -> None:
    """k(x1, x2) holds the values of evaluate for each pair of points (vmap = loop)."""
    pairs = [(0, 0), (0, 1), (2, 1), (1, 2), (num_points(x) - 1, 0)]
    order = np.arange(num_points(x))
    single = [_values(kernel, *(rows(x, np.roll(order, -i)) for i in pair))[3] for pair in pairs]
    entries = np.asarray(_matrix(kernel, x, x))[tuple(np.transpose(pairs))]
    assert_close(entries, np.asarray(single), "entries of k(x1, x2) and `evaluate` of single points", factor=10)


def jit_changes_nothing(kernel: AbstractKernel, x: PyTree) -> None:
    """The kernel gives the same values inside jit."""
    assert_close(_matrix(kernel, x, x), kernel(x, x), "k(x, x) with and without jit")
    if type(kernel).diagonal is not AbstractKernel.diagonal:  # the base class works with traced points in either case
        assert_close(_values(kernel, x, x)[2], kernel.diagonal(x), "diagonal(x) with and without jit")


def vmap_over_kernels(kernel: AbstractKernel, x: PyTree) -> None:
    """A batch of kernels, stacked leaf by leaf, gives each kernel's values under vmap."""
    arrays, static = eqx.partition(kernel, eqx.is_inexact_array)
    if not jax.tree.leaves(arrays):
        return
    stacked = jax.tree.map(lambda leaf: np.stack([leaf, 1.5 * np.asarray(leaf)]), arrays)
    batch = np.asarray(jax.jit(jax.vmap(lambda leaves: eqx.combine(leaves, static)(x, x)))(stacked))
    for index, name in enumerate(("first", "second")):
        single = eqx.combine(jax.tree.map(lambda leaf, i=index: jnp.asarray(leaf[i]), stacked), static)
        assert_close(batch[index], _matrix(single, x, x), f"the {name} kernel of a batch and the kernel itself")


def gradients_are_finite_at_zero_distance(kernel: AbstractKernel, x: PyTree) -> None:
    """Gradients with respect to parameters and points are finite if two points coincide."""
    _, gradients = _total((kernel, _with_duplicates(x)))
    for path, leaf in jax.tree.leaves_with_path(gradients):
        name = jax.tree_util.keystr(path[1:], simple=True, separator=".") or "x"
        assert np.isfinite(leaf).all(), f"the gradient in {name} is not finite: {np.asarray(leaf).ravel()[:4]}"


def gradients_are_finite_differences(kernel: AbstractKernel, x: PyTree) -> None:
    """Gradients with respect to the parameters agree with finite differences."""
    leaves = jax.tree.leaves(eqx.filter(kernel, eqx.is_inexact_array))
    if _dtype(x) != np.float64 or not leaves:
        return
    above, below = (float(_total((_stretched(kernel, 1 + step), x))[0]) for step in (_STEP, -_STEP))
    _, (gradient, _) = _total((kernel, x))
    products = [np.asarray(leaf) * np.asarray(d) for leaf, d in zip(leaves, jax.tree.leaves(gradient), strict=True)]
    slope = float(sum(product.sum() for product in products))
    difference = (above - below) / (2 * _STEP)
    scale = float(np.abs(_matrix(kernel, x, x)).sum()) + abs(slope)
    assert abs(slope - difference) <= 1e-7 * scale, f"the derivative is {slope:.8g}, the difference {difference:.8g}"


def survives_the_round_trip_as_a_pytree(kernel: AbstractKernel, x: PyTree) -> None:
    """Flattening and unflattening, as jit and vmap do, gives the same kernel."""
    others = [type(leaf).__name__ for leaf in jax.tree.leaves(kernel) if not isinstance(leaf, (jax.Array, np.ndarray))]
    assert not others, f"every leaf must be an array, others belong in static fields; got {others}"
    assert_close(_matrix(tree_copy(kernel), x, x), _matrix(kernel, x, x), "k(x, x) of the copy and of the kernel")


def keeps_the_dtype_of_the_points(kernel: AbstractKernel, x: PyTree) -> None:
    """Points in single precision give values in single precision, points in double precision values in double."""
    for dtype in (np.float32, np.float64) if jax.config.read("jax_enable_x64") else (np.float32,):
        points = jax.tree.map(functools.partial(_cast, dtype=dtype), x)
        compute = _values if dtype == _dtype(x) else functools.partial(eqx.filter_eval_shape, _compute_values)
        for what, value in zip(("k(x, x)", "gram(x)", "diagonal(x)"), compute(kernel, points, points), strict=False):
            assert value.dtype == dtype, f"{what} has dtype {value.dtype} for points of dtype {np.dtype(dtype)}"


def unhashable(kernel: AbstractKernel, x: PyTree) -> None:
    """Kernels cannot be hashed, so that they cannot become static arguments or keys of a cache."""
    assert_raises(TypeError, lambda: hash(kernel), "hash(kernel)")


def repr_shows_values(kernel: AbstractKernel, x: PyTree) -> None:
    """The repr names the class and shows the values, and the priors if there are any."""
    assert type(kernel).__name__ in repr(kernel), f"the class is not named in {kernel!r}"
    for index, leaf in enumerate(jax.tree.leaves(kernel)):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.size <= 3:
            other = _with_leaf(kernel, index, np.asarray(np.asarray(leaf) + 0.375))
            assert repr(other) != repr(kernel), f"repr does not show leaf {index}: {kernel!r}"
            with_prior = _with_leaf(kernel, index, dist.HalfNormal(1.0))
            assert "HalfNormal" in repr(with_prior), f"repr does not show the prior of leaf {index}: {with_prior!r}"


def refuses_to_evaluate_priors(kernel: AbstractKernel, x: PyTree) -> None:
    """Evaluating a kernel that holds a prior raises a TypeError that names the leaf and kpp.sample."""
    for index, name in _numbers(kernel).items():
        with_prior = _with_leaf(kernel, index, dist.HalfNormal(1.0))
        for what, call in (
            ("k(x, x)", lambda kernel=with_prior: kernel(x, x)),
            ("gram(x)", lambda kernel=with_prior: kernel.gram(x)),
            ("diagonal(x)", lambda kernel=with_prior: kernel.diagonal(x)),
        ):
            message = assert_raises(TypeError, call, f"{what} with a prior in {name}")
            assert "kpp.sample" in message, f"the message of {what} does not name kpp.sample: {message}"
            last = name.rpartition(".")[2]
            assert last in message, f"the message of {what} does not name the leaf {name}: {message}"


def sample_replaces_priors(kernel: AbstractKernel, x: PyTree) -> None:
    """kpp.sample draws every prior at a site named after its leaf and returns a kernel that can be evaluated."""
    expected = [f"kernel.{name}" for name in _numbers(kernel).values()]
    with_priors = jax.tree.map(_with_prior, kernel)
    sites = list(prior_sites("kernel", with_priors))
    assert sites == expected, f"the priors of {expected} have the sites {sites}"
    with numpyro.handlers.seed(rng_seed=0):
        drawn = sample("kernel", with_priors)
    shape = eqx.filter_eval_shape(lambda kernel, x: kernel(x, x), drawn, x).shape
    assert shape == (num_points(x), num_points(x)), f"k(x, x) of the draw has shape {shape}"


def survives_the_round_trip_through_a_spec(kernel: AbstractKernel, x: PyTree) -> None:
    """A registered kernel written as JSON and read back gives the same values."""
    copy = spec_copy(kernel)
    if copy is not None:
        assert_close(_matrix(copy, x, x), _matrix(kernel, x, x), "k(x, x) of the copy and of the kernel")


def adds_and_multiplies(kernel: AbstractKernel, x: PyTree) -> None:
    """Sums, products and multiples of the kernel have the sums, products and multiples of its values."""
    matrix = np.asarray(_matrix(kernel, x, x))
    # Not compiled as a whole: without `jit` the parts run programs that other laws and other kernels run too.
    for what, combined, expected in (
        ("k + k and twice k", kernel + kernel, 2 * matrix),
        ("k * k and the square of k", kernel * kernel, matrix**2),
        ("2.5 * k and 2.5 times k", 2.5 * kernel, 2.5 * matrix),
    ):
        assert_close(combined(x, x), expected, what)


def scale_times_the_rest_is_the_kernel(kernel: AbstractKernel, x: PyTree) -> None:
    """split_scale returns a scalar and a kernel whose product is the kernel."""
    scale, rest = kernel.split_scale()
    assert jnp.shape(scale) == (), f"`split_scale` gives a scale of shape {jnp.shape(scale)}"
    assert isinstance(rest, AbstractKernel), f"`split_scale` gives a {type(rest).__name__} for the kernel"
    product = np.asarray(scale) * np.asarray(_matrix(rest, x, x))
    assert_close(product, _matrix(kernel, x, x), "the scale times the rest and k", factor=10)


def scaling_inside_or_outside_changes_nothing(kernel: AbstractKernel, x: PyTree) -> None:
    """split_scale leaves the same kernel of a multiple: factors do not depend on where the scale is."""
    (scale, rest), (scaled, rest_of_multiple) = kernel.split_scale(), (2.5 * kernel).split_scale()
    assert_close(np.asarray(scaled), 2.5 * np.asarray(scale), "the scales of 2.5 * k and of k")
    assert_close(_matrix(rest_of_multiple, x, x), _matrix(rest, x, x), "the rest of 2.5 * k and of k")


def product_terms_sum_to_the_kernel(kernel: AbstractKernel, x: PyTree) -> None:
    """The product terms are product kernels that sum to the kernel; without product terms there is a TypeError."""
    try:
        terms = kernel.product_terms()
    except TypeError:
        return
    for term in terms:
        assert isinstance(term, AbstractProductKernel), f"the term {term!r} is no AbstractProductKernel"
    total = sum(np.asarray(_matrix(term, x, x)) for term in terms)
    assert_close(total, _matrix(kernel, x, x), "the sum of the product terms and k", factor=10)


def functions_are_combinations_of_sections(kernel: AbstractKernel, x: PyTree) -> None:
    """combine_sections(x, points, coefficients) is k(x, points) @ coefficients."""
    if type(kernel).combine_sections is AbstractKernel.combine_sections:
        return
    coefficients = _coefficients(x)
    expected = np.asarray(_matrix(kernel, x, x)) @ coefficients
    assert_close(_combine(kernel, x, coefficients), expected, "combine_sections and k(x, points) @ coefficients", 10)


def finite_features_give_the_kernel(kernel: AbstractKernel, x: PyTree) -> None:
    """The inner products of `finite_features` are the kernel, and a row depends on its point alone."""
    features = _features(kernel, x)
    if features is None:
        return
    features, first = np.asarray(features), np.asarray(_features(kernel, rows(x, slice(0, 1))))
    assert first.shape == (1, features.shape[1]), "the number of features depends on the batch"
    assert_close(first[0], features[0], "the features of a point alone and in a batch", 10)
    assert_close(features @ features.T, _matrix(kernel, x, x), "inner products of finite_features and k", 10)


def unfolding_changes_no_value(kernel: AbstractKernel, x: PyTree) -> None:
    """A function that `unfold` writes with another kernel has the same values."""
    coefficients = _coefficients(x)
    simpler, points, others = kernel.unfold(x, coefficients)
    if simpler is not kernel:
        expected = np.asarray(_matrix(kernel, x, x)) @ coefficients
        found = np.asarray(_matrix(simpler, x, points)) @ np.asarray(others)
        assert_close(found, expected, "the unfolded function and the function", 1000)


LAWS = laws_in(globals())


def factors_have_one_matrix_a_feature(kernel: AbstractProductKernel, x: PyTree) -> None:
    """factors(x1, x2) has shape (d, n1, n2)."""
    found = eqx.filter_eval_shape(lambda kernel, x: kernel.factors(x, x), kernel, x).shape
    expected = (x.shape[1], x.shape[0], x.shape[0])
    assert found == expected, f"`factors` returns shape {found}, expected {expected}"


def factors_times_scale_are_the_value(kernel: AbstractProductKernel, x: PyTree) -> None:
    """k(x, x') is the scale times the product of the factors."""
    assert jnp.shape(kernel.scale) == (), f"`scale` has shape {jnp.shape(kernel.scale)}"
    product = np.asarray(kernel.scale) * np.prod(_factors(kernel, x), axis=0)
    assert_close(product, _matrix(kernel, x, x), "scale times the product of the factors and k", factor=10)


def factors_known_as_nonnegative_are_not_negative(kernel: AbstractProductKernel, x: PyTree) -> None:
    """If `nonnegative` is True, no factor is negative."""
    smallest = np.min(_factors(kernel, x))
    assert not kernel.nonnegative or smallest >= 0, f"`nonnegative` is True, but a factor is {smallest:.3g}"


def restriction_keeps_the_chosen_factors(kernel: AbstractProductKernel, x: PyTree) -> None:
    """restrict(mask) is the product of the chosen factors, without the scale."""
    factors = np.asarray(_factors(kernel, x))
    for mask in _masks(x):
        expected = np.prod(factors[mask], axis=0)
        assert_close(_matrix(kernel.restrict(mask), x, x), expected, f"restrict({mask.tolist()})", factor=10)


def empty_restriction_is_one(kernel: AbstractProductKernel, x: PyTree) -> None:
    """The restriction to no feature is one everywhere."""
    matrix = _matrix(kernel.restrict(np.zeros(x.shape[1], dtype=bool)), x, x)
    assert_close(matrix, np.ones(matrix.shape), "the restriction to no feature")


def restriction_is_a_product_kernel(kernel: AbstractProductKernel, x: PyTree) -> None:
    """A restriction is again a product kernel, of unit scale."""
    restricted = kernel.restrict(_masks(x)[-1])
    assert isinstance(restricted, AbstractProductKernel), f"`restrict` returns {type(restricted).__name__}"
    assert_close(restricted.scale, np.ones(()), "the scale of a restriction")


def restriction_takes_traced_masks(kernel: AbstractProductKernel, x: PyTree) -> None:
    """The mask may be traced: restrict works inside jit and under vmap over masks."""
    masks = _masks(x)
    restrict = jax.vmap(lambda mask: kernel.restrict(mask)(x, x))
    expected = np.stack([_matrix(kernel.restrict(mask), x, x) for mask in masks])
    assert_close(jax.jit(restrict)(jnp.asarray(masks)), expected, "restrictions with traced masks and with known ones")


PRODUCT_LAWS = laws_in(globals())[len(LAWS) :]


def _matrix(kernel: AbstractKernel, x1: PyTree, x2: PyTree) -> jax.Array:
    return _values(kernel, x1, x2)[0]


def _with_duplicates(x: PyTree) -> PyTree:
    """Return the points with the last two replaced by the first; the same shape avoids compiling again."""
    return rows(x, np.r_[np.arange(num_points(x) - 2), 0, 0])


def _dtype(x: PyTree) -> Any:
    return jnp.result_type(float, *(leaf.dtype for leaf in jax.tree.leaves(x)))


def _cast(leaf: PyTree, dtype: DTypeLike) -> PyTree:
    return np.asarray(leaf).astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def _coefficients(x: PyTree) -> np.ndarray:
    """Return one coefficient per point, none of them zero."""
    return np.cos(1 + np.arange(num_points(x))).astype(_dtype(x))


def _stretched(kernel: AbstractKernel, factor: float) -> Any:
    """Multiply all parameters by a number."""
    arrays, static = eqx.partition(kernel, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda leaf: np.asarray(np.asarray(leaf) * factor), arrays), static)


def _with_prior(leaf: jax.Array) -> Leaf:
    """Return a prior for a parameter, and any other leaf unchanged."""
    return dist.Uniform(0.9, 1.1).expand(leaf.shape) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def _with_leaf(kernel: AbstractKernel, index: int, value: Leaf) -> Any:
    """Replace one leaf by any value, as a constructor that accepts priors would."""
    leaves, structure = jax.tree.flatten(kernel)
    leaves[index] = value
    return jax.tree.unflatten(structure, leaves)


def _numbers(kernel: AbstractKernel) -> dict[int, str]:
    """Return the positions and names of the leaves of floating-point numbers."""
    leaves = enumerate(jax.tree.leaves_with_path(kernel))
    floats = {index: path for index, (path, leaf) in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)}
    return {index: jax.tree_util.keystr(path, simple=True, separator=".") for index, path in floats.items()}


def _masks(x: PyTree) -> np.ndarray:
    """Return the full mask, every other feature, and the rest, (3, d)."""
    every_other = np.arange(x.shape[1]) % 2 == 0
    return np.stack([np.ones_like(every_other), every_other, ~every_other])
