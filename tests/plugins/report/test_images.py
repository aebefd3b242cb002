"""Images: small SVG, or a PNG with few colors where SVG is large; labels are not changed."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import PIL.Image
import pytest
from matplotlib.figure import Figure

from kpp_study.report.drawings.images import embed, figure_style


def draw(num_points: int, label: str = "x"):
    with figure_style():
        figure = Figure(figsize=(5, 2))
        axis = figure.add_subplot()
        axis.plot(*np.random.default_rng(0).normal(size=(2, num_points)), "o")
        axis.set_xlabel(label)
        return embed(figure, "alt", "caption", label="plot")


def content(image) -> tuple[str, bytes]:
    kind, _, data = image.source.partition(";base64,")
    return kind, base64.b64decode(data)


def test_a_small_figure_is_svg_with_its_text_as_text():
    image = draw(20, "0.123456 <b> $x$")
    kind, svg = content(image)
    assert kind == "data:image/svg+xml"
    assert b"0.123456 &lt;b&gt; $x$" in svg  # numbers in labels are not rounded
    assert set(re.findall(rb"font-family: ([^;\"]*)", svg)) == {b"DejaVu Sans,Verdana,sans-serif"}
    assert (image.width, image.height) == (480, 192)


def test_the_same_figure_gives_the_same_text():
    assert draw(20) == draw(20)


def test_a_large_figure_is_a_png_with_few_colors():
    image = draw(3000)
    kind, png = content(image)
    assert kind == "data:image/png"
    with PIL.Image.open(io.BytesIO(png)) as picture:
        assert picture.mode == "P"
        assert picture.size == (960, 384)  # twice the size of the image on the page
    assert len(png) < 60_000


@pytest.mark.parametrize("count", [20, 3000])
def test_an_image_keeps_its_words(count):
    image = draw(count)
    assert (image.alt, image.caption, image.label) == ("alt", "caption", "plot")
