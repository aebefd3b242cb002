"""Collider regression against reference vectors, refits and Gaussian vectors by NumPy, and finite populations."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist
from numpyro.infer.util import log_density
from scipy.stats import multivariate_normal

import kpp
from kpp.causal import CausalDAG, ColliderError
from kpp.kernels import RBF, Projected
from kpp_models import ColliderRegression, ColliderRidge, GPClassification, GPRegression, KernelRidge
from oracles.kernels import rbf

VECTORS = dict(np.load(Path(__file__).parents[2] / "data" / "collider.npz"))
X, SAMPLE, QUERY = (np.hstack([VECTORS[f"in_X{part}{s}"] for part in (1, 2, 3)]) for s in ("", "u", "q"))
Y = VECTORS["in_y"]
LR, LL, L3 = (float(VECTORS[f"in_ls_{name}"]) for name in ("r", "l", "l3"))
LAMBDA, LAMBDA0 = (float(VECTORS[f"in_{name}_total"]) / len(X) for name in ("lambda", "lambda0"))
GAMMA = float(VECTORS["in_gamma_total"]) / len(SAMPLE)
PRODUCT = (RBF(LR).on((0,)) + 1.0) * RBF(LL).on((1, 2))
SIMPLE = {"children": (0,), "spouses": (1, 2), "center": False}
BASELINE = {"baseline_kernel": RBF(L3), "baseline_regularization": LAMBDA0}
DAG = SIMPLE | BASELINE | {"parents": (3,)}


def ridge(name: str, **changes) -> ColliderRidge:
    """The model whose predictions are the vector of that name."""
    fields = DAG if "dag" in name else SIMPLE
    fields = fields | {"projection": "space" if "HP" in name else "function"} | changes
    if "general" in name:
        return ColliderRidge(PRODUCT, RBF(LL), LAMBDA, GAMMA, form="general", **fields)
    return ColliderRidge(RBF(LR), RBF(LL), LAMBDA, GAMMA, **fields)


@jax.jit
def evaluate(model, data, query):
    return model.function_draw({}, data)(query), model.loo_residuals(data)


class Peer:
    """Kernel ridge regression and its projection, by explicit averages of kernel values; X and SAMPLE as above."""

    def __init__(self, columns, form, sample, restores=False):
        """With `restores`, the expectation given the parents is put back."""
        self.columns, self.form, self.sample, self.restores = list(columns), form, sample, restores

    def kernel(self, a, b):
        return (rbf(a[:, :1], b[:, :1], LR) + 1.0) * rbf(a[:, self.columns], b[:, self.columns], LL)

    def terms(self, x):
        """The points whose values a projected function at x combines, and the weights: f(x) - sum_j w_j f(...)."""
        condition = self.sample[:, self.columns]
        matrix = rbf(condition, condition, LL) + GAMMA * len(condition) * np.eye(len(condition))
        weights = np.linalg.solve(matrix, rbf(condition, x[:, self.columns], LL)).T
        # In the product form h(x1, c) is averaged over x1 alone.
        others = np.repeat(self.sample[None], len(x), 0)
        if self.form == "product":
            others[:, :, self.columns] = x[:, None, self.columns]
        points = np.concatenate([x[:, None], others], axis=1).reshape(-1, x.shape[1])
        rows = np.concatenate([np.ones((len(x), 1)), -weights], axis=1)
        if self.restores:
            parents = self.sample[:, 3:]
            matrix = rbf(parents, parents, L3) + GAMMA * len(parents) * np.eye(len(parents))
            rows = np.concatenate([rows, np.linalg.solve(matrix, rbf(parents, x[:, 3:], L3)).T], axis=1)
            kept = np.repeat(self.sample[None], len(x), 0)
            points = np.concatenate([points.reshape(len(x), -1, x.shape[1]), kept], axis=1).reshape(-1, x.shape[1])
        operator = np.zeros((len(x), *rows.shape))
        operator[np.arange(len(x)), np.arange(len(x))] = rows
        return points, operator.reshape(len(x), -1)

    def covariance(self, a, b, first=True, second=True):
        """The covariance of g, or of P g, at a with that at b."""
        (points1, left), (points2, right) = (
            self.terms(x) if project else (x, np.eye(len(x))) for x, project in ((a, first), (b, second))
        )
        return left @ self.kernel(points1, points2) @ right.T


def refit_without(i, model, peer):
    """What the fit to all rows but i lacks of target i, totals of the regularizations kept."""
    keep = np.arange(len(X)) != i
    mean = Y[keep].mean() if model.center else 0.0
    residual, baseline = Y[keep] - mean, mean
    if model.parents:
        a, b = X[keep][:, 3:], X[i : i + 1, 3:]
        coefficients = np.linalg.solve(rbf(a, a, L3) + len(X) * LAMBDA0 * np.eye(keep.sum()), residual)
        residual, baseline = residual - rbf(a, a, L3) @ coefficients, mean + rbf(b, a, L3) @ coefficients
    projects = model.projection == "space"
    gram = peer.covariance(X[keep], X[keep], projects, projects)
    coefficients = np.linalg.solve(gram + len(X) * LAMBDA * np.eye(keep.sum()), residual)
    found = peer.covariance(X[i : i + 1], X[keep], model.projection != "none", projects) @ coefficients
    return (Y[i] - baseline - found).item()


slow = pytest.mark.slow


@pytest.mark.slow_variants("dag_HP")
@pytest.mark.nightly_variants("P_product", "P_general", "HP_product")
@pytest.mark.parametrize(
    "name",
    [
        "dag_HP",
        pytest.param("dag_P", marks=slow),
        *(pytest.param(f"{p}_{f}", marks=slow) for p in ("P", "HP") for f in ("product", "general")),
    ],
)
def test_reference_vectors_and_leave_one_out_against_refits(name):
    model, data, _ = ridge(name).prepare(X, Y, SAMPLE, use_labeled=False)
    found, residuals = evaluate(model, data, jnp.asarray(QUERY))
    assert found == pytest.approx(VECTORS[f"out_{name}"], rel=1e-7, abs=1e-10)
    peer = Peer(model.condition, model.form, SAMPLE)
    expected = [refit_without(i, model, peer) for i in range(len(X))]
    assert residuals == pytest.approx(np.array(expected), rel=1e-7, abs=1e-10)  # condition numbers below 1e3


@pytest.mark.nightly_variants("dag_P", "P_product")
@slow
@pytest.mark.parametrize("name", ["dag_P", "dag_HP", "P_product", "HP_general", "dag_none"])
def test_leave_one_out_refits_the_mean_and_uses_unlabeled_rows(name):
    changes = {"projection": "none"} if "none" in name else {}
    model, data, _ = ridge(name, center=True, **changes).prepare(X, Y, SAMPLE)
    assert data["sample"].shape == (19, 4)
    peer = Peer(model.condition, model.form, np.concatenate([X, SAMPLE]))
    expected = [refit_without(i, model, peer) for i in range(len(X))]
    assert evaluate(model, data, jnp.asarray(QUERY))[1] == pytest.approx(np.array(expected), rel=1e-7, abs=1e-10)


def posterior(model, peer, query):
    """Mean and covariance of f = m + f_0 + g (or P g) at the query given Y, of the joint Gaussian vector."""
    in_space = model.projection == "space"
    prior = peer.covariance(X, X, in_space, in_space)
    cross, own = peer.covariance(query, X, True, in_space), peer.covariance(query, query)
    if model.parents:
        a, b = X[:, 3:], query[:, 3:]
        prior, cross, own = prior + rbf(a, a, L3), cross + rbf(b, a, L3), own + rbf(b, b, L3)
    gain = np.linalg.solve(prior + 0.2 * np.eye(len(prior)), cross.T).T
    return 0.3 + gain @ (Y - 0.3), own - gain @ cross.T


def gaussian_process(projection, form="product", parents=(3,)) -> ColliderRegression:
    general = (RBF(LR).on((0,)) + 1.0) * RBF(LL).on((1, 2, *parents))
    kernel = RBF(LR) if form == "product" else general
    parts = {"children": (0,), "spouses": (1, 2), "parents": parents, "baseline_kernel": RBF(L3) if parents else None}
    return ColliderRegression(kernel, RBF(LL), 0.2, GAMMA, projection=projection, form=form, mean=0.3, **parts)


@pytest.mark.nightly_variants("function-general-parents2", "function-general-parents4", "space-general-parents5")
@pytest.mark.slow_variants("function-product-parents0")
@pytest.mark.parametrize(
    ("projection", "form", "parents"),
    [
        ("function", "product", ()),
        pytest.param("function", "product", (3,), marks=slow),
        pytest.param("function", "general", (3,), marks=slow),
        pytest.param("space", "product", (3,), marks=slow),
        pytest.param("function", "general", (), marks=slow),
        pytest.param("space", "general", (), marks=slow),
    ],
)
def test_posterior_and_evidence_are_those_of_a_joint_gaussian_vector(projection, form, parents):
    model, data, _ = gaussian_process(projection, form, parents).prepare(X, Y, SAMPLE)
    query = np.concatenate([QUERY, X[:1]])

    @jax.jit
    def predict(model, data, query):
        found = model.predictive({}, data, query, covariance=True)
        return found, model.log_likelihood({}, data)["y"], log_density(model.numpyro_model, (), data, {})[0]

    found, pointwise, evidence = predict(model, data, jnp.asarray(query))
    restores = projection == "function" and bool(parents)
    peer = Peer(model.condition, form, np.concatenate([X, SAMPLE]), restores)
    mean, covariance = posterior(model, peer, query)
    assert found["mean"] == pytest.approx(mean, abs=1e-10)  # condition numbers below 1e3
    assert found["latent_covariance"] == pytest.approx(covariance, abs=1e-10)
    assert found["latent_variance"] == pytest.approx(np.diagonal(covariance), abs=1e-10)
    # The first row left out, by conditioning on the others.
    in_space = projection == "space"
    prior = peer.covariance(X, X, in_space, in_space)
    cross = peer.covariance(X[:1], X, True, in_space)
    own = peer.covariance(X[:1], X[:1])
    if parents:
        prior, cross, own = (
            m + rbf(a[:, 3:], b[:, 3:], L3) for m, a, b in ((prior, X, X), (cross, X[:1], X), (own, X[:1], X[:1]))
        )
    assert evidence == pytest.approx(multivariate_normal(np.full(8, 0.3), prior + 0.2 * np.eye(8)).logpdf(Y), abs=1e-9)
    rest = slice(1, None)
    gain = np.linalg.solve(prior[rest, rest] + 0.2 * np.eye(7), cross[0, rest])
    expected = dist.Normal(0.3 + gain @ (Y[rest] - 0.3), np.sqrt(own[0, 0] - gain @ cross[0, rest] + 0.2)).log_prob(
        Y[0]
    )
    assert pointwise[0] == pytest.approx(float(expected), abs=1e-9)


@pytest.mark.nightly_variants("parents1")
@slow
@pytest.mark.parametrize("parents", [(), (3,)])
def test_draws_of_new_targets_have_the_posterior_s_moments(parents):
    model, data, _ = gaussian_process("function", parents=parents).prepare(X, Y, SAMPLE)
    keys = jax.random.split(jax.random.key(3), 20_000)
    query = jnp.asarray(QUERY)
    draw = jax.jit(lambda model, data, keys: jax.lax.map(lambda k: model.draw_predictive(k, {}, data, query), keys))
    draws = np.asarray(draw(model, data, keys))
    peer = Peer((1, 2, *parents), "product", np.concatenate([X, SAMPLE]), restores=bool(parents))
    mean, covariance = posterior(model, peer, QUERY)
    covariance = covariance + 0.2 * np.eye(len(QUERY))
    variances = np.diagonal(covariance)
    # Four standard errors of the means; those of the covariances are at most sqrt(2 / draws) of the variances.
    assert np.abs(draws.mean(0) - mean).max() < 4 * np.sqrt(variances.max() / 20_000)
    scale = np.sqrt(np.outer(variances, variances))
    assert np.abs(np.cov(draws.T) / scale - covariance / scale).max() < 4 * np.sqrt(2 / 20_000)


@pytest.mark.slow_variants("parents0")
@pytest.mark.parametrize("parents", [(), pytest.param((3,), marks=slow)])
def test_no_collider_is_an_ordinary_regression(parents):
    """Without spouses, and with a projection that is switched off."""
    kernel = RBF(LR).on((0,))
    if parents:
        kernel = (kernel + 1.0) * RBF(LL).on(parents)
    fields = {"children": (0,), "spouses": (), "parents": parents, "center": False}
    model, data, _ = ColliderRidge(RBF(LR), RBF(LL) if parents else None, LAMBDA, None, **fields).prepare(X, Y, SAMPLE)
    plain, own, _ = KernelRidge(kernel, LAMBDA).prepare(X, Y)
    found, residuals = evaluate(model, data, jnp.asarray(QUERY))
    expected = jax.jit(lambda model, data, x: (model.function_draw({}, data)(x), model.loo_residuals(**data)))
    for ours, theirs in zip((found, residuals), expected(plain, own, jnp.asarray(QUERY)), strict=True):
        assert ours == pytest.approx(np.asarray(theirs), abs=1e-12)


@pytest.mark.nightly
@pytest.mark.parametrize("fields", [{"spouses": ()}, {"spouses": (3,), "projection": "none", "form": "general"}])
def test_a_process_without_a_collider_is_an_ordinary_one(fields):
    """Two features are children; a fit with draws, so that sites and leave-one-out are compared too."""
    kernel = (
        RBF(dist.LogNormal(0.0, 0.5).expand([2])).on((0, 1))
        if "form" in fields
        else RBF(dist.LogNormal(0.0, 0.5).expand([2]))
    )
    plain = kernel if "form" in fields else kernel.on((0, 1))
    noise = dist.LogNormal(-1.0, 0.5)
    regularization = {"condition_kernel": RBF(1.0), "condition_regularization": 0.1}
    model = ColliderRegression(kernel, noise_variance=noise, children=(0, 1), **regularization | fields)
    inference = kpp.MAP(num_restarts=1, progress=False)
    ours, theirs = (
        each.fit(jax.random.key(0), X, Y, inference=inference, num_prior_samples=0)
        for each in (model, GPRegression(plain, noise))
    )
    # Tolerance: that of the optimizer.
    found, expected = ours.predict(QUERY), theirs.predict(QUERY)
    assert set(found) == set(expected)
    for name in found:
        assert found[name].values == pytest.approx(expected[name].values, rel=1e-5), name
    np.testing.assert_allclose(
        ours.idata["log_likelihood"]["y"].values, theirs.idata["log_likelihood"]["y"].values, rtol=1e-5
    )


def population():
    """All of a finite population: three values of the condition, seen 4, 3 and 3 times, and targets."""
    condition = np.repeat([-1.0, 0.5, 2.0], [4, 3, 3])
    x = np.column_stack([np.linspace(-2.0, 2.0, 10) ** 3 / 4, condition])
    return x, np.sin(x[:, 0]) + 0.3 * condition


@slow
@pytest.mark.parametrize("projection", ["function", "space"])
def test_constraint_holds_on_a_finite_population(projection):
    """With a landmark at each value of the condition and no ridge the expectations are exact; E[f | C] = E[Y]."""
    x, y = population()
    fields = {"children": (0,), "spouses": (1,), "projection": projection, "num_landmarks": 3}
    model, data, _ = ColliderRidge(RBF(1.3), RBF(0.6), 0.01, 0.0, **fields).prepare(x, y)
    assert set(np.asarray(data["landmarks"])[:, 1]) == {-1.0, 0.5, 2.0}
    found, _ = evaluate(model, data, data["x"])
    means = [np.mean(np.asarray(found)[x[:, 1] == value]) for value in (-1.0, 0.5, 2.0)]
    assert means == pytest.approx([y.mean()] * 3, abs=1e-10)


@pytest.mark.slow_variants("P_general", "P_product")
@pytest.mark.parametrize("name", ["P_product", "P_general"])
def test_least_gain_is_that_of_targets_that_are_noise(name):
    """The gain is the mean square of what the projection removes; for noise it is a sum over unit targets."""
    model, eta = ridge(name), 0.3
    found = model.least_gain(X, eta, unlabeled=SAMPLE)
    removed = []
    for unit in np.eye(len(X)):
        model_, data, _ = model.prepare(X, unit, unlabeled=SAMPLE)
        plain = dataclasses.replace(model_, projection="none")
        removed.append(evaluate(plain, data, data["sample"])[0] - evaluate(model_, data, data["sample"])[0])
    np.testing.assert_allclose(found.trace, eta * np.mean(np.square(removed), axis=1).sum(), rtol=1e-9)
    # The proof: the eigenvalues of the matrix of the fit are at most n (M + lambda), with M = 2 for (r + 1) l.
    peer = Peer(model.condition, model.form, np.concatenate([X, SAMPLE]))
    fit = peer.kernel(X, X) + len(X) * LAMBDA * np.eye(len(X))
    averages = fit @ np.array(removed)
    theorem = eta * np.mean(np.square(averages), axis=1).sum() / (len(X) * (2 + LAMBDA)) ** 2
    np.testing.assert_allclose(found.theorem, theorem, rtol=1e-9)
    assert 0 < found.theorem < found.trace


def condition_errors(model, sample, coefficients):
    """What averages over all other rows of the sample lack of the unprojected fit there, row by row."""
    peer = Peer(model.condition, model.form, sample)
    errors = []
    for i in range(len(sample)):
        rest = np.delete(sample, i, axis=0)
        condition, own = rest[:, peer.columns], sample[i : i + 1, peer.columns]
        # The total ridge is that of the whole sample.
        matrix = rbf(condition, condition, LL) + GAMMA * len(sample) * np.eye(len(rest))
        weights = np.linalg.solve(matrix, rbf(condition, own, LL))[:, 0]
        if model.form == "product":
            rest[:, peer.columns] = own
        value = peer.kernel(sample[i : i + 1], X) @ coefficients
        errors.append(value.item() - weights @ peer.kernel(rest, X) @ coefficients)
    return np.array(errors)


@slow
@pytest.mark.parametrize(
    ("name", "landmarks"), [("P_product", None), ("P_product", 19), ("P_general", None), ("P_general", 19)]
)
def test_condition_is_chosen_by_leaving_out_rows_at_the_unprojected_fit(name, landmarks):
    model = ridge(name, num_landmarks=landmarks)
    grid = [GAMMA / 100, GAMMA, 10 * GAMMA]
    found = model.select_condition(X, Y, grid={"condition_regularization": grid}, unlabeled=SAMPLE)
    peer = Peer((1, 2), model.form, X)
    coefficients = np.linalg.solve(peer.kernel(X, X) + len(X) * LAMBDA * np.eye(len(X)), Y)
    expected = np.mean(condition_errors(model, np.concatenate([X, SAMPLE]), coefficients) ** 2)
    # Tolerance: with landmarks at all rows their kernel matrix is factorized, whose condition number is below 1e6.
    assert float(found.scores[1]) == pytest.approx(expected, rel=1e-8 if landmarks is None else 1e-6)
    assert found.model.condition_regularization == grid[int(np.argmin(found.scores.values))]


@pytest.mark.nightly_variants("dag_P")
@slow
@pytest.mark.parametrize("name", ["dag_P", "dag_HP"])
def test_grid_choice_takes_the_smallest_error_on_a_validation_set(name):
    model, grid = ridge(name), {"regularization": [0.001, 0.1], "condition_regularization": [GAMMA, 10 * GAMMA]}
    target = np.sin(QUERY[:, 0])
    found = model.select(X, Y, grid=grid, unlabeled=SAMPLE, validation=(QUERY, target))
    chosen, data, _ = found.model.prepare(X, Y, SAMPLE)
    error = np.mean(np.square(target - evaluate(chosen, data, jnp.asarray(QUERY))[0]))
    assert float(found.scores.min()) == pytest.approx(error, rel=1e-9)
    by_hand = [
        np.mean((target - evaluate(*prepared(model, r, g), jnp.asarray(QUERY))[0]) ** 2)
        for r in grid["regularization"]
        for g in grid["condition_regularization"]
    ]
    assert found.scores.values.ravel() == pytest.approx(np.array(by_hand), rel=1e-9)


def prepared(model, regularization, condition_regularization):
    changed = dataclasses.replace(
        model, regularization=regularization, condition_regularization=condition_regularization
    )
    return changed.prepare(X, Y, SAMPLE)[:2]


@slow
@pytest.mark.parametrize("name", ["P_product", "P_general"])
def test_condition_is_chosen_on_rows_of_a_validation_set(name):
    """The loss is the mean square of the projection of the plain fit, by explicit averages."""
    model, grid = ridge(name), {"condition_regularization": [GAMMA, 10 * GAMMA]}
    found = model.select_condition(X, Y, grid=grid, unlabeled=SAMPLE, validation=QUERY)
    peer = Peer((1, 2), model.form, np.concatenate([X, SAMPLE]))
    coefficients = np.linalg.solve(peer.kernel(X, X) + len(X) * LAMBDA * np.eye(len(X)), Y)
    projected = peer.covariance(QUERY, X, True, False) @ coefficients
    assert float(found.scores[0]) == pytest.approx(np.mean(projected**2), rel=1e-9)


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        (QUERY, "`validation` must be a tuple of points and targets"),
        ((QUERY, Y[:1]), r"`validation\[0\]`"),
        ((QUERY[:, :2], Y[:1]), r"`validation\[0\]` must have 4 columns"),
    ],
)
def test_validation_sets_that_do_not_fit_are_refused(validation, message):
    with pytest.raises(ValueError, match=message):
        ridge("P_product").select(X, Y, grid={"regularization": [0.1]}, validation=validation)


@slow
def test_grid_choice_takes_the_smallest_leave_one_out_error():
    model, grid = ridge("dag_HP"), {"regularization": [0.01, 0.1], "kernel.lengthscale": [0.5, 1.1]}
    found = model.select(X, Y, grid=grid, unlabeled=SAMPLE)
    chosen, data, _ = found.model.prepare(X, Y, SAMPLE)
    assert float(found.scores.min()) == pytest.approx(
        np.mean(np.square(evaluate(chosen, data, jnp.asarray(X))[1])), rel=1e-9
    )
    with pytest.raises(ValueError, match="`grid` must name 'condition_regularization'"):
        model.select_condition(X, Y, grid={"condition_kernel.lengthscale": [1.0]})


def two_conditions():
    """All of a finite population with two conditions that depend on each other, three values each."""
    first, second = np.meshgrid([-1.0, 0.5, 2.0], [-1.5, 0.0, 1.0], indexing="ij")
    counts = np.array([[3, 1, 1], [1, 2, 1], [1, 1, 2]]).ravel()
    conditions = np.repeat(np.column_stack([first.ravel(), second.ravel()]), counts, axis=0)
    return np.column_stack([np.linspace(-2.0, 2.0, len(conditions)) ** 3 / 4, conditions])


def averages(x, column, values):
    return np.array([values[x[:, column] == value].mean(axis=0) for value in np.unique(x[:, column])])


@slow
def test_several_constraints_hold_jointly_or_the_last_of_them_in_turn():
    """Averages of the kernel's sections, so those of every function: regressions, posterior means, their draws."""
    x = two_conditions()
    base, one, two = (RBF(1.3).on((0,)) + 1.0) * RBF(1.1).on((1, 2)), RBF(0.8).on((1,)), RBF(0.7).on((2,))
    corner = x[:, 2] == -1.5
    # Landmarks that span all functions of one condition, or all sums of functions of each.
    ends = [np.stack([x[x[:, column] == value][0] for value in np.unique(x[:, column])]) for column in (1, 2)]
    sums = np.concatenate([np.unique(x[corner], axis=0)[[0, 3, 4]], ends[1][1:]])
    jointly = Projected(base, one + two, x, 0.0, sums, "general")
    first = Projected(base, one, x, 0.0, ends[0], "general")
    in_turn = Projected(first, two, x, 0.0, ends[1], "general")
    found = [np.asarray(jax.jit(lambda kernel: kernel.gram(x))(kernel)) for kernel in (jointly, in_turn)]
    assert np.abs(averages(x, 1, found[0])).max() < 1e-10
    assert np.abs(averages(x, 2, found[0])).max() < 1e-10
    assert np.abs(averages(x, 2, found[1])).max() < 1e-10
    assert 1e-4 < np.abs(averages(x, 1, found[1])).max()  # the second projection does undo some of the first


