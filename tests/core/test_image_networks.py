"""Networks of images against convolutions of SciPy and pooling by hand."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.signal import correlate2d

from kpp.networks import ConvolutionalNetwork, UNet
from kpp.networks.images import Convolution
from kpp.networks.toolkit import read_image_shape

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def convolved(convolution, image):
    """The convolution of an image (c, h, w), one pair of channels after the other."""
    weights = np.asarray(convolution.linear.weight).reshape(-1, 3, 3, image.shape[0])
    return np.stack(
        [
            bias + sum(correlate2d(channel, window[:, :, c], mode="same") for c, channel in enumerate(image))
            for window, bias in zip(weights, np.asarray(convolution.linear.bias), strict=True)
        ]
    )


def relu(x):
    return np.maximum(x, 0.0)


def halved(image):
    """The largest value of each window of 2 by 2 pixels, pixel by pixel."""
    channels, height, width = image.shape
    found = np.empty((channels, height // 2, width // 2))
    for index in np.ndindex(found.shape):
        c, i, j = index
        found[index] = image[c, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max()
    return found


def as_image(x, shape):
    return np.moveaxis(x.reshape(shape), -1, 0)


@pytest.mark.slow_variants("1")
@pytest.mark.parametrize("inputs", [1, 3])
def test_a_convolution_is_that_of_scipy(inputs):
    convolution, image = Convolution(KEY, inputs, 2), RNG.normal(size=(inputs, 4, 5))
    np.testing.assert_allclose(convolution(image), convolved(convolution, image), rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_a_convolutional_network_is_its_parts():
    shape, x = (5, 4, 2), RNG.normal(size=40)
    network = ConvolutionalNetwork(KEY, shape, (3, 2), (4,), 3)
    image = as_image(x, shape)
    for convolution in network.convolutions:
        image = halved(relu(convolved(convolution, image)))
    first, last = network.head.layers
    expected = last.weight @ relu(first.weight @ image.ravel() + first.bias) + last.bias
    np.testing.assert_allclose(network(x), expected, rtol=1e-10, atol=1e-12)
    assert network.num_features == 40


@pytest.mark.slow
def test_a_u_net_is_its_parts():
    """Odd sizes are halved without their last row; on the way up an image takes the size of its level."""
    shape, x = (5, 6, 2), RNG.normal(size=60)
    network = UNet(KEY, shape, (3, 4))
    level = as_image(x, shape)
    for convolution in network.down[0]:
        level = relu(convolved(convolution, level))
    below = halved(level)
    for convolution in network.down[1]:
        below = relu(convolved(convolution, below))
    rows, columns = ((np.arange(size) + 0.5) * small / size for size, small in ((5, 2), (6, 3)))
    grown = below[:, rows.astype(int)][:, :, columns.astype(int)]
    top = relu(convolved(network.up[0], np.concatenate([level, grown])))
    expected = np.moveaxis(convolved(network.last, top), 0, -1).ravel()
    np.testing.assert_allclose(network(x), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: read_image_shape((3, 4), 10), "`image_shape` must be .* with a product of 10"),
        (lambda: read_image_shape((10,), 10), "`image_shape` must be"),
        (lambda: ConvolutionalNetwork(KEY, (3, 4, 1), (2, 2), (), 2), "`channels` must be fewer"),
        (lambda: ConvolutionalNetwork(KEY, (3, 4, 1), (), (), 2), "`channels` must be one or more"),
        (lambda: UNet(KEY, (3, 4, 1), (2, 2, 2)), "an image of 3 by 4 pixels is too small for a U-Net of 3 levels"),
        (lambda: UNet(KEY, (3, 4, 1), (0,)), "channels of a U-Net must be one or more positive"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
