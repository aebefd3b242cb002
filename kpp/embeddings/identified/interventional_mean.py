"""The embedding of the distribution of an outcome under an intervention on a treatment."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.embeddings.identified.from_graph import read_samples
from kpp.embeddings.identified.treatment_adjustment import (
    AbstractAdjustment,
    BackDoor,
    NoAdjustment,
    check_samples,
    num_rows,
)
from kpp.embeddings.means.conditional import AbstractRegressionEmbedding
from kpp.embeddings.means.elements import AbstractRegressors, PointSections
from kpp.features import AbstractFeatureKernel
from kpp.foundation.validation import finite_arrays
from kpp.kernels import RBF, AbstractKernel, check_non_negative, parameter
from kpp.typing import Leaf, Points, RngKey

if TYPE_CHECKING:
    import pandas as pd

    from kpp.causal import CausalDAG


class InterventionalMeanEmbedding(AbstractRegressionEmbedding):
    r"""The embedding of the distribution of Y when the treatment is set to x, :math:`p(y | do(X = x))`.

    .. math::

        \hat\mu_{Y|do(x)} = \sum_i w_i(x)\, k(y_i, \cdot), \qquad
        w(x) = (K_\Omega + n \lambda I)^{-1} \Phi(x)

    The adjustment defines :math:`K_\Omega` and :math:`\Phi`, and so the causal assumption of the embedding. Without
    adjustment it is `ConditionalMeanEmbedding`. Expectations, inner products and distances between interventions are
    computed as for any embedding; `interventional_quantiles` returns quantiles.

    Args:
        kernel: The kernel k of the outcome.
        treatment_kernel: The kernel of the treatment.
        treatment: X, the n treatments of an observed sample: an array (n, d), or a batch of inputs of
            `treatment_kernel`. Several treatments that are set together are columns.
        points: Y, the n outcomes: an array (n, d'), or a batch of inputs of `kernel`.
        regularization: :math:`\lambda`, at least 0; it is multiplied by n. `select_regularization` chooses it.
        adjustment: `NoAdjustment`, `BackDoor` or `FrontDoor`.

    Raises:
        ValueError: If a regularization is negative, or the numbers of rows differ.

    References:
        Singh, Xu and Gretton, Kernel methods for causal functions, 2020; Chau, Ton, Gonzalez, Teh and Sejdinovic,
        BayesIMP: uncertainty quantification for causal data fusion, 2021, proposition 2.
    """

    kernel: AbstractKernel = eqx.field(kw_only=True)
    treatment_kernel: AbstractKernel = eqx.field(kw_only=True)
    treatment: Points = eqx.field(converter=functools.partial(finite_arrays, name="treatment"), kw_only=True)
    points: Points = eqx.field(converter=functools.partial(finite_arrays, name="points"), kw_only=True)
    regularization: Leaf = eqx.field(converter=parameter("regularization"), kw_only=True)
    adjustment: AbstractAdjustment = eqx.field(
        converter=lambda value: NoAdjustment() if value is None else value, default=None, kw_only=True
    )

    def __check_init__(self) -> None:
        check_non_negative(self.regularization, "regularization")
        check_samples(self.treatment, self.points, self.adjustment)

    @classmethod
    def from_graph(
        cls,
        graph: CausalDAG,
        frame: pd.DataFrame,
        treatment: str | Sequence[str],
        outcome: str | Sequence[str],
        *,
        regularization: Leaf,
        kernel: AbstractKernel | None = None,
        treatment_kernel: AbstractKernel | None = None,
        adjusting_kernel: AbstractKernel | None = None,
        adjusting_regularization: Leaf | None = None,
    ) -> InterventionalMeanEmbedding:
        r"""Find the adjustment in a causal graph whose nodes are columns of a data frame.

        `kpp.causal.find_adjustment` searches the columns: no adjustment if none is needed, else a back-door set, else a
        front-door set.

        Args:
            graph: The causal graph.
            frame: A data frame of numbers, one row per sample. Its columns are observed nodes of the graph. Some nodes
                may be missing, and other columns are ignored.
            treatment: The column of the treatment, or several columns.
            outcome: The column of the outcome, or several columns.
            regularization: :math:`\lambda`, multiplied by n.
            kernel: The kernel of the outcome; by default an RBF with the lengthscales of the median heuristic times the
                square root of the number of columns.
            treatment_kernel: The kernel of the treatment, with the same default.
            adjusting_kernel: The kernel of the covariates or mediators, with the same default.
            adjusting_regularization: The regularization of the mediators' embedding, by default `regularization`. Only
                the front-door adjustment uses it.

        Returns:
            The embedding; its `adjustment` holds the adjustment that was found.

        Raises:
            CausalError: If a node is unknown, or no such adjustment identifies the effect. The message names the
                estimand if the effect is identified in another way.
            ValueError: If columns are missing or do not hold numbers.
        """
        from kpp.causal import find_adjustment  # loads networkx, which only this method needs

        kernels = kernel, treatment_kernel, adjusting_kernel
        adjusting = regularization if adjusting_regularization is None else adjusting_regularization
        samples = read_samples(find_adjustment, graph, frame, treatment, outcome, kernels, adjusting)
        return cls(**samples._asdict(), regularization=regularization)

    @property
    def outputs(self) -> PointSections:
        return PointSections(self.kernel, self.points)

    @property
    def regressors(self) -> AbstractRegressors:
        return _Adjusted(self.adjustment, self.treatment_kernel, self.treatment)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[InterventionalMeanEmbedding, Any]]:
        treatment, points = jax.random.normal(rng_key, (6, 1)), jax.random.normal(rng_key, (6, 2)) + 0.3
        adjustment = BackDoor(RBF(1.5), jnp.sin(3 * points))
        sample: Any = {"treatment": treatment, "points": points, "adjustment": adjustment}
        yield cls(kernel=RBF(0.8), treatment_kernel=RBF(1.2), regularization=0.01, **sample), treatment[:3] - 0.2


class _Adjusted(AbstractRegressors):
    """The treatments of a sample with their covariates or mediators; a query sets the treatment."""

    adjustment: AbstractAdjustment
    kernel: AbstractKernel
    treatment: Points

    @property
    def number(self) -> int:
        return num_rows(self.treatment)

    def gram(self) -> Float[Array, "n n"]:
        return self.adjustment.gram(self.kernel, self.treatment)

    def sections(self, query: Points | None) -> Float[Array, "n p"]:
        return self.adjustment.intervention(self.kernel, self.treatment).cross(query)

    def features(self, query: Points | None = None) -> Float[Array, "p q"] | None:
        if not (isinstance(self.adjustment, NoAdjustment) and isinstance(self.kernel, AbstractFeatureKernel)):
            return None
        return self.kernel.feature_map(self.treatment if query is None else query)