@slow
def test_classifier_with_a_projected_kernel_obeys_the_constraint_on_the_latent_scale():
    x, _ = population()
    landmarks = np.array([[0.0, value] for value in (-1.0, 0.5, 2.0)])
    kernel = Projected(RBF(1.3).on((0,)), RBF(0.6).on((1,)), x, 0.0, landmarks)
    model, data, _ = GPClassification(kernel, mean=0.4).prepare(x, np.sin(3 * x[:, 0]) > 0)
    found = jax.jit(lambda model, data: model.predictive({}, data, data["x"])["mean"])(model, data)
    assert averages(x, 1, np.asarray(found)) == pytest.approx([0.4] * 3, abs=1e-10)
    assert np.ptp(found) > 0.1


@pytest.mark.nightly
@slow
def test_hyperparameters_are_drawn_and_the_fit_is_kept(tmp_path):
    prior = dist.LogNormal(0.0, 0.5)
    fields = SIMPLE | {"parents": (3,), "baseline_kernel": RBF(prior), "mean": 0.1}
    fields.pop("center")
    model = ColliderRegression(RBF(prior, prior), RBF(prior.expand([3])), prior, GAMMA, **fields)
    inference = kpp.NUTS(num_warmup=30, num_samples=20, num_chains=1, progress=False)
    fit = model.fit(jax.random.key(0), X, Y, unlabeled=SAMPLE, inference=inference)
    assert set(fit.draws) == {
        *("kernel.lengthscale", "kernel.variance", "condition_kernel.lengthscale", "baseline_kernel.lengthscale"),
        "noise_variance",
    }
    assert fit.idata["log_likelihood"]["y"].shape == (1, 20, 8)
    predicted = fit.predict(QUERY)["mean"]
    assert float(predicted.std("draw").min()) > 0
    fit.save(tmp_path / "fit.nc")
    np.testing.assert_allclose(kpp.Fit.load(tmp_path / "fit.nc").predict(QUERY)["mean"], predicted, rtol=1e-9)
    np.testing.assert_allclose(fit.function()(jnp.asarray(QUERY)), predicted, rtol=1e-8)


