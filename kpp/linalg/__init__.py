"""Linear algebra of symmetric matrices: factorization, regularized systems, conjugate gradients, parts and roots."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.linalg.cholesky import FactorizationError as FactorizationError
from kpp.linalg.cholesky import add_diagonal as add_diagonal
from kpp.linalg.cholesky import check_factor as check_factor
from kpp.linalg.cholesky import cho_inverse as cho_inverse
from kpp.linalg.cholesky import cho_solve as cho_solve
from kpp.linalg.cholesky import cholesky as cholesky
from kpp.linalg.cholesky import half_log_determinant as half_log_determinant
from kpp.linalg.cholesky import max_relative_jitter as max_relative_jitter
from kpp.linalg.cholesky import solve_lower as solve_lower
from kpp.linalg.cholesky import whitener as whitener
from kpp.linalg.ridge import AbstractRidge as AbstractRidge
from kpp.linalg.ridge import DenseRidge as DenseRidge
from kpp.linalg.ridge import FeatureRidge as FeatureRidge
from kpp.linalg.spectral import positive_part as positive_part
from kpp.linalg.spectral import root_of_full_rank as root_of_full_rank
from kpp.linalg.spectral import symmetric_root as symmetric_root

_guard_exports(globals())
