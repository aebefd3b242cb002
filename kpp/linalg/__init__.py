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

_guard_exports(globals())
