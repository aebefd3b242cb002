"""Ridge and logistic regression of many matches by matrices of items, against the dense fits to single matches."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from scipy.special import expit

import kpp
from kpp.features import Nystrom
from kpp.inference import ConvergenceError
from kpp.kernels import RBF, Contextual, GeneralizedPreferential, Linear, Preferential
from kpp.preferences import ItemFunction, Matches
from kpp_models import (
    PreferenceLogistic,
    PreferenceRidge,
    duel,
    preference_matrix,
    sample_preferences,
)
from kpp_models.estimators import BradleyTerry, match_rows
from kpp_models.preferences import many_matches
from kpp_models.preferences.pairs import pair_marginal
from kpp_models.preferences.pairs.pair_marginal import PairMarginal
from kpp_pref_shap import PreferentialItems, PrefShap
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

CONTEXTS = RNG.normal(size=(4, 2))[RNG.integers(0, 4, 40)]
NEW_CONTEXTS = np.concatenate([CONTEXTS[:3], RNG.normal(size=(3, 2))])  # known ones and new ones
IN_CONTEXTS = Matches.create(ITEMS, FIRST, SECOND, Y, CONTEXTS, tie=0.5)
#: A kernel of contexts without finite features, for a sum of kernels of items, and one with them.
CONTEXTUAL = Contextual(
    2.0 * GeneralizedPreferential(Nystrom(RBF(0.8), ITEMS[:4])) + Preferential(RBF(0.7)), RBF(1.2)
) + 0.5 * Contextual(Preferential(RBF(0.7)), Linear() + 0.3)


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


def fitted(model, matches):
    """The fitted function, without the groups of a fit."""
    prepared, data, _ = model.prepare(matches)
    return prepared.item_function(data)


def preferences_at_new(function):
    """The fitted values at the new pairs."""
    return np.asarray(function.preference_matrix(NEW.reshape(12, 2)))[np.arange(0, 12, 2), np.arange(1, 12, 2)]


def dense_ridge(gram, total):
    """The coefficients of single matches."""
    return np.linalg.solve(gram + total * np.eye(len(gram)), 2 * Y - 1)


def dense_logistic(gram, total, y=Y):
    """The coefficients of single matches, by Newton's method on the stationary equation, which has one solution."""
    alpha = np.zeros(len(gram))
    for _ in range(50):
        chance = expit(gram @ alpha)
        jacobian = total * np.eye(len(gram)) + (chance * (1 - chance))[:, None] * gram
        alpha -= np.linalg.solve(jacobian, total * alpha - y + chance)
    assert np.abs(total * alpha - y + expit(gram @ alpha)).max() < 1e-13
    return alpha


