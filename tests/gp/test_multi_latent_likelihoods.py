"""Likelihoods of several latent values: densities against SciPy, averages against nested integration, draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpyro import distributions as dist
from scipy import special, stats

from kpp.gp import CoregionalLikelihood, HeteroscedasticLikelihood, SoftmaxLikelihood
from kpp.gp.integrals.expectations import expected_softplus
from kpp.gp.integrals.softmax_expectations import expected_log_sum_exp, log_softmax_probabilities
from kpp.gp.toolkit import LatentObservations

RNG = np.random.default_rng(3)
NAN = np.nan
MEANS = {
    2: np.array([[0.3, -1.0], [1.0, 0.5], [-2.0, 0.2], [0.0, 0.0]]),
    3: np.array([[0.3, -1.0, 2.0], [1.0, 0.5, 0.0], [-2.0, 0.2, 0.1], [0.0, 0.0, 4.0]]),
}
VARIANCES = {
    2: np.array([[0.2, 0.4], [0.0, 0.0], [1.0, 0.1], [0.5, 1.5]]),
    3: np.array([[0.2, 0.4, 0.1], [0.0, 0.0, 0.0], [1.0, 0.1, 2.0], [0.5, 1.5, 0.3]]),
}
MIXING, NOISE = np.array([[1.0, 0.5], [0.0, -2.0], [0.3, 0.3]]), np.array([0.2, 0.5, 1.0])
OUTPUTS = np.array([[0.1, NAN, 2.0], [0.5, -1.0, 0.0], [NAN, NAN, NAN], [NAN, 0.4, NAN]])
LABELS = np.array([0.0, 2.0, 1.0, 2.0])
NUMBERS = np.array([0.5, 0.9, -3.0, 1.0])


def coregional(y, f):
    means = np.einsum("pl,...l->...p", MIXING, f)
    return np.nansum(stats.norm.logpdf(y, means, np.sqrt(NOISE)), axis=-1)


# The likelihood, the observations, and the log density by SciPy of f (..., n, l).
CASES = {
    "softmax": (
        SoftmaxLikelihood(classes=("a", "b", "c")),
        LABELS,
        lambda y, f: np.take_along_axis(
            special.log_softmax(f, axis=-1), np.broadcast_to(y.astype(int)[:, None], (*f.shape[:-1], 1)), axis=-1
        )[..., 0],
    ),
    "heteroscedastic": (
        HeteroscedasticLikelihood(),
        NUMBERS,
        lambda y, f: stats.norm.logpdf(y, f[..., 0], np.exp(f[..., 1] / 2)),
    ),
    "coregional": (CoregionalLikelihood(MIXING, NOISE), OUTPUTS, coregional),
}


def integral(function, mean, variance):
    """Average a function of f (..., n, l) over independent normal values by trapezoidal sums over a grid."""
    z = np.linspace(-7.5, 7.5, 601 if mean.shape[1] == 2 else 61)  # noise may be small against the spread of its mean
    weights = stats.norm.pdf(z) * (z[1] - z[0])
    count = mean.shape[1]
    grid = np.stack(np.meshgrid(*[z] * count, indexing="ij"), axis=-1).reshape(-1, 1, count)
    mass = np.prod(np.stack(np.meshgrid(*[weights] * count, indexing="ij"), axis=-1), axis=-1).ravel()
    return mass @ function(mean + np.sqrt(variance) * grid)


def law_of(name):
    count = CASES[name][0].num_latents
    return MEANS[count], VARIANCES[count]


@pytest.fixture(scope="module")
def found():
    def quantities(likelihood, y, mean, variance):
        seen, law = likelihood.observe(jnp.asarray(y)), LatentObservations(likelihood, mean, variance)
        return {
            "density": seen.log_density(mean),
            "expected": law.log_prob(jnp.asarray(y)),
            "marginal": seen.marginal_log_density(mean, variance),
            "some": seen.take(jnp.array([3, 1])).log_density(mean[jnp.array([3, 1])]),
            "predicted": likelihood.predict(mean, variance),
            "draws": law.sample(jax.random.key(0), (40_000,)),
        }

    compiled = jax.jit(
        lambda: {name: quantities(*case[:2], *map(jnp.asarray, law_of(name))) for name, case in CASES.items()}
    )
    return jax.tree.map(np.asarray, compiled())


@pytest.mark.slow_variants("softmax", "heteroscedastic", "coregional")
@pytest.mark.parametrize("name", CASES)
def test_log_density_is_that_of_scipy(name, found):
    _, y, density = CASES[name]
    expected = density(y, law_of(name)[0])
    np.testing.assert_allclose(found[name]["density"], expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found[name]["some"], expected[[3, 1]], rtol=1e-10)


# The grids have converged to 1e-8; the softmax has an error of 1e-6 by its own account.
@pytest.mark.slow_variants("coregional", "softmax")
@pytest.mark.parametrize("name", CASES)
def test_averages_are_the_integrals(name, found):
    _, y, density = CASES[name]
    mean, variance = law_of(name)
    np.testing.assert_allclose(
        found[name]["expected"], integral(lambda f: density(y, f), mean, variance), rtol=1e-6, atol=1e-8
    )
    marginal = np.log(integral(lambda f: np.exp(density(y, f)), mean, variance))
    np.testing.assert_allclose(found[name]["marginal"], marginal, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_outliers_are_integrated_over_both_peaks():
    """The integrand over the log variance of the noise has a peak at usual variances and one at the residual's size."""
    rng = np.random.default_rng(1)
    residuals = np.concatenate([[5.57495, 0.0, 100.0], np.exp(rng.normal(1.0, 1.5, 97))])
    means = np.concatenate([[-2.98292, 0.0, -5.0], rng.normal(-1.0, 3.0, 97)])
    variances = np.concatenate(
        [[[1.055206, 2.363512], [1e-8, 1.0], [0.1, 25.0]], np.exp(rng.normal(0.0, 1.5, (97, 2)))]
    )
    likelihood = HeteroscedasticLikelihood().observe(jnp.asarray(residuals))
    found = likelihood.marginal_log_density(np.stack([np.zeros(100), means], axis=1), variances)
    white = np.linspace(-40.0, 40.0, 100_001)[:, None]
    spread = np.sqrt(variances[:, 0] + np.exp(means + np.sqrt(variances[:, 1]) * white))
    logs = stats.norm.logpdf(residuals, 0.0, spread) + stats.norm.logpdf(white)
    expected = special.logsumexp(logs, axis=0) + np.log(white[1, 0] - white[0, 0])
    np.testing.assert_allclose(expected[0], -9.53193, atol=1e-5)
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_predictions_are_the_integrals(found):
    mean, variance = law_of("softmax")
    expected = integral(lambda f: special.softmax(f, axis=-1).reshape(len(f), -1), mean, variance).reshape(4, 3)
    np.testing.assert_allclose(found["softmax"]["predicted"]["class_probability"], expected, rtol=1e-6)
    mean, variance = law_of("heteroscedastic")
    noise = integral(lambda f: np.exp(f[..., 1]), mean, variance)
    np.testing.assert_allclose(found["heteroscedastic"]["predicted"]["noise_variance"], noise, rtol=1e-8)
    outputs = found["coregional"]["predicted"]
    np.testing.assert_allclose(outputs["output_mean"], law_of("coregional")[0] @ MIXING.T, rtol=1e-12)
    np.testing.assert_allclose(outputs["output_variance"], law_of("coregional")[1] @ (MIXING**2).T, rtol=1e-12)
    np.testing.assert_allclose(outputs["noise_variance"], np.tile(NOISE, (4, 1)))


