"""Effects of interventions from several data sets: reference vectors, Gaussian algebra by quadrature, samples."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from kpp.kernels import RBF
from kpp_models import IME, IMP, BayesIME, BayesIMP, CausalLink, InterventionData
from kpp_models.fusion.embedding_evidence import SharedCovariance, fitted_amplitude
from oracles.kernels import rbf

MODES = ("none", "backdoor", "frontdoor")
VECTORS = {"rtol": 1e-7, "atol": 1e-10}  # how exactly the reference vectors are to be met
MODELS = {"imp": IMP, "bayesime": BayesIME, "bayesimp_exact": BayesIMP, "bayesimp": BayesIMP}
PARTS = {"D1": "variance_data1", "D2": "variance_data2", "Inter": "variance_interaction"}


@pytest.fixture(scope="module")
def vectors(root):
    return dict(np.load(root / "tests/data/bayesimp.npz"))


def link_of(vectors, mode, landmarks=None):
    kernel = None if mode == "none" else RBF(float(vectors["in_lz"]))
    noise = float(vectors["in_lamz"]) if mode == "frontdoor" else None
    return CausalLink(
        RBF(float(vectors["in_lx"])),
        RBF(float(vectors["in_ly"])),
        float(vectors["in_lam"]),
        mode,
        kernel,
        noise,
        width=float(vectors["in_eta"]),
        amplitude=1.0,
        landmarks=landmarks,
    )


@eqx.filter_jit
def evaluate(model, data, x):
    """The moments of a model, and the evidence of its first link, in one program."""
    seen = data["embeddings"][0]
    law = SharedCovariance(model._covariance(0, data["links"][0]), seen["coordinates"].shape[1], 1.0)
    volume = seen["factor"].shape[0] * jnp.sum(jnp.log(jnp.diagonal(seen["factor"])))
    moments = model.predictive({}, data, x, covariance=True)
    return moments, law.log_prob(seen["coordinates"]) - volume


def found(vectors, mode, name):
    landmarks = np.concatenate([vectors["in_Y"], vectors["in_Yt"]]) if name == "bayesimp" else None
    first = InterventionData.create(vectors["in_X"], vectors["in_Y"], None if mode == "none" else vectors["in_Z"])
    model = MODELS[name](link_of(vectors, mode, landmarks), float(vectors["in_lamf"]))
    model, data, _ = model.prepare(first, vectors["in_t"], mediators=vectors["in_Yt"])
    return evaluate(model, data, jnp.asarray(vectors["in_Xq"]))


# Each program takes seconds to compile; the chain below stands for the rest in the default suite.
SHORT = {("imp", "backdoor"), ("bayesimp_exact", "frontdoor")}
CASES = [
    pytest.param(name, mode, marks=() if (name, mode) in SHORT else pytest.mark.slow)
    for name in MODELS
    for mode in MODES
]


@pytest.mark.nightly_variants(
    "bayesimp-none",
    "bayesimp-backdoor",
    "bayesimp_exact-none",
    "bayesimp_exact-backdoor",
    "bayesime-none",
    "bayesime-backdoor",
    "imp-none",
)
@pytest.mark.slow_variants("imp-backdoor")
@pytest.mark.parametrize(("name", "mode"), CASES)
def test_moments_and_evidence_are_those_of_the_vectors(vectors, name, mode):
    moments, evidence = found(vectors, mode, name)
    prefix = f"out_{mode}_{name}"
    np.testing.assert_allclose(moments["mean"], vectors[f"{prefix}_mean"], **VECTORS)
    if "bayesimp" in name:
        for part, variable in PARTS.items():
            np.testing.assert_allclose(moments[variable], np.diag(vectors[f"{prefix}_cov{part}"]), **VECTORS)
        whole = sum(vectors[f"{prefix}_cov{part}"] for part in PARTS)
    else:
        whole = vectors[f"{prefix}_cov"]
    np.testing.assert_allclose(moments["latent_covariance"], whole, **VECTORS)
    if name != "imp":
        np.testing.assert_allclose(evidence, vectors[f"out_{mode}_evidence"], **VECTORS)


@pytest.mark.nightly_variants("BayesIMP")
@pytest.mark.slow_variants("BayesIME")
@pytest.mark.parametrize("model", [BayesIME, pytest.param(BayesIMP, marks=pytest.mark.slow)])
def test_equal_outcomes_are_merged_exactly(model):
    """The oracle is the definition with the pseudo-inverse of the singular R of all seven outcomes."""
    rng = np.random.default_rng(11)
    x, at = rng.normal(size=(7, 1)), rng.normal(size=(5, 1))
    y = np.array([0.3, -1.0, 0.3, 1.2, 0.3, -1.0, 2.2])[:, None]
    places, targets = rng.normal(size=(6, 1)), rng.normal(size=6)
    link = CausalLink(RBF(0.9), RBF(0.8), 0.1, width=1.4, amplitude=1.0)
    fitted, data, _ = model((link,), 0.2).prepare(InterventionData.create(x, y), targets, mediators=places)
    same = model((link,), 0.2).prepare({"treatment": x, "outcome": y}, targets, mediators=places)[1]
    assert eqx.tree_equal(same, data)  # a mapping of tables is a data set, too
    moments, _ = evaluate(fitted, data, jnp.asarray(at))
    space, order = fitted.links[-1].space, int(model is BayesIMP)

    chain_gram = eqx.filter_jit(lambda level, first, second: space.chain(level, first, second))

    def chain(level, first, second):
        return np.asarray(chain_gram(level, first, second))

    phi = rbf(x, at, 0.9)
    inverse = np.linalg.inv(rbf(x, x, 0.9) + 0.1 * np.eye(7))
    pseudo = np.linalg.pinv(chain(1, y, y), rcond=1e-9, hermitian=True)
    kernel = np.linalg.inv(chain(order, places, places) + 0.2 * np.eye(6))
    alpha, gamma = kernel @ targets, pseudo @ rbf(y, y, 0.8) @ inverse @ phi
    across = chain(1 + order, y, places)
    explained = phi.T @ inverse @ phi
    data1 = (alpha @ chain(2 * order + 1, places, places) @ alpha) * rbf(at, at, 0.9)
    data1 -= (alpha @ across.T @ pseudo @ across @ alpha) * explained
    np.testing.assert_allclose(moments["mean"], gamma.T @ across @ alpha, rtol=1e-9)
    np.testing.assert_allclose(moments["variance_data1"], np.diag(data1), rtol=1e-9)
    if order:
        data2 = gamma.T @ (chain(3, y, y) - across @ kernel @ across.T) @ gamma
        np.testing.assert_allclose(moments["variance_data2"], np.diag(data2), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_without_uncertainty_only_the_mean_is_left(vectors):
    first = InterventionData.create(vectors["in_X"], vectors["in_Y"], vectors["in_Z"])
    model = IME(link_of(vectors, "backdoor", None), float(vectors["in_lamf"]))
    model, data, _ = model.prepare(first, vectors["in_t"], mediators=vectors["in_Yt"])
    moments, _ = evaluate(model, data, jnp.asarray(vectors["in_Xq"]))
    np.testing.assert_allclose(moments["mean"], vectors["out_backdoor_imp_mean"], **VECTORS)
    np.testing.assert_array_equal(moments["latent_covariance"], 0.0)


@pytest.mark.slow
def test_matrix_normal_density_is_that_of_scipy_and_its_gradient_that_of_differences(derivative):
    rng = np.random.default_rng(3)
    root, value = rng.normal(size=(4, 4)), rng.normal(size=(4, 3))
    covariance = root @ root.T + np.eye(4)

    @jax.jit
    def density(matrix, amplitude):
        return SharedCovariance(matrix, 3, amplitude).log_prob(value)

    expected = stats.matrix_normal(rowcov=0.7 * covariance, colcov=np.eye(3)).logpdf(value)
    np.testing.assert_allclose(density(covariance, 0.7), expected, rtol=1e-12)
    profile = jax.jit(lambda matrix: SharedCovariance(matrix, 3).log_prob(value))
    best = float(fitted_amplitude(value, np.linalg.cholesky(covariance)))
    np.testing.assert_allclose(profile(covariance), density(covariance, best), rtol=1e-12)
    assert all(density(covariance, best * factor) < profile(covariance) for factor in (0.9, 1.1))
    slope = derivative(lambda step: profile(covariance + step * np.eye(4)), 0.0)
    # Fourth-order differences of a step of 1e-4 are good to 1e-9 here.
    np.testing.assert_allclose(jnp.trace(jax.jit(jax.grad(profile))(covariance)), slope, rtol=1e-7)


class Quadrature:
    """Functions of an outcome's space as sums of kernel sections on a fine grid, whose coefficients are Gaussian.

    The integral over the measure becomes a sum, spectrally exact for Gaussians: r(y, y') = sum_u w_u k(y, u) k(u, y').
    """

    def __init__(self, lengthscale, width):
        self.nodes = np.linspace(-6 * width, 6 * width, int(round(24 * width / lengthscale)) + 1)[:, None]
        spacing = self.nodes[1, 0] - self.nodes[0, 0]
        self.weights = spacing * np.exp(-0.5 * (self.nodes[:, 0] / width) ** 2)
        self.kernel = lambda a, b: rbf(a, b, lengthscale)
        self.gram = self.kernel(self.nodes, self.nodes)

    def features(self, y):
        """Coefficients' prior covariance with values at y: w_u k(u, y)."""
        return self.weights[:, None] * self.kernel(self.nodes, y)

    def dominant(self, a, b):
        return self.kernel(a, self.nodes) @ self.features(b)


