"""Type aliases for public signatures, so that annotations show exactly which values are accepted.

Shapes are written with jaxtyping: ``Float[AnyArray, "n d"]`` is a NumPy or JAX array of n rows and d columns of floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PyTree
from numpy.typing import ArrayLike

#: An array of either library. Public functions accept both; they return JAX arrays.
AnyArray = jax.Array | np.ndarray

#: Real numbers as users pass them, of any shape: anything that `numpy.asarray` reads.
Numbers = ArrayLike | int | float

#: A batch of points, or one point: usually an array (n, d), or any pytree of arrays that lead with the same axis n.
Points = PyTree[Any]

#: Coefficients of m sections of a kernel, (m,), or (m, outputs).
Coefficients = Float[AnyArray, "m *outputs"]

#: Values at n points, (n,), or (n, outputs).
OutputValues = Float[Array, "n *outputs"]

#: A function to explain: a `kpp.RKHSFunction`, or any function from points (n, d) to predictions, (n,) or (n, outputs).
PointFunction = Callable[..., Any]

#: Features by position from 0 or by name: one, or an iterable of several.
Features = int | str | np.integer | Iterable[object]

#: A field of a kernel or model: an array, a Python number, or a NumPyro distribution (a prior for the value).
Leaf = Any

#: A JAX random key, typed (``jax.random.key``) or raw (``jax.random.PRNGKey``).
#: `kpp.foundation.validation.check_rng_key` raises TypeError for anything else and shows the fix, so that type checkers
#: of annotations need not check it.
RngKey = Any