GRAPH = CausalDAG([("Y", "a"), ("b", "a"), ("c", "a"), ("p", "Y")])


def test_parts_come_from_the_graph():
    fields = {
        "kernel": RBF(LR),
        "condition_kernel": RBF(LL),
        "regularization": LAMBDA,
        "condition_regularization": GAMMA,
    }
    named = ColliderRidge.from_graph(GRAPH, "Y", **fields, **BASELINE)
    assert (named.children, named.spouses, named.parents) == (("a",), ("b", "c"), ("p",))
    placed = ColliderRidge.from_graph(GRAPH, "Y", columns=("p", "c", "b", "a", "other"), **fields, **BASELINE)
    assert (placed.children, placed.spouses, placed.parents) == ((3,), (2, 1), (0,))
    with pytest.raises(ValueError, match=r"needs the columns \['p'\], which are not among \['a', 'b', 'c'\]"):
        ColliderRidge.from_graph(GRAPH, "Y", columns=("a", "b", "c"), **fields, **BASELINE)
    with pytest.raises(ColliderError):
        ColliderRidge.from_graph(CausalDAG([("Y", "a"), ("b", "c"), ("Y", "c"), ("a", "b")]), "Y", **fields)


def test_names_of_a_data_frame_become_positions():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c", "p"])[["p", "c", "b", "a"]]
    general = (RBF(LR).on("a") + 1.0) * RBF(LL).on(("b", "c", "p"))
    fields = {"children": ("a",), "spouses": ("b", "c"), "parents": ("p",)} | BASELINE
    named = ColliderRidge(general, RBF(LL).on(("p", "b")), LAMBDA, GAMMA, form="general", **fields)
    model, data, _ = named.prepare(frame, Y, frame)
    assert (model.children, model.spouses, model.parents) == ((3,), (2, 1), (0,))
    # The kernel of the condition sees b, c, p in this order, and takes the third and the first of them.
    assert model.condition_kernel.features == (2, 0)
    np.testing.assert_array_equal(data["sample"], np.concatenate([X, X])[:, [3, 2, 1, 0]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"children": ()}, "`children` at least one"),
        ({"spouses": (0, 1)}, "must name each column once"),
        ({"condition_kernel": None}, r"`condition_kernel` is needed with spouses \(1, 2\), got None"),
        ({"condition_regularization": None}, "`condition_regularization` is needed with spouses"),
        ({"condition_regularization": -1.0}, "`condition_regularization` must be at least 0, got -1"),
        ({"regularization": 0.0}, "`regularization` must be positive"),
        ({"parents": (3,)}, r"`baseline_kernel` is needed with parents \(3,\)"),
        ({"parents": (3,), "baseline_kernel": RBF(1.0)}, "`baseline_regularization` is needed"),
        ({"projection": "both"}, r"`projection` must be one of \('space', 'function', 'none'\), got 'both'"),
        ({"form": "sum"}, "`form` must be one of"),
        ({"num_landmarks": 0}, "`num_landmarks` must be at least 1"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes, message):
    fields = {"kernel": RBF(LR), "condition_kernel": RBF(LL), "regularization": 0.1, "condition_regularization": 0.1}
    with pytest.raises(ValueError, match=message):
        ColliderRidge(**(fields | {"children": (0,), "spouses": (1, 2)} | changes))


