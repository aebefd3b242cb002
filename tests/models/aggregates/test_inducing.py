"""Inducing points: bounds against reference values and dense algebra, and estimates of the bags' Gram matrix."""

from __future__ import annotations

import functools
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist

from kpp.data.bags import Bags
from kpp.features import RandomFourier
from kpp.gp.inducing.points import (
    CollapsedBound,
    InducingSettings,
    code_columns,
    k_means_centers,
    place_inducing,
    trace_deficit,
)
from kpp.gp.laws.gaussian_laws import gaussian_log_density
from kpp.kernels import RBF, Categorical, Constant, Linear, Matern, Matern12, Matern32, ProductKernel
from kpp_models import BaggGP
from kpp_models.aggregates.grams.bag_grams import BagGram, approximate_gram, gram_data
from kpp_models.aggregates.grams.prior import Basis
from oracles.inducing_bounds import elbo, optimal_q
from oracles.kernels import rbf

SIZES = [1, 2, 3, 6, 8]
RNG = np.random.default_rng(3)
BAG = np.repeat(np.arange(5), SIZES)
POINTS = RNG.normal(size=(20, 3))
KERNEL = Matern32(np.array([0.8, 1.1])).on((0, 1)) * 0.7 + RBF(1.5, 0.4).on(2) * Matern32(2.0) + Constant(0.2)


@pytest.fixture(scope="module")
def bags():
    return Bags.create(POINTS, BAG)


@pytest.fixture(scope="module")
def vectors():
    with np.load(Path(__file__).parents[2] / "data" / "cmp.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def matrices(vectors):
    """The prior matrices of the reference problem: A, K, B, G."""
    w, x, lengthscale = vectors["in_w"], vectors["in_X"], vectors["in_lx"]
    return vectors["out_A"], rbf(w, w, lengthscale), rbf(w, x, lengthscale), rbf(x, x, lengthscale)


bound_of, best_q, log_density = map(eqx.filter_jit, (elbo, optimal_q, gaussian_log_density))


def _noise(vectors, suffix):
    weights, variance = vectors["out_A"], float(vectors["in_hr2"]) if suffix else 0.0
    return vectors["in_s2"] * np.eye(5) + variance * weights.T @ weights


class TestBounds:
    @pytest.mark.slow_variants("", "_hr")
    @pytest.mark.parametrize("suffix", ["", "_hr"])
    def test_optimum_and_bounds_are_the_reference_ones(self, vectors, matrices, suffix):
        weights, gram, sections, bag_gram = matrices
        y, nu, noise = vectors["in_z"], np.zeros(5), _noise(vectors, suffix)
        eta, sigma = best_q(y, nu, weights, gram, sections, noise)
        best = bound_of(y, nu, weights, gram, sections, bag_gram, noise, eta, sigma)
        other = bound_of(y, nu, weights, gram, sections, bag_gram, noise, vectors["in_eta0"], vectors["in_Sig0"])
        for value, name in ((eta, "eta"), (sigma, "Sig"), (best, "elbo_opt"), (other, "elbo_at_eta0")):
            np.testing.assert_allclose(value, vectors[f"out_{name}{suffix}"], rtol=1e-7, atol=1e-10)

    @pytest.mark.parametrize("suffix", ["", "_hr"])
    def test_collapsed_bound_is_the_bound_of_the_best_q(self, vectors, matrices, suffix):
        np.testing.assert_allclose(_collapsed(vectors, matrices, suffix), vectors[f"out_elbo_opt{suffix}"], rtol=1e-7)

    def test_with_all_points_induced_it_is_the_evidence(self, vectors):
        gram = rbf(vectors["in_X"], vectors["in_X"], vectors["in_lx"])
        found = _collapsed(vectors, (vectors["out_A"], gram, gram, gram), "_hr")
        # The kernel matrix is inverted once and multiplied again: 1e-8 allows for its condition number.
        np.testing.assert_allclose(found, vectors["out_evidence_hr"], rtol=1e-8)

    @pytest.mark.slow
    def test_no_q_near_the_optimum_is_better(self, vectors, matrices):
        weights, gram, sections, bag_gram = matrices
        y, nu, noise = vectors["in_z"], np.full(5, 0.3), _noise(vectors, "_hr")
        eta, sigma = best_q(y, nu, weights, gram, sections, noise)

        @jax.jit
        @jax.value_and_grad
        def bound(moves):
            root = jnp.linalg.cholesky(sigma) @ (jnp.eye(3) + moves[1])
            return elbo(y, nu, weights, gram, sections, bag_gram, noise, eta + moves[0], root @ root.T)

        best, slope = bound((jnp.zeros(3), jnp.zeros((3, 3))))
        np.testing.assert_allclose(jnp.concatenate([slope[0], jnp.ravel(slope[1])]), 0.0, atol=1e-10)  # rounding
        rng = np.random.default_rng(0)
        for _ in range(5):
            moves = (0.1 * rng.normal(size=3), 0.1 * rng.normal(size=(3, 3)))
            assert bound(moves)[0] < best

    def test_bound_is_below_the_evidence(self, vectors, matrices):
        weights, _, _, bag_gram = matrices
        evidence = log_density(vectors["in_z"], weights.T @ bag_gram @ weights + _noise(vectors, ""))
        assert _collapsed(vectors, matrices, "") < evidence

    @pytest.mark.slow
    def test_collapsed_site_draws_from_its_normal_part(self):
        rng = np.random.default_rng(1)
        low_rank, noise = rng.normal(size=(2, 3)), np.diag([0.5, 1.0, 2.0])
        site = CollapsedBound(np.array([1.0, -1.0, 0.0]), low_rank, noise, 3.0)
        draws = np.asarray(site.sample(jax.random.key(0), (4000,)))
        covariance = low_rank.T @ low_rank + noise
        error = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)) / 4000)  # at least that of a covariance
        assert np.all(np.abs(draws.mean(0) - site.mean) < 4 * np.sqrt(np.diag(covariance) / 4000))
        assert np.all(np.abs(np.cov(draws.T) - covariance) < 4 * np.sqrt(2) * error)
        np.testing.assert_allclose(site.variance, np.diag(covariance))
        assert site.log_prob(draws[:2]).shape == (2,)


