r"""Gaussian-process regression under the constraint that a collider implies, on the prior or on posterior draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpyro
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.gp import AbstractGPModel, GaussianLikelihood, GaussianProcessMarginal, condition, replace_priors, scalar_field
from kpp.gp.toolkit import ConditionedProcess, optional_scalar_field
from kpp.inference import Data
from kpp.inference.toolkit import Sample
from kpp.kernels import RBF, AbstractKernel, Projected, check_non_negative
from kpp.kernels.toolkit import AbstractBatchKernel, Unprojected
from kpp.linalg.toolkit import DenseRidge
from kpp.priors import sample as draw_priors
from kpp.typing import AnyArray, Leaf, RngKey
from kpp_models.colliders.held_out import HeldOutTargets, held_out_predictions, held_out_variances
from kpp_models.colliders.model import AbstractColliderModel, Decomposed, example_rows, feature_field

_Section = AnyArray | Unprojected


class ColliderRegression(AbstractColliderModel, AbstractGPModel):
    r"""Gaussian-process regression under an independence :math:`Y \perp X_2 \mid X_3`.

    .. math:: y_i = f(x_i) + \epsilon_i, \qquad f = m + f_0 + g, \qquad f_0 \sim GP(0, k_0) \text{ on } X_3, \quad
        g \sim GP(0, k_P) \quad\text{or}\quad g \sim GP(0, k), \qquad \epsilon_i \sim N(0, \sigma^2)

    `projection` chooses between the two. With "space" the prior is projected: g has the kernel :math:`k_P` of projected
    functions (`kpp.kernels.Projected`). With "function" g has the kernel k, and every draw of the posterior is
    projected, :math:`f = m + P g` with :math:`P g(x) = g(x) - \hat E[g(X) \mid C = c]` and the condition :math:`C =
    (X_2, X_3)`: the data inform g, whose conditional expectation is then subtracted. With parents, the data cannot
    distinguish :math:`f_0` from what g has of the parents, which must not be lost; every draw is therefore projected
    onto the functions that obey the constraint, :math:`f = m + f_0 + P' g` with

    .. math:: P' g(x) = g(x) - \hat E[g(X) \mid C = c] + \hat E[g(X) \mid X_3 = x_3]

    The second expectation is a kernel ridge regression on the parents, with the kernel :math:`k_0`. The functions are
    integrated out, so that inference is only about the hyperparameters. Without spouses nothing is projected: the model
    is then `kpp_models.GPRegression` with k, or with r alone if there are no parents either.

    The evidence, and with it every inference, compares hyperparameters by how well they predict y; a
    `condition_regularization` that is too large removes the constraint. `kpp_models.ColliderRidge.select_condition`
    chooses it by the accuracy of the estimated expectations. The pointwise log likelihood is leave-one-out, for the
    prediction of the model: :math:`\log N(y_i; E[f(x_i) \mid y_{-i}], \mathrm{var}(f(x_i) \mid y_{-i}) + \sigma^2)`.

    Args:
        kernel: r, a kernel of the children, for the product form, where :math:`k = (r + 1)\, l`; k itself, a kernel of
            all columns of x, for the general one. The leaves are numbers or priors.
        condition_kernel: l, a kernel of spouses and parents, in this order; it may be None if there are none of them.
        noise_variance: :math:`\sigma^2`, in squared units of y; a number (at least 0) or a prior.
        condition_regularization: :math:`\gamma`, multiplied by the number of rows of the expectations; a number (at
            least 0) or a prior.
        children: The columns of :math:`X_1`, all features except those of the condition, by position or by name.
        spouses: The columns of :math:`X_2`, which Y is independent of given the parents.
        parents: The columns of :math:`X_3`.
        projection: "space", "function" or "none", which imposes nothing.
        form: "product" or "general"; they estimate the expectation differently.
        baseline_kernel: :math:`k_0`, a kernel of the parents; needed if there are parents and spouses.
        mean: m, in units of y; a number or a prior.
        num_landmarks: The number of landmarks of Nyström's method for the expectations, chosen by herding among their
            rows; None for no approximation. It must be None for the projection "function" with parents.

    Raises:
        ValueError: If a number is out of its range, a column is named twice, or a part that is needed is missing.

    References:
        Bouabid, Fawkes and Sejdinovic, Returning the favour: when regression benefits from probabilistic causal
        knowledge, 2023, appendix G.1.
    """

    kernel: AbstractKernel
    condition_kernel: AbstractKernel | None
    noise_variance: Leaf = scalar_field("noise_variance")
    condition_regularization: Leaf | None = optional_scalar_field("condition_regularization")
    children: tuple[int | str, ...] = feature_field("children")
    spouses: tuple[int | str, ...] = feature_field("spouses")
    parents: tuple[int | str, ...] = feature_field("parents", default=())
    mean: Leaf = scalar_field("mean", default=0.0, kw_only=True)

    def __check_init__(self) -> None:
        check_non_negative(self.noise_variance, "noise_variance")
        self.check_parts()
        if self._restores_parents and self.num_landmarks is not None:
            raise ValueError(
                "`num_landmarks` must be None with parents and the projection 'function', which has no approximation, "
                f"got {self.num_landmarks}; the projection 'space' takes landmarks"
            )

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[ColliderRegression, Array, Array]]:
        x, y = example_rows(rng_key)
        prior = dist.LogNormal(0.0, 0.5)
        yield cls(RBF(prior), RBF(1.2), prior, 0.01, children=(0,), spouses=(1, 2)), x, y
        parts: dict[str, Any] = {"children": (0,), "spouses": (1,), "parents": (2,), "baseline_kernel": RBF(1.0, prior)}
        yield cls(RBF(1.5), RBF(prior), prior, 0.01, mean=dist.Normal(0.0, 1.0), **parts), x, y
        yield cls(RBF(1.5), RBF(prior), prior, 0.01, children=(0,), spouses=(1, 2), projection="function"), x, y
        yield cls(RBF(1.5), RBF(prior), prior, 0.01, projection="function", **parts), x, y

    def numpyro_model(
        self, x: Float[Array, "n d"], sample: Array, landmarks: Array | None, y: Float[Array, " n"] | None = None
    ) -> None:
        """The NumPyro model, with the sites of the priors and the observed site ``y``, one vector; see `prepare`."""
        model = replace_priors(self, draw_priors)
        gram = model._kernel({"sample": sample, "landmarks": landmarks}).gram(model.seen(x))
        numpyro.sample("y", GaussianProcessMarginal(model.mean, gram, model.noise_variance), obs=y)

    def posterior(self, sample: Sample, data: Data) -> ConditionedProcess:
        r"""Return the posterior, exact: :math:`\alpha = (K + \sigma^2 I)^{-1}(y - m)`; points may be `Unprojected`."""
        model = self.at(sample)
        kernel, x, seen = model._kernel(data), data["x"], model.seen(data["x"])
        likelihood = GaussianLikelihood(data["y"], model.noise_variance)
        posterior = condition(kernel, seen, likelihood, model.mean)
        if seen is x:
            return posterior

        def held_out() -> tuple[Array, Array]:
            mean, cross = jnp.asarray(model.mean), kernel(x, seen)
            system = DenseRidge.create(kernel.gram(seen), likelihood.noise_variance)
            targets = HeldOutTargets((likelihood.y - mean)[:, None], jnp.ones_like(likelihood.y)[:, None])
            variances = held_out_variances(kernel.diagonal(x), cross, system)
            return mean + held_out_predictions(cross, system, targets), variances

        return dataclasses.replace(posterior, held_out=held_out, at_points=None)  # x, not what is `seen`

    def variance_scale(self, posterior: ConditionedProcess, x: Float[Array, "p d"]) -> Float[Array, ""]:
        """Return the mean prior variance without the projection, the size of the numbers that are subtracted."""
        return jnp.mean(posterior.kernel.diagonal(self.seen(x)))

    def _kernel(self, data: Data) -> AbstractKernel:
        """Return the kernel of f - m, for a model without priors."""
        deviation = self.deviation_kernel(data)
        if not self.has_baseline:
            return deviation
        baseline = self.kernel_of_baseline()
        if self._restores_parents:
            assert isinstance(deviation, Projected)  # there are spouses
            deviation = Reconditioned(deviation, baseline)
        return Decomposed(baseline, deviation)

    @property
    def _restores_parents(self) -> bool:
        """Whether draws are projected whose expectation given the parents must be kept."""
        return self.has_baseline and self.projection == "function"


class Reconditioned(AbstractBatchKernel):
    r"""The kernel of :math:`P' g`, whose functions obey a constraint with parents; see `ColliderRegression`.

    .. math:: \hat E[g(X) \mid X_3 = x_3] = \sum_j v_j(x_3)\, g(x_{u,j}), \qquad
        v(x_3) = (K_0(X_u, X_u) + n' \gamma I)^{-1} k_0(X_u, x_3)

    With exact expectations :math:`E[P' g(X) \mid C]` depends on :math:`X_3` only. At `Unprojected` points the kernel
    means g itself. Time is cubic in the number n' of rows of the sample.
    """

    projected: Projected  # of P g, without landmarks; X_u and gamma are its sample and its regularization
    parent_kernel: AbstractKernel  # k_0, a kernel of all columns that reads the parents

    def __call__(self, x1: _Section, x2: _Section) -> Float[Array, "n1 n2"]:
        return self._inner(x1, self._weights(x1), x2, self._weights(x2))

    def gram(self, x: _Section) -> Float[Array, "n n"]:
        weights = self._weights(x)
        return self._inner(x, weights, x, weights)

    def diagonal(self, x: _Section) -> Float[Array, " n"]:
        weights, values = self._weights(x), self.projected.diagonal(x)
        if weights is None:
            return values
        sample = self._sample
        added = 2 * self.projected(sample, x) + self.projected.gram(sample) @ weights  # of 2 Cov(a, b) + Var b
        return values + jnp.sum(weights * added, axis=0)

    @property
    def _sample(self) -> Unprojected:
        return Unprojected(self.projected.points)

    def _weights(self, x: _Section) -> Float[Array, "n p"] | None:
        """Return v, or None where nothing is added."""
        if isinstance(x, Unprojected):
            return None
        points = self.projected.points
        ridge = points.shape[0] * self.projected.regularization
        what = "the matrix of the kernel of the parents plus n * regularization * I"
        return DenseRidge.create(self.parent_kernel.gram(points), ridge, what=what).solve(self.parent_kernel(points, x))

    def _inner(self, x1: _Section, first: Array | None, x2: _Section, second: Array | None) -> Float[Array, "n1 n2"]:
        matrix, sample = self.projected(x1, x2), self._sample
        if second is not None:
            matrix = matrix + self.projected(x1, sample) @ second
        if first is None:
            return matrix
        sections = self.projected(sample, x2)
        if second is not None:
            sections = sections + self.projected.gram(sample) @ second
        return matrix + first.T @ sections  # Cov of P g + v^T g(X_u) at both points
