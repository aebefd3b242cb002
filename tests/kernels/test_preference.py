"""Kernels that compare items: reference vectors, explicit features in NumPy, and skew-symmetry to the last bit."""

from __future__ import annotations

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.sparse.linalg import LinearOperator, cg

from kpp import RKHSFunction
from kpp.features import GeneralizedPreferentialFeatures, Nystrom, PreferentialFeatures, RandomFourier
from kpp.kernels import (
    RBF,
    BagMean,
    Contextual,
    DeepKernel,
    GeneralizedPreferential,
    Kronecker,
    Linear,
    Matern32,
    PairProduct,
    Preferential,
    SkewSymmetrized,
    pad_bags,
)
from kpp.kernels.points import bag_mean
from kpp.priors import prior_sites

VECTORS = dict(np.load(Path(__file__).parents[1] / "data" / "gpgp.npz"))
P, Q = (np.stack([VECTORS[f"in_{name}"], VECTORS[f"in_{name}p"]], axis=1) for name in "UV")
USERS = VECTORS["in_users"]
BASE = RBF(float(VECTORS["in_ls"]))
FOURIER = RandomFourier(np.random.default_rng(0).normal(size=(3, 3)), 1.2, 1.7)
KERNELS = {
    "preferential": Preferential(RBF(1.2, 1.7)),
    "generalized": GeneralizedPreferential(RBF(1.2, 1.7)),
    "skew_symmetrized": SkewSymmetrized(PairProduct(RBF(1.2, 1.7), Matern32(0.9))),
    "generalized_features": GeneralizedPreferentialFeatures(FOURIER),
    "sum": GeneralizedPreferential(RBF(1.2)) + 0.7 * Preferential(RBF(0.8, 1.7)),
}
NAMES = pytest.mark.parametrize("name", KERNELS)

# Compiled once for a structure of kernels: all pairs come in batches of six.
matrix = eqx.filter_jit(lambda kernel, a, b: kernel(a, b))
combine = eqx.filter_jit(lambda kernel, a, b: kernel.combine_sections(a, b, COEFFICIENTS))
feature_map = eqx.filter_jit(lambda kernel, x: kernel.feature_map(x))
COEFFICIENTS = np.cos(np.arange(6.0))


def exchange(pairs, rows=slice(None)):
    exchanged = pairs.copy()
    exchanged[rows] = pairs[rows, ::-1]
    return exchanged


def fourier_features(x):
    phases = x / 1.2 @ np.asarray(FOURIER.frequencies).T
    return np.sqrt(1.7 / 3) * np.concatenate([np.cos(phases), np.sin(phases)], axis=1)


@pytest.mark.slow
def test_reference_vectors():
    bags = np.split(VECTORS["in_bag_points"], np.cumsum(VECTORS["in_bag_sizes"])[:-1].astype(int))
    points, lengths = pad_bags(bags)
    bag_pairs = points.reshape(2, 1, 2, *points.shape[1:]), lengths.reshape(2, 1, 2)
    first, second = (jax.tree.map(lambda leaf, i=i: leaf[i], bag_pairs) for i in (0, 1))
    crowd = Contextual(GeneralizedPreferential(BASE), RBF(float(VECTORS["in_ls_user"])))
    for name, value in (
        ("pgp", matrix(Preferential(BASE), P, Q)),
        ("gpgp", matrix(GeneralizedPreferential(BASE), P, Q)),
        ("crowd", matrix(crowd, (P, USERS), (Q, USERS))),
        ("crowd", -matrix(crowd, (exchange(P), USERS), (Q, USERS))),
        ("bag_01_23", matrix(GeneralizedPreferential(BagMean(BASE)), first, second)),
    ):
        assert value == pytest.approx(VECTORS[f"out_{name}"], rel=1e-7, abs=1e-10)


@pytest.mark.slow_variants("generalized", "generalized_features", "preferential", "sum", "skew_symmetrized")
@NAMES
def test_exchanging_items_changes_the_sign_to_the_last_bit(name):
    kernel, some = KERNELS[name], np.array([True, False, True, True, False, False])
    values, sign = np.asarray(matrix(kernel, P, Q)), np.where(some, -1.0, 1.0)
    assert (matrix(kernel, exchange(P), Q) == -values).all()
    assert (matrix(kernel, P, exchange(Q, some)) == values * sign).all()
    function = np.asarray(combine(kernel, P, Q))
    assert function == pytest.approx(values @ COEFFICIENTS, abs=1e-13)
    assert (combine(kernel, exchange(P, some), Q) == function * sign).all()