def _collapsed(vectors, matrices, suffix):
    """The log density of the reference targets."""
    weights, gram, sections, bag_gram = matrices
    low_rank = np.linalg.solve(np.linalg.cholesky(gram), sections @ weights)
    return _bound(vectors["in_z"], low_rank, _noise(vectors, suffix), weights.T @ bag_gram @ weights)


@jax.jit
def _bound(y, low_rank, noise, prior):
    return CollapsedBound(np.zeros(5), low_rank, noise, trace_deficit(noise, prior, low_rank)).log_prob(y)


class TestPlacement:
    def test_centers_are_those_of_separate_clusters(self):
        centers = np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 1.0], [100.0, 1.0]])
        jitter = np.random.default_rng(0).normal(size=(80, 2)) * np.array([1.0, 0.01])  # features of unequal units
        points = np.repeat(centers, 20, axis=0) + jitter
        placed = place_inducing(InducingSettings(num=4), Bags.of_single_points(points).points)
        expected = points.reshape(4, 20, 2).mean(axis=1)
        order = [int(np.argmin(np.abs((np.asarray(placed) - c) / [100.0, 1.0]).sum(axis=1))) for c in expected]
        np.testing.assert_allclose(placed[jnp.asarray(order)], expected, rtol=1e-10)

    def test_as_many_as_there_are_points_are_the_points(self, bags):
        placed = place_inducing(InducingSettings(num=20), bags.points)
        np.testing.assert_array_equal(placed, np.unique(POINTS, axis=0))

    def test_same_seed_same_points(self, bags):
        first, second = (place_inducing(InducingSettings(num=5, seed=4), bags.points) for _ in range(2))
        np.testing.assert_array_equal(first, second)

    def test_many_points_are_thinned_first(self):
        points = np.random.default_rng(0).uniform(size=(30_000, 1))
        placed = place_inducing(InducingSettings(num=4), Bags.create(points, np.arange(30_000) // 3).points)
        # Four clusters of a uniform sample lie at an eighth, three eighths, ..., but for the error of the sample.
        np.testing.assert_allclose(np.sort(placed, axis=0)[:, 0], [0.125, 0.375, 0.625, 0.875], atol=0.02)

    def test_learned_points_have_a_prior_about_the_placed_ones(self, bags):
        prior = place_inducing(InducingSettings(points=POINTS[:4], learn=True), bags.points)
        np.testing.assert_array_equal(prior.mean, POINTS[:4])
        np.testing.assert_allclose(prior.variance, np.broadcast_to(POINTS.var(axis=0) / 4, (4, 3)))

    def test_prior_is_kept(self, bags):
        prior = dist.Normal(0.0, 1.0).expand([4, 3])
        assert place_inducing(InducingSettings(points=prior), bags.points) is prior

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            (InducingSettings(), "give either `inducing_points` or `num_inducing`, got none"),
            (InducingSettings(points=POINTS, num=3), "got both"),
            (InducingSettings(num=21), "`num_inducing` must be at most the 20 different points, got 21"),
            (InducingSettings(num=0), "`num_inducing` must be at least 1, got 0"),
            (InducingSettings(points=POINTS[:, :2]), "`inducing_points` must have 3 columns"),
            (InducingSettings(points=dist.Normal(0.0, 1.0).expand([4, 2])), r"must have shape \(w, 3\)"),
        ],
    )
    def test_bad_settings_are_refused(self, bags, settings, message):
        with pytest.raises(ValueError, match=message):
            place_inducing(settings, bags.points)


