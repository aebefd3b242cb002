"""Boundary samplers against boundaries known in closed form."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import expit
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.tree import DecisionTreeClassifier

from kpp.storage.serialization import from_spec, to_spec
from kpp_gpec import BisectionSampler, GradientSampler, class_margin, level_margin, steep_margin
from kpp_gpec.boundary.bisection_sampler import walk
from kpp_gpec.boundary.brackets import Brackets, CountedMargin

KEY = jax.random.key(0)
WIDTH = 1e-6
SAMPLERS = [
    *(BisectionSampler(max_points=150, seeds=seeds) for seeds in ("training", "walk", "both")),
    GradientSampler(max_points=150),
]
IDS = ["training", "walk", "both", "gradient"]


def rows(d, n=400, seed=0):
    """Rows whose features have mean 0 and standard deviation 1, so that theirs are the standard units."""
    x = np.random.default_rng(seed).normal(size=(n, d))
    return (x - x.mean(axis=0)) / x.std(axis=0)


# Margins compute with NumPy if they get NumPy arrays: JAX would compile each operation for each number of points.
def library(x):
    return jnp if isinstance(x, jax.Array) else np


def sigmoid(t):
    return jax.nn.sigmoid(t) if isinstance(t, jax.Array) else expit(t)


def plane(x):
    """The signed distance to a plane, times 3."""
    return 2.0 * x[:, 0] - x[:, 1] + 2.0 * x[:, 2] - 0.9


def ball(x):
    """The distance from the center less 1.2, in five dimensions."""
    return library(x).sqrt((x**2).sum(axis=1)) - 1.2


def waves(x):
    """The paper's curve, standardized as its first feature is drawn from (-10, 10)."""
    return x[:, 1] - 2.0 * library(x).cos(10.0 / (5.0 * x[:, 0]))


def sharp(x):
    """A probability that is 0 or 1 but for a thousandth of a standard deviation about a plane."""
    return sigmoid(1e3 * plane(x)) - 0.5


def probability(x):
    """A probability with the sphere of radius 1.2 for its boundary, flat far from it."""
    return sigmoid(10.0 * ball(x)) - 0.5


def to_plane(x):
    return np.abs(plane(x)) / 3.0


def to_sphere(x):
    return np.abs(np.linalg.norm(x, axis=1) - 1.2)


def to_waves(x):
    """The distance to the curve, to first order."""
    slope = 4.0 * np.sin(2.0 / x[:, 0]) / x[:, 0] ** 2
    return np.abs(np.asarray(waves(x))) / np.hypot(1.0, slope)


# margin, the distance of points to its boundary, number of features
BOUNDARIES = [(plane, to_plane, 3), (sharp, to_plane, 3), (ball, to_sphere, 5), (probability, to_sphere, 5)]
BOUNDARIES += [(waves, to_waves, 2)]
NAMES = ["plane", "sharp plane", "sphere", "probability", "waves"]


@pytest.mark.slow_variants("gradient-probability", "gradient-sphere", "gradient-waves")
@pytest.mark.parametrize(("margin", "distance", "d"), BOUNDARIES, ids=NAMES)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=IDS)
def test_points_are_on_the_boundary(sampler, margin, distance, d):
    x = rows(d)
    sample = sampler.sample(KEY, margin, x)
    points = np.asarray(sample.points)
    # The boundary crosses a segment that is no longer than the width and has the point for its middle; the curve's
    # distance is to first order, with a second derivative up to 1e6 near zero.
    assert (distance(points) <= (0.5 if margin is not waves else 1.5) * WIDTH).all()
    assert sample.num_points == 150 and sample.found
    assert (points >= x.min(axis=0) - WIDTH).all() and (points <= x.max(axis=0) + WIDTH).all()


@pytest.mark.parametrize("sampler", SAMPLERS, ids=IDS)
def test_reports_what_was_done(sampler):
    calls = []

    def counted(x):
        calls.append(len(x))
        return plane(x)

    sample = sampler.sample(KEY, plane, rows(3))
    assert sample.num_converged == sample.num_pairs >= sample.num_points
    assert (np.asarray(sample.widths) <= WIDTH).all() and sample.widths.shape == (150,)
    assert "150 points" in sample.status
    if isinstance(sampler, BisectionSampler):
        assert sampler.sample(KEY, counted, rows(3)).num_calls == len(calls)


@pytest.mark.slow_variants("gradient")
@pytest.mark.parametrize("sampler", SAMPLERS, ids=IDS)
def test_same_key_same_points_and_another_key_other_points(sampler):
    first, same, other = (sampler.sample(jax.random.key(seed), ball, rows(5)).points for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, same)
    assert not np.isin(first[:, 0], other[:, 0]).all()


