"""The conditional or interventional mean embedding as a vector-valued Gaussian process, and its uncertainty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp import linalg
from kpp.embeddings.identified.from_graph import read_samples
from kpp.embeddings.identified.treatment_adjustment import (
    AbstractAdjustment,
    FrontDoor,
    Intervention,
    NoAdjustment,
    check_samples,
    num_rows,
)
from kpp.embeddings.means.embedding import AbstractEmbedding, check_same_kernel
from kpp.foundation.validation import finite_arrays
from kpp.functionals import FunctionalLaw, GPPosterior
from kpp.functions import RKHSFunction
from kpp.kernels import RBF, AbstractKernel, NuclearDominant, check_non_negative, parameter
from kpp.typing import Leaf, Numbers, Points, RngKey

if TYPE_CHECKING:
    import pandas as pd

    from kpp.causal import CausalDAG


class BayesianConditionalMeanEmbedding(AbstractEmbedding):
    r"""A Gaussian process posterior of the embeddings of Y given X = x, or under do(X = x).

    The prior of :math:`\mu(x, y)` is a Gaussian process with the covariance :math:`s F(x, x')\, r(y, y')`. r is the
    nuclear dominant kernel of k, so that each :math:`\mu(x, \cdot)` lies in the RKHS of k. The sections :math:`k(y_i,
    y_j)` are noisy observations of its values at the samples, with covariance :math:`s (K_\Omega + c I) \otimes R`. The
    posterior has

    .. math::

        E\,\mu(x, y) = \Phi(x)^\top C^{-1} K R^{-1} r(Y, y), \qquad
        \mathrm{Cov}\bigl(\mu(x, y), \mu(x', y')\bigr)
        = s \bigl[F(x, x')\, r(y, y') - \Phi(x)^\top C^{-1} \Phi(x')\; r(y, Y) R^{-1} r(Y, y')\bigr]

    with :math:`C = K_\Omega + c I`, K = k(Y, Y) and R = r(Y, Y). As an embedding it is the posterior mean, a weighted
    sum of sections of r. Its `space` is the RKHS of k, in which inner products are expectations and distances are
    computed.

    Args:
        base_kernel: k, an RBF, the kernel of the outcome.
        width: :math:`\eta` of `NuclearDominant`. r decreases to 0 away from the origin on this scale, so center the
            outcomes.
        treatment_kernel: The kernel of the treatment.
        treatment: X, the n treatments of the sample: an array (n, d), or a batch of inputs of `treatment_kernel`.
        points: Y, the n outcomes, an array (n, d').
        noise_variance: c, at least 0; it is not multiplied by n.
        adjustment: `NoAdjustment`, `BackDoor` or `FrontDoor`.
        amplitude: s, at least 0. The mean does not depend on it; `fitted_amplitude` has the highest evidence.

    If the evidence is used to choose other parameters, keep the lengthscale of the base kernel and the width fixed, for
    example at the median heuristic: the evidence has trivial maxima in these two.

    Raises:
        TypeError: If `base_kernel` is not an RBF.
        ValueError: If a variance is negative, or the numbers of rows differ.

    References:
        Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021,
        proposition 4, with the constant of the evidence and the prior covariance of interventions corrected.
    """

    base_kernel: AbstractKernel
    width: Leaf
    treatment_kernel: AbstractKernel
    treatment: Points
    points: Float[Array, "n d"]
    noise_variance: Leaf
    adjustment: AbstractAdjustment
    amplitude: Leaf

    def __init__(
        self,
        *,
        base_kernel: AbstractKernel,
        width: Leaf,
        treatment_kernel: AbstractKernel,
        treatment: Points,
        points: Points,
        noise_variance: Leaf,
        adjustment: AbstractAdjustment | None = None,
        amplitude: Leaf = 1.0,
    ) -> None:
        self.base_kernel = base_kernel
        self.width = NuclearDominant(base_kernel, width).width
        self.treatment_kernel = treatment_kernel
        self.treatment, self.points = finite_arrays(treatment, "treatment"), finite_arrays(points, "points")
        self.noise_variance = parameter("noise_variance")(noise_variance)
        self.adjustment = NoAdjustment() if adjustment is None else adjustment
        self.amplitude = parameter("amplitude")(amplitude)

    def __check_init__(self) -> None:
        check_non_negative(self.noise_variance, "noise_variance")
        check_non_negative(self.amplitude, "amplitude")
        check_samples(self.treatment, self.points, self.adjustment)

    @classmethod
    def from_graph(
        cls,
        graph: CausalDAG,
        frame: pd.DataFrame,
        treatment: str | Sequence[str],
        outcome: str | Sequence[str],
        *,
        width: Leaf,
        noise_variance: Leaf,
        base_kernel: AbstractKernel | None = None,
        treatment_kernel: AbstractKernel | None = None,
        adjusting_kernel: AbstractKernel | None = None,
        adjusting_regularization: Leaf = 0.01,
        amplitude: Leaf = 1.0,
    ) -> BayesianConditionalMeanEmbedding:
        """Find the adjustment in a causal graph; see `InterventionalMeanEmbedding.from_graph`.

        Args:
            graph: The causal graph.
            frame: A data frame of numbers, one row per sample.
            treatment: The column of the treatment, or several columns.
            outcome: The column of the outcome, or several columns.
            width: The width of the nuclear dominant kernel.
            noise_variance: c, not multiplied by n.
            base_kernel: The kernel of the outcome, by default an RBF with lengthscales from the data.
            treatment_kernel: The kernel of the treatment, with the same default.
            adjusting_kernel: The kernel of the covariates or mediators, with the same default.
            adjusting_regularization: The regularization of the mediators' embedding, multiplied by n. Only the
                front-door adjustment uses it.
            amplitude: s.

        Returns:
            The embedding; its `adjustment` holds the adjustment that was found.
        """
        from kpp.causal import find_adjustment  # loads networkx, which only this method needs

        kernels = base_kernel, treatment_kernel, adjusting_kernel
        found = read_samples(
            find_adjustment, graph, frame, treatment, outcome, kernels, adjusting_regularization
        )._asdict()
        found["base_kernel"] = found.pop("kernel")
        return cls(**found, width=width, noise_variance=noise_variance, amplitude=amplitude)

    @property  # type: ignore[misc]  # Equinox lets a property stand for an AbstractVar
    def kernel(self) -> NuclearDominant:  # type: ignore[override]
        """The nuclear dominant kernel r."""
        return NuclearDominant(self.base_kernel, self.width)

    @property
    def space(self) -> AbstractKernel:
        return self.base_kernel

    def weights(self, query: Points | None = None) -> Float[Array, "n p"]:
        """Return the weights of the sections of r in the posterior mean, (n, p), for p values of the treatment."""
        if query is None:
            raise ValueError("`query` must hold values of the treatment, one row each, got None")
        return self._weights(self._system(), query)

    def expectation(self, values: RKHSFunction | Numbers, query: Points | None = None) -> Float[Array, "..."]:
        """Return the posterior mean of the expectation of a function, an `RKHSFunction` with the kernel k."""
        if isinstance(values, RKHSFunction):
            check_same_kernel(values.kernel, self.space, "values")
        return AbstractEmbedding.expectation(self, values, query)

    def inner(
        self, other: AbstractEmbedding, query: Points | None = None, other_query: Points | None = None
    ) -> Float[Array, "p other_p"]:
        """Return the inner products, (p, p'), in the RKHS of k; `other` has the same kernels, or the kernel k."""
        self._check_same_space(other)
        if not isinstance(other, BayesianConditionalMeanEmbedding):
            return other.inner(self, other_query, query).T
        check_same_kernel(other.kernel, self.kernel, "other")
        # <r(y, .), r(y', .)> in the RKHS of k is the chain of order 2.
        return self.weights(query).T @ self.kernel.chain(2, self.points, other.points) @ other.weights(other_query)

    def inner_product(self, process: GPPosterior, query: Points | None) -> FunctionalLaw:
        r"""Return the inner products with an independent Gaussian process: expectations of an uncertain function.

        With the mean m and the covariance C of the process as an operator on the RKHS of k, with :math:`\mu_q` and
        :math:`w_q` the mean of the embedding and its weights, and with F and G of the class,

        .. math::

            E &= \langle m, \mu_q \rangle \\
            \mathrm{Cov}_{q q'} &= \langle \mu_q, C \mu_{q'} \rangle
            + s \bigl[\bigl(\langle m, r\, m \rangle + \mathrm{tr}(C r)\bigr) F_{q q'}
            - \mathrm{tr}\bigl(R^{-1} B\bigr)\, G_{q q'}\bigr], \qquad
            B_{ij} = \langle r(y_i, \cdot), (m \otimes m + C)\, r(y_j, \cdot) \rangle

        The first term of the covariance is the uncertainty of the process, the others are those of the embedding and
        of both together. Mean and covariance are exact. The products are not Gaussian, so intervals of the law, which
        takes them as Gaussian, are approximate.

        Args:
            process: The posterior of the function, without draws and of one output. Its kernel is k or r.
            query: The p queries.

        Returns:
            The law of p numbers.

        Raises:
            ValueError: If the process has draws, several outputs or another kernel.

        References:
            Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP, 2021, proposition 3, without its projection.
        """
        function = process.mean
        if process.batch_shape or function.output_shape:
            raise ValueError(
                f"`process` must have no draws and one output, got draws of shape {process.batch_shape} and outputs of "
                f"shape {function.output_shape}; take `at_draw` and `combine`"
            )
        order = int(isinstance(function.kernel, NuclearDominant))
        check_same_kernel(function.kernel, self.kernel if order else self.space, "process")
        kernel, system = self.kernel, self._system()
        weights, known = self._weights(system, query), system.explained_inputs(query)
        across = kernel.chain(1 + order, self.points, function.points)
        image, explained = across @ function.coefficients, across @ process.root
        spread = kernel.chain(2 + order, self.points, self.points) - explained @ explained.T
        within = kernel.chain(1 + 2 * order, function.points, function.points)
        num_features = self.points.shape[1]
        trace = kernel.squared_norm(num_features) if order else kernel.trace(num_features)
        trace = trace - jnp.sum(process.root * (within @ process.root))
        prior_scale = function.coefficients @ within @ function.coefficients + trace
        known_scale = jnp.trace(linalg.cho_solve(system.outputs, jnp.outer(image, image) + spread))
        prior = prior_scale * system.intervention.prior(query, query) - known_scale * (known.T @ known)
        return FunctionalLaw(
            weights.T @ image + function.intercept, weights.T @ spread @ weights + self.amplitude * prior
        )

    def covariance(
        self, x: Points, query: Points | None, other_x: Points | None = None, other_query: Points | None = None
    ) -> Float[Array, "p n2 other_p other_n"]:
        r"""Return the posterior covariances of values of the embeddings.

        Args:
            x: The points y at which the embeddings are evaluated, (n2, d').
            query: The p queries.
            other_x: Other points y'; None for the same points.
            other_query: Other queries; None for the same queries.

        Returns:
            :math:`\mathrm{Cov}(\mu_q(y), \mu_{q'}(y'))`, (p, n2, p', n2'); the mean is `evaluate`, (p, n2).
        """
        system = self._system()
        known, values = system.explained_inputs(query), system.explained_outputs(x)
        other_known = known if other_query is None else system.explained_inputs(other_query)
        other_values = values if other_x is None else system.explained_outputs(other_x)
        prior = system.intervention.prior(query, query if other_query is None else other_query)
        sections = system.kernel(x, x if other_x is None else other_x)
        return self.amplitude * (_outer(prior, sections) - _outer(known.T @ other_known, values.T @ other_values))

    def variance(self, x: Points, query: Points | None) -> Float[Array, "p n2"]:
        r"""Return the posterior variances of values of the embeddings.

        Args:
            x: The points y at which the embeddings are evaluated, (n2, d').
            query: The p queries.

        Returns:
            :math:`\mathrm{Var}(\mu_q(y))`, (p, n2), at least 0.
        """
        system = self._system()
        prior = jnp.diagonal(system.intervention.prior(query, query))
        known = jnp.sum(system.explained_inputs(query) ** 2, axis=0)
        values = jnp.sum(system.explained_outputs(x) ** 2, axis=0)
        variances = prior[:, None] * system.kernel.diagonal(x)[None, :] - known[:, None] * values[None, :]
        return self.amplitude * jnp.maximum(variances, 0.0)  # rounding may make a zero variance slightly negative

    def log_evidence(self) -> Float[Array, ""]:
        r"""Return the log density of the sections k(Y, Y), a criterion to choose the treatment kernel and the noise.

        .. math::

            \log p = -\tfrac{N^2}{2} \log(2 \pi s) - \tfrac N2 (\log\det C + \log\det R)
            - \tfrac{1}{2 s} \mathrm{tr}(C^{-1} K R^{-1} K)

        Returns:
            The log evidence, a scalar.
        """
        count, inputs, outputs = num_rows(self.points), self._inputs(), self._outputs()
        determinants = linalg.half_log_determinant(inputs) + linalg.half_log_determinant(outputs)
        level = count**2 * jnp.log(2 * jnp.pi * self.amplitude)  # the paper leaves 2 pi out
        return -0.5 * level - count * determinants - 0.5 * self._quadratic_form(inputs, outputs) / self.amplitude

    def fitted_amplitude(self) -> Float[Array, ""]:
        r"""Return the amplitude with the highest evidence, :math:`\mathrm{tr}(C^{-1} K R^{-1} K) / N^2`.

        Returns:
            The amplitude, a scalar.
        """
        return self._quadratic_form(self._inputs(), self._outputs()) / num_rows(self.points) ** 2

    def _quadratic_form(self, inputs: Float[Array, "n n"], outputs: Float[Array, "n n"]) -> Float[Array, ""]:
        half = linalg.solve_lower(outputs, self.base_kernel.gram(self.points))
        return jnp.sum(linalg.solve_lower(inputs, half.T) ** 2)

    def _weights(self, system: _System, query: Points | None) -> Float[Array, "n p"]:
        sections = linalg.cho_solve(system.inputs, system.intervention.cross(query))
        return linalg.cho_solve(system.outputs, self.base_kernel.gram(self.points) @ sections)

    def _system(self) -> _System:
        intervention = self.adjustment.intervention(self.treatment_kernel, self.treatment)
        return _System(intervention, self.kernel, self.points, self._inputs(), self._outputs())

    def _inputs(self) -> Float[Array, "n n"]:
        """Return the Cholesky factor of C."""
        gram = self.adjustment.gram(self.treatment_kernel, self.treatment)
        matrix = linalg.add_diagonal(gram, self.noise_variance)
        return linalg.cholesky(matrix, what="the kernel matrix of the treatments, with noise")

    def _outputs(self) -> Float[Array, "n n"]:
        """Return the Cholesky factor of R."""
        return linalg.cholesky(self.kernel.gram(self.points), what="the nuclear dominant kernel matrix of the outcomes")

    def _squared_norms(self, query: Points | None) -> Float[Array, " p"]:
        weights = self.weights(query)
        return jnp.sum(weights * (self.kernel.chain(2, self.points, self.points) @ weights), axis=0)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[BayesianConditionalMeanEmbedding, Any]]:
        treatment, points = jax.random.normal(rng_key, (6, 1)), jax.random.normal(rng_key, (6, 2)) + 0.3
        adjustment = FrontDoor(RBF(1.5), jnp.sin(3 * points), 0.01)
        sample: Any = {"treatment": treatment, "points": points, "adjustment": adjustment}
        kernels: Any = {"base_kernel": RBF(0.8), "width": 2.0, "treatment_kernel": RBF(1.2)}
        yield cls(**kernels, **sample, noise_variance=0.1), treatment[:3] - 0.2


class _System(NamedTuple):
    """The matrices of a posterior, each factorized once."""

    intervention: Intervention
    kernel: NuclearDominant
    points: Float[Array, "n d"]
    inputs: Float[Array, "n n"]
    outputs: Float[Array, "n n"]

    def explained_inputs(self, query: Points | None) -> Float[Array, "n p"]:
        """Return the solution of a system with the factor of C and the sections of the queries."""
        return linalg.solve_lower(self.inputs, self.intervention.cross(query))

    def explained_outputs(self, x: Points) -> Float[Array, "n n2"]:
        """Return the solution of a system with the factor of R and the sections of the points."""
        return linalg.solve_lower(self.outputs, self.kernel(self.points, x))


def _outer(first: Float[Array, "p q"], second: Float[Array, "n m"]) -> Float[Array, "p n q m"]:
    return first[:, None, :, None] * second[None, :, None, :]
