"""Rankings and choices: the law by enumeration, matches, maximum likelihood, Monte Carlo, and inference."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from scipy import special, stats

import kpp
from kpp.kernels import RBF, Categorical, Contextual, Preferential
from kpp.preferences import Matches, Rankings
from kpp_models import PGP, PreferenceGP, RankingGP, choice_probabilities, duel, rank_items, sample_preferences
from kpp_models.preferences.rankings.ranking_laplace import PlackettLuce, RankingMarginal

RNG = np.random.default_rng(0)
ITEMS = RNG.normal(size=(6, 2))
RANKINGS = Rankings.create(ITEMS, [[0, 3, 1], [5, 2], [4], [1, 0, 2, 3, 4, 5], [2, 4]], [[], [0, 4], [0, 1], [], [3]])
JUDGED = dataclasses.replace(RANKINGS, contexts=jnp.array([[0.0], [2.0], [0.0], [2.0], [2.0]]))
UTILITIES = RNG.normal(size=6)
KEY = jax.random.key(0)
# The rankings again: who was ranked, best first, who else was there, and the judge.
SETS = [([0, 3, 1], [], 0), ([5, 2], [0, 4], 2), ([4], [0, 1], 0), ([1, 0, 2, 3, 4, 5], [], 2), ([2, 4], [3], 2)]


def law_of(rankings):
    y = np.asarray(rankings.order)
    return PlackettLuce(rankings.candidates, jnp.asarray((y >= 0).sum(1)), jnp.asarray(y), y.shape[1])


@jax.jit
def log_density(law, utilities):
    return law.log_density(utilities)


def probability(utilities, order, others=()):
    """The probability of a ranking by the definition, one choice after the other."""
    total, left = 1.0, [*order, *others]
    for item in order:
        total *= np.exp(utilities[item]) / np.exp(utilities[left]).sum()
        left.remove(item)
    return total


def choices_of(sets):
    """One choice after the other: the items that are left, the chosen one first."""
    for order, others in sets:
        for place in range(len(order)):
            yield np.array([*order[place:], *others])


def laplace(gram, choices):
    """The mode, the covariance and the evidence of Laplace's approximation, by Newton's method with half steps."""
    choices = list(choices)

    def terms(f):
        value, slope, curvature = 0.0, np.zeros(len(f)), np.zeros((len(f), len(f)))
        for left in choices:
            chance = special.softmax(f[left])
            value += np.log(chance[0])
            slope[left[0]] += 1.0
            slope[left] -= chance
            curvature[np.ix_(left, left)] += np.diag(chance) - np.outer(chance, chance)
        return value, slope, curvature

    f = np.zeros(len(gram))
    for number in range(200):
        _, slope, curvature = terms(f)
        full = gram @ np.linalg.solve(np.eye(len(f)) + curvature @ gram, curvature @ f + slope)
        f = f + (0.5 if number < 20 else 1.0) * (full - f)
    value, slope, curvature = terms(f)
    system = np.eye(len(f)) + curvature @ gram
    evidence = value - 0.5 * slope @ f - 0.5 * np.linalg.slogdet(system)[1]
    return f, gram @ np.linalg.inv(system), evidence


def rbf(points):
    return np.exp(-0.5 * ((points[:, None] - points[None]) ** 2).sum(-1))


def shares_of_the_best(mean, covariance):
    """How often each item is the best of 100,000 draws of the utilities with Gumbel noise."""
    rng = np.random.default_rng(1)
    draws = rng.multivariate_normal(mean, covariance, 100000, method="eigh")
    return np.bincount(np.argmax(draws + rng.gumbel(size=draws.shape), axis=1), minlength=len(mean)) / len(draws)


@pytest.fixture(scope="module")
def dense():
    """Laplace's approximation with the utilities of every item for every one of three judges, in NumPy."""
    gram = np.kron(2.0 * rbf(ITEMS), np.where(np.eye(3), 1.0, 0.4))
    sets = [([3 * i + judge for i in order], [3 * i + judge for i in others]) for order, others, judge in SETS]
    return laplace(gram, choices_of(sets))[:2]


