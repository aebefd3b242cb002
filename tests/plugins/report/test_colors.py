"""Colors: enough contrast in light and dark, and signs that color-blind readers can tell apart.

The matrices are those of complete protanopia and deuteranopia, for linear RGB, of Machado, Oliveira and Fernandes, A
physiologically-based model for simulation of color vision deficiency, IEEE TVCG 15(6), 2009.
"""

from __future__ import annotations

import importlib.resources
import itertools
import re

import numpy as np
import pytest

from kpp.plots._colors import INK, LEVELS, NEGATIVE, NEUTRAL, POSITIVE
from kpp_study.report.drawings.images import BLUE, GRAY, ORANGE

VISIONS = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}
STYLE = importlib.resources.files("kpp_study.report").joinpath("templates", "style.css").read_text(encoding="utf-8")


def palette(start: str) -> dict[str, str]:
    block = STYLE[STYLE.index(start) :]
    return dict(re.findall(r"--(\w+): (#\w+);", block[: block.index("}")]))


LIGHT = palette(":root")
DARK = LIGHT | palette("@media (prefers-color-scheme: dark)")


def linear(color: str) -> np.ndarray:
    digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
    channels = np.array([int(digits[place : place + 2], 16) for place in (0, 2, 4)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2.2."""
    high, low = sorted((float(linear(color) @ [0.2126, 0.7152, 0.0722]) for color in (one, other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIELAB of linear RGB, white point D65."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt(to_xyz @ np.clip(rgb, 0.0, 1.0) / [0.9505, 1.0, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["page", "wash"])
@pytest.mark.parametrize("ink", ["ink", "soft", "blue", "good", "fair", "bad"])
def test_text_has_the_contrast_of_level_aa(theme, ground, ink):
    assert contrast(theme[ink], theme[ground]) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("bar", ["up", "down"])
def test_bars_and_their_intervals_can_be_seen(theme, bar):
    assert contrast(theme[bar], theme["page"]) >= 3
    assert contrast(theme[bar], theme["ink"]) >= 3


def in_the_dark(color: str) -> str:
    """A color of a picture on a dark page, by the filter and the blending of the style."""
    hue_rotation = np.array([[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]])  # by 180 degrees
    color, page = ([int(text[place : place + 2], 16) / 255 for place in (1, 3, 5)] for text in (color, DARK["page"]))
    shown = np.clip(hue_rotation @ (1 - np.asarray(color)), 0, 1)
    blended = 1 - (1 - shown) * (1 - np.asarray(page))
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in blended)


@pytest.mark.parametrize("color", [POSITIVE, NEGATIVE, NEUTRAL, INK, BLUE, ORANGE, GRAY])
def test_pictures_can_be_seen_on_a_dark_page(color):
    assert "filter: invert(1) hue-rotate(180deg); mix-blend-mode: screen" in STYLE
    assert contrast(in_the_dark(color), DARK["page"]) >= (4.5 if color == INK else 3)
    assert in_the_dark("#ffffff") == DARK["page"]


@pytest.mark.parametrize("vision", VISIONS)
def test_levels_of_a_category_differ_for_every_vision(vision):
    colors = [lab(np.asarray(VISIONS[vision]) @ linear(color)) for color in LEVELS]
    assert min(np.linalg.norm(one - other) for one, other in itertools.combinations(colors, 2)) > 15


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize(
    "pair", [(LIGHT["up"], LIGHT["down"]), (POSITIVE, NEGATIVE), (ORANGE, BLUE), (BLUE, GRAY)], ids=str
)
def test_colors_that_say_different_things_differ_for_every_vision(pair, vision):
    """A distance of 20 in CIELAB is far above what can be seen (about 2)."""
    one, other = (lab(np.asarray(VISIONS[vision]) @ linear(color)) for color in pair)
    assert np.linalg.norm(one - other) > 20