def test_landmarks_do_not_restore_the_expectation_given_the_parents():
    with pytest.raises(ValueError, match="`num_landmarks` must be None with parents and the projection 'function'"):
        dataclasses.replace(gaussian_process("function"), num_landmarks=3)


@slow
def test_every_draw_obeys_the_constraint_on_a_finite_population_with_parents():
    """Spouse and parent have two values each, unbalanced; without a ridge, expectations are averages of rows.

    The tolerance is the ridge of 1e-9 times the number of rows, multiplied by the size of draws.
    """
    cells = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], [4, 3, 2, 5], axis=0).astype(float)
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=14), 50 * cells])  # so far apart that kernels of other cells are 0
    y = np.sin(x[:, 0]) + cells[:, 1]
    fields = {"children": (0,), "spouses": (1,), "parents": (2,), "baseline_kernel": RBF(1.0)}
    kernel = RBF(1.3).on(0) * RBF(60.0).on((1, 2))
    model, data, _ = ColliderRegression(
        kernel, RBF(1.0), 0.1, 1e-9, form="general", projection="function", **fields
    ).prepare(x, y)
    keys = jax.random.split(jax.random.key(0), 3)

    def draw(key):
        law = model.predictive({}, data, data["x"], covariance=True)
        white = jax.random.normal(key, (14,))
        values, vectors = jnp.linalg.eigh(law["latent_covariance"])
        return law["mean"] + vectors @ (jnp.sqrt(jnp.maximum(values, 0.0)) * white)

    draws = np.asarray(jax.jit(lambda keys: jax.lax.map(draw, keys))(keys))
    assert np.abs(draws - draws.mean()).max() > 0.3
    for parent in (0, 1):
        given = cells[:, 1] == parent
        means = [draws[:, given & (cells[:, 0] == spouse)].mean(axis=1) for spouse in (0, 1)]
        np.testing.assert_allclose(means[0], means[1], atol=1e-6)


