"""Adversarial partners reach the boundary wherever a box of the largest radius does."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.storage import serialization
from kpp_gpec import PGDSampler, class_margin

KEY = jax.random.key(0)


def circle(x):
    return 1.0 - (x**2).sum(axis=1)


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(0).normal(size=(200, 3)) * [1.0, 2.0, 0.5]


def test_points_are_on_the_boundary(points):
    sample = PGDSampler(max_points=100).sample(KEY, circle, points)
    assert sample.num_points == 100
    # Segments are 1e-6 standard deviations long, of features whose deviations are at most 2.
    np.testing.assert_allclose(np.linalg.norm(sample.points, axis=1), 1.0, atol=4e-6)
    assert sample.num_pairs == 200
    assert sample.num_converged == 200
    assert float(sample.widths.max()) <= 1e-6


def test_a_plane_is_reached_by_the_rows_whose_box_it_cuts(points):
    """A box of half-widths e r_j reaches the plane w'x = b from x if |w'x - b| < e sum_j |w_j| r_j."""
    weights, level, radius = np.array([1.0, -0.5, 3.0]), 0.7, 0.05
    sampler = PGDSampler(radii=(0.01, radius), num_steps=61, max_points=1)  # 61 steps cross the box from end to end
    sample = sampler.sample(KEY, lambda x: x @ weights - level, points)
    # The box of all rows cuts corners off single boxes, so corners beyond it are out of reach.
    corners = np.sign(level - points @ weights)[:, None] * np.sign(weights) * radius * np.ptp(points, axis=0)
    ends = np.clip(points + corners, points.min(axis=0), points.max(axis=0))
    expected = (ends @ weights > level) != (points @ weights > level)
    assert sample.num_converged == expected.sum()
    assert 10 < expected.sum() < 190


def test_adversaries_are_near_their_seeds():
    """Of a plane that all rows can reach, the crossing is within the smallest radius on the list that reaches it."""
    x = np.array([[0.0, 0.0], [0.1, 0.9], [0.35, 0.2], [1.0, 1.0]])
    sampler = PGDSampler(radii=(0.1, 0.2, 0.4, 0.8), num_steps=61)
    sample = sampler.sample(KEY, lambda x: x[:, 0] - 0.45, x)
    assert sample.num_points == 4
    distances = np.abs(np.asarray(sample.points)[:, None] - x[None]).max(axis=-1).min(axis=1)
    assert distances.max() <= 0.8
    np.testing.assert_allclose(sample.points[:, 0], 0.45, atol=1e-6)


@pytest.mark.nightly
def test_constant_features_stay_as_they_are(points):
    x = np.column_stack([points, np.full(200, 3.0)])
    sample = PGDSampler(max_points=20).sample(KEY, lambda x: circle(x[:, :3]) + 0.1 * (x[:, 3] - 3), x)
    np.testing.assert_array_equal(sample.points[:, 3], 3.0)


def test_the_other_side_is_found_where_no_row_lies_on_it(points):
    inside = points[np.linalg.norm(points, axis=1) < 1]
    sample = PGDSampler(max_points=20).sample(KEY, circle, inside)
    assert sample.found
    np.testing.assert_allclose(np.linalg.norm(sample.points, axis=1), 1.0, atol=4e-6)


def test_a_model_of_one_class_has_no_boundary(points):
    sample = PGDSampler().sample(KEY, lambda x: 1.0 + 0.0 * x[:, 0], points)
    assert not sample.found
    assert "no boundary" in sample.status


@pytest.mark.slow
def test_a_neural_classifier_is_undecided_at_its_boundary(classifier, moons):
    margin = jax.jit(class_margin(classifier.logits, 1))
    sample = PGDSampler(max_points=50).sample(KEY, margin, moons[0])
    assert sample.num_points > 20
    np.testing.assert_allclose(classifier.predict_proba(sample.points)[:, 1], 0.5, atol=1e-4)


@pytest.mark.slow
def test_several_classes_have_a_boundary_each(points):
    def scores(x):
        return jnp.stack([x[:, 0], -x[:, 0], x[:, 1]], axis=1)

    for index in range(3):
        sample = PGDSampler(max_points=30).sample(KEY, class_margin(scores, index), points)
        values = np.sort(scores(sample.points), axis=1)
        np.testing.assert_allclose(values[:, -1], values[:, -2], atol=1e-5)
        assert (np.argmax(scores(sample.points + 1e-9), axis=1) != index).any()


def test_the_same_key_gives_the_same_points(points):
    first, again = (PGDSampler(max_points=20).sample(KEY, circle, points) for _ in range(2))
    np.testing.assert_array_equal(first.points, again.points)


@pytest.mark.slow
def test_it_can_be_written_into_a_spec():
    sampler = PGDSampler(max_points=7, radii=(0.1, 0.5))
    assert serialization.from_spec(serialization.to_spec(sampler), "data") == sampler


def test_a_function_without_gradient_is_refused(points):
    with pytest.raises(TypeError, match="`margin` must be written in JAX"):
        PGDSampler().sample(KEY, lambda x: np.asarray(x)[:, 0], points)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_seeds": 0}, "`num_seeds` must be at least 1"),
        ({"num_steps": 0}, "`num_steps` must be at least 1"),
        ({"radii": (0.2, 0.1)}, "`radii` must be positive and increase"),
        ({"radii": ()}, "`radii` must be positive and increase"),
        ({"width": 0.0}, "`width` must be positive"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PGDSampler(**options)