@pytest.mark.parametrize("sampler", SAMPLERS, ids=IDS)
def test_the_units_of_the_features_do_not_matter(sampler):
    scale, shift = np.array([1e-3, 1.0, 500.0]), np.array([2.0, 0.0, -1e4])
    expected = np.asarray(sampler.sample(KEY, plane, rows(3)).points)
    found = sampler.sample(KEY, lambda x: plane((x - shift[None]) / scale[None]), rows(3) * scale + shift)
    # The same segments up to the rounding of 1e-16 of a shift of 2000 scales, which may move a crossing by the width.
    np.testing.assert_allclose((np.asarray(found.points) - shift) / scale, expected, rtol=0, atol=2 * WIDTH)


@pytest.mark.slow_variants("gradient")
@pytest.mark.parametrize("options", [{"seeds": "training"}, {"seeds": "walk"}, {"seeds": "both"}, {}], ids=IDS)
def test_the_whole_boundary_is_covered_evenly(options):
    sampler = BisectionSampler(150, num_pairs=1500, **options) if options else GradientSampler(150, num_starts=1500)
    x = rows(2)
    sample = sampler.sample(KEY, ball, x)
    angles = np.sort(np.arctan2(sample.points[:, 1], sample.points[:, 0]))
    gaps = np.diff(np.append(angles, angles[0] + 2.0 * np.pi))
    # Farthest points are within a factor of two of each other's spacing, where there are enough to choose from.
    assert gaps.max() < 4.0 * 2.0 * np.pi / 150


def test_a_walk_goes_from_one_crossing_along_both_edges_of_a_strip():
    margin = CountedMargin(lambda x: 0.3 - np.abs(x[:, 1]))
    start = Brackets(np.array([[0.0, 0.0]]), np.array([[0.0, 1.0]]), 1)
    box = np.array([-1.0, -1.0]), np.array([10.0, 1.0])
    found = walk(np.random.default_rng(0), margin, start, box, step=1.0, num_rounds=60, num_proposals=6000)
    assert (np.abs(found.inside[:, 1]) < 0.3).all() and (np.abs(found.outside[:, 1]) >= 0.3).all()
    x, y = found.midpoints.T
    np.testing.assert_allclose(np.abs(y), 0.3, rtol=0, atol=0.01)  # half of the .02 that segments are brought to
    for edge in (y > 0.0, y < 0.0):
        assert np.diff(np.sort(np.r_[-1.0, x[edge], 10.0])).max() < 0.5


def test_a_tree_is_cut_at_its_thresholds():
    x = rows(4)
    tree = DecisionTreeClassifier(max_depth=6, random_state=0).fit(x, (x[:, 0] * x[:, 1] + 0.3 * x[:, 2] > 0.1))
    sample = BisectionSampler(max_points=300).sample(KEY, class_margin(tree.predict_proba), x)
    points = np.asarray(sample.points)
    is_split = tree.tree_.feature >= 0
    gaps = np.full(len(points), np.inf)
    for feature, threshold in zip(tree.tree_.feature[is_split], tree.tree_.threshold[is_split], strict=True):
        gaps = np.minimum(gaps, np.abs(points[:, feature] - threshold))
    # scikit-learn compares in single precision, whose numbers below 4 are 2.4e-7 apart
    assert (gaps <= 0.5 * WIDTH + 2.4e-7).all()
    assert sample.num_points == 300 and sample.num_converged == sample.num_pairs


@pytest.mark.parametrize("index", [0, 1, 2])
def test_one_class_against_the_rest_of_gaussians(index):
    means = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    labels = np.arange(600) % 3
    x = means[labels] + rows(2, 600)
    model = LinearDiscriminantAnalysis().fit(x, labels)
    sample = BisectionSampler(max_points=150).sample(KEY, class_margin(model.predict_proba, index), x)
    scores = np.asarray(sample.points) @ model.coef_.T + model.intercept_
    others = [k for k in range(3) if k != index]
    rival = np.array(others)[scores[:, others].argmax(axis=1)]
    normals = (model.coef_[index] - model.coef_[rival]) * x.std(axis=0)
    gaps = np.abs(scores[:, index] - scores[np.arange(150), rival]) / np.linalg.norm(normals, axis=1)
    assert (gaps <= 0.5 * WIDTH + 1e-9).all()
    assert set(rival.tolist()) == set(others)


@functools.cache
def steep_half_square():
    """The margin of steep regions, made once, because it is compiled."""
    return steep_margin(lambda x: 0.5 * (x**2).sum(axis=1), rows(2), quantile=0.7)


@pytest.mark.slow_variants("training", "walk", "both", "gradient")
@pytest.mark.parametrize("sampler", SAMPLERS, ids=IDS)
def test_level_sets_and_steep_regions_of_a_regression(sampler):
    x = rows(2)
    level = sampler.sample(KEY, level_margin(lambda x: x[:, 0] * x[:, 1], 0.4), x).points
    # half the width in each factor, which are below 4
    np.testing.assert_allclose(level[:, 0] * level[:, 1], 0.4, rtol=0, atol=4.0 * WIDTH)
    steep = sampler.sample(KEY, steep_half_square(), x).points
    radius = np.quantile(np.linalg.norm(x, axis=1), 0.7)
    np.testing.assert_allclose(np.linalg.norm(steep, axis=1), radius, rtol=0, atol=WIDTH)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=IDS)