def test_rows_that_do_not_fit_are_refused():
    model = ridge("HP_product")
    with pytest.raises(ValueError, match="`unlabeled` must have 4 columns"):
        model.prepare(X, Y, SAMPLE[:, :2])
    with pytest.raises(ValueError, match="`use_labeled` must be True"):
        model.prepare(X, Y, use_labeled=False)
    with pytest.raises(ValueError, match=r"needs the columns \['a'\]"):
        dataclasses.replace(model, children=("a",)).prepare(X, Y)
    with pytest.raises(
        ValueError, match="`num_landmarks` must be at most the number of rows to choose among, 8, got 9"
    ):
        ridge("HP_product", num_landmarks=9).prepare(X, Y)
    with pytest.raises(ValueError, match="`condition_kernel` cannot be evaluated on `x`"):
        dataclasses.replace(model, condition_kernel=RBF(np.ones(3))).prepare(X, Y)
    with pytest.raises(ValueError, match=r"needs spouses and no parents; got `spouses` \(1, 2\) and `parents` \(3,\)"):
        ridge("P_product_dag").least_gain(X, 0.3)
    with pytest.raises(ValueError, match="`residual_variance` must be positive"):
        ridge("P_product").least_gain(X, 0.0)
    with pytest.raises(TypeError, match="kpp_models.ColliderRegression takes them"):
        dataclasses.replace(model, kernel=RBF(dist.LogNormal(0.0, 1.0)))
