"""Gridded data: an xarray grid as points or bags, and predictions back on the grid as maps with coordinates."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp_models.aggregates.grids.cells import GridBags as GridBags
from kpp_models.aggregates.grids.cells import bags_from_grid as bags_from_grid
from kpp_models.aggregates.grids.cells import coarsen as coarsen
from kpp_models.aggregates.grids.collocation import collocate as collocate
from kpp_models.aggregates.grids.map_predictions import map_scores as map_scores
from kpp_models.aggregates.grids.map_predictions import predict_map as predict_map
from kpp_models.aggregates.grids.points import GridPoints as GridPoints
from kpp_models.aggregates.grids.points import grid_points as grid_points

_guard_exports(globals())