@pytest.mark.slow_variants("sum", "generalized_features", "generalized", "preferential")
@NAMES
def test_an_item_is_not_preferred_to_itself(name):
    same = P.copy()
    same[::2, 1] = P[::2, 0]
    assert (np.asarray(matrix(KERNELS[name], same, Q))[::2] == 0).all()
    assert (np.asarray(matrix(KERNELS[name], Q, same))[:, ::2] == 0).all()
    assert (np.asarray(combine(KERNELS[name], same, Q))[::2] == 0).all()


@NAMES
def test_matrices_are_positive_and_reversed_copies_add_nothing(name):
    both = np.concatenate([P[:3], exchange(P[:3])])
    whole = np.asarray(matrix(KERNELS[name], both, both))
    part = whole[:3, :3]
    # Tolerances: some roundings of numbers of order 1.
    assert whole == pytest.approx(np.block([[part, -part], [-part, part]]), abs=1e-14)
    assert np.linalg.eigvalsh(part).min() > 1e-6
    assert np.linalg.eigvalsh(whole).min() > -1e-14


@pytest.mark.slow
def test_kernels_are_inner_products_of_the_features():
    """The 2r and r^2 features that appendix D of Chau's thesis prints, with both factors 1 / sqrt 2."""

    def features(pairs):
        a, b = fourier_features(pairs[:, 0]), fourier_features(pairs[:, 1])
        outer = a[:, :, None] * b[:, None, :]
        skew = (outer - np.swapaxes(outer, 1, 2)).reshape(len(pairs), -1)
        return np.concatenate([a - b, b - a], axis=1) / np.sqrt(2), skew / np.sqrt(2)

    for phi, psi, kernel, explicit in zip(
        features(P),
        features(Q),
        (Preferential(FOURIER), GeneralizedPreferential(FOURIER)),
        (PreferentialFeatures(FOURIER), KERNELS["generalized_features"]),
        strict=True,
    ):
        assert matrix(kernel, P, Q) == pytest.approx(phi @ psi.T, abs=1e-13)
        maps = [np.asarray(feature_map(explicit, pairs)) for pairs in (P, Q, exchange(P))]
        assert maps[0] @ maps[1].T == pytest.approx(phi @ psi.T, abs=1e-13)
        assert (maps[2] == -maps[0]).all()
    assert maps[0].shape == (6, 15)


def test_a_constant_adds_the_utility_model():
    parts = matrix(KERNELS["generalized"], P, Q) + 0.3 * matrix(KERNELS["preferential"], P, Q)
    with_constant = GeneralizedPreferential(RBF(1.2, 1.7) + 0.3)
    assert matrix(with_constant, P, Q) == pytest.approx(np.asarray(parts), abs=1e-13)


@pytest.mark.slow
def test_skew_symmetrized_kernels():
    k1 = [np.asarray(matrix(RBF(1.2, 1.7), P[:, i], Q[:, j])) for i in (0, 1) for j in (0, 1)]
    k2 = [np.asarray(matrix(Matern32(0.9), P[:, i], Q[:, j])) for i in (0, 1) for j in (0, 1)]
    # The pairs of blocks are (a, c), (a, d), (b, c), (b, d).
    expected = 0.5 * (k1[0] * k2[3] - k1[2] * k2[1] - k1[1] * k2[2] + k1[3] * k2[0])
    assert matrix(KERNELS["skew_symmetrized"], P, Q) == pytest.approx(expected, abs=1e-14)
    for pair_kernel in (PairProduct(BASE), DeepKernel(BASE, jnp.ravel)):
        assert matrix(SkewSymmetrized(pair_kernel), P, Q) == pytest.approx(VECTORS["out_gpgp"], rel=1e-7, abs=1e-10)


def test_derivatives_where_an_item_meets_itself():
    """The values there are set to 0, not the derivatives."""
    kernel, item = KERNELS["generalized"], P[0, 0]
    slope = jax.jit(jax.grad(lambda first: kernel(jnp.stack([first, item])[None], Q[:1])[0, 0]))(item)
    steps = 1e-5 * np.concatenate([np.eye(3), -np.eye(3)])
    above, below = np.split(np.asarray(matrix(kernel, np.stack([item + steps, item + 0 * steps], axis=1), Q))[:, 0], 2)
    assert np.abs(slope).min() > 1e-3
    assert slope == pytest.approx((above - below) / 2e-5, abs=1e-9)  # a third derivative times the step squared


CROWD = Contextual(GeneralizedPreferential(BASE), RBF(0.9) + 0.5)


