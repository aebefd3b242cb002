"""Superpixels divide all pixels, in connected pieces, and follow the edges of an image."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage
from sklearn.datasets import load_digits

from kpp.games import as_players
from kpp_gpec import grid_superpixels, label_groups, slic_superpixels


def labels_of(groups, shape):
    """Return the map of labels, with every channel of a pixel checked to be in the same group."""
    channels = shape[2] if len(shape) == 3 else 1
    labels = np.full(shape[0] * shape[1] * channels, -1)
    for number, members in enumerate(groups.values()):
        assert (labels[members] == -1).all(), "a pixel in two groups"
        labels[members] = number
    labels = labels.reshape(shape[0], shape[1], channels)
    assert (labels == labels[..., :1]).all()
    return labels[..., 0]


def test_a_grid_is_what_slices_say():
    labels = labels_of(grid_superpixels((5, 6), (2, 3)), (5, 6))
    expected = np.repeat(np.repeat([[0, 1], [2, 3], [4, 5]], 2, axis=0), 3, axis=1)[:5]
    np.testing.assert_array_equal(labels, expected)
    assert list(grid_superpixels((5, 6), (2, 3))) == [f"patch {i},{j}" for i in range(3) for j in range(2)]


def test_channels_of_a_pixel_stay_together():
    groups = grid_superpixels((2, 2, 3), 1)
    assert list(groups.values()) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    labels_of(slic_superpixels(np.random.default_rng(0).uniform(size=48), (4, 4, 3), 5), (4, 4, 3))


@pytest.mark.parametrize("count", [1, 7, 16, 64])
def test_pieces_are_connected_and_hold_every_pixel(count):
    images = load_digits().data[:50] / 16
    labels = labels_of(slic_superpixels(images, (8, 8), count), (8, 8))
    assert labels.min() == 0
    assert labels.max() + 1 <= count
    assert labels.max() + 1 >= 0.6 * count
    for label in np.unique(labels):
        assert ndimage.label(labels == label)[1] == 1


def test_an_even_image_gives_pieces_of_about_equal_size():
    labels = labels_of(slic_superpixels(np.zeros(144), (12, 12), 9), (12, 12))
    # k-means on positions alone: the nine squares of side 4 are the best of all divisions.
    np.testing.assert_array_equal(np.bincount(labels.ravel()), 16)


def test_edges_are_followed():
    """Two halves of different brightness, cut where no regular grid would cut."""
    image = np.zeros((9, 9))
    image[:, 2:] = 1.0
    labels = labels_of(slic_superpixels(image.ravel(), (9, 9), 6), (9, 9))
    assert not set(labels[:, :2].ravel()) & set(labels[:, 2:].ravel())
    compact = labels_of(slic_superpixels(image.ravel(), (9, 9), 6, compactness=100.0), (9, 9))
    assert set(compact[:, :2].ravel()) & set(compact[:, 2:].ravel())


def test_the_mean_of_images_is_divided():
    images = load_digits().data[:20] / 16
    assert slic_superpixels(images, (8, 8), 12) == slic_superpixels(images.mean(axis=0), (8, 8), 12)


def test_explainers_read_the_groups():
    players = as_players(slic_superpixels(load_digits().data[0] / 16, (8, 8), 10), 64)
    assert sorted(feature for group in players.groups for feature in group) == list(range(64))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: grid_superpixels((5,), 2), "`shape` must be"),
        (lambda: grid_superpixels((5, 6), 6), "`patch` must be between 1 and the sides"),
        (lambda: grid_superpixels((5, 6), (2, 3, 1)), "`patch` must be between 1 and the sides"),
        (lambda: label_groups(np.zeros((2, 3), int), (3, 2)), "`labels` must have shape"),
        (lambda: slic_superpixels(np.zeros(12), (4, 4), 2), "`images` must have 16 columns"),
        (lambda: slic_superpixels(np.zeros(16), (4, 4), 17), "`num_superpixels` must be between 1 and 16"),
        (lambda: slic_superpixels(np.zeros(16), (4, 4), 2, compactness=0.0), "`compactness` must be positive"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
