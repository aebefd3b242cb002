"""Explanations of images as images: the pixels of each group in the color of its contribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import stats

from kpp import Explanation
from kpp.foundation.validation import as_points, check_same_rows
from kpp.foundation.validation import probability as check_probability
from kpp_gpec.superpixels import image_shape

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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

    count = explanation.values.sizes["instance"]
    pictures = _pictures(images, shape, count)
    names = [output] * count if output is None or isinstance(output, str) else list(output)
    check_same_rows(count, len(names), "explanation", "output")
    bounds = {name: interval_bounds(explanation, shape, probability=probability, output=name) for name in set(names)}
    figure, axes = plt.subplots(3, count, figsize=(0.6 + 1.4 * count, 4.6), squeeze=False, layout="constrained")
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


def _group_of_features(explanation: Explanation, count: int) -> np.ndarray:
    """Return for each pixel value the group that it belongs to, (count,)."""
    groups = explanation.attrs.get("groups", {})
    members = [groups.get(name, [name]) for name in explanation.feature_names]
    place = {name: player for player, names in enumerate(members) for name in names}
    names = [f"x{j}" for j in range(count)]
    if len(place) != count or set(place) != set(names):
        raise ValueError(
            f"`explanation` must be of {count} pixel values called x0, x1, ... in their order, got {len(place)}, "
            f"among them {sorted(place)[:3]}"
        )
    return np.array([place[name] for name in names])


def _pictures(images: ArrayLike, shape: Sequence[int], count: int) -> np.ndarray:
    """Return images (p, h, w), or (p, h, w, c) with several channels."""
    height, width, channels = image_shape(shape)
    array = np.asarray(as_points(images, "images", num_features=height * width * channels))
    check_same_rows(count, len(array), "explanation", "images")
    pictures = array.reshape(count, height, width, channels)
    return pictures[..., 0] if channels == 1 else pictures