@pytest.fixture(scope="module")
def matches():
    first, second = np.array([RNG.choice(6, 2, replace=False) for _ in range(15)]).T
    return Matches.create(ITEMS, first, second, RNG.integers(2, size=15))


def conditioned(model, data):
    """A fit without the groups of ArviZ: there is nothing to infer."""
    model, data, schema = model.prepare(data)
    return kpp.Fit(model, None, data, schema, {}, kpp.MAP(progress=False))


@pytest.fixture(scope="module")
def fit():
    """A fit at one value of the hyperparameters."""
    return conditioned(RankingGP(2.0 * RBF(1.0)), RANKINGS)


@pytest.fixture(scope="module")
def judged():
    """The same with one judge for each ranking; judge 1 has none."""
    model = RankingGP(Contextual(2.0 * RBF(1.0), Categorical(0.4)))
    return model.fit(KEY, JUDGED, inference=kpp.MAP(progress=False), num_prior_samples=0)


def test_the_law_is_that_of_successive_choices():
    found = np.exp(log_density(law_of(RANKINGS), UTILITIES))
    exact = [probability(UTILITIES, order, others) for order, others, _ in SETS]
    np.testing.assert_allclose(found, exact, rtol=1e-13)  # rounding


def test_the_probabilities_of_all_orders_sum_to_one():
    orders = list(itertools.permutations(range(4)))
    assert abs(np.exp(log_density(law_of(Rankings.create(ITEMS, orders)), UTILITIES)).sum() - 1) < 1e-13  # rounding


@pytest.mark.slow
def test_gradient_and_curvature_are_derivatives():
    @jax.jit
    def derivatives(law, f):
        def total(f):
            return law.log_density(f).sum()

        return law.gradient(f), jax.grad(total)(f), law.curvature(f), jax.hessian(total)(f)

    gradient, exact_gradient, curvature, hessian = derivatives(law_of(RANKINGS), UTILITIES)
    np.testing.assert_allclose(gradient, exact_gradient, rtol=1e-12)  # rounding
    np.testing.assert_allclose(curvature, -hessian, atol=1e-13)  # rounding of numbers below 1


def test_draws_are_orders_of_utilities_with_gumbel_noise():
    choices = Rankings.from_choices(ITEMS, [[0, 2, 5]], [0])
    keys = jax.random.split(KEY, 20000)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: law_of(choices).draw(key, jnp.asarray(UTILITIES))))(keys)).ravel()
    share = np.bincount(drawn, minlength=3) / len(keys)
    exact = special.softmax(UTILITIES[[0, 2, 5]])
    np.testing.assert_allclose(share, exact, atol=4 * 0.5 / np.sqrt(len(keys)))  # 4 standard errors


def test_the_law_of_matches_as_rankings_of_two_is_logistic(matches):
    first, second = np.asarray(matches.pairs).T
    chance = special.expit(UTILITIES[first] - UTILITIES[second])
    exact = stats.binom.logpmf(matches.wins, matches.counts, chance).sum()
    ways = np.log(special.comb(matches.counts, matches.wins)).sum()  # the orders of the matches of a pair
    found = log_density(law_of(Rankings.from_matches(matches)), UTILITIES).sum()
    assert abs(found + ways - exact) < 1e-12  # rounding


@pytest.mark.slow
def test_with_contexts_the_posterior_is_that_of_all_items_in_all_contexts(judged, dense):
    mean, covariance = dense
    everywhere = (np.repeat(ITEMS, 3, axis=0), np.tile(np.arange(3.0), 6)[:, None])
    found = judged.predict(everywhere, covariance=True)
    np.testing.assert_allclose(found["mean"].values[0, 0], mean, atol=1e-8)  # of the search
    np.testing.assert_allclose(found["latent_covariance"].values[0, 0], covariance, atol=1e-8)


