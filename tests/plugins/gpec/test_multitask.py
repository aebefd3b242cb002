"""Features that vary together: against the dense Kronecker solve, independent features, and from end to end."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from kpp.explanations import Explanation
from kpp.kernels import RBF
from kpp_gpec import (
    GPEC,
    BisectionSampler,
    ExplanationProcess,
    FittedGPEC,
    LowRankMultitaskProcess,
    MultitaskProcess,
    condition,
)
from kpp_gpec.process.multitask import MAX_SIZE, estimate_correlations

ROOT = np.array([[1.0, 0.0, 0.0], [0.8, 0.5, 0.0], [-0.5, 0.4, 0.7]])
B = ROOT @ ROOT.T
VARIANCE = np.diagonal(B).copy()
CORRELATIONS = B / np.sqrt(np.outer(VARIANCE, VARIANCE))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 2))
    values = np.stack([np.sin(x[:, 0]), np.sin(x[:, 0]) + 0.1 * x[:, 1], -x[:, 0]], axis=1)
    return x, values, 0.02 + 0.3 * rng.random(values.shape), rng.normal(size=(5, 2))


def gram(a, b):
    return np.exp(-((a[:, None] - b[None]) ** 2).sum(axis=-1) / 2)


def dense(x, values, noise, new):
    """Conditioning of the joint Gaussian, with points outside and features inside (the other order than the code's)."""
    matrix = np.kron(gram(x, x), B) + np.diag(noise.ravel())
    means, covariances = [], []
    for row in gram(new, x):
        cross = np.kron(row[None, :], B)
        means.append(cross @ np.linalg.solve(matrix, values.ravel()))
        covariances.append(B - cross @ np.linalg.solve(matrix, cross.T))
    return np.array(means), np.array(covariances), matrix


@pytest.mark.slow
def test_the_law_is_that_of_the_dense_kronecker_solve(data):
    x, values, noise, new = data
    process = condition(RBF(1.0), x, values, noise, VARIANCE, CORRELATIONS)
    assert isinstance(process, MultitaskProcess)
    law = process.predict(new)
    mean, covariance, matrix = dense(x, values, noise, new)
    np.testing.assert_allclose(law.mean, mean, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(law.covariance, covariance, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(law.variance, np.einsum("pdd->pd", covariance), rtol=1e-9)
    evidence = -0.5 * (values.ravel() @ np.linalg.solve(matrix, values.ravel()) + np.linalg.slogdet(matrix)[1])
    assert float(process.log_evidence()) == pytest.approx(evidence - 18 * np.log(2 * np.pi), rel=1e-10)


@pytest.mark.slow
def test_without_noise_features_say_nothing_of_each_other(data):
    """The covariance is the one variance times B."""
    x, values, noise, new = data
    law = condition(RBF(1.0), x, values, noise, VARIANCE, CORRELATIONS).predict(new)
    left = 1.0 - np.einsum("pn,nm,pm->p", gram(new, x), np.linalg.inv(gram(x, x)), gram(new, x))
    np.testing.assert_allclose(law.noiseless_variance, left[:, None] * VARIANCE, rtol=1e-5)
    exact = condition(RBF(1.0), x, values, np.zeros(values.shape), VARIANCE, CORRELATIONS).predict(new)
    np.testing.assert_allclose(exact.covariance, left[:, None, None] * B, rtol=1e-4, atol=1e-8)
    assert (law.variance >= law.noiseless_variance).all() and (exact.variance >= 0).all()


@pytest.mark.nightly
def test_with_all_points_as_inducing_points_the_process_is_the_exact_one(data):
    x, values, noise, new = data
    exact = condition(RBF(1.0), x, values, noise, VARIANCE, CORRELATIONS)
    low_rank = condition(RBF(1.0), x, values, noise, VARIANCE, CORRELATIONS, num_inducing=50)
    assert isinstance(low_rank, LowRankMultitaskProcess) and low_rank.num_inducing == len(x)
    for found, expected in zip(low_rank.predict(new), exact.predict(new), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
    assert float(low_rank.log_evidence()) == pytest.approx(float(exact.log_evidence()), rel=1e-9)


@pytest.mark.slow
def test_with_few_inducing_points_the_law_is_that_of_the_dense_fitc_prior(data):
    """The prior of the explanations written out, points outside and features inside."""
    x, values, noise, new = data
    process = condition(RBF(1.0), x, values, noise, VARIANCE, CORRELATIONS, num_inducing=5)
    z = np.asarray(process.features.landmarks)
    projected = lambda a, b: gram(a, z) @ np.linalg.solve(gram(z, z), gram(z, b))  # noqa: E731
    remainders = np.outer(1 - np.diagonal(projected(x, x)), VARIANCE)
    matrix = np.kron(projected(x, x), B) + np.diag((noise + remainders).ravel())
    law = process.predict(new)
    for number, row in enumerate(projected(new, x)):
        cross = np.kron(row[None, :], B)
        np.testing.assert_allclose(law.mean[number], cross @ np.linalg.solve(matrix, values.ravel()), rtol=1e-7)
        expected = B - cross @ np.linalg.solve(matrix, cross.T)
        np.testing.assert_allclose(law.covariance[number], expected, rtol=1e-7, atol=1e-9)
    evidence = -0.5 * (values.ravel() @ np.linalg.solve(matrix, values.ravel()) + np.linalg.slogdet(matrix)[1])
    assert float(process.log_evidence()) == pytest.approx(evidence - 18 * np.log(2 * np.pi), rel=1e-9)


def test_independent_features_have_the_law_of_the_dense_fitc_prior_of_each(data):
    x, values, noise, new = data
    process = condition(RBF(1.0), x, values, noise, VARIANCE, num_inducing=5)
    z = np.asarray(process.features.landmarks)
    projected = lambda a, b: gram(a, z) @ np.linalg.solve(gram(z, z), gram(z, b))  # noqa: E731
    left, law = 1 - np.diagonal(projected(x, x)), process.predict(new)
    for feature, size in enumerate(VARIANCE):
        matrix = size * projected(x, x) + np.diag(noise[:, feature] + size * left)
        cross = size * projected(new, x)
        np.testing.assert_allclose(law.mean[:, feature], cross @ np.linalg.solve(matrix, values[:, feature]), rtol=1e-7)
        explained = np.einsum("pn,pn->p", cross, np.linalg.solve(matrix, cross.T).T)
        np.testing.assert_allclose(law.variance[:, feature], size - explained, rtol=1e-7)
        unexplained = size * (1 - np.diagonal(projected(new, new)))
        np.testing.assert_allclose(law.noiseless_variance[:, feature], unexplained, rtol=1e-6)
    assert law.covariance is None


@pytest.mark.slow
def test_independent_features_with_all_points_are_the_exact_processes(data):
    x, values, noise, new = data
    exact = condition(RBF(1.0), x, values, noise, VARIANCE).predict(new)
    found = condition(RBF(1.0), x, values, noise, VARIANCE, num_inducing=50).predict(new)
    for name in ("mean", "variance", "noiseless_variance"):
        np.testing.assert_allclose(getattr(found, name), getattr(exact, name), rtol=1e-7, atol=1e-9)


@pytest.mark.nightly
def test_more_than_the_exact_process_can_hold():
    """A smooth function of one feature: 20 inducing points of 1500 leave errors below the noise's effect."""
    rng = np.random.default_rng(2)
    x, new = rng.uniform(-2, 2, size=(1500, 1)), np.linspace(-2, 2, 9)[:, None]
    weights = rng.normal(size=8)
    correlations = 0.99 * np.outer(np.sign(weights), np.sign(weights)) + 0.01 * np.eye(8)
    truth = lambda a: np.sin(2 * a) * weights  # noqa: E731
    values = truth(x) + 0.3 * rng.normal(size=(1500, 8))
    arguments = RBF(0.7), x, values, np.full(values.shape, 0.09), np.square(weights), correlations
    with pytest.raises(ValueError, match="give a `num_inducing` of at most 1000"):
        condition(*arguments)
    law = condition(*arguments, num_inducing=20).predict(new)
    # Standard deviations of about 0.02, of 72 values.
    assert (np.abs(law.mean - truth(new)) < 4 * law.variance**0.5).all() and law.variance.max() < 0.05**2


@pytest.mark.slow
def test_uncorrelated_features_are_independent_processes(data):
    x, values, noise, new = data
    together = condition(RBF(1.0), x, values, noise, VARIANCE, np.eye(3)).predict(new)
    apart = ExplanationProcess.condition(RBF(1.0), x, values, noise, VARIANCE).predict(new)
    np.testing.assert_allclose(together.mean, apart.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(together.variance, apart.variance, rtol=1e-9)
    np.testing.assert_allclose(together.noiseless_variance, apart.noiseless_variance, rtol=1e-9)
    np.testing.assert_allclose(together.covariance[:, 0, 1], 0.0, atol=1e-12)


def test_correlations_are_estimated_around_zero():
    values = np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [-1.0, 2.0, 0.0]])
    found = estimate_correlations(values)
    assert found[0, 1] == pytest.approx((2 + 8 - 2) / np.sqrt(6 * 24), rel=1e-5)
    np.testing.assert_array_equal(found[2], [0.0, 0.0, 1.0])
    assert np.linalg.eigvalsh(found)[0] > 0


@pytest.fixture(scope="module")
def background():
    return np.random.default_rng(1).normal(size=(20, 2))


def model(x):
    return np.asarray(x)[:, 0] ** 2 - np.asarray(x)[:, 1]


def fit(background, feature_covariance, **changes):
    values = np.stack([background[:, 0], 0.5 * background[:, 0] + 0.1], axis=1)
    explanation = Explanation.create(values, 0.0, model(background), background, variance=np.full(values.shape, 0.05))
    options = {"margin": "level", "boundary": BisectionSampler(max_points=30), "decay": 1.0, "concentration": 1.0}
    options |= changes
    gpec = GPEC("kernel-shap", background, lengthscale=1.0, feature_covariance=feature_covariance, **options)
    return gpec.fit(model, explanation=explanation, rng_key=jax.random.key(0))


@pytest.mark.slow
def test_the_explanation_has_their_covariance(background, tmp_path):
    matrix = np.array([[1.0, 0.45], [0.45, 0.25]])
    fitted, x = fit(background, matrix), background[:3] + 0.3
    found = fitted.explain(x)
    assert found.covariance.dims == ("instance", "feature", "feature_other")
    np.testing.assert_allclose(found.variance_parts.sum("part"), found.variance, rtol=1e-9)
    # Both features are nearly one function, so what is seen of one tells of the other, and the correlation stays.
    independent = fit(background, np.diag(np.diagonal(matrix))).explain(x)
    assert (found.variance.values < independent.variance.values).all()
    assert (found.covariance.values[:, 0, 1] > 0).all()
    draws = found.sample(jax.random.key(1), 4000).values
    np.testing.assert_allclose(draws.var(("chain", "draw")), found.variance, rtol=4 * np.sqrt(2 / 4000))
    fitted.save(tmp_path / "f.nc")
    read = FittedGPEC.load(tmp_path / "f.nc", model)
    assert read.explain(x).dataset.identical(found.dataset)
    own = Explanation.create(x, 0.0, model(x), x, variance=np.full(x.shape, 0.2))
    assessed = fitted.assess(own)
    np.testing.assert_allclose(assessed.variance, found.variance + 0.2, rtol=1e-9)
    np.testing.assert_allclose(assessed.covariance[:, 0, 1], found.covariance[:, 0, 1], rtol=1e-9)
    added = fitted.add(own)
    assert isinstance(added.outputs[0].process, MultitaskProcess)
    assert (added.explain(x).variance.values < found.variance.values).all()


@pytest.mark.slow
def test_correlations_of_the_background_are_used(background):
    fitted = fit(background, "estimated")
    process = fitted.outputs[0].process
    np.testing.assert_allclose(process.correlations, estimate_correlations(process.values), rtol=1e-12)
    assert fitted.hyperparameters["method"] == "heuristic"


@pytest.mark.nightly
@pytest.mark.parametrize("covariance", ["estimated", None])
def test_inducing_points_are_kept_in_files_and_with_further_explanations(background, tmp_path, covariance):
    fitted, x = fit(background, covariance, num_inducing=20), background[:3] + 0.3
    found = fitted.explain(x)
    exact = fit(background, covariance).explain(x)
    np.testing.assert_allclose(found.values, exact.values, rtol=1e-6)
    fitted.save(tmp_path / "f.nc")
    assert FittedGPEC.load(tmp_path / "f.nc", model).explain(x).dataset.identical(found.dataset)
    added = fitted.add(Explanation.create(x, 0.0, model(x), x, variance=np.full(x.shape, 0.2)))
    for other in (added, fitted.with_hyperparameters(lengthscale=0.8)):
        assert other.outputs[0].process.num_inducing == 20


@pytest.mark.parametrize(
    ("covariance", "match"),
    [
        (np.eye(3), r"must have shape \(2, 2\)"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "positive semi-definite"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), "must be symmetric"),
        ("guessed", "must be a matrix, 'estimated' or None"),
    ],
)
def test_bad_covariances_are_refused(covariance, match, background):
    with pytest.raises(ValueError, match=match):
        fit(background, covariance)


def test_too_many_are_refused():
    size = MAX_SIZE // 2 + 1
    with pytest.raises(ValueError, match="give a `num_inducing` of at most 4000"):
        condition(RBF(1.0), np.zeros((size, 1)), np.zeros((size, 2)), np.ones((size, 2)), np.ones(2), np.eye(2))
    with pytest.raises(ValueError, match="`num_inducing` needs noise of positive variance"):
        condition(RBF(1.0), np.eye(3), np.ones((3, 2)), np.zeros((3, 2)), np.ones(2), np.eye(2), num_inducing=2)
    with pytest.raises(ValueError, match="give `num_inducing`"):
        condition(RBF(1.0), np.zeros((40_000, 1)), *np.ones((2, 40_000, 1)), np.ones(1))
    with pytest.raises(ValueError, match="not both"):
        GPEC("lime", np.zeros((3, 2)), variance=1.0, feature_covariance=np.eye(2))