@pytest.fixture(scope="module")
def crowd():
    """The Kronecker factors of six pairs under three contexts, and the dense matrix by NumPy."""
    product = eqx.filter_jit(lambda: CROWD.kronecker(P, USERS[:3]))()
    distances = np.square(USERS[:3, None] - USERS[None, :3]).sum(-1)
    contexts = np.exp(-0.5 * distances / 0.81) + 0.5
    items = np.asarray(matrix(GeneralizedPreferential(BASE), P, P))
    pairs, users = Contextual.cross(P, USERS[:3])
    first = np.array([[(P == pair).all(axis=(1, 2)).argmax()] for pair in np.asarray(pairs)])[:, 0]
    second = np.array([[(USERS == user).all(axis=1).argmax()] for user in np.asarray(users)])[:, 0]
    return product, items[np.ix_(first, first)] * contexts[np.ix_(second, second)]


@pytest.mark.slow
def test_a_crowd_on_common_pairs_is_a_kronecker_product(crowd):
    product, dense = crowd
    assert np.kron(*product) == pytest.approx(dense, abs=1e-15)
    y, ridge = np.sin(np.arange(18.0)), 0.1
    assert product.multiply(y) == pytest.approx(dense @ y, abs=1e-13)
    other = Kronecker(product.first[:2], product.second[:1])
    assert other.multiply(y) == pytest.approx(np.kron(*other) @ y, abs=1e-13)
    # Tolerance: condition numbers below 1e3.
    assert product.solve(y, ridge) == pytest.approx(np.linalg.solve(dense + ridge * np.eye(18), y), abs=1e-12)
    with pytest.raises(ValueError, match="`ridge` must be positive, got 0"):
        product.solve(y, 0.0)


def test_conjugate_gradients_where_some_users_have_not_seen_some_pairs(crowd):
    product, dense = crowd
    seen, padded = np.arange(18) % 4 != 1, np.zeros(18)

    def multiply(v):
        padded[seen] = v
        return np.asarray(product.multiply(padded))[seen] + 0.1 * v

    y = np.sin(np.arange(seen.sum()))
    found, info = cg(LinearOperator((len(y), len(y)), multiply), y, rtol=1e-13)
    assert info == 0
    system = dense[np.ix_(seen, seen)] + 0.1 * np.eye(len(y))
    assert found == pytest.approx(np.linalg.solve(system, y), abs=1e-10)


def test_means_over_bags(monkeypatch):
    """Few values at once, so that bags come one after another; what is beyond a bag's length is NaN."""
    monkeypatch.setattr(bag_mean, "_ENTRIES", 20)
    bags = [P[0], P[1:3].reshape(-1, 3), P[3:4, 0]]
    points, lengths = pad_bags(bags)
    beyond = np.arange(points.shape[1])[None, :, None] >= np.asarray(lengths)[:, None, None]
    padded = np.where(beyond, np.nan, points), lengths
    found, diagonal = jax.jit(lambda bags: (BagMean(Linear(0.5)).gram(bags), BagMean(Linear(0.5)).diagonal(bags)))(
        padded
    )
    means = np.array([bag.mean(axis=0) for bag in bags])
    assert found == pytest.approx(0.5 * means @ means.T, abs=1e-14)
    assert diagonal == pytest.approx(np.diagonal(found), abs=1e-14)


@pytest.mark.slow
def test_pairs_of_bags_keep_the_symmetry():
    """Also where the order of two bags is decided beyond the end of one."""
    points = np.full((1, 2, 4, 3), np.nan)
    points[0, :, 0] = P[0, 0]
    points[0, 0, 1:3] = P[1]
    others, lengths = Q[:4].reshape(1, 2, 4, 3), np.array([[3, 1]])
    kernel = GeneralizedPreferential(BagMean(BASE))
    value = matrix(kernel, (points, lengths), (others, lengths))
    assert (matrix(kernel, (exchange(points), exchange(lengths)), (others, lengths)) == -value).all()
    assert np.isfinite(value).all() and value != 0


def test_utility_of_a_function():
    kernel, base = KERNELS["preferential"], RBF(1.2, 1.7)
    found, items, weights = kernel.utility(jnp.asarray(Q), jnp.asarray(COEFFICIENTS))
    assert found is kernel.kernel
    values = [np.asarray(matrix(base, P[:, i], items)) @ weights for i in (0, 1)]
    assert values[0] - values[1] == pytest.approx(np.asarray(matrix(kernel, P, Q)) @ COEFFICIENTS, abs=1e-13)


