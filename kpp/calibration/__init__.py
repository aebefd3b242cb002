"""Whether the uncertainty of a model, or of a fit, can be trusted: simulated ranks, and certificates."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