@pytest.fixture(scope="module")
def chain():
    return chain_case()


@pytest.mark.slow
def test_chain_is_gaussian_algebra_on_a_grid(chain):
    """A chain of two links with a back door in the second, every law a Gaussian of coefficients on a grid."""
    (model, data, x), (mean, covariance, _) = chain
    found, _ = evaluate(model, data, x)
    # What quadrature and closed forms round off, 1e-15, the inverses of the outcomes' kernel matrices enlarge by 1e8.
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found["latent_covariance"], covariance, rtol=1e-6, atol=1e-7)
    parts = [f"variance_data{number}" for number in (1, 2, 3)] + ["variance_interaction"]
    np.testing.assert_allclose(sum(found[name] for name in parts), np.diag(covariance), rtol=1e-6, atol=1e-7)
    assert all((np.asarray(found[name]) > 0).all() for name in parts)


@pytest.mark.slow
def test_moments_are_those_of_samples_of_the_generative_model(chain):
    """Draw function and embeddings of the chain 1e5 times and multiply."""
    mean, covariance, draw = chain[1]
    values = draw(np.random.default_rng(0), 100_000)
    error = values.std(axis=0) / np.sqrt(len(values))
    assert (np.abs(values.mean(axis=0) - mean) < 4 * error).all()
    squares = (values - mean)[:, :, None] * (values - mean)[:, None, :]
    error = squares.std(axis=0) / np.sqrt(len(values))
    assert (np.abs(squares.mean(axis=0) - covariance) < 4 * error).all()