@pytest.mark.slow
def test_choices_in_a_context_agree_with_monte_carlo(judged, dense):
    mean, covariance = dense
    found = choice_probabilities(judged, ITEMS, context=[2.0]).values[0, 0]
    assert abs(found.sum() - 1) < 1e-12  # rounding
    share = shares_of_the_best(mean[2::3], covariance[2::3, 2::3])
    np.testing.assert_allclose(found, share, atol=0.006)  # 4 standard errors of 100,000 draws
    assert np.abs(found - choice_probabilities(judged, ITEMS, context=[0.0]).values[0, 0]).max() > 0.05


@pytest.mark.slow
def test_draws_of_utilities_in_a_context_are_ranked(judged):
    draws = sample_preferences(judged, KEY, RANKINGS, 20, context=[2.0])
    assert draws.shape == (20, 6, 6)
    np.testing.assert_allclose(draws, -np.swapaxes(draws, 1, 2), atol=0)
    assert rank_items(draws).agreement == 1.0


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda fit: fit.predict(ITEMS), "must hold items and contexts"),
        (lambda fit: fit.predict((ITEMS, np.zeros((6, 2)))), "must hold items and contexts"),
        (lambda fit: fit.predict((ITEMS, np.zeros((5, 1)))), "same number of rows"),
        (lambda fit: choice_probabilities(fit, ITEMS), "must hold items and contexts"),
        (lambda fit: sample_preferences(fit, KEY, ITEMS, 2), "must hold items and contexts"),
        (lambda fit: RankingGP(RBF(1.0)).fit(KEY, JUDGED), "`kernel` cannot be evaluated"),
        (lambda fit: fit.model.fit(KEY, RANKINGS), "`kernel` cannot be evaluated"),
    ],
)
def test_missing_and_wrong_contexts_are_named(judged, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(judged)


@pytest.mark.slow
def test_the_evidence_is_that_of_laplace_with_its_derivatives():
    law = law_of(RANKINGS)

    def evidence(log_scale):
        return RankingMarginal(jnp.exp(log_scale) * RBF(1.0).gram(ITEMS), law, whitened="z").log_prob(RANKINGS.order)

    @jax.jit
    def derivatives(log_scale):
        """The evidence with its first and second derivative."""
        (value, slope), (_, curvature) = jax.jvp(jax.value_and_grad(evidence), (log_scale,), (1.0,))
        return value, slope, curvature

    _, _, exact = laplace(np.exp(0.5) * rbf(ITEMS), choices_of((order, others) for order, others, _ in SETS))
    assert abs(derivatives(0.5)[0] - exact) < 1e-8  # of the search
    step = 1e-3
    (low, *_), (middle, slope, curvature), (high, *_) = (derivatives(0.5 + move) for move in (-step, 0.0, step))
    assert abs(slope - (high - low) / (2 * step)) < 1e-6  # differences: step squared
    assert abs(curvature - (high - 2 * middle + low) / step**2) < 1e-5  # rounding / step squared


@pytest.mark.slow
def test_leave_one_out_is_near_to_fits_without_the_ranking(fit):
    """The cavity keeps the curvature of the full data, so this is an approximation."""
    held_out = np.asarray(jax.jit(lambda data: fit.model.log_likelihood({}, data)["y"])(fit.data))
    for row in range(RANKINGS.num_rankings):
        sets = [(order, others) for number, (order, others, _) in enumerate(SETS) if number != row]
        mean, covariance, _ = laplace(2.0 * rbf(ITEMS), choices_of(sets))
        draws = np.random.default_rng(0).multivariate_normal(mean, covariance, 20000, method="eigh")
        terms = [draws[:, left[0]] - special.logsumexp(draws[:, left], axis=1) for left in choices_of([SETS[row][:2]])]
        exact = special.logsumexp(sum(terms)) - np.log(len(draws))
        assert abs(held_out[row] - exact) < 0.1


@pytest.mark.slow
def test_weighted_draws_have_the_exact_posterior():
    """Two items, so that the utility difference is one number: its exact posterior and evidence by quadrature."""
    rankings = Rankings.create(np.array([[0.0], [1.0]]), [[0, 1]] * 4)
    covariance = 3.0 * rbf(np.asarray(rankings.items))
    marginal = RankingMarginal(covariance, law_of(rankings), whitened="z")

    @jax.jit
    def draw(keys):
        drawn, log_weight = jax.vmap(lambda key: marginal.draw_latents(key, rankings.order))(keys)
        return drawn["z"], log_weight, marginal.log_prob(rankings.order)

    white, log_weight, approximation = map(np.asarray, draw(jax.random.split(KEY, 4000)))
    difference, weights = white @ np.linalg.cholesky(covariance).T @ [1.0, -1.0], np.exp(log_weight)
    z, step = np.linspace(-40, 40, 4001, retstep=True)
    mass = step * special.expit(z) ** 4 * stats.norm.pdf(z, scale=np.sqrt(6.0 * (1 - np.exp(-0.5))))
    mean, sd = np.average(z, weights=mass), np.sqrt(np.cov(z, aweights=mass, ddof=0))
    size = weights.sum() ** 2 / (weights**2).sum()
    assert size > 1000
    # Four standard errors.
    assert abs(np.average(difference, weights=weights) - mean) < 4 * sd / np.sqrt(size)
    assert abs(np.sqrt(np.cov(difference, aweights=weights, ddof=0)) / sd - 1) < 4 / np.sqrt(2 * size)
    error = weights.std() / weights.mean() / np.sqrt(4000)
    assert abs(weights.mean() * np.exp(approximation) / mass.sum() - 1) < 4 * error


@pytest.mark.slow
def test_drawn_utilities_have_the_density_of_their_definition():
    """So NUTS, which knows nothing of rankings, has the right target."""
    model, data, _ = RankingGP(RBF(1.0, variance=dist.LogNormal(1.0, 0.5)), latent="sample").prepare(RANKINGS)

    @jax.jit
    def density(variance, white):
        values = {"kernel.variance": variance, "latent_whitened": white}
        return numpyro.infer.util.log_density(model.numpyro_model, (), data, values)[0]

    white = RNG.normal(size=6)
    utilities = np.linalg.cholesky(3.0 * rbf(ITEMS)) @ white
    expected = stats.lognorm(0.5, scale=np.e).logpdf(3.0) + stats.norm.logpdf(white).sum()
    expected += sum(np.log(probability(utilities, order, others)) for order, others, _ in SETS)
    # The nugget of 1e-10, over the lowest eigenvalue of the matrix of the items.
    np.testing.assert_allclose(density(jnp.asarray(3.0), jnp.asarray(white)), expected, rtol=1e-7)


@pytest.mark.nightly
def test_matches_as_rankings_of_two_are_the_logistic_model_of_preferences():
    """Evidence, its gradient, posterior mean and covariance, with judges as contexts."""
    prior = RBF(dist.LogNormal(0.0, 1.0), variance=dist.LogNormal(0.0, 1.0))
    first, second = np.array([RNG.choice(6, 2, replace=False) for _ in range(20)]).T
    matches = Matches.create(ITEMS, first, second, RNG.integers(2, size=20), RNG.integers(3, size=20)[:, None])
    utility, preference = (Contextual(kernel, Categorical(0.4)) for kernel in (prior, Preferential(prior)))
    modes = [
        model.fit(KEY, data, inference=kpp.MAP(progress=False, tolerance=1e-9), num_prior_samples=0)
        for model, data in ((RankingGP(utility), Rankings.from_matches(matches)), (PreferenceGP(preference), matches))
    ]
    found, expected = ({site.rpartition(".")[2]: fit.draws[site] for site in fit.draws} for fit in modes)
    assert found.keys() == expected.keys() == {"lengthscale", "variance"}
    for site, value in found.items():
        np.testing.assert_allclose(value, expected[site], rtol=1e-6)  # of the search
    ways = special.comb(np.asarray(matches.counts), np.asarray(matches.wins))
    evidence = [fit.attrs["log_density"] for fit in modes]
    assert abs(evidence[0] + np.log(ways).sum() - evidence[1]) < 1e-8  # the orders of the matches of a pair
    both = jnp.concatenate([matches.points[:, 0], matches.points[:, 1]])
    asked = (both, jnp.concatenate([matches.contexts] * 2))
    utilities, pairs = modes[0].predict(asked, covariance=True), modes[1].predict(matches)
    mean, covariance = utilities["mean"].values[0, 0], utilities["latent_covariance"].values[0, 0]
    low = np.arange(matches.num_pairs)
    high = low + matches.num_pairs
    np.testing.assert_allclose(mean[low] - mean[high], pairs["mean"].values[0, 0], rtol=1e-6, atol=1e-7)
    variance = covariance[low, low] + covariance[high, high] - 2 * covariance[low, high]
    np.testing.assert_allclose(variance, pairs["latent_variance"].values[0, 0], rtol=1e-6)


@pytest.mark.nightly
def test_two_items_are_a_duel(matches):
    rankings = Rankings.from_matches(matches)
    ours = choice_probabilities(conditioned(RankingGP(RBF(1.0)), rankings), ITEMS[:2])
    exact = duel(conditioned(PGP(RBF(1.0)), matches), ITEMS[:1], ITEMS[1:2])["probability"]
    assert abs(float(ours[0, 0, 0]) - float(exact[0])) < 1e-3  # 512 points of quasi-Monte Carlo


@pytest.mark.nightly
def test_with_a_flat_prior_the_mode_is_the_maximum_of_the_likelihood():
    """Hunter's algorithm, which shares nothing with ours, finds the same strengths."""
    orders = [RNG.permutation(5) for _ in range(30)]
    rankings = Rankings.create(np.eye(5), orders)
    kernel = 1e6 * RBF(0.01)  # one independent utility per item
    fit = conditioned(RankingGP(kernel), rankings)
    strength = np.ones(5)
    wins = np.bincount(np.concatenate([order[:-1] for order in orders]), minlength=5)
    for _ in range(2000):
        exposure = np.zeros(5)
        for order in orders:
            for place in range(4):
                exposure[order[place:]] += 1 / strength[order[place:]].sum()
        strength = wins / exposure
        strength /= np.exp(np.log(strength).mean())
    mean = fit.predict(np.eye(5))["mean"].values[0, 0]
    # The prior moves the mode by about its precision times the variance of the estimate, 1e-6.
    np.testing.assert_allclose(mean - mean.mean(), np.log(strength), atol=1e-5)


@pytest.mark.nightly
def test_sampled_weighted_and_exact_posteriors_agree():
    """Two items, so that the utility difference is one number: its exact posterior by quadrature."""
    rankings = Rankings.create(np.array([[0.0], [1.0]]), [[0, 1]] * 4)
    model = RankingGP(RBF(1.0, variance=dist.LogNormal(1.0, 0.5)))
    z, v = np.meshgrid(np.linspace(-40, 40, 4001), np.linspace(-3, 5, 161), indexing="ij")
    variance = 2 * np.exp(v) * (1 - np.exp(-0.5))
    log_joint = 4 * special.log_expit(z) - 0.5 * z**2 / variance - 0.5 * np.log(variance) - 0.5 * ((v - 1.0) / 0.5) ** 2
    weights = np.exp(log_joint - special.logsumexp(log_joint))
    mean, sd = (weights * z).sum(), np.sqrt((weights * z**2).sum() - (weights * z).sum() ** 2)
    for inference in (kpp.NUTS(num_samples=2000, progress=False), kpp.Laplace(num_samples=4000, progress=False)):
        fit = model.fit(KEY, rankings, inference=inference, num_prior_samples=0)
        utilities = fit.predict(rankings.items)["mean"].values.reshape(-1, 2)
        difference = utilities[:, 0] - utilities[:, 1]
        # Effective sizes above 1000: 4 standard errors; heavy tails double that of the sd.
        assert abs(difference.mean() - mean) < 4 * sd / np.sqrt(1000)
        assert abs(difference.std() / sd - 1) < 0.2
