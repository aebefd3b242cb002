"""Plots of explanations, maps and searches. They draw labeled xarray arrays on an axis and return the axis."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.plots.attributions.bar import bar as bar
from kpp.plots.attributions.bar import comparison as comparison
from kpp.plots.attributions.beeswarm import beeswarm as beeswarm
from kpp.plots.attributions.beeswarm import forest as forest
from kpp.plots.attributions.interactions import interactions as interactions
from kpp.plots.attributions.scatter import scatter as scatter
from kpp.plots.attributions.waterfall import waterfall as waterfall
from kpp.plots.curve import curve as curve
from kpp.plots.errors import rank_ecdf as rank_ecdf
from kpp.plots.errors import regret as regret
from kpp.plots.errors import value_error as value_error
from kpp.plots.graphs import causal_graph as causal_graph
from kpp.plots.intervals import credible_interval as credible_interval
from kpp.plots.maps import field as field
from kpp.plots.maps import maps as maps

_guard_exports(globals())
