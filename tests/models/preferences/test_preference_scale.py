"""Ridge and logistic regression of many matches by matrices of items, against the dense fits to single matches."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from kpp.features import Nystrom
from kpp.inference import ConvergenceError
from kpp.kernels import RBF, GeneralizedPreferential, Preferential
from kpp.preferences import Matches
from kpp_models import (
    KernelLogistic,
    KernelRidge,
    PreferenceLogistic,
    PreferenceRidge,
)
from kpp_models.preferences import many_matches
from oracles.kernels import rbf

RNG = np.random.default_rng(5)
ITEMS = RNG.normal(size=(12, 2))
FIRST = RNG.integers(0, 12, 40)
SECOND = (FIRST + RNG.integers(1, 12, 40)) % 12  # some pairs meet repeatedly, from either side
Y = RNG.choice([1.0, 0.5, 0.0], size=40, p=[0.5, 0.2, 0.3])
POINTS = np.stack([ITEMS[FIRST], ITEMS[SECOND]], axis=1)
MATCHES = Matches.create(ITEMS, FIRST, SECOND, Y, tie=0.5)
NEW = RNG.normal(size=(6, 2, 2))
BOTH = 2.0 * GeneralizedPreferential(RBF(0.8)) + Preferential(RBF(0.7))
NYSTROM = GeneralizedPreferential(Nystrom(RBF(0.9), ITEMS[:3]))
KERNELS = [pytest.param(BOTH, id="both"), pytest.param(NYSTROM, id="Nystrom")]


@pytest.fixture(scope="module")
def compare():
    """The kernel BOTH at pairs and pairs, in plain NumPy."""

    def matrix(p, q):
        general, utility = (
            [[rbf(p[:, i], q[:, j], lengthscale) for j in (0, 1)] for i in (0, 1)] for lengthscale in (0.8, 0.7)
        )
        product = general[0][0] * general[1][1] - general[0][1] * general[1][0]
        return 2.0 * product + utility[0][0] + utility[1][1] - utility[0][1] - utility[1][0]

    return matrix


def preferences_at_new(function):
    """The fitted values at the new pairs."""
    return np.asarray(function.preference_matrix(NEW.reshape(12, 2)))[np.arange(0, 12, 2), np.arange(1, 12, 2)]


def test_ridge_is_the_dense_fit_to_single_matches(compare):
    alpha = np.linalg.solve(compare(POINTS, POINTS) + 40 * 0.01 * np.eye(40), 2 * Y - 1)
    found = PreferenceRidge(BOTH, 0.01, preconditioner_rank=3).fit(MATCHES)
    # The residual is 1e-10 of the largest outcome, and the system has no eigenvalue below 1.
    np.testing.assert_allclose(preferences_at_new(found), compare(NEW, POINTS) @ alpha, rtol=1e-8, atol=1e-8)


def test_logistic_is_the_dense_fit_to_single_matches(compare):
    gram, total = compare(POINTS, POINTS), 40 * 0.003
    alpha = np.zeros(40)
    for _ in range(50):  # Newton's method on the stationary equation, which has one solution
        chance = expit(gram @ alpha)
        jacobian = total * np.eye(40) + (chance * (1 - chance))[:, None] * gram
        alpha -= np.linalg.solve(jacobian, total * alpha - Y + chance)
    assert np.abs(total * alpha - Y + expit(gram @ alpha)).max() < 1e-13
    found = PreferenceLogistic(BOTH, 0.003, preconditioner_rank=3).fit(MATCHES)
    # The last step was below 1e-8, and Newton's method squares what is missing.
    np.testing.assert_allclose(preferences_at_new(found), compare(NEW, POINTS) @ alpha, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_ridge_is_kernel_ridge(kernel):
    dense = KernelRidge(kernel, 0.01).function_draw({}, {"x": jnp.asarray(POINTS), "y": jnp.asarray(2 * Y - 1)})
    found = PreferenceRidge(kernel, 0.01, preconditioner_rank=3).fit(MATCHES)
    np.testing.assert_allclose(found(NEW), dense(NEW), rtol=1e-8, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_logistic_is_kernel_logistic(kernel):
    labels = jnp.asarray(np.concatenate([np.ceil(Y), np.floor(Y)]))  # a tie is one of each
    dense = KernelLogistic(kernel, 0.003).function_draw({}, {"x": jnp.tile(POINTS, (2, 1, 1)), "y": labels})
    found = PreferenceLogistic(kernel, 0.003, preconditioner_rank=3).fit(MATCHES)
    np.testing.assert_allclose(found(NEW), dense(NEW), rtol=1e-8, atol=1e-8)


def test_the_side_that_a_match_is_told_from_changes_nothing():
    mirrored = Matches.create(ITEMS, SECOND, FIRST, 1.0 - Y, tie=0.5)
    model = PreferenceRidge(BOTH, 0.01, preconditioner_rank=3)
    assert np.array_equal(model.fit(mirrored).coefficients, model.fit(MATCHES).coefficients)


def test_what_does_not_converge_is_an_error(monkeypatch):
    short = {"preconditioner_rank": 3, "max_steps": 1}
    with pytest.raises(ConvergenceError, match="ended after 1 steps with a relative residual .* raise `max_steps`"):
        PreferenceRidge(BOTH, 1e-6, **short).fit(MATCHES)
    monkeypatch.setattr(many_matches, "_MAX_NEWTON", 1)
    with pytest.raises(ConvergenceError, match="Newton's method has not converged in 1 steps"):
        PreferenceLogistic(BOTH, 0.003, preconditioner_rank=3).fit(MATCHES)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="`matches` must have no contexts for PreferenceRidge"):
        PreferenceRidge(BOTH, 0.1).fit(Matches.create(ITEMS, FIRST, SECOND, contexts=FIRST[:, None]))
    with pytest.raises(TypeError, match="`kernel` must be Preferential or GeneralizedPreferential"):
        PreferenceRidge(RBF(1.0), 0.1)
    with pytest.raises(ValueError, match="`regularization` must be positive"):
        PreferenceLogistic(BOTH, 0.0)
    with pytest.raises(ValueError, match="`max_steps` must be at least 1, got 0"):
        PreferenceLogistic(BOTH, 0.1, max_steps=0)


@pytest.mark.slow
def test_hundreds_of_matches_learn_a_circle():
    """Rock, paper, scissors with noise in the features: no utility can tell who wins."""
    rng = np.random.default_rng(0)
    kind = np.arange(30) % 3
    items = np.eye(3)[kind][:, :2] + 0.1 * rng.normal(size=(30, 2))
    first, second = rng.integers(0, 30, (2, 600))
    decided = kind[first] != kind[second]
    first, second = first[decided], second[decided]
    matches = Matches.create(items, first, second, ((kind[first] - kind[second]) % 3 == 1).astype(float))
    train, test = matches.split(jax.random.key(0), 0.5, by="pair")
    accuracy = {}
    for kernel in (GeneralizedPreferential(RBF(0.7)), Preferential(RBF(0.7))):
        values = np.asarray(PreferenceLogistic(kernel, 1e-3).fit(train)(test.points))
        accuracy[type(kernel).__name__] = np.sum(np.where(values > 0, test.wins, test.losses)) / test.num_matches
    assert accuracy["GeneralizedPreferential"] > 0.95
    assert accuracy["Preferential"] < 0.75