class TestCodes:
    """Columns that a kernel compares for equality."""

    def test_columns_of_codes_are_whole_numbers_that_the_kernel_does_not_read_as_numbers(self):
        points = np.array([[0.0, 1.0, 0.5, 3.0], [1.0, 2.0, 1.5, 4.0]])
        assert code_columns(RBF(), points) == ()
        assert code_columns(RBF().on(3) * Categorical().on((0, 1)), points) == (0, 1)
        assert code_columns(RBF().on(0) + Categorical().on((0, 1)), points) == (1, 3)
        assert code_columns(RBF().on((0, 1)), points) == (3,)  # column 2, which is ignored as well, holds fractions

    @pytest.mark.parametrize("relabel", [(0.0, 1.0, 2.0), (7.0, -3.0, 1.0)])
    def test_centers_of_clusters_have_the_codes_of_their_points_for_any_labels(self, relabel):
        rng = np.random.default_rng(0)
        codes, sides = np.repeat([0, 1, 2], 40), np.tile(np.repeat([-9.0, 9.0], 20), 3)
        numbers = sides + 0.01 * rng.normal(size=120)
        points = np.stack([numbers, np.array(relabel)[codes]], axis=1)
        placed = np.asarray(place_inducing(InducingSettings(num=6), points, (1,)))
        expected = [(numbers[20 * j : 20 * (j + 1)].mean(), points[20 * j, 1]) for j in range(6)]
        order = lambda rows: np.array(sorted((code, number) for number, code in rows))  # noqa: E731
        np.testing.assert_allclose(order(placed), order(expected), rtol=1e-10)

    def test_all_codes_of_a_center_are_those_of_one_point(self):
        points = np.random.default_rng(1).normal(size=(300, 4))
        points[:, [1, 3]] = np.random.default_rng(2).integers(0, 5, size=(300, 1)) * np.array([1.0, 10.0])
        placed = k_means_centers(points, 20, 0, (1, 3))
        np.testing.assert_array_equal(placed[:, 3], 10 * placed[:, 1])
        assert len(np.unique(placed[:, 1])) == 5

    def test_numbers_alone_are_placed_as_without_codes(self):
        first = place_inducing(InducingSettings(num=5), POINTS)
        np.testing.assert_array_equal(
            first, place_inducing(InducingSettings(num=5), POINTS, code_columns(RBF(), POINTS))
        )

    def test_many_categories_and_one_category_are_placed(self):
        points = np.stack([np.arange(500.0), np.repeat(7.0, 500), np.linspace(0, 1, 500)], axis=1)
        placed = k_means_centers(points, 10, 0, (0, 1))
        assert np.isin(placed[:, 0], points[:, 0]).all()
        np.testing.assert_array_equal(placed[:, 1], 7.0)

    def test_codes_are_not_learned(self):
        with pytest.raises(ValueError, match=r"`learn_inducing` cannot move codes .* columns \[1\]"):
            place_inducing(InducingSettings(num=5, learn=True), np.round(POINTS), (1,))

    def test_inducing_points_that_are_not_there_are_not_learned(self):
        with pytest.raises(ValueError, match="`learn_inducing` needs `num_inducing` or `inducing_points`, got neither"):
            BaggGP(KERNEL, noise_variance=1.0, learn_inducing=True)


