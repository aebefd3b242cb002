"""What the user's data become: tables with a schema, labels of classes, bags of points, arrays of estimators."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
