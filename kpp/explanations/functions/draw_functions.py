"""Functions of any library whose predictions hold posterior draws, in the form that explainers take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Shaped
from numpy.typing import ArrayLike

from kpp.data.tables import Schema, read_points
from kpp.explanations.functions.estimator_functions import as_frame
from kpp.typing import PointFunction

_SAMPLE_DIMS = ("chain", "draw")


class DrawFunction:
    """A function of points whose predictions have axes of posterior draws.

    Explainers take predictions that lead with (chain, draw). An array (2000, 50) may hold 2000 draws at 50 points, or
    50 outputs at 2000 points; therefore the axes of draws are named here.

    Args:
        function: A function from points (p, d) to predictions: an array whose leading axes are `draw_axes`, followed by
            the axis of points and possibly one of outputs; or an `xarray.DataArray`, whose dimensions `draw_axes` may
            stand anywhere.
        draw_axes: "draw", "chain" or both, in the order of the axes.
        table: A data frame with the columns that the function takes. Then the function receives data frames with these
            columns, text included; without a table it receives arrays.
        output_names: The names of the outputs, if there is an axis of outputs.

    Raises:
        TypeError: If `function` cannot be called.
        ValueError: If `draw_axes` are others, or values are missing in the table.
    """

    def __init__(
        self,
        function: PointFunction,
        draw_axes: str | Sequence[str] = _SAMPLE_DIMS,
        *,
        table: Any = None,
        output_names: Sequence[str] | None = None,
    ) -> None:
        axes = (draw_axes,) if isinstance(draw_axes, str) else tuple(draw_axes)
        if sorted(axes) not in (["chain"], ["draw"], ["chain", "draw"]):
            raise ValueError(
                f"`draw_axes` must be 'draw', 'chain', or both in the order of the axes, got {draw_axes!r}"
            )
        self._function, self.draw_axes = function, axes
        self.output_names = None if output_names is None else tuple(str(name) for name in output_names)
        #: The names of the columns and the levels of those that hold text; None without a table.
        self.schema: Schema | None = None if table is None else read_points(table, "table")[1]
        coded = () if self.schema is None else (*self.schema.levels, *self.schema.booleans)
        self._dtypes = tuple((name, table[name].dtype) for name in coded)

    def __call__(self, x: ArrayLike) -> Shaped[np.ndarray, "chain draw p *outputs"]:
        """Return the predictions at points (p, d).

        Raises:
            ValueError: If the predictions do not have the axes of draws and one of p points.
        """
        points = np.asarray(x)
        found = self._function(points if self.schema is None else as_frame(points, self.schema, self._dtypes))
        if isinstance(found, xr.DataArray):
            if not set(self.draw_axes) <= set(found.dims):
                raise ValueError(f"`function` must return the dimensions {self.draw_axes}, got {found.dims}")
            found = found.transpose(*self.draw_axes, ...)
        values, num_axes = np.asarray(found), len(self.draw_axes)
        if values.ndim not in (num_axes + 1, num_axes + 2) or values.shape[num_axes] != len(points):
            raise ValueError(
                f"`function` must return predictions with the axes {(*self.draw_axes, 'point')} and at most one of "
                f"outputs, got shape {values.shape} for {len(points)} points"
            )
        if num_axes == 1:
            return np.expand_dims(values, 0 if self.draw_axes == ("draw",) else 1)
        return np.moveaxis(values, self.draw_axes.index("chain"), 0)
