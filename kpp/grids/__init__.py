"""Gridded data: an xarray grid as points or bags, and predictions back on the grid as maps with coordinates."""

from kpp.grids.cells import GridBags as GridBags
from kpp.grids.cells import bags_from_grid as bags_from_grid
from kpp.grids.cells import coarsen as coarsen
from kpp.grids.maps import map_scores as map_scores
from kpp.grids.maps import predict_map as predict_map
from kpp.grids.points import GridPoints as GridPoints
from kpp.grids.points import grid_points as grid_points