def test_draws_have_the_law(found):
    labels = found["softmax"]["draws"]
    shares = np.stack([(labels == code).mean(axis=0) for code in range(3)], axis=1)
    np.testing.assert_allclose(shares, found["softmax"]["predicted"]["class_probability"], atol=5 * 0.5 / 200)
    numbers, outputs = found["heteroscedastic"]["draws"], found["coregional"]["draws"]
    mean, variance = law_of("heteroscedastic")
    total = variance[:, 0] + np.exp(mean[:, 1] + variance[:, 1] / 2)
    np.testing.assert_array_less(abs(numbers.mean(0) - mean[:, 0]), 5 * np.sqrt(total / 40_000))
    predicted = found["coregional"]["predicted"]
    total = predicted["output_variance"] + predicted["noise_variance"]
    np.testing.assert_array_less(abs(outputs.mean(0) - predicted["output_mean"]), 5 * np.sqrt(total / 40_000))
    np.testing.assert_allclose(outputs.var(0), total, rtol=5 * np.sqrt(2 / 40_000))


@jax.jit
def two_ways(mean, variance):
    """Value and slopes of the mean of log sum exp; the value, half its curvature and the chances by one difference."""
    value, slope = jax.value_and_grad(lambda m, v: expected_log_sum_exp(m, v).sum(), (0, 1))(mean, variance)
    difference, total = mean[:, 1] - mean[:, 0], variance.sum(axis=1)
    softplus = lambda m: expected_softplus(m, total).sum()  # noqa: E731
    curvature = jax.grad(lambda m: jax.grad(softplus)(m).sum())(difference)
    other = mean[:, 0].sum() + softplus(difference)
    return value, slope, other, 0.5 * curvature, jnp.exp(log_softmax_probabilities(mean, variance))


