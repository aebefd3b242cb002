"""Polygons and rasters as bags with weights, and predictions as tables of areas and as maps with a CRS.

Names are listed in `__init__.pyi` and loaded on first use. GeoPandas and rioxarray are imported when areas come in.
"""

from kpp.foundation.exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