def chain_case():
    """A chain of two links, prepared, and its moments and samples by Gaussian algebra on grids."""
    rng = np.random.default_rng(5)
    x, xq = rng.normal(size=(7, 1)), np.array([[-0.7], [0.4], [2.0]])
    y1 = np.sin(x) + 0.3 * rng.normal(size=(7, 1))
    x2, z = rng.normal(size=(6, 1)), rng.normal(size=(6, 1))
    y2 = x2 + 0.5 * z + 0.3 * rng.normal(size=(6, 1))
    places, t = rng.normal(size=(5, 1)), rng.normal(size=5)
    first, second = Quadrature(0.9, 1.5), Quadrature(1.1, 1.8)
    noises, amplitudes, noise, scale = (0.3, 0.2), (0.8, 1.3), 0.15, 1.4

    # f, of the second outcome: coefficients a ~ N(0, scale W) given t.
    features = second.features(places)
    covariance = scale * second.dominant(places, places) + noise * np.eye(5)
    gain = scale * np.linalg.solve(covariance, features.T).T
    f = gain @ t, scale * (np.diag(second.weights) - gain @ features.T)
    # Each embedding: coefficients in a product of spaces, given k(Y, Y); a Kronecker product in the outcome's space.
    means = rbf(z, z, 1.2).mean(axis=1)
    rows = noises[1] * np.eye(6) + first.dominant(x2, x2) * rbf(z, z, 1.2)
    cross = first.features(x2) * means
    prior = np.diag(first.weights) * means.mean()
    link2 = coefficients(second, y2, prior, cross, rows, amplitudes[1])
    rows = noises[0] * np.eye(7) + rbf(x, x, 0.7)
    link1 = coefficients(first, y1, rbf(xq, xq, 0.7), rbf(xq, x, 0.7), rows, amplitudes[0])

    # g(x) = c(x)' K1 B K2 a: seconds moments of independent factors, from the right to the left.
    h_mean, h_second = second.gram @ f[0], second.gram @ (f[1] + np.outer(f[0], f[0])) @ second.gram
    h_mean, h_second = pushed(link2, h_mean, h_second)
    h_mean, h_second = first.gram @ h_mean, first.gram @ h_second @ first.gram
    mean, seconds = pushed(link1, h_mean, h_second)

    def draw(generator, count):
        a = f[0] + generator.normal(size=(count, len(f[0]))) @ root(f[1]).T
        b = random_coefficients(link2, generator, a @ second.gram)
        return random_coefficients(link1, generator, b @ first.gram)

    kernel = RBF(0.7)
    links = (
        CausalLink(kernel, RBF(0.9), noises[0], width=1.5, amplitude=amplitudes[0]),
        CausalLink(None, RBF(1.1), noises[1], "backdoor", RBF(1.2), width=1.8, amplitude=amplitudes[1]),
    )
    data = InterventionData.create(x, y1), InterventionData.create(x2, y2, z)
    model, data, _ = BayesIMP(links, noise, scale).prepare(data, t, mediators=places)
    return (model, data, jnp.asarray(xq)), (mean, seconds - np.outer(mean, mean), draw)


