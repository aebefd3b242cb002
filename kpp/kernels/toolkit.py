"""More of `kpp.kernels`, for authors of models and plugins; names may change in minor versions."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.kernels.base import AbstractBatchKernel as AbstractBatchKernel
from kpp.kernels.base import has_product_terms as has_product_terms
from kpp.kernels.checks import check_matrices as check_matrices
from kpp.kernels.checks import example_points as example_points
from kpp.kernels.pairs.oriented import Oriented as Oriented
from kpp.kernels.pairs.oriented import orient as orient
from kpp.kernels.parameters import check_positive as check_positive
from kpp.kernels.parameters import point_rows as point_rows
from kpp.kernels.parts import check_kernel_fields as check_kernel_fields
from kpp.kernels.points.bag_mean import PaddedBags as PaddedBags
from kpp.kernels.points.projected import Unprojected as Unprojected

_guard_exports(globals())
