r"""Small neural networks of images: one that classifies or regresses, and one with an output for each pixel.

An image is one row of a table: its pixels from left to right and from top to bottom, the channels of a pixel side by
side. `kpp.networks.train` trains both networks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.foundation.validation import check_rng_key
from kpp.networks.networks import MLP, activate
from kpp.typing import AnyArray, RngKey

_SHIFTS = [(i, j) for i in range(3) for j in range(3)]


def read_image_shape(shape: Sequence[int], num_features: int) -> tuple[int, int, int]:
    """Return height, width and channels of images that have a number of features.

    Args:
        shape: (height, width), or (height, width, channels).
        num_features: The number of columns of the table, d.

    Raises:
        ValueError: If the shape does not have two or three positive sizes, or their product is not d.
    """
    sizes = tuple(int(size) for size in shape)
    if len(sizes) not in (2, 3) or min(sizes) < 1 or math.prod(sizes) != num_features:
        raise ValueError(
            f"`image_shape` must be (height, width) or (height, width, channels) with a product of {num_features}, the "
            f"number of columns, got {sizes}"
        )
    return sizes[0], sizes[1], sizes[2] if len(sizes) == 3 else 1


class Convolution(eqx.Module):
    """A convolution with windows of 3 by 3 pixels, and zeros around the image.

    It is a product of two matrices, for which networks side by side take a quarter of the time of `eqx.nn.Conv2d`.
    """

    linear: eqx.nn.Linear

    def __init__(self, rng_key: RngKey, inputs: int, outputs: int) -> None:
        self.linear = eqx.nn.Linear(len(_SHIFTS) * inputs, outputs, key=rng_key)

    def __call__(self, x: Float[AnyArray, "c h w"]) -> Float[Array, "k h w"]:
        """Return the features of each pixel."""
        _, height, width = x.shape
        padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1)))
        windows = jnp.concatenate([padded[:, i : i + height, j : j + width] for i, j in _SHIFTS])
        found = jax.vmap(self.linear, in_axes=1, out_axes=1)(windows.reshape(-1, height * width))
        return found.reshape(-1, height, width)


class ConvolutionalNetwork(eqx.Module):
    r"""A convolutional network of one image: convolutions, each halving the image, and an `MLP` at last.

    After a convolution the largest values of windows of 2 by 2 pixels are kept.

    Args:
        rng_key: A JAX random key for the initial weights.
        image_shape: Height, width and channels of the images.
        channels: The number of features of each convolution.
        hidden: The widths of the hidden layers of the last part.
        num_outputs: The number of outputs, q.
        beta: How sharply the Softplus of `MLP` bends at 0; None for the ReLU.

    Raises:
        ValueError: If a number is not positive, or the image is too small for all convolutions.

    References:
        LeCun, Bottou, Bengio, Haffner, Gradient-based learning applied to document recognition, 1998.
    """

    convolutions: tuple[Convolution, ...]
    head: MLP
    image_shape: tuple[int, int, int] = eqx.field(static=True)

    def __init__(
        self,
        rng_key: RngKey,
        image_shape: tuple[int, int, int],
        channels: Sequence[int],
        hidden: Sequence[int],
        num_outputs: int,
        *,
        beta: float | None = None,
    ) -> None:
        if not channels or min(channels) < 1:
            raise ValueError(f"`channels` must be one or more positive numbers, got {tuple(channels)}")
        height, width, depth = image_shape
        left = [size // 2 ** len(channels) for size in (height, width)]
        if min(left) < 1:
            raise ValueError(
                f"`channels` must be fewer, because each convolution halves the image: {len(channels)} leave nothing "
                f"of {height} by {width} pixels"
            )
        first, last = jax.random.split(check_rng_key(rng_key))
        self.convolutions = _convolutions(first, (depth, *channels))
        self.head = MLP(last, (math.prod(left) * channels[-1], *hidden, num_outputs), beta=beta)
        self.image_shape = image_shape

    @property
    def num_features(self) -> int:
        """The number of features of a point, d."""
        return math.prod(self.image_shape)

    def __call__(self, x: Float[AnyArray, " d"]) -> Float[Array, " q"]:
        """Return the outputs at one image."""
        image = _as_image(x, self.image_shape)
        for convolution in self.convolutions:
            image = _halved(activate(convolution(image), self.head.beta))
        return self.head(image.ravel())


class UNet(eqx.Module):
    r"""A U-Net of one image, with one output for each of its features.

    On the way down, each level makes features by two convolutions and halves the image. On the way up, each level joins
    the image from below, in its own size, with its own features, so that outputs depend on details and on what is far
    away.

    Args:
        rng_key: A JAX random key for the initial weights.
        image_shape: Height, width and channels of the images.
        channels: The number of features at each level, the first one in full size.

    Raises:
        ValueError: If a number is not positive, or the image is too small for all levels.

    References:
        Ronneberger, Fischer, Brox, U-Net: convolutional networks for biomedical image segmentation, 2015.
    """

    down: tuple[tuple[Convolution, ...], ...]
    up: tuple[Convolution, ...]
    last: Convolution
    image_shape: tuple[int, int, int] = eqx.field(static=True)

    def __init__(self, rng_key: RngKey, image_shape: tuple[int, int, int], channels: Sequence[int]) -> None:
        if not channels or min(channels) < 1:
            raise ValueError(f"the channels of a U-Net must be one or more positive numbers, got {tuple(channels)}")
        if min(image_shape[:2]) < 2 ** (len(channels) - 1):
            raise ValueError(
                f"an image of {image_shape[0]} by {image_shape[1]} pixels is too small for a U-Net of {len(channels)} "
                "levels, each of which halves it"
            )
        depth = image_shape[2]
        keys = jax.random.split(check_rng_key(rng_key), len(channels) + 2)
        pairs = zip(keys, (depth, *channels[:-1]), channels, strict=False)
        self.down = tuple(_convolutions(key, (inputs, outputs, outputs)) for key, inputs, outputs in pairs)
        uphill = zip(jax.random.split(keys[-2], len(channels)), channels[:-1], channels[1:], strict=False)
        self.up = tuple(Convolution(key, own + below, own) for key, own, below in uphill)
        self.last = Convolution(keys[-1], channels[0], depth)
        self.image_shape = image_shape

    def __call__(self, x: Float[AnyArray, " d"]) -> Float[Array, " d"]:
        """Return one output for each feature of an image."""
        image = _as_image(x, self.image_shape)
        levels: list[Array] = []
        for convolutions in self.down:
            image = _halved(image) if levels else image
            for convolution in convolutions:
                image = jax.nn.relu(convolution(image))
            levels.append(image)
        for level, convolution in reversed(list(zip(levels[:-1], self.up, strict=True))):
            grown = jax.image.resize(image, (image.shape[0], *level.shape[1:]), "nearest")
            image = jax.nn.relu(convolution(jnp.concatenate([level, grown])))
        return jnp.moveaxis(self.last(image), 0, -1).ravel()


def _convolutions(rng_key: RngKey, sizes: Sequence[int]) -> tuple[Convolution, ...]:
    keys = jax.random.split(rng_key, len(sizes) - 1)
    return tuple(
        Convolution(key, *pair) for key, pair in zip(keys, zip(sizes[:-1], sizes[1:], strict=True), strict=True)
    )


def _as_image(x: Float[AnyArray, " d"], image_shape: tuple[int, int, int]) -> Float[Array, "c h w"]:
    return jnp.moveaxis(jnp.asarray(x).reshape(image_shape), -1, 0)


def _halved(x: Float[Array, "c h w"]) -> Float[Array, "c i j"]:
    """Return the largest values of windows of 2 by 2 pixels; a last odd row or column is left out."""
    channels, height, width = x.shape
    even = x[:, : height // 2 * 2, : width // 2 * 2]
    return even.reshape(channels, height // 2, 2, width // 2, 2).max(axis=(2, 4))
