"""The deconditional mean embedding: it recovers a function from its conditional expectations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.embeddings.means.conditional import AbstractRegressionEmbedding, ConditionalMeanEmbedding
from kpp.embeddings.means.elements import AbstractRegressors, KernelSections, PointSections
from kpp.features import AbstractFeatureKernel
from kpp.foundation.validation import as_finite_array, check_same_rows, finite_arrays, wrong_kind
from kpp.functions import RKHSFunction
from kpp.kernels import RBF, AbstractKernel, check_non_negative, parameter
from kpp.typing import Leaf, Numbers, Points, RngKey


class DeconditionalMeanEmbedding(AbstractRegressionEmbedding):
    r"""The embedding of each x in the space of functions of y that inverts conditional expectation.

    A conditional embedding :math:`\hat C` maps a function f of x to :math:`y \mapsto \hat E[f(X) | y] = \langle f,
    \hat\mu_{X|y} \rangle`. The deconditional operator :math:`\hat D` is an approximate inverse: :math:`\langle E[f(X) |
    \cdot], \hat D k(x, \cdot) \rangle \approx f(x)`. It regresses :math:`l(\tilde y_t, \cdot)` on
    :math:`\hat\mu_{X|\tilde y_t}`,

    .. math::

        \hat D k(x, \cdot) = \sum_{t=1}^M w_t(x)\, l(\tilde y_t, \cdot), \qquad
        w(x) = (Q + M \varepsilon I)^{-1} \bigl(\hat\mu_{X|\tilde y_t}(x)\bigr)_t, \qquad
        Q_{tt'} = \langle \hat\mu_{X|\tilde y_t}, \hat\mu_{X|\tilde y_{t'}} \rangle

    and minimizes :math:`\frac1M \sum_t \|l(\tilde y_t, \cdot) - D \hat\mu_{X|\tilde y_t}\|^2 + \varepsilon \|D\|^2`.
    From observed conditional expectations z at :math:`\tilde y`, ``expectation(z, x)`` is the estimate of f(x), and
    `function` the estimate of f. It is the posterior mean of a Gaussian process f whose aggregates are observed with
    noise variance :math:`M \varepsilon`.

    Args:
        conditional: The conditional embedding :math:`\hat C`, of points or of bags.
        points: :math:`\tilde y`, M values of the condition: an array (M, dy), or a batch of inputs of its
            `input_kernel`. They may differ from the values at which the conditional embedding was estimated.
        regularization: :math:`\varepsilon`, at least 0; it is multiplied by M. `select_regularization` chooses it.

    Raises:
        ValueError: If the regularization is negative or there are no points.

    References:
        Hsu and Ramos, Bayesian deconditional kernel mean embeddings, 2019; Chau, Bouabid and Sejdinovic, Deconditional
        downscaling with Gaussian processes, 2021, equations (2) and (12) and proposition 4.1.
    """

    conditional: AbstractRegressionEmbedding
    points: Points
    regularization: Leaf

    def __init__(self, conditional: AbstractRegressionEmbedding, points: Points, regularization: Leaf) -> None:
        self.conditional = conditional
        self.points = finite_arrays(points, "points")
        self.regularization = parameter("regularization")(regularization)

    def __check_init__(self) -> None:
        if not isinstance(getattr(self.conditional, "regressors", None), KernelSections):
            raise wrong_kind(self.conditional, "conditional", ["a conditional embedding"])
        check_non_negative(self.regularization, "regularization")
        shapes = [leaf.shape for leaf in jax.tree.leaves(self.points)]
        if len({shape[:1] for shape in shapes}) != 1 or shapes[0][:1] in ((), (0,)):
            raise ValueError(f"`points` must hold values of the condition, at least one row, got shapes {shapes}")

    @property  # type: ignore[misc]  # Equinox lets a property stand for an AbstractVar
    def kernel(self) -> AbstractKernel:  # type: ignore[override]
        """The kernel l of the condition."""
        return self.conditional.regressors.kernel  # type: ignore[attr-defined]  # see `__check_init__`

    @property
    def outputs(self) -> PointSections:
        return PointSections(self.kernel, self.points)

    @property
    def regressors(self) -> AbstractRegressors:
        return _Conditionals(self.conditional, self.points)

    def function(self, values: Numbers) -> RKHSFunction:
        r"""Return the estimate of a function from its conditional expectations.

        .. math::

            \hat f = \sum_t c_t\, \hat\mu_{X|\tilde y_t}, \qquad c = (Q + M \varepsilon I)^{-1} z, \qquad
            \hat f(x) = \langle z, w(x) \rangle

        Args:
            values: z, the conditional expectations at the M points, (M,) or (M, outputs).

        Returns:
            The estimate of f, on the points of the conditional embedding, (n, d).

        Raises:
            ValueError: If `values` does not have one row per point.
        """
        values = as_finite_array(values, "values")
        check_same_rows(self.num_inputs, len(values), "points", "values")
        weights = self.conditional.weights(self.points) @ self._system().solve(values)
        return RKHSFunction(self.conditional.kernel, self.conditional.points, weights)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[DeconditionalMeanEmbedding, Any]]:
        """Yield small embeddings and their queries for the conformance suite."""
        x, y = jax.random.normal(rng_key, (6, 2)), jax.random.normal(rng_key, (6, 1)) + 0.3
        conditional = ConditionalMeanEmbedding(
            kernel=RBF(jnp.array([0.8, 1.5])), input_kernel=RBF(1.2), inputs=y, points=x, regularization=0.01
        )
        yield cls(conditional, y[:4] + 0.1, 0.02), x[:3] - 0.2


class _Conditionals(AbstractRegressors):
    """Conditional embeddings at M points, as inputs whose queries are points x."""

    conditional: AbstractRegressionEmbedding
    points: Points

    @property
    def number(self) -> int:
        return jax.tree.leaves(self.points)[0].shape[0]

    def gram(self) -> Float[Array, "M M"]:
        return self.conditional.inner(self.conditional, self.points, self.points)

    def sections(self, query: Points | None) -> Float[Array, "M p"]:
        return self.conditional.evaluate(query, self.points)  # <mu_t, k(x, .)> = mu_t(x)

    def features(self, query: Points | None = None) -> Float[Array, "p q"] | None:
        kernel = self.conditional.kernel
        if not isinstance(kernel, AbstractFeatureKernel):
            return None
        if query is not None:
            return kernel.feature_map(query)
        return self.conditional.expectation(kernel.feature_map(self.conditional.points), self.points)
