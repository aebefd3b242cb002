"""Images: superpixels, groups of pixels that are one feature for explainers, and explanations as images.

Images are rows of pixels, (n, h w c), in the order of ``image.reshape(-1)``: row by row, with the channels of a pixel
side by side. A superpixel holds all channels of its pixels. An explanation is shown by the pixels of each group in the
color of its contribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy import ndimage, stats

from kpp import Explanation
from kpp.foundation.validation import as_points, check_same_rows, count, positive
from kpp.foundation.validation import probability as check_probability

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Shape = Sequence[int]


def grid_superpixels(shape: _Shape, patch: int | Sequence[int]) -> dict[str, list[int]]:
    """Divide images by a regular grid.

    Args:
        shape: The images' height, width and, if there are several, channels.
        patch: The height and width of a patch, or its side; the last patches are smaller if the size is not a multiple.

    Returns:
        The groups, a mapping from "patch i,j" to positions of features, for the option `groups` of explainers.

    Raises:
        ValueError: If `shape` is not the shape of an image, or `patch` is not between 1 and its sides.
    """
    height, width, _ = image_shape(shape)
    sides = np.ravel([patch, patch] if np.ndim(patch) == 0 else patch)
    if len(sides) != 2 or not (1 <= sides[0] <= height and 1 <= sides[1] <= width):
        raise ValueError(f"`patch` must be between 1 and the sides {(height, width)} of the images, got {patch}")
    rows, columns = np.arange(height) // sides[0], np.arange(width) // sides[1]
    across = columns[-1] + 1
    groups = label_groups(rows[:, None] * across + columns[None], shape)
    return {f"patch {k // across},{k % across}": members for k, members in enumerate(groups.values())}


def slic_superpixels(
    images: ArrayLike, shape: _Shape, num_superpixels: int, *, compactness: float = 0.1
) -> dict[str, list[int]]:
    r"""Divide images into connected regions of similar pixels, by k-means on intensity and position.

    .. math:: D(a, b)^2 = \|v_a - v_b\|^2 + m^2 \, \frac{\|p_a - p_b\|^2}{s^2}, \qquad s = \sqrt{h w / k},

    where v are the values of a pixel and p is its position. The initial centers are on a grid with steps of about s.
    Afterwards regions that are not connected to the largest region of their cluster are merged into the neighbor with
    the longest common border. So there may be fewer superpixels than requested, and each of them is connected.

    Args:
        images: One image (h w c,), or several (n, h w c), whose mean is divided; values of order 1.
        shape: Their height, width and, if there are several, channels.
        num_superpixels: k, at most the number of pixels.
        compactness: m, in the unit of the values: the difference in value that weighs as much as a step of length s.

    Returns:
        The groups, a mapping from "superpixel i" to positions of features, for the option `groups` of explainers.

    Raises:
        ValueError: If shapes do not fit, or an option is out of range.

    References:
        Achanta et al., "SLIC superpixels compared to state-of-the-art superpixel methods", 2012, eq. (3).
    """
    height, width, channels = image_shape(shape)
    points = as_points(np.atleast_2d(np.asarray(images)), "images", num_features=height * width * channels)
    image = np.asarray(points).mean(axis=0).reshape(height, width, channels)
    count(num_superpixels, "num_superpixels", most=height * width, most_is="the number of pixels")
    positive(compactness, "compactness")
    labels = _cluster(image, num_superpixels, compactness)
    return {f"superpixel {k}": members for k, members in enumerate(label_groups(_connect(labels), shape).values())}


def label_groups(labels: Int[np.ndarray, "h w"], shape: _Shape) -> dict[str, list[int]]:
    """Return the groups of features that a map of labels defines.

    Args:
        labels: One number per pixel; pixels with the same number are one group.
        shape: The images' height, width and, if there are several, channels.

    Returns:
        A mapping from each number, in increasing order, to positions of features.

    Raises:
        ValueError: If the height or width of `labels` differs from `shape`.
    """
    height, width, channels = image_shape(shape)
    if np.shape(labels) != (height, width):
        raise ValueError(f"`labels` must have shape {(height, width)}, got {np.shape(labels)}")
    features = np.repeat(np.asarray(labels).ravel(), channels)
    return {str(label): np.flatnonzero(features == label).tolist() for label in np.unique(features)}


def image_shape(shape: _Shape) -> tuple[int, int, int]:
    """Return height, width and channels of (h, w) or (h, w, c), which must be positive numbers."""
    sizes = tuple(int(size) for size in shape)
    if len(sizes) not in (2, 3) or min(sizes) < 1:
        raise ValueError(f"`shape` must be (height, width) or (height, width, channels), got {shape}")
    return sizes[0], sizes[1], sizes[2] if len(sizes) == 3 else 1


def _cluster(image: Float[np.ndarray, "h w c"], num_clusters: int, compactness: float) -> Int[np.ndarray, "h w"]:
    """Return the cluster of each pixel."""
    from sklearn.cluster import KMeans

    height, width, _ = image.shape
    positions = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), axis=-1)
    scale = compactness / math.sqrt(height * width / num_clusters)  # m / s of equation 3
    pixels = np.concatenate([image, positions * scale], axis=-1).reshape(height * width, -1)
    starts = _grid(height, width, num_clusters)
    values = image[tuple(np.floor(starts + 0.5).astype(int).T)]
    # With given initial centers, k-means is not random.
    means = KMeans(num_clusters, init=np.concatenate([values, starts * scale], axis=-1), n_init=1)
    return means.fit_predict(pixels).reshape(height, width)


def _grid(height: int, width: int, num_cells: int) -> Float[np.ndarray, "k 2"]:
    """Return the centers of `num_cells` nearly square rectangles that divide an image, in pixels."""
    num_rows = min(height, num_cells, max(1, round(math.sqrt(num_cells * height / width)), -(-num_cells // width)))
    sizes = np.diff(np.linspace(0, num_cells, num_rows + 1).round().astype(int))
    rows = (np.repeat(np.arange(num_rows), sizes) + 0.5) * height / num_rows - 0.5
    columns = np.concatenate([(np.arange(size) + 0.5) * width / size - 0.5 for size in sizes])
    return np.stack([rows, columns], axis=1)


def _connect(labels: Int[np.ndarray, "h w"]) -> Int[np.ndarray, "h w"]:
    """Merge regions that are not the largest of their cluster into a neighbor."""
    kept = np.full(labels.shape, -1)
    for label in np.unique(labels):
        pieces, _ = ndimage.label(labels == label)
        sizes = np.bincount(pieces.ravel())[1:]
        kept[pieces == 1 + sizes.argmax()] = label
    pieces, num_pieces = ndimage.label(kept < 0)
    for piece in range(1, num_pieces + 1):
        inner = pieces == piece
        kept[inner] = np.bincount(kept[ndimage.binary_dilation(inner) & ~inner]).argmax()
    return kept


def interval_bounds(
    explanation: Explanation, shape: Sequence[int], *, probability: float = 0.95, output: str | None = None
) -> Float[np.ndarray, "2 p h w"]:
    r"""Return the lower and the upper bounds of contributions, painted on the pixels of their groups.

    .. math:: \phi_j \pm z \, \mathrm{sd}_j

    z being the normal quantile. A pixel has the bound of the group that its first channel belongs to.

    Args:
        explanation: An explanation of images with a variance; its features are pixels or groups of them.
        shape: The images' height, width and, if there are several, channels.
        probability: The probability of the intervals.
        output: The output, if there are several.

    Returns:
        The bounds, (2, p, h, w), of the p instances.

    Raises:
        ValueError: If the explanation has no variance, has several outputs and none is named, has draws, or its
            features are not pixels of such images.
    """
    check_probability(probability, "probability")
    values, variance = _of_output(explanation, output)
    half = stats.norm.ppf(0.5 + 0.5 * probability) * np.sqrt(variance)
    height, width, channels = image_shape(shape)
    pixels = _group_of_features(explanation, height * width * channels).reshape(height, width, channels)[..., 0]
    return np.stack([values - half, values + half])[:, :, pixels]


def plot_interval_bounds(
    explanation: Explanation,
    images: Float[np.ndarray, "p d"],
    shape: Sequence[int],
    *,
    probability: float = 0.95,
    output: str | Sequence[str] | None = None,
) -> Figure:
    """Plot images with the upper and lower bounds of their contributions below them.

    Colors run in two directions from white at 0 and are shared by both bounds of an image.

    Args:
        explanation: An explanation of the images with a variance; its features are pixels or groups of them.
        images: The images, (p, h w c), one row each; values between 0 and 1.
        shape: Their height, width and, if there are several, channels.
        probability: The probability of the intervals.
        output: Which output, if there are several, or one for each image.

    Returns:
        A figure of three rows: the images, the upper bounds, the lower bounds.

    Raises:
        ValueError: As for `interval_bounds`, or if `images` do not fit.

    References:
        Hill, Masoomi, Torop, Ghimire, Dy (2023), "Boundary-aware uncertainty for feature attribution explainers",
        figure 8.
    """
    import matplotlib.pyplot as plt

    num_images = explanation.values.sizes["instance"]
    pictures = _pictures(images, shape, num_images)
    names = [output] * num_images if output is None or isinstance(output, str) else list(output)
    check_same_rows(num_images, len(names), "explanation", "output")
    bounds = {name: interval_bounds(explanation, shape, probability=probability, output=name) for name in set(names)}
    figure, axes = plt.subplots(
        3, num_images, figsize=(0.6 + 1.4 * num_images, 4.6), squeeze=False, layout="constrained"
    )
    for i, name in enumerate(names):
        lower, upper = bounds[name][:, i]
        limit = max(np.abs([lower, upper]).max(), np.finfo(float).tiny)  # also of contributions that are all 0
        axes[0, i].imshow(pictures[i], cmap="gray", vmin=0, vmax=1)
        for row, bound in ((1, upper), (2, lower)):
            shown = axes[row, i].imshow(bound, cmap="RdBu_r", vmin=-limit, vmax=limit)
        figure.colorbar(shown, ax=axes[1:, i], orientation="horizontal", shrink=0.9)
        axes[0, i].set_title("" if name is None else name, fontsize="small")
    for label, row in zip(("image", f"upper, {probability:.0%}", f"lower, {probability:.0%}"), axes, strict=True):
        row[0].set_ylabel(label)
        for ax in row:
            ax.set(xticks=[], yticks=[])
    return figure


def _of_output(explanation: Explanation, output: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the values and variances of one output, (p, g) each."""
    values, variance = explanation.values, explanation.variance
    if variance is None:
        raise ValueError("`explanation` must have a variance, as that of GPEC or of a surrogate has")
    if explanation.has_draws:
        raise ValueError("`explanation` must have no draws; take its mean first")
    if output not in (explanation.output_names or (None,)):
        raise ValueError(f"`output` must be one of {explanation.output_names}, got {output!r}")
    if output is not None:
        values, variance = (array.sel(output=output) for array in (values, variance))
    return np.asarray(values), np.asarray(variance)


def _group_of_features(explanation: Explanation, num_pixels: int) -> np.ndarray:
    """Return for each pixel value the group that it belongs to, (num_pixels,)."""
    groups = explanation.attrs.get("groups", {})
    members = [groups.get(name, [name]) for name in explanation.feature_names]
    place = {name: player for player, names in enumerate(members) for name in names}
    names = [f"x{j}" for j in range(num_pixels)]
    if len(place) != num_pixels or set(place) != set(names):
        raise ValueError(
            f"`explanation` must be of {num_pixels} pixel values called x0, x1, ... in their order, got {len(place)}, "
            f"among them {sorted(place)[:3]}"
        )
    return np.array([place[name] for name in names])


def _pictures(images: ArrayLike, shape: Sequence[int], num_images: int) -> np.ndarray:
    """Return images (p, h, w), or (p, h, w, c) with several channels."""
    height, width, channels = image_shape(shape)
    array = np.asarray(as_points(images, "images", num_features=height * width * channels))
    check_same_rows(num_images, len(array), "explanation", "images")
    pictures = array.reshape(num_images, height, width, channels)
    return pictures[..., 0] if channels == 1 else pictures