@pytest.mark.slow
def test_landmarks_of_items_become_pairs_of_landmarks():
    """With Nystrom's method on items a function of any number of matches is one of q (q - 1) / 2 pairs."""
    landmarks, coefficients = Q[:4, 0], np.stack([COEFFICIENTS, np.ones(6)], axis=1)
    kernel = GeneralizedPreferential(Nystrom(RBF(1.2, 1.7), landmarks))
    simpler, points, weights = eqx.filter_jit(lambda: kernel.unfold(P, coefficients))()
    assert points.shape == (6, 2, 3)
    assert jax.tree.structure(simpler) == jax.tree.structure(KERNELS["generalized"])
    sections = [np.asarray(matrix(RBF(1.2, 1.7), landmarks, P[:, i])) for i in (0, 1)]
    b = [np.linalg.solve(matrix(RBF(1.2, 1.7), landmarks, landmarks), part) for part in sections]
    queries = [np.asarray(matrix(RBF(1.2, 1.7), Q[:, i], landmarks)) for i in (0, 1)]
    (first, first_), (second, second_) = ([query @ part for part in b] for query in queries)
    expected = (first * second_ - first_ * second) @ coefficients
    # Tolerance: the landmarks' matrix has a condition number below 1e3.
    assert matrix(simpler, Q, points) @ weights == pytest.approx(expected, abs=1e-11)


@pytest.mark.slow
def test_functions_with_draws():
    lengthscales = jnp.array([[0.8, 1.2]])
    kernel = Contextual(GeneralizedPreferential(RBF(lengthscales) + 0.3), RBF(0.9))
    coefficients = jnp.sin(jnp.arange(12.0)).reshape(1, 2, 6)
    function = RKHSFunction.over_draws(kernel, (P, USERS), coefficients, batch_shape=(1, 2))
    values = function((Q, USERS))
    single = Contextual(GeneralizedPreferential(RBF(1.2) + 0.3), RBF(0.9))
    expected = np.asarray(matrix(single, (Q, USERS), (P, USERS))) @ coefficients[0, 1]
    assert values[0, 1] == pytest.approx(np.asarray(expected), abs=1e-13)


def test_priors_inside():
    kernel = GeneralizedPreferential(RBF(dist.LogNormal(0.0, 1.0)) + dist.HalfNormal(1.0))
    assert list(prior_sites("k", kernel)) == ["k.kernel.kernels.0.lengthscale", "k.kernel.kernels.1.variance"]
    assert "HalfNormal" in repr(kernel)
    with pytest.raises(TypeError, match=r"kpp\.sample"):
        kernel.gram(P)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: KERNELS["generalized"](P[0], Q),
            r"`x1` must hold pairs .* \(m, 2, d\).* got \(2, 3\).*`pair\[None\]`",
        ),
        (lambda: KERNELS["preferential"].gram(np.zeros((6, 3, 2))), r"`x` must hold pairs .* got \(6, 3, 2\)"),
        (lambda: PairProduct(BASE).gram(np.zeros((6, 3))), r"`x` must hold pairs of items for PairProduct"),
        (lambda: Contextual(KERNELS["preferential"], BASE).gram(P), r"the tuple \(pairs, contexts\) .* array of shape"),
        (
            lambda: Contextual(KERNELS["preferential"], BASE).gram((P, USERS[:4])),
            r"one context per pair.*\(4, 2\)",
        ),
        (lambda: BagMean(BASE).gram(P), r"the tuple \(points \(n, L, d\), lengths \(n,\)\), got .* \[\(6, 2, 3\)\]"),
        (lambda: BagMean(BASE).gram((P, np.array([1, 2, 3, 1, 1, 1]))), r"lengths from 1 to 2, got from 1 to 3"),
        (lambda: pad_bags([P[0], np.zeros((0, 3))]), r"at least one point .* \[\(2, 3\), \(0, 3\)\]"),
    ],
)
def test_wrong_shapes_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_what_is_no_kernel_is_refused():
    for cls in (Preferential, GeneralizedPreferential, SkewSymmetrized, BagMean):
        with pytest.raises(TypeError, match="`kernel` must be a kernel, got int"):
            cls(3)
    for call, name in (
        (lambda: PairProduct(3), "first"),
        (lambda: PairProduct(BASE, 3), "second"),
        (lambda: Contextual(KERNELS["generalized"], 3), "context_kernel"),
    ):
        with pytest.raises(TypeError, match=f"`{name}` must be a kernel, got int"):
            call()
    with pytest.raises(TypeError, match="with features, such as RandomFourier or Nystrom, got RBF"):
        GeneralizedPreferentialFeatures(BASE)


@pytest.mark.parametrize("kernel", [KERNELS["generalized"], Contextual(KERNELS["preferential"], BASE)])
def test_exact_explanations_are_those_of_another_explainer(kernel):
    with pytest.raises(TypeError, match='explainer "pref-shap"'):
        kernel.product_terms()
