"""BayesianConditionalMeanEmbedding against reference vectors and conditioning of one large Gaussian vector."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from kpp.embeddings import (
    BackDoor,
    BayesianConditionalMeanEmbedding,
    Embedded,
    FrontDoor,
    MeanEmbedding,
    NoAdjustment,
    bayesian_quadrature,
    witness,
)
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.kernels import RBF, Matern32, NuclearDominant

KINDS = ("none", "backdoor", "frontdoor")
RNG = np.random.default_rng(0)
X, Z, Y = RNG.normal(size=(4, 2)), RNG.normal(size=(4, 1)), np.array([[-1.3], [-0.2], [0.8], [2.0]])
QUERY, AT = RNG.normal(size=(2, 2)), np.array([[-0.6], [0.4], [1.1]])
POLICIES = np.stack([X - 0.4, np.where(Z > 0, X, QUERY[:1])])  # the treatments of the four rows under two policies
KX, KZ, KY, WIDTH, NOISE, RIDGE, AMPLITUDE = RBF(1.1), RBF(0.9, 1.2), RBF(0.7, 1.3), 1.7, 0.1, 0.05, 0.6


def adjustment(kind, kernel=KZ, others=Z, regularization=RIDGE / 4):
    if kind == "none":
        return NoAdjustment()
    return BackDoor(kernel, others) if kind == "backdoor" else FrontDoor(kernel, others, regularization)


def embedding(kind, amplitude=AMPLITUDE):
    return BayesianConditionalMeanEmbedding(
        base_kernel=KY,
        width=WIDTH,
        treatment_kernel=KX,
        treatment=X,
        points=Y,
        noise_variance=NOISE,
        adjustment=adjustment(kind),
        amplitude=amplitude,
    )


@eqx.filter_jit
def posterior(embedding, at, query):
    return embedding.evaluate(at, query), embedding.covariance(at, query), embedding.log_evidence()


@eqx.filter_jit
def further(embedding):
    return embedding.variance(AT, QUERY), embedding.log_evidence(), embedding.fitted_amplitude()


@pytest.mark.slow
def test_reference_vectors(root):
    kind = "frontdoor"  # the others are conditioned below
    vectors = np.load(root / "tests" / "data" / "bayesimp.npz")
    x, y, z = (vectors[f"in_{name}"] for name in "XYZ")
    adjusted = adjustment(kind, RBF(vectors["in_lz"]), z, vectors["in_lamz"] / len(x))
    kernel, width = RBF(vectors["in_ly"]), vectors["in_eta"]
    mean, covariance, evidence = posterior(
        BayesianConditionalMeanEmbedding(
            base_kernel=kernel,
            width=width,
            treatment_kernel=RBF(vectors["in_lx"]),
            treatment=x,
            points=y,
            noise_variance=vectors["in_lam"],
            adjustment=adjusted,
        ),
        vectors["in_Yt"],
        vectors["in_Xq"],
    )
    covariance = covariance.reshape(mean.size, mean.size)
    for name, found in (("bayescme_mean", mean), ("bayescme_cov_kron", covariance), ("evidence", evidence)):
        np.testing.assert_allclose(found, vectors[f"out_{kind}_{name}"], rtol=1e-7, atol=1e-10)


def rbf(kernel, a, b):
    squares = np.sum((a[:, None, :] - b[None, :, :]) ** 2, axis=2)
    return float(kernel.variance) * np.exp(-0.5 * squares / float(kernel.lengthscale) ** 2)


def dominant(a, b):
    """r by the trapezoidal rule, exact to rounding for Gaussians."""
    u = np.linspace(-20.0, 20.0, 401)[:, None]
    weight = 0.1 * np.exp(-0.5 * (u[:, 0] / WIDTH) ** 2)
    return (rbf(KY, a, u) * weight) @ rbf(KY, u, b)


def conditioned(kind, query=QUERY):
    """Condition the values of a process on all pairs (x, z), times all outcomes, on the noisy ones that were seen.

    Interventions are averages of such values, so nothing here knows of the inner products that the library uses.
    """
    treatments, others = np.concatenate([X, query.reshape(-1, 2)]), Z if kind != "none" else np.zeros((1, 1))
    count = len(others)
    pairs = [(i, j) for i in range(len(treatments)) for j in range(count)]
    inputs = np.kron(rbf(KX, treatments, treatments), rbf(KZ, others, others) if kind != "none" else np.ones((1, 1)))
    seen = np.zeros((4, len(pairs)))
    for i in range(4):
        seen[i, pairs.index((i, i if kind != "none" else 0))] = 1
    asked = np.zeros((2, len(pairs)))
    weights = np.linalg.solve(rbf(KX, X, X) + RIDGE * np.eye(4), rbf(KX, X, QUERY))
    for q in range(2):
        for j in range(4 if query.ndim == 3 else count):
            if query.ndim == 3:
                asked[q, pairs.index((4 + 4 * q + j, j if kind != "none" else 0))] = 1 / 4
            elif kind == "frontdoor":  # the mediators' law under the treatment, the treatments' own law
                for i in range(4):
                    asked[q, pairs.index((i, j))] = weights[j, q] / 4
            else:
                asked[q, pairs.index((4 + q, j))] = 1 / count
    outcomes = np.concatenate([Y, AT])
    outputs = dominant(outcomes, outcomes)
    prior = AMPLITUDE * np.kron(inputs, outputs)
    observe, ask = np.kron(seen, np.eye(7)[:4]), np.kron(asked, np.eye(7)[4:])
    covariance = observe @ prior @ observe.T + AMPLITUDE * NOISE * np.kron(np.eye(4), outputs[:4, :4])
    gain = ask @ prior @ observe.T
    data = rbf(KY, Y, Y).reshape(-1)
    mean = gain @ np.linalg.solve(covariance, data)
    return mean, ask @ prior @ ask.T - gain @ np.linalg.solve(covariance, gain.T), covariance, data


@pytest.mark.slow_variants("none", "backdoor")
@pytest.mark.parametrize("kind", KINDS[:2])
def test_policies_are_averages_of_the_conditioned_process(kind):
    expected_mean, expected, _, _ = conditioned(kind, POLICIES)
    mean, covariance, _ = posterior(embedding(kind), AT, POLICIES)
    np.testing.assert_allclose(mean.reshape(-1), expected_mean, rtol=1e-9, atol=1e-9)  # see below
    np.testing.assert_allclose(covariance.reshape(6, 6), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow_variants("frontdoor-query0-policies of 3 axes without mediators")
@pytest.mark.parametrize(
    "kind, query, message",
    [
        ("frontdoor", POLICIES, "policies of 3 axes without mediators"),
        ("backdoor", POLICIES[:, :3], r"policies of shape \(4, 2\), one after the other, got \(2, 3, 2\)"),
        ("none", POLICIES[..., :1], r"policies of shape \(4, 2\)"),
        ("none", POLICIES[None], "treatments of 2 axes"),
    ],
)
def test_policies_that_do_not_fit_are_refused(kind, query, message):
    with pytest.raises(ValueError, match=message):
        embedding(kind).weights(query)


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[:2]]


@pytest.mark.nightly_variants("none")
@pytest.mark.slow
@pytest.mark.parametrize("kind", [*SLOW, "frontdoor"])
def test_is_the_conditioned_process(kind):
    # The matrices conditioned on have condition numbers up to 1e5: 1e-9 is that many roundings, with room.
    expected_mean, expected, noisy, data = conditioned(kind)
    mean, covariance, evidence = posterior(embedding(kind), AT, QUERY)
    np.testing.assert_allclose(mean.reshape(-1), expected_mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(covariance.reshape(6, 6), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(further(embedding(kind))[0].reshape(-1), np.diagonal(expected), rtol=1e-9, atol=1e-9)
    assert np.linalg.eigvalsh(np.asarray(covariance).reshape(6, 6))[0] > -1e-12
    np.testing.assert_allclose(evidence, multivariate_normal(cov=noisy).logpdf(data), rtol=1e-9)


@pytest.mark.slow
def test_the_fitted_amplitude_has_the_highest_evidence():
    fitted = float(further(embedding("frontdoor"))[2])
    below, best, above = (further(embedding("frontdoor", factor * fitted))[1] for factor in (0.999, 1.0, 1.001))
    assert best > max(below, above)


@pytest.mark.slow
def test_inner_products_are_those_of_the_space():
    # <r(y, .), k(z, .)> = r(y, z) and <r(y, .), r(y', .)> by the trapezoidal rule.
    bayesian = embedding("none")
    sample = MeanEmbedding(KY, AT)
    weights, inner, cross, reverse, distances, expectation = eqx.filter_jit(
        lambda bayesian, sample: (
            bayesian.weights(QUERY),
            bayesian.inner(bayesian, QUERY, QUERY),
            bayesian.inner(sample, QUERY),
            sample.inner(bayesian, other_query=QUERY),
            bayesian.mmd_squared(sample, QUERY),
            bayesian.expectation(RKHSFunction(KY, AT, jnp.full(3, 1 / 3), 0.3), QUERY),
        )
    )(bayesian, sample)
    u = np.linspace(-20.0, 20.0, 401)[:, None]
    functions = (rbf(KY, Y, u) * (0.1 * np.exp(-0.5 * (u[:, 0] / WIDTH) ** 2))).T @ np.asarray(weights)
    expected = functions.T @ rbf(KY, u, u) @ functions
    np.testing.assert_allclose(inner, expected, rtol=1e-9)
    np.testing.assert_allclose(cross[:, 0], functions.T @ rbf(KY, u, AT).mean(axis=1), rtol=1e-9)
    np.testing.assert_allclose(reverse, cross.T, rtol=1e-12)
    np.testing.assert_allclose(expectation, cross[:, 0] + 0.3, rtol=1e-12)  # the function is the sample's embedding
    norms = np.diagonal(expected) + rbf(KY, AT, AT).mean()
    np.testing.assert_allclose(distances[:, 0], norms - 2 * cross[:, 0], rtol=1e-9)


def test_mistakes_are_named():
    bayesian = embedding("none")
    with pytest.raises(ValueError, match="`query` must hold values of the treatment"):
        bayesian.weights()
    with pytest.raises(TypeError, match="`base` must be an RBF"):
        BayesianConditionalMeanEmbedding(
            base_kernel=Matern32(1.0), width=WIDTH, treatment_kernel=KX, treatment=X, points=Y, noise_variance=NOISE
        )
    with pytest.raises(ValueError, match="`noise_variance` must be at least 0"):
        BayesianConditionalMeanEmbedding(
            base_kernel=KY, width=WIDTH, treatment_kernel=KX, treatment=X, points=Y, noise_variance=-1.0
        )
    with pytest.raises(ValueError, match="`amplitude` must be at least 0"):
        embedding("none", -1.0)
    with pytest.raises(ValueError, match="`treatment` and `points` must have the same number of rows, got 4 and 3"):
        BayesianConditionalMeanEmbedding(
            base_kernel=KY, width=WIDTH, treatment_kernel=KX, treatment=X, points=Y[:3], noise_variance=NOISE
        )
    with pytest.raises(ValueError, match="`treatment` and `covariates` must have the same number of rows, got 4 and 3"):
        BayesianConditionalMeanEmbedding(
            base_kernel=KY,
            width=WIDTH,
            treatment_kernel=KX,
            treatment=X,
            points=Y,
            noise_variance=NOISE,
            adjustment=BackDoor(KZ, Z[:3]),
        )
    with pytest.raises(ValueError, match="`other` must have the same kernel"):
        bayesian.inner(MeanEmbedding(RBF(3.0), AT), QUERY)
    with pytest.raises(ValueError, match="`other` must have the same kernel"):
        bayesian.inner(
            BayesianConditionalMeanEmbedding(
                base_kernel=KY, width=3.0, treatment_kernel=KX, treatment=X, points=Y, noise_variance=NOISE
            ),
            QUERY,
            QUERY,
        )
    with pytest.raises(ValueError, match="`other` must have the same kernel"):
        witness(bayesian, MeanEmbedding(KY, AT), QUERY)
    with pytest.raises(ValueError, match="`values` must have the same kernel"):
        bayesian.expectation(RKHSFunction(NuclearDominant(KY, WIDTH), AT, jnp.ones(3)), QUERY)
    with pytest.raises(TypeError, match="`embedding` must be held by sections of the kernel of its space"):
        Embedded(bayesian, QUERY)
    with pytest.raises(ValueError, match="`process` must have the same kernel"):
        bayesian_quadrature(GPPosterior(RKHSFunction(RBF(2.0), AT, jnp.ones(3)), jnp.eye(3)), bayesian, QUERY)
    drawn = RKHSFunction(RBF(jnp.ones(2), jnp.ones(2)), jnp.stack([AT, AT]), jnp.ones((2, 3)), jnp.zeros(2), (2,))
    several = GPPosterior(RKHSFunction(KY, AT, jnp.ones((3, 2))), jnp.zeros((3, 1)), jnp.eye(2))
    for process in (GPPosterior(drawn, jnp.zeros((2, 3, 1))), several):
        with pytest.raises(ValueError, match="`process` must have no draws and one output"):
            bayesian_quadrature(process, bayesian, QUERY)
    with pytest.raises(TypeError, match="must be an RKHSFunction"):
        bayesian.expectation(np.ones(4), QUERY)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", [KY, NuclearDominant(KY, WIDTH)], ids=["outside the RKHS", "inside"])
def test_inner_products_have_the_moments_of_products_of_gaussian_vectors(kind, kernel):
    """The oracle: function and embedding by their values on a grid, in orthonormal coordinates of the RKHS of k.

    Directions of the RKHS with eigenvalues below 1e-9 of the kernel matrix are left out: rounding would dominate them.
    """
    grid = np.linspace(-9.0, 9.0, 121)[:, None]
    values, vectors = np.linalg.eigh(np.asarray(KY.gram(grid)))
    kept = values > 1e-9 * values.max()
    coordinates = vectors[:, kept] / np.sqrt(values[kept])
    gram = np.asarray(kernel.gram(AT)) + 0.05 * np.eye(3)
    mean = RKHSFunction(kernel, AT, jnp.asarray(np.linalg.solve(gram, [0.5, -1.0, 2.0])), jnp.asarray(0.3))
    process = GPPosterior(mean, jnp.asarray(np.linalg.inv(np.linalg.cholesky(gram)).T))
    bayesian = embedding(kind)

    first = coordinates.T @ (np.asarray(process.mean(grid)) - 0.3)
    first_covariance = coordinates.T @ np.asarray(process.covariance(grid, grid)) @ coordinates
    means, covariances, _ = posterior(bayesian, grid, QUERY)
    second = np.asarray(means) @ coordinates
    second_covariance = np.einsum("uk,aubv,vl->abkl", coordinates, np.asarray(covariances), coordinates, optimize=True)
    expected = second @ first_covariance @ second.T + np.einsum("k,abkl,l->ab", first, second_covariance, first)
    expected += np.einsum("kl,abkl->ab", first_covariance, second_covariance)

    law = bayesian_quadrature(process, bayesian, QUERY)
    # The last directions of the grid are worth 1e-6 of the result.
    np.testing.assert_allclose(law.mean, 0.3 + second @ first, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(law.covariance, expected, rtol=1e-5, atol=1e-7)
