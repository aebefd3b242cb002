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
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Image", "embed", "figure_style", "fit_margins"]

#: Colours that colour-blind readers can distinguish (Okabe and Ito).
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#8a8f98"

_STYLE: dict[Any, Any] = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "legend.frameon": False,
    "savefig.bbox": "standard",
    "svg.hashsalt": "kpp",  # the same figure gives the same text
    "text.parse_math": False,  # the name of a column may contain "$"
}
# Pixels around a figure, and the largest share of its width for the names of features.
_PAD, _MOST = 4.0, 0.75
# No date and no version of matplotlib, so that the same figure gives the same text.
_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_PREAMBLE = re.compile(r"^.*?(?=<svg)", re.DOTALL)  # the XML declaration, which an embedded image does not need


@dataclass(frozen=True)
class Image:
    """An image for the report.

    Attributes:
        source: A ``data:`` address that holds the image.
        alt: A description for readers who cannot see the image.
        caption: The text below the image.
    """

    source: str
    alt: str
    caption: str = ""


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw all figures of the block in the report's style, independent of the user's matplotlib settings."""
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from", category=UserWarning)
        yield


def fit_margins(figure: Figure, axis: Axes) -> None:
    """Give the labels of a figure with one plot, made without a layout, the room that they need.

    The constrained layout of matplotlib would do it, too, but takes as long as the drawing itself.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()
    box, area = axis.get_tightbbox(renderer), axis.get_window_extent(renderer)
    assert box is not None  # it is for an invisible plot only
    width, height = figure.bbox.size
    figure.subplots_adjust(
        left=min((area.x0 - box.x0 + _PAD) / width, _MOST),
        right=1 - (box.x1 - area.x1 + _PAD) / width,
        bottom=(area.y0 - box.y0 + _PAD) / height,
        top=1 - (box.y1 - area.y1 + _PAD) / height,
    )


def embed(figure: Figure, alt: str, caption: str = "") -> Image:
    """Draw a figure as SVG and return it as an image with a ``data:`` address.

    `alt` describes it for readers who cannot see the image; the caption is the text below.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=_METADATA)
    text = _PREAMBLE.sub("", buffer.getvalue())
    encoded = base64.b64encode(text.encode()).decode()
    return Image(f"data:image/svg+xml;base64,{encoded}", alt, caption)