@pytest.mark.parametrize("probability", [0.0, 0.3, 0.5, 1.0])
def test_a_model_of_one_class_has_no_boundary(sampler, probability):
    sample = sampler.sample(KEY, class_margin(lambda x: library(x).full(len(x), probability)), rows(3))
    assert sample.points.shape == (0, 3) and sample.widths.shape == (0,)
    assert not sample.found and sample.num_points == sample.num_converged == 0
    assert "no boundary found" in sample.status and "one class only" in sample.status


def test_a_boundary_beyond_the_rows_is_found_by_mixing_features():
    line = np.linspace(0.0, 1.0, 50)
    sample = BisectionSampler(max_points=20).sample(
        KEY, lambda x: x[:, 0] - x[:, 1] - 0.5, np.stack([line] * 2, axis=1)
    )
    assert sample.num_points == 20
    np.testing.assert_allclose(sample.points[:, 0] - sample.points[:, 1], 0.5, rtol=0, atol=WIDTH)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=IDS)
def test_a_constant_feature_stays_as_it_is(sampler):
    x = np.column_stack([rows(2), np.full(400, 7.0)])
    sample = sampler.sample(KEY, lambda x: x[:, 0] + x[:, 1] + 5.0 * (x[:, 2] - 7.0) - 0.1, x)
    assert sample.num_points == 150
    np.testing.assert_array_equal(sample.points[:, 2], 7.0)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=IDS)
def test_one_feature_has_a_point_for_each_crossing(sampler):
    x = np.linspace(-3.0, 3.0, 201)[:, None]
    sample = sampler.sample(KEY, lambda x: library(x).sin(2.0 * x[:, 0] + 0.5), x)
    expected = [(k * np.pi - 0.5) / 2.0 for k in (-1, 0, 1, 2)]
    if sampler.__class__ is GradientSampler or sampler.seeds == "training":
        np.testing.assert_allclose(np.sort(sample.points[:, 0]), expected, rtol=0, atol=2 * WIDTH)
    else:  # a walk may not meet a crossing near the ends
        assert np.abs(np.asarray(sample.points) - np.array(expected)).min(axis=1).max() <= 2 * WIDTH


def test_near_points_are_one():
    sampler = BisectionSampler(max_points=500, tolerance=0.2)
    points = np.asarray(sampler.sample(KEY, ball, rows(2)).points)
    distances = cdist(points, points) + np.eye(len(points))
    assert 10 < len(points) < 500 and distances.min() > 0.2


@pytest.mark.parametrize("sampler", SAMPLERS, ids=IDS)
def test_survives_the_round_trip_through_a_spec(sampler):
    spec = to_spec(sampler)
    assert from_spec(spec | {"kind": "data"}, "kernels") == sampler


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BisectionSampler(max_points=0), "`max_points` must be at least 1, got 0"),
        (lambda: GradientSampler(width=0.0), "`width` must be positive, got 0.0"),
        (lambda: GradientSampler(tolerance=-1.0), "`tolerance` must be at least 0, got -1.0"),
        (lambda: BisectionSampler(seeds="grid"), "`seeds` must be one of .'training', 'walk', 'both'., got 'grid'"),
        (lambda: BisectionSampler(num_pairs=0), "`num_pairs` must be at least 1"),
        (lambda: BisectionSampler(step=-1.0), "`step` must be positive"),
        (lambda: BisectionSampler(num_rounds=0), "`num_rounds` must be at least 1"),
        (lambda: GradientSampler(num_starts=0), "`num_starts` must be at least 1"),
        (lambda: GradientSampler(num_steps=0), "`num_steps` must be at least 1"),
        (lambda: GradientSampler(step=0.0), "`step` must be positive"),
        (lambda: SAMPLERS[0].sample(KEY, plane, np.full((3, 3), np.nan)), "`x` must be finite, got 9 NaN"),
        (lambda: SAMPLERS[0].sample(KEY, lambda x: np.full(len(x), np.nan), rows(3)), "must return finite numbers"),
        (lambda: SAMPLERS[3].sample(KEY, lambda x: x[:, 0] * jnp.nan, rows(3)), "must return finite numbers"),
    ],
)
def test_says_what_is_wrong(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_gradients_need_a_model_in_jax():
    with pytest.raises(TypeError, match="`margin` must be written in JAX.*BisectionSampler takes any function"):
        GradientSampler().sample(KEY, lambda x: np.sin(np.asarray(x)[:, 0]), rows(2))