def _estimate(settings, bags, kernel=KERNEL):
    return np.asarray(_compiled(settings, kernel, bags, gram_data(settings, bags)))


_compiled = eqx.filter_jit(approximate_gram)


@pytest.fixture(scope="module")
def exact():
    average = (np.arange(5)[:, None] == BAG) / np.asarray(SIZES)[:, None]
    return average @ np.asarray(eqx.filter_jit(KERNEL)(POINTS, POINTS)) @ average.T


class TestGram:
    @pytest.mark.slow
    @pytest.mark.parametrize("settings", [BagGram(), BagGram(kind="sampled", size=8)])
    def test_exact_and_sampled_in_full_are_the_dense_matrix(self, bags, exact, settings):
        np.testing.assert_allclose(_estimate(settings, bags), exact, rtol=1e-12)

    @pytest.mark.slow
    def test_sampled_is_unbiased_and_nearer_with_inducing_points(self, bags, exact):
        settings = [BagGram(kind="sampled", size=2, seed=seed) for seed in range(60)]
        arrays = jax.tree.map(lambda *parts: jnp.stack(parts), *[gram_data(each, bags) for each in settings])
        basis = Basis.build(KERNEL, jnp.asarray(POINTS[::2]), bags)

        @jax.jit
        def estimates(arrays):
            estimate = functools.partial(approximate_gram, settings[0], KERNEL, bags)
            return jax.lax.map(lambda part: (estimate(part), estimate(part, basis)), arrays)

        plain, helped = map(np.asarray, estimates(arrays))
        error = plain.std(axis=0) / np.sqrt(60)
        assert np.all(np.abs(plain.mean(axis=0) - exact) < 4 * error + 1e-12)
        assert np.abs(helped - exact).mean() < 0.5 * np.abs(plain - exact).mean()
        unexplained = helped - np.asarray(basis.sections.T @ basis.sections)
        assert np.linalg.eigvalsh(unexplained).min() > -1e-9

    @pytest.mark.slow
    def test_sampled_in_full_is_exact_with_inducing_points_too(self, bags, exact):
        settings = BagGram(kind="sampled", size=8)
        basis = Basis.build(KERNEL, jnp.asarray(POINTS[::2]), bags)
        found = _compiled(settings, KERNEL, bags, gram_data(settings, bags), basis)
        np.testing.assert_allclose(found, exact, rtol=1e-8)  # the matrix of the inducing points has a condition number

    @pytest.mark.nightly
    def test_fourier_is_near(self, bags, exact):
        found = _estimate(BagGram(kind="fourier", size=2000), bags)
        # A term's error has a standard deviation of at most its variance over the root of twice the frequencies.
        np.testing.assert_allclose(found, exact, atol=4 * (0.7 + 0.4) / np.sqrt(2 * 2000))
        assert np.linalg.eigvalsh(found).min() > -1e-12

    @pytest.mark.slow
    def test_fourier_is_not_below_what_inducing_points_explain(self, bags, exact):
        basis = Basis.build(KERNEL, jnp.asarray(POINTS[::2]), bags)
        settings = BagGram(kind="fourier", size=2000)
        found = _compiled(settings, KERNEL, bags, None, basis)
        np.testing.assert_allclose(found, exact, atol=5 * 4 * (0.7 + 0.4) / np.sqrt(2 * 2000))  # 5 eigenvalues
        assert np.linalg.eigvalsh(found - basis.sections.T @ basis.sections).min() > -1e-12

    @pytest.mark.slow
    def test_fourier_takes_one_kernel_a_feature(self, bags):
        kernel = ProductKernel((RBF(0.9), Matern12(1.5), Matern(2.0, variance=0.5, nu=0.8)))
        found = _estimate(BagGram(kind="fourier", size=2000), bags, kernel)
        np.testing.assert_allclose(found, bags.gram(kernel), atol=4 * 0.5 / np.sqrt(2 * 2000))

    @pytest.mark.slow
    def test_fourier_keeps_the_frequencies_that_a_kernel_has(self, bags):
        kernel = RandomFourier.approximate(jax.random.key(0), RBF(0.8), 10, 3)
        found = _estimate(BagGram(kind="fourier", size=10), bags, kernel)
        np.testing.assert_allclose(found, eqx.filter_jit(Bags.gram)(bags, kernel), rtol=1e-10)
        with pytest.raises(ValueError, match="`gram_size` must be the 10 frequencies"):
            _estimate(BagGram(kind="fourier", size=11), bags, kernel)

    @pytest.mark.slow
    @pytest.mark.parametrize("bag_gram", ["sampled", pytest.param("fourier", marks=pytest.mark.slow)])
    def test_lengthscales_can_be_learned(self, bags, bag_gram, derivative):
        settings = BagGram(kind=bag_gram, size=3)
        arrays = gram_data(settings, bags)

        @jax.jit
        def total(lengthscale):
            kernel = RBF(lengthscale).on((0, 1)) + Matern32(2.0)
            return jnp.sum(jnp.sin(jnp.arange(25.0)).reshape(5, 5) * approximate_gram(settings, kernel, bags, arrays))

        # Differences of fourth order with a step of 1e-4 are good to 1e-9 or so.
        np.testing.assert_allclose(jax.jit(jax.grad(total))(0.9), derivative(total, 0.9), rtol=1e-7)

    def test_fourier_points_elsewhere_for_other_kernels(self, bags):
        with pytest.raises(TypeError, match="spectral density of Linear is not known.*bag_gram='sampled'"):
            _estimate(BagGram(kind="fourier", size=4), bags, RBF(1.0) + Linear(1.0))

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            (BagGram(kind="nystrom"), "`bag_gram` must be one of"),
            (BagGram(kind="sampled", size=1), "`gram_size` must be at least 2, got 1"),
            (BagGram(kind="fourier", size=0), "`gram_size` must be at least 1"),
        ],
    )
    def test_bad_settings_are_refused(self, bags, settings, message):
        with pytest.raises(ValueError, match=message):
            gram_data(settings, bags)

    def test_sampled_needs_its_points(self, bags):
        with pytest.raises(ValueError, match="`arrays` must be what `gram_data` returned, got None"):
            approximate_gram(BagGram(kind="sampled"), KERNEL, bags, None)
