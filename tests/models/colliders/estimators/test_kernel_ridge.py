"""ProjectedKernelRidge: scikit-learn's checks, scikit-learn's ridge without a collider, and what it chooses."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge as PeerRidge
from sklearn.utils.estimator_checks import parametrize_with_checks

from kpp.causal import CausalDAG, ColliderPartition, Independence
from kpp.kernels import RBF, median_heuristic
from kpp_models import ColliderRidge
from kpp_models.colliders.estimators.kernel_ridge import FACTORS, GRID
from kpp_models.estimators import ProjectedKernelRidge

FIXED = {"lengthscale": 1.5, "regularization": 0.01, "condition_regularization": 0.02, "check": False}


@pytest.mark.slow
@parametrize_with_checks([ProjectedKernelRidge(Independence("y", (0,)), **FIXED)])
def test_is_an_estimator_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.nightly
@parametrize_with_checks([ProjectedKernelRidge(**FIXED)])
def test_is_an_estimator_without_a_collider(estimator, check):
    check(estimator)


def draw(seed, n):
    """The marker is an effect of the target and of two others, of which one is a cause of the other."""
    rng = np.random.default_rng(seed)
    weight, y = rng.normal(size=(2, n))
    age = 0.5 * weight + rng.normal(size=n)
    marker = y + np.sin(weight) + 0.5 * age + 0.3 * rng.normal(size=n)
    return np.column_stack([weight, marker, age]), y


@pytest.mark.slow
def test_without_a_collider_it_is_ordinary():
    x, y = draw(0, 30)
    found = ProjectedKernelRidge(lengthscale=1.5, regularization=0.01).fit(x, y).predict(x[:5])
    peer = PeerRidge(alpha=30 * 0.01, kernel="rbf", gamma=0.5 / 1.5**2).fit(x, y - y.mean())
    assert found == pytest.approx(y.mean() + peer.predict(x[:5]), abs=1e-10)


@pytest.mark.slow
def test_is_the_model_with_the_parts_of_the_statement():
    (x, y), (further, _) = draw(0, 20), draw(1, 9)
    estimator = ProjectedKernelRidge(ColliderPartition("y", (1,), (0, 2)), **FIXED).fit(x, y, further)
    assert [str(statement) for statement in estimator.statements_] == ["y _||_ 0, 2"]
    model = estimator.model_
    assert isinstance(model, ColliderRidge)
    assert (model.children, model.spouses, model.parents, model.num_landmarks) == ((1,), (0, 2), (), None)
    np.testing.assert_array_equal(model.kernel.lengthscale, [1.5])
    np.testing.assert_array_equal(estimator.function_.kernel.points, np.concatenate([x, further]))
    np.testing.assert_allclose(estimator.predict(x), estimator.function_(jnp.asarray(x)), atol=1e-10)


@pytest.mark.slow
def test_what_is_not_given_is_chosen():
    pandas = pytest.importorskip("pandas")
    (x, y), (further, _) = draw(0, 30), draw(1, 40)
    frame, others = (pandas.DataFrame(rows, columns=["weight", "marker", "age"]) for rows in (x, further))
    graph = CausalDAG([("y", "marker"), ("weight", "marker"), ("weight", "age"), ("age", "marker")])
    estimator = ProjectedKernelRidge(graph, outcome="y", random_state=0).fit(frame, y, others)
    model = estimator.model_
    assert (model.children, model.spouses) == ((1,), (0, 2))
    assert estimator.independence_tests_[0].p_value > 0.01
    scale = np.asarray(median_heuristic(np.concatenate([x, further])))
    factors = model.condition_kernel.lengthscale / (scale[[0, 2]] * 2**0.5), model.kernel.lengthscale / scale[1]
    factor = float(factors[1][0])
    assert factor in FACTORS
    np.testing.assert_allclose(factors[0], factor)
    # Both are what the model's own searches choose, one given the other.
    found = model.select(x, y, grid={"regularization": GRID}, unlabeled=further)
    assert model.regularization == found.chosen["regularization"]
    plain = ColliderRidge(model.kernel, model.condition_kernel, 1.0, 1.0, (1,), (0, 2), projection="none")
    plain = plain.select(x, y, grid={"regularization": GRID}).model
    chosen = plain.select_condition(x, y, grid={"condition_regularization": GRID}, unlabeled=further).chosen
    assert model.condition_regularization == chosen["condition_regularization"]
    # Of all factors, this one has the least leave-one-out error without a projection.
    errors = []
    for each in FACTORS:
        kernels = [RBF(each * part) for part in (scale[[1]], scale[[0, 2]] * 2**0.5)]
        plain = ColliderRidge(*kernels, 1.0, 1.0, (1,), (0, 2), projection="none")
        errors.append(plain.select(x, y, grid={"regularization": GRID}).scores.values.min())
    assert FACTORS[int(np.argmin(errors))] == factor


@pytest.mark.slow
def test_several_statements_hold_jointly():
    """Averages of the fit over a large sample, near values of each condition, are those of y."""
    (x, y), (further, _) = draw(0, 30), draw(1, 400)
    statements = [Independence("y", (0,)), Independence("y", (2,))]
    estimator = ProjectedKernelRidge(statements, form="general", lengthscale=1.0, regularization=1e-3, check=False)
    estimator.set_params(condition_regularization=1e-6).fit(x, y, further)
    rows = np.concatenate([x, further])
    found = estimator.predict(rows) - y.mean()
    ordinary = ProjectedKernelRidge(lengthscale=1.0, regularization=1e-3).fit(x, y).predict(rows) - y.mean()
    for column in (0, 2):
        basis = np.polynomial.polynomial.polyvander(rows[:, column], 3)
        left = [np.linalg.norm(basis @ np.linalg.lstsq(basis, values)[0]) for values in (found, ordinary)]
        assert left[0] < 0.05 * left[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"collider": Independence("y", (0, 1, 2))}, "must leave a feature .* n_features = 3"),
        ({"collider": [Independence("y", (0,)), Independence("y", (2,))]}, "`form` must be 'general' for 2 statements"),
        ({"collider": [Independence("y", (0,)), Independence("y", (2,), (0,))]}, "given the same variables"),
        ({"collider": Independence("y", (0,)), "projection": "both"}, "`projection` must be one of"),
        ({"collider": Independence("y", (0,)), "num_landmarks": "all"}, "`num_landmarks` must be a number, None or"),
        ({"lengthscale": np.ones(2)}, "`lengthscale` must be a number or one for each of 3 columns, got shape"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ProjectedKernelRidge(**(FIXED | arguments)).fit(*draw(0, 6))
