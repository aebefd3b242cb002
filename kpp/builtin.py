"""kpp's own plugin: the parts of the core, registered by the same hooks as a stranger's."""

from __future__ import annotations

import kpp


@kpp.hookimpl
def register_kernels() -> dict[str, type]:
    """Offer the kernels of `kpp.kernels`."""
    from kpp import kernels

    return {
        "Categorical": kernels.Categorical,
        "Constant": kernels.Constant,
        "Linear": kernels.Linear,
        "Matern12": kernels.Matern12,
        "Matern32": kernels.Matern32,
        "Matern52": kernels.Matern52,
        "Periodic": kernels.Periodic,
        "Polynomial": kernels.Polynomial,
        "Product": kernels.Product,
        "ProductKernel": kernels.ProductKernel,
        "RBF": kernels.RBF,
        "RationalQuadratic": kernels.RationalQuadratic,
        "Scaled": kernels.Scaled,
        "Sum": kernels.Sum,
    }