def coefficients(space, outcome, prior, cross, rows, amplitude):
    """Mean (r, u) and covariance P (x) W - S (x) T of coefficients given k(Y, Y) of noise `rows` and space's r."""
    gain, features = np.linalg.solve(rows, cross.T).T, space.features(outcome)
    inverse = np.linalg.inv(space.dominant(outcome, outcome))
    mean = gain @ space.kernel(outcome, outcome) @ inverse @ features.T
    return mean, amplitude * prior, np.diag(space.weights), amplitude * gain @ cross.T, features @ inverse @ features.T


def pushed(link, mean, second):
    """First and second moments of a random matrix times an independent random vector."""
    matrix, prior, weights, explained, seen = link
    moments = matrix @ second @ matrix.T + prior * np.sum(weights * second) - explained * np.sum(seen * second)
    return matrix @ mean, moments


def random_coefficients(link, generator, vectors):
    """Draw the matrix anew for every vector, and multiply: its products with one vector are jointly Gaussian."""
    matrix, prior, weights, explained, seen = link
    first = np.einsum("su,uv,sv->s", vectors, weights, vectors)
    rest = np.einsum("su,uv,sv->s", vectors, seen, vectors)
    # P first - S rest = (P - S) first + S (first - rest), both terms positive semi-definite.
    own = np.sqrt(first)[:, None] * (generator.normal(size=(len(vectors), len(matrix))) @ root(prior - explained).T)
    other = np.sqrt(np.maximum(first - rest, 0))[:, None] * (
        generator.normal(size=(len(vectors), len(matrix))) @ root(explained).T
    )
    return vectors @ matrix.T + own + other


def root(covariance):
    """A square root of a covariance that may be singular."""
    values, directions = np.linalg.eigh((covariance + covariance.T) / 2)
    return directions * np.sqrt(np.maximum(values, 0))