@pytest.mark.slow
def test_ridge_is_the_dense_fit_to_single_matches(compare):
    alpha = dense_ridge(compare(POINTS, POINTS), 40 * 0.01)
    found = fitted(PreferenceRidge(BOTH, 0.01, preconditioner_rank=3), MATCHES)
    # The residual is 1e-10 of the largest outcome, and the system has no eigenvalue below 1.
    np.testing.assert_allclose(preferences_at_new(found), compare(NEW, POINTS) @ alpha, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_logistic_is_the_dense_fit_to_single_matches(compare):
    alpha = dense_logistic(compare(POINTS, POINTS), 40 * 0.003)
    found = fitted(PreferenceLogistic(BOTH, 0.003, preconditioner_rank=3), MATCHES)
    # The last step was below 1e-8, and Newton's method squares what is missing.
    np.testing.assert_allclose(preferences_at_new(found), compare(NEW, POINTS) @ alpha, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_fits_in_contexts_are_the_dense_fits_to_single_matches():
    matrix = jax.jit(lambda a, b: CONTEXTUAL(a, b))
    gram = np.asarray(matrix((POINTS, CONTEXTS), (POINTS, CONTEXTS)))
    sections = np.asarray(matrix((NEW, NEW_CONTEXTS), (POINTS, CONTEXTS)))
    ridge = fitted(PreferenceRidge(CONTEXTUAL, 0.01, preconditioner_rank=3), IN_CONTEXTS)
    expected = sections @ dense_ridge(gram, 40 * 0.01)
    np.testing.assert_allclose(ridge((NEW, NEW_CONTEXTS)), expected, rtol=1e-8, atol=1e-8)
    logistic = fitted(PreferenceLogistic(CONTEXTUAL, 0.003, preconditioner_rank=3), IN_CONTEXTS)
    expected = sections @ dense_logistic(gram, 40 * 0.003)
    np.testing.assert_allclose(logistic((NEW, NEW_CONTEXTS)), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_the_side_that_a_match_is_told_from_changes_nothing():
    mirrored = Matches.create(ITEMS, SECOND, FIRST, 1.0 - Y, tie=0.5)
    model = PreferenceRidge(BOTH, 0.01, preconditioner_rank=3)
    assert np.array_equal(fitted(model, mirrored).coefficients, fitted(model, MATCHES).coefficients)


@pytest.fixture(scope="module")
def in_contexts():
    kernel = Contextual(GeneralizedPreferential(RBF(0.8)), RBF(1.2))
    model = PreferenceLogistic(kernel, 0.003, preconditioner_rank=3)
    return model.fit(jax.random.key(0), IN_CONTEXTS, inference=kpp.MAP(progress=False), num_prior_samples=0)


@pytest.mark.slow
def test_a_fit_in_contexts_answers_queries_and_is_saved(in_contexts, tmp_path):
    fit = in_contexts
    g = fit.model.item_function(fit.data)
    expected = np.asarray(g((NEW, NEW_CONTEXTS)))
    predicted = fit.predict((NEW, NEW_CONTEXTS))
    np.testing.assert_allclose(predicted["mean"].values[0, 0], expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(predicted["probability"].values[0, 0], expit(expected), rtol=1e-12)
    function = fit.function()
    np.testing.assert_allclose(function((NEW, NEW_CONTEXTS))[0, 0], expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ItemFunction.of(function)((NEW, NEW_CONTEXTS)), expected, rtol=1e-10, atol=1e-12)

    found = duel(fit, NEW[:, 0], NEW[:, 1], contexts=NEW_CONTEXTS)
    assert sorted(found.data_vars) == ["mean", "probability"]
    np.testing.assert_allclose(found["mean"], expected, rtol=1e-12, atol=1e-12)
    square = preference_matrix(fit, IN_CONTEXTS, context=CONTEXTS[0])["mean"].values[0, 0]
    pairs = np.stack([np.repeat(ITEMS, 12, axis=0), np.tile(ITEMS, (12, 1))], axis=1)
    np.testing.assert_allclose(square.ravel(), g((pairs, np.tile(CONTEXTS[0], (144, 1)))), rtol=1e-10, atol=1e-12)
    with pytest.raises(TypeError, match="`fit` must be of a model of preferences such as kpp_models.GPGP"):
        sample_preferences(fit, jax.random.key(0), ITEMS, 2, context=CONTEXTS[0])

    fit.save(tmp_path / "fit.nc")
    loaded = kpp.Fit.load(tmp_path / "fit.nc")
    assert loaded.predict((NEW, NEW_CONTEXTS)).equals(predicted)


@pytest.mark.slow
def test_explanations_add_up_to_the_preference(in_contexts):
    explainer = PrefShap(PreferentialItems(ITEMS[:5]), progress=False)
    values = explainer.explain(in_contexts, (NEW, NEW_CONTEXTS)).values.values
    mean = in_contexts.predict((NEW, NEW_CONTEXTS))["mean"].values
    # Both sums have some hundred products of numbers near 1.
    np.testing.assert_allclose(values.sum(axis=-1), mean, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_leave_one_out_of_logistic_is_the_cavity_of_the_dense_process(compare):
    """As for KernelLogistic: single matches, each of them a Bernoulli trial."""
    pairs = np.unique(np.sort(np.stack([FIRST, SECOND], axis=1), axis=1), axis=0)  # each pair meets once
    y = np.random.default_rng(8).integers(0, 2, len(pairs)).astype(float)
    model, data, _ = PreferenceLogistic(BOTH, 0.01).prepare(Matches.create(ITEMS, *pairs.T, y))

    covariance = compare(ITEMS[pairs], ITEMS[pairs]) / (len(pairs) * 0.01)
    alpha = dense_logistic(covariance, 1.0, y)
    weight = expit(covariance @ alpha) * expit(-covariance @ alpha)
    posterior = covariance - covariance @ np.linalg.solve(covariance + np.diag(1 / weight), covariance)
    cavity = 1 / (1 / np.diag(posterior) - weight)  # the variance of the law without a match
    held_out = covariance @ alpha - cavity * alpha  # `alpha` is the slope of the log density
    expected = np.log(expit(np.where(y == 1, held_out, -held_out)))
    # Two factorizations of matrices with condition numbers near 100.
    np.testing.assert_allclose(model.log_likelihood({}, data)["y"], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_leaving_out_a_pair_is_a_fit_to_the_other_pairs(compare):
    model, data, _ = PreferenceRidge(BOTH, 0.01).prepare(MATCHES)
    points, counts = np.asarray(MATCHES.points), np.asarray(MATCHES.counts)
    outcomes = np.asarray(MATCHES.wins - MATCHES.losses) / counts
    system = compare(points, points) + np.diag(40 * 0.01 / counts)
    residuals = np.zeros(len(counts))
    for i in range(len(counts)):
        rest = np.arange(len(counts)) != i
        section = compare(points[i : i + 1], points[rest])[0]
        residuals[i] = outcomes[i] - section @ np.linalg.solve(system[np.ix_(rest, rest)], outcomes[rest])
    assert counts.max() > 1
    expected = scipy.stats.norm.logpdf(residuals, scale=np.sqrt(np.mean(counts * residuals**2) / counts))
    np.testing.assert_allclose(model.log_likelihood({}, data)["y"], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_evidence_of_ridge_is_a_normal_density(kernel):
    model, data, _ = PreferenceRidge(kernel, 0.01).prepare(MATCHES)
    law = PairMarginal(model.item_function(data), model.process(data["trials"])[1])
    gram = np.asarray(jax.jit(lambda points: kernel.gram(points))(MATCHES.points))
    covariance = gram + np.diag(40 * 0.01 / np.asarray(MATCHES.counts))
    expected = scipy.stats.multivariate_normal.logpdf(data["y"], cov=covariance)
    np.testing.assert_allclose(jax.jit(lambda law, y: law.log_prob(y))(law, data["y"]), expected, rtol=1e-8)


@pytest.mark.slow
def test_draws_from_the_prior_have_the_covariance_of_the_kernel():
    model, data, _ = PreferenceRidge(CONTEXTUAL, 1e-9).prepare(IN_CONTEXTS)
    law = PairMarginal(model.item_function(data), model.process(data["trials"])[1])
    draws = np.asarray(jax.jit(lambda law: law.sample(jax.random.key(0), (20_000,)))(law))
    gram = np.asarray(jax.jit(lambda inputs: CONTEXTUAL.gram(inputs))(IN_CONTEXTS.inputs))
    # The standard deviation of an entry is at most sqrt(2 / 20000) = 1% of the largest variance; 5 of them.
    np.testing.assert_allclose(np.cov(draws.T), gram, atol=0.05 * gram.max())


@pytest.mark.slow
def test_too_many_pairs_have_no_evidence_and_no_pointwise_terms(monkeypatch):
    monkeypatch.setattr(pair_marginal, "_MAX_ENTRIES", 100)
    model, data, _ = PreferenceLogistic(BOTH, 0.01).prepare(MATCHES)
    assert model.log_likelihood({}, data) == {}
    law = PairMarginal(model.item_function(data), model.process(data["trials"])[1])
    with pytest.raises(ValueError, match="the evidence of .* pairs needs a matrix"):
        law.log_prob(data["y"])


@pytest.mark.slow
def test_the_choice_from_a_grid_is_the_smallest_held_out_loss(compare):
    model = PreferenceLogistic(BOTH, 0.01, preconditioner_rank=3, max_steps=20)
    values = [1e-9, 0.01, 0.1]  # conjugate gradients do not converge for the first one
    found = model.select(jax.random.key(3), MATCHES, grid={"regularization": values}, train_fraction=0.75)
    train, test = MATCHES.split(jax.random.key(3), 0.75)
    known, labels = train.single_matches()
    points, at = np.asarray(train.points)[known], np.asarray(test.points)
    rows, y = test.single_matches()
    losses = [np.inf]
    for value in values[1:]:
        g = compare(at, points) @ dense_logistic(compare(points, points), len(labels) * value, labels)
        losses.append(-np.mean(y * np.log(expit(g[rows])) + (1 - y) * np.log(expit(-g[rows]))))
    np.testing.assert_allclose(found.scores, losses, rtol=1e-6)  # of conjugate gradients
    assert found.chosen == {"regularization": values[int(np.argmin(losses))]}
    assert float(found.model.regularization) == values[int(np.argmin(losses))]


@pytest.mark.slow
def test_what_does_not_converge_is_an_error(monkeypatch):
    short = {"preconditioner_rank": 3, "max_steps": 1}
    with pytest.raises(ConvergenceError, match="ended after 1 steps with a relative residual .* raise `max_steps`"):
        fitted(PreferenceRidge(BOTH, 1e-6, **short), MATCHES)
    monkeypatch.setattr(many_matches, "_MAX_NEWTON", 1)
    with pytest.raises(ConvergenceError, match="Newton's method has not converged in 1 steps"):
        fitted(PreferenceLogistic(BOTH, 0.003, preconditioner_rank=3), MATCHES)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="`kernel` must have a kernel of contexts in every term"):
        PreferenceRidge(BOTH + Contextual(BOTH, RBF(1.0)), 0.1).prepare(IN_CONTEXTS)
    with pytest.raises(ValueError, match="`kernel` must have no kernel of contexts"):
        PreferenceRidge(Contextual(BOTH, RBF(1.0)), 0.1).prepare(MATCHES)
    many = Matches.create(ITEMS, np.tile(FIRST, 3), np.tile(SECOND, 3), contexts=np.arange(120.0)[:, None])
    with pytest.raises(ValueError, match="120 different contexts, more than 100; got RBF.*Nystrom"):
        PreferenceRidge(Contextual(BOTH, RBF(1.0)), 0.1).prepare(many)
    with pytest.raises(TypeError, match="PreferenceLogistic is a fit without priors; kpp_models.PreferenceGP takes"):
        PreferenceLogistic(Preferential(RBF(dist.LogNormal(0.0, 1.0))), 0.1)
    for kernel in (RBF(1.0), Contextual(2.0 * Contextual(BOTH, RBF(1.0)), RBF(1.0))):
        with pytest.raises(TypeError, match="`kernel` must be Preferential or GeneralizedPreferential"):
            PreferenceRidge(kernel, 0.1)
    with pytest.raises(ValueError, match="`regularization` must be positive"):
        PreferenceLogistic(BOTH, 0.0)
    with pytest.raises(ValueError, match="`max_steps` must be at least 1, got 0"):
        PreferenceLogistic(BOTH, 0.1, max_steps=0)


@pytest.mark.nightly
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
        values = np.asarray(fitted(PreferenceLogistic(kernel, 1e-3), train)(test.points))
        accuracy[type(kernel).__name__] = np.sum(np.where(values > 0, test.wins, test.losses)) / test.num_matches
    assert accuracy["GeneralizedPreferential"] > 0.95
    assert accuracy["Preferential"] < 0.75


@pytest.mark.nightly
def test_contexts_improve_held_out_predictions():
    """In one of two contexts the ranking is reversed, so that a model without contexts learns nothing."""
    rng = np.random.default_rng(1)
    items = rng.normal(size=(30, 2))
    first = rng.integers(0, 30, 1500)
    second = (first + rng.integers(1, 30, 1500)) % 30
    context = rng.integers(0, 2, 1500)
    odds = 2.0 * (items[first, 0] - items[second, 0]) * (1 - 2 * context)
    y = (rng.uniform(size=1500) < expit(odds)).astype(float)
    train, test = Matches.create(items, first, second, y, np.eye(2)[context]).split(jax.random.key(0), 0.7)
    model = PreferenceLogistic(Contextual(GeneralizedPreferential(RBF(2.0) + 0.5), Linear()), 1e-3)
    fit = model.fit(jax.random.key(1), train, inference=kpp.MAP(progress=False), num_prior_samples=0)
    loss = float(model.loss(test, jnp.asarray(fit.predict(test)["mean"].values[0, 0])))
    rows = match_rows(train)
    strengths = BradleyTerry(num_items=30).fit(rows.numbers, rows.y, rows.sample_weight)
    chance = strengths.predict_proba(np.asarray(test.pairs))[:, 1]
    baseline = float(model.loss(test, jnp.asarray(np.log(chance / (1 - chance)))))
    assert loss < 0.45  # the true log-odds have a log loss of 0.40
    assert baseline > 0.65
