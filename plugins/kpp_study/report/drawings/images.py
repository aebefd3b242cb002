"""Figures as text: a matplotlib figure becomes a ``data:`` address, which does not need a file or a network."""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Colors that color-blind readers can distinguish (Okabe and Ito).
BLUE, ORANGE, GRAY = "#0072B2", "#D55E00", "#8a8f98"

_STYLE: dict[Any, Any] = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "legend.frameon": False,
    "savefig.bbox": "standard",
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "kpp",  # the same figure gives the same text
    "text.parse_math": False,  # the name of a column may contain "$"
}
# No date and no version of matplotlib, so that the same figure gives the same text.
_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_PREAMBLE = re.compile(r"^.*?(?=<svg)", re.DOTALL)  # the XML declaration, which an embedded image does not need
_TAG = re.compile(r"<[^<>]*>")  # numbers outside of tags are labels, and stay as they are
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_FONTS = re.compile(r"'DejaVu Sans'[^;\"]*")  # a long list of fonts, in every piece of text
# Letters are as wide as those with which matplotlib places the lines of a label: Verdana has the widths of DejaVu Sans.
_SAME_WIDTHS = "DejaVu Sans,Verdana,sans-serif"
_BETWEEN_LINES = re.compile(r"\n\s+")
_PIXELS_PER_INCH = 96  # of CSS
# From this number of bytes on, a PNG is tried.
_LARGEST_SVG = 60_000


@dataclass(frozen=True)
class Image:
    """An image for the report."""

    source: str  # a data: address that holds the image
    alt: str  # a description for readers who cannot see the image
    caption: str  # the text below the image
    label: str  # the name of the box in which the image scrolls on a narrow screen
    width: int  # in pixels, as the height
    height: int


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw all figures of the block in the report's style, independent of the user's matplotlib settings."""
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from", category=UserWarning)
        yield


def embed(figure: Figure, alt: str, caption: str = "", *, label: str = "Figure") -> Image:
    """Draw a figure and return it as an image with a ``data:`` address; the texts are those of `Image`.

    The image is SVG if that is small, and a PNG with few colors otherwise.
    """
    width, height = (round(_PIXELS_PER_INCH * float(size)) for size in figure.get_size_inches())
    pictures = {"svg+xml": _svg(figure)}
    if len(pictures["svg+xml"]) > _LARGEST_SVG:
        pictures["png"] = _png(figure)
    kind, content = min(pictures.items(), key=lambda pair: len(pair[1]))
    return Image(f"data:image/{kind};base64,{base64.b64encode(content).decode()}", alt, caption, label, width, height)


def _svg(figure: Figure) -> bytes:
    """Draw a figure as SVG, with text instead of outlines of letters and numbers that are no finer than needed."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=_METADATA)
    text = _PREAMBLE.sub("", buffer.getvalue())
    text = _TAG.sub(lambda tag: _LONG_NUMBER.sub(_rounded, _FONTS.sub(_SAME_WIDTHS, tag[0])), text)
    return _BETWEEN_LINES.sub("\n", text).encode()


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")


def _png(figure: Figure) -> bytes:
    """Draw a figure as a PNG with at most 64 colors, for screens with two pixels per unit of length."""
    import PIL.Image

    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=2 * _PIXELS_PER_INCH, metadata={"Software": None})
    with PIL.Image.open(drawn) as picture:
        colors = picture.convert("RGB").quantize(64, method=PIL.Image.Quantize.MEDIANCUT, dither=PIL.Image.Dither.NONE)
        colors.save(small, format="PNG", optimize=True)
    return small.getvalue()