# The mean of log sum exp of two variables is that of softplus of their difference.
@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 3.0, 30.0])
def test_two_classes_are_one_logistic_variable(scale):
    mean, variance = 3 * RNG.normal(size=(20, 2)), scale * RNG.uniform(0.2, 1.0, size=(20, 2))
    value, (by_mean, by_variance), other, half_curvature, chance = two_ways(mean, variance)
    np.testing.assert_allclose(value, other, atol=2e-5)  # twenty errors of at most 1e-6
    np.testing.assert_allclose(by_mean, chance, rtol=1e-6, atol=1e-12)  # d E log sum exp / d mu = E softmax
    # Price: the slope by a variance is half the mean curvature.
    np.testing.assert_allclose(by_variance, np.tile(half_curvature, (2, 1)).T, atol=2e-6)


@pytest.mark.slow
def test_probabilities_of_many_classes_sum_to_one():
    mean, variance = 2 * RNG.normal(size=(5, 12)), RNG.uniform(0, 5, size=(5, 12))
    found = jax.jit(log_softmax_probabilities)(mean, variance)
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1.0, atol=1e-6)


def test_observations_are_read():
    likelihood, codes = SoftmaxLikelihood().read_targets(np.array(["oak", "ash", "elm", "ash"]))
    assert likelihood.classes == ("ash", "elm", "oak") and likelihood.num_latents == 3
    np.testing.assert_array_equal(codes, [2, 0, 1, 0])
    ordered = pd.Series(pd.Categorical(["low", "high", "mid"], categories=["low", "mid", "high"]))
    assert SoftmaxLikelihood().read_targets(ordered)[0].classes == ("low", "mid", "high")
    fewer = SoftmaxLikelihood(classes=(0, 1, 2)).read_targets([0, 2])[1]  # a class may be absent
    np.testing.assert_array_equal(fewer, [0, 2])
    table = pd.DataFrame({"length": [1.0, NAN], "width": [2.0, 3.0]})
    likelihood, values = CoregionalLikelihood(np.ones((2, 1))).read_targets(table)
    assert likelihood.outputs == ("length", "width")
    np.testing.assert_array_equal(values, table.values)
    masked = np.ma.masked_equal([[1.0, -9.0], [2.0, 3.0]], -9.0)
    assert np.isnan(CoregionalLikelihood(np.ones((2, 1))).read_targets(masked)[1][0, 1])


BAD = {
    "one class": (lambda: SoftmaxLikelihood().read_targets(["a", "a"]), "at least two classes, got only 'a' in 2 rows"),
    "a label of no class": (lambda: SoftmaxLikelihood(classes=("a", "b")).read_targets(["a", "c"]), "got 'c'"),
    "equal classes": (lambda: SoftmaxLikelihood(classes=("a", "a")), "different labels"),
    "unknown classes": (lambda: SoftmaxLikelihood().num_latents, "`classes` must be given"),
    "a missing label": (lambda: SoftmaxLikelihood().read_targets(["a", None, "b"]), "missing labels"),
    "mixing": (lambda: CoregionalLikelihood(np.ones(3)), r"`mixing` must have shape \(P, L\)"),
    "noise": (lambda: CoregionalLikelihood(np.ones((3, 1)), np.ones(2)), r"one number or have shape \(3,\)"),
    "no noise": (lambda: CoregionalLikelihood(np.ones((3, 1)), 0.0), "`noise_variance` must be positive"),
    "names": (lambda: CoregionalLikelihood(np.ones((2, 1)), outputs=("a",)), "2 different names"),
    "columns": (lambda: CoregionalLikelihood(np.ones((2, 1))).read_targets(np.ones((4, 3))), r"got shape \(4, 3\)"),
    "infinity": (lambda: CoregionalLikelihood(np.ones((1, 1))).read_targets([[np.inf]]), "got infinity"),
    "an empty column": (
        lambda: CoregionalLikelihood(np.ones((2, 1))).read_targets([[1.0, NAN], [2.0, NAN]]),
        "none in column 1",
    ),
    "a mean": (lambda: LatentObservations(SoftmaxLikelihood(classes=(0, 1)), jnp.zeros((2, 2))).mean, "has no mean"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused(case):
    call, message = BAD[case]
    with pytest.raises((ValueError, NotImplementedError), match=message):
        call()


def test_parameters_may_be_priors():
    likelihood = CoregionalLikelihood(dist.Normal(0.0, 1.0).expand([3, 2]), dist.HalfNormal(1.0).expand([3]))
    assert likelihood.num_latents == 2 and likelihood.observation_shape == (3,)
