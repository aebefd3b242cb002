r"""Kernel ridge regression under the constraint of a collider: closed-form fits in or onto the projected space."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpyro
from jaxtyping import Array, Float

from kpp.data.tables import Schema, read_points
from kpp.foundation.validation import as_targets, check_same_rows, positive
from kpp.functions import RKHSFunction
from kpp.gp import GaussianProcessMarginal, scalar_field
from kpp.gp.toolkit import optional_scalar_field, refuse_priors_in
from kpp.inference import Data
from kpp.inference.toolkit import Sample
from kpp.kernels import RBF, AbstractKernel, Projected
from kpp.kernels.toolkit import check_positive
from kpp.linalg.toolkit import DenseRidge
from kpp.typing import Leaf, RngKey
from kpp_models.colliders.held_out import ConditionParts, HeldOutTargets, held_out_predictions
from kpp_models.colliders.model import AbstractColliderModel, Decomposed, Sections, example_rows, feature_field
from kpp_models.tables.machines.grid_search import Selection, select_from_grid
from kpp_models.tables.machines.ridge import AbstractLeastSquares

_RIDGES = {"regularization", "baseline_regularization"}


class LeastGain(NamedTuple):
    """Lower bounds of the expected gain by a projection; see `ColliderRidge.least_gain`.

    Attributes:
        theorem: The bound of the theorem, which replaces the matrix of the fit by its largest possible eigenvalue.
        trace: The sharper bound from which the theorem follows.
    """

    theorem: float
    trace: float


class ColliderRidge(AbstractColliderModel, AbstractLeastSquares):
    r"""Kernel ridge regression under an independence :math:`Y \perp X_2 \mid X_3`, a fit without priors.

    .. math:: \min_{h} \frac1n \sum_i (y_i - f_0(x_{3,i}) - h(x_i))^2 + \lambda \|h\|^2, \qquad
        \hat f = f_0 + h \;(h \in H_P) \quad\text{or}\quad \hat f = f_0 + P h \;(h \in H)

    `projection` chooses between the two: "space" fits in the space :math:`H_P` of the projected functions
    (:math:`H_P`-KRR), "function" fits without the constraint and projects the fit (P-KRR), with :math:`P h(x) =
    h(x) - \hat E[h(X) \mid C = c]` and the condition :math:`C = (X_2, X_3)`; see `kpp.kernels.Projected`. The
    expectation is estimated from labeled and unlabeled rows. :math:`f_0` is the mean of y, plus, where there are
    parents, the kernel ridge regression of the residuals on them.

    With "none" nothing is imposed, for comparison. Without spouses nothing is projected either: the model is then
    `kpp_models.KernelRidge` with the mean of y as intercept, and k, or r alone if there are no parents either.

    `fit` gives one chain of one draw, for any inference. Leave-one-out residuals are equal to those of refits of mean,
    baseline and h that keep the totals :math:`n\lambda` and the rows of the expectations, whose labels are not used.
    `numpyro_model` is the Gaussian process whose posterior mean is h, around :math:`f_0`; without targets only the mean
    is used for :math:`f_0`.

    Args:
        kernel, condition_kernel, children, spouses, parents, projection, form: As for `ColliderRegression`.
        regularization: :math:`\lambda`, multiplied by the number of labeled rows; greater than 0.
        condition_regularization: :math:`\gamma`, multiplied by the number of rows of the expectations; at least 0.
        baseline_kernel: The kernel of :math:`f_0`, of the parents; needed if there are parents and spouses.
        baseline_regularization: The regularization of :math:`f_0`; needed with `baseline_kernel`.
        center: Whether to subtract the mean of y first; otherwise the mean is assumed to be 0.
        num_landmarks: As for `ColliderRegression`.

    Raises:
        ValueError: If a number is out of its range, a column is named twice, or a part that is needed is missing.
        TypeError: If a leaf is a prior.

    References:
        Bouabid, Fawkes and Sejdinovic, Returning the favour: when regression benefits from probabilistic causal
        knowledge, 2023, equations (16), (20) and (23), section 5 and appendix E, regularizations multiplied by n.
    """

    kernel: AbstractKernel
    condition_kernel: AbstractKernel | None
    regularization: Leaf = scalar_field("regularization")
    condition_regularization: Leaf | None = optional_scalar_field("condition_regularization")
    children: tuple[int | str, ...] = feature_field("children")
    spouses: tuple[int | str, ...] = feature_field("spouses")
    parents: tuple[int | str, ...] = feature_field("parents", default=())
    baseline_regularization: Leaf | None = optional_scalar_field("baseline_regularization", default=None, kw_only=True)
    center: bool = eqx.field(static=True, default=True, kw_only=True)

    def __check_init__(self) -> None:
        refuse_priors_in(self, "kpp_models.ColliderRegression")
        check_positive(self.regularization, "regularization", infinity_allowed=False)
        self.check_parts()
        if self.has_baseline:
            self.need("baseline_regularization", "parents")
        if self.baseline_regularization is not None:
            check_positive(self.baseline_regularization, "baseline_regularization", infinity_allowed=False)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[ColliderRidge, Array, Array]]:
        x, y = example_rows(rng_key)
        yield cls(RBF(1.5), RBF(1.2), 0.01, 0.01, children=(0,), spouses=(1, 2)), x, y
        parts: dict[str, Any] = {"children": (0,), "spouses": (1,), "parents": (2,), "projection": "function"}
        yield cls(RBF(1.5), RBF(1.2), 0.01, 0.01, **parts, baseline_kernel=RBF(1.0), baseline_regularization=0.1), x, y

    def select(
        self,
        x: object,
        y: object,
        *,
        grid: Mapping[str, Any],
        unlabeled: object = None,
        use_labeled: bool = True,
        validation: Any = None,
    ) -> Selection[ColliderRidge]:
        """Choose hyperparameters from a grid by the mean squared leave-one-out error, in closed form.

        With a validation set it is the mean squared error there, of the fit to x and y. `select_condition` chooses the
        regularization of the conditional expectation without labels.

        Args:
            x: The points: an array of shape (n, d) or a data frame.
            y: The targets, of shape (n,).
            grid: For each path of a leaf (``"regularization"``, ``"kernel.lengthscale"``) the values to try.
            unlabeled: As in `prepare`.
            use_labeled: As in `prepare`.
            validation: Points and targets of other rows, (m, d) and (m,); None for leave-one-out errors.

        Returns:
            The model with the best combination, the values chosen, and the error of every combination.

        Raises:
            ValueError: If the data or the grid are invalid.
        """
        model, data, schema = self.prepare(x, y, unlabeled=unlabeled, use_labeled=use_labeled)
        if validation is not None:
            rows = _read_validation(validation, schema)
            found = select_from_grid(model, grid, _validation_error, "validation_squared_error", data, *rows)
            return found.with_names_of(self)
        # Regularizations do not change the kernel matrices, whose computation takes the most time for a large sample.
        matrices = _matrices(model, data) if set(grid) <= _RIDGES else None
        found = select_from_grid(model, grid, _loo_squared_error, "loo_squared_error", data, matrices)
        return found.with_names_of(self)

    def select_condition(
        self,
        x: object,
        y: object,
        *,
        grid: Mapping[str, Any],
        unlabeled: object = None,
        use_labeled: bool = True,
        validation: object = None,
    ) -> Selection[ColliderRidge]:
        r"""Choose the regularization of the conditional expectation by cross-validation over all rows.

        .. math:: \frac1{n'} \sum_j \bigl(h(x_{u,j}) - \hat E^{(-j)}[h(X) \mid C = c_j]\bigr)^2

        h is the fit without a projection (``projection="none"``) with the model's `regularization`. Up to a constant,
        the expectation of this loss is the squared error of the function that the projection subtracts from h; labels
        have no influence on it. The loss of the embedding of X in the norm of the RKHS, which gives all functions the
        same weight, is a worse criterion. With a validation set, the sum is over its rows, at which the expectation
        from all rows is compared with h.

        Args:
            x: The points: an array of shape (n, d) or a data frame.
            y: The targets, of shape (n,), which h is fitted to.
            grid: The values of ``"condition_regularization"`` to try; for the general form also leaves of the condition
                kernel (which is a part of h in the product form).
            unlabeled: As in `prepare`.
            use_labeled: As in `prepare`.
            validation: Other points, (m, d), which need no targets; None for cross-validation.

        Returns:
            The model with the best value, the values chosen, and the loss of every one.

        Raises:
            ValueError: If the grid names other leaves, there are no spouses, or the data are invalid.
        """
        allowed = "condition_regularization" if self.form == "product" else "condition_"
        others = [path for path in grid if not path.startswith(allowed)]
        if others or not self.spouses:
            raise ValueError(
                "`grid` must name 'condition_regularization', or with the form 'general' leaves of 'condition_kernel', "
                f"of a model with spouses; got {list(grid)} and the spouses {self.spouses}"
            )
        model, data, schema = self.prepare(x, y, unlabeled=unlabeled, use_labeled=use_labeled)
        coefficients = _unprojected_coefficients(model, data)
        if validation is not None:
            rows = jnp.asarray(schema.read(validation, "validation"), dtype=coefficients.dtype)
            found = select_from_grid(model, grid, _validation_loss, "condition_loss", data, coefficients, rows)
            return found.with_names_of(self)
        # What the loss needs of the kernels takes the most time, and a regularization does not change it.
        parts = _condition_parts(model, data, coefficients) if set(grid) == {"condition_regularization"} else None
        found = select_from_grid(model, grid, _condition_loss, "condition_loss", data, coefficients, parts)
        return found.with_names_of(self)

    def least_gain(
        self, x: object, residual_variance: float, *, unlabeled: object = None, use_labeled: bool = True
    ) -> LeastGain:
        r"""Bound the reduction of the mean squared error by the projection of the fit from below, without targets.

        .. math:: E\bigl[\|\hat h - f\|^2 - \|P \hat h - f\|^2 \mid x\bigr]
            \ge \eta \operatorname{tr}(C^{-1} J C^{-1}) \ge \frac{\eta \operatorname{tr} J}{n^2 (M + \lambda)^2},
            \qquad J_{ij} = E\bigl[\hat E[k_{x_i} \mid X_2]\, \hat E[k_{x_j} \mid X_2]\bigr]

        with :math:`C = K + n \lambda I` and :math:`M = \sup_x k(x, x)`, here the largest value at the rows. The
        expectation is over the targets, whose mean counts as known. The bounds are those of the exact conditional
        expectation, with its estimate in place. An error of the estimate reduces the gain; no bound accounts for it.

        Args:
            x: The points: an array of shape (n, d) or a data frame.
            residual_variance: :math:`\eta`, a lower bound of Var(Y | X), in squared units of y; positive.
            unlabeled: As in `prepare`.
            use_labeled: As in `prepare`.

        Returns:
            Both bounds, in squared units of y.

        Raises:
            ValueError: If there are no spouses, there are parents, or the variance is not positive.

        References:
            Bouabid, Fawkes and Sejdinovic, Returning the favour: when regression benefits from probabilistic causal
            knowledge, 2023, theorem 4.2 and equation (64), regularizations multiplied by n.
        """
        if not self.spouses or self.parents:
            raise ValueError(
                f"the bound needs spouses and no parents; got `spouses` {self.spouses} and `parents` {self.parents}"
            )
        eta = positive(residual_variance, "residual_variance")
        projected = dataclasses.replace(self, projection="function")
        no_targets = jnp.zeros(read_points(x)[0].shape[0])
        model, data, _ = projected.prepare(x, no_targets, unlabeled, use_labeled=use_labeled)
        plain = dataclasses.replace(model, projection="none").deviation_kernel(data)
        rows, sample = data["x"], data["sample"]
        averages = plain(sample, rows) - model.deviation_kernel(data)(sample, model.seen(rows))
        solved = model._system(plain.gram(rows)).solve(averages.T)
        largest = rows.shape[0] * (jnp.max(plain.diagonal(rows)) + model.regularization)
        theorem, trace = (eta * jnp.sum(values**2) / sample.shape[0] for values in (averages / largest, solved))
        return LeastGain(float(theorem), float(trace))

    def read_targets(self, y: Float[Array, " n"]) -> dict[str, Array]:
        """Return the targets and their mean, or 0."""
        return {"intercept": jnp.mean(y) if self.center else jnp.zeros((), y.dtype), "y": y}

    def numpyro_model(
        self, x: Float[Array, "n d"], sample: Array, landmarks: Array | None, intercept: Array, y: Array | None = None
    ) -> None:
        """The NumPyro model of h around f_0; its arguments are the data that `prepare` returns.

        Without targets these are drawn, around the intercept, the mean of the targets or 0.
        """
        data = {"x": x, "sample": sample, "landmarks": landmarks, "intercept": intercept, "y": y}
        mean = intercept if y is None else y - self._deviations(data)  # f_0 is a fit to targets
        gram = self.deviation_kernel(data).gram(self.seen(x))
        numpyro.sample("y", GaussianProcessMarginal(mean, gram, x.shape[0] * self.regularization), obs=y)

    def loo_residuals(self, data: Data, matrices: tuple[Array, Array] | None = None) -> Float[Array, " n"]:
        """Return the residual of each target from the fit to all the others; see the class.

        Args:
            data: The data.
            matrices: The result of `matrices`, if it is already known.

        Returns:
            The residuals, (n,).
        """
        cross, gram = self.matrices(data) if matrices is None else matrices
        targets, baseline = self._held_out_targets(data)
        return data["y"] - baseline - held_out_predictions(cross, self._system(gram), targets)

    def held_out_residuals(self, data: Data) -> Float[Array, " n"]:
        return self.loo_residuals(data)

    def function_draw(self, sample: Sample, data: Data) -> RKHSFunction:
        r"""Return the fit, with the mean of y as intercept.

        With a baseline each of the two parts has its own coefficients: the kernel is `Decomposed`, the points hold the
        coefficients as `Sections`, and the coefficients of the function are 1.
        """
        kernel, seen = self.deviation_kernel(data), self.seen(data["x"])
        if isinstance(kernel, Projected):
            kernel = kernel.precompute()
        coefficients = self.coefficients(data, kernel)
        if not self.has_baseline:
            return RKHSFunction(kernel, seen, coefficients, data["intercept"])
        both = Sections(seen, jnp.stack([self._baseline_coefficients(data), coefficients], axis=1))
        kernel = Decomposed(self.kernel_of_baseline(), kernel)
        return RKHSFunction(kernel, both, jnp.ones_like(coefficients), data["intercept"])  # `both` has them

    def coefficients(self, data: Data, kernel: AbstractKernel) -> Float[Array, " n"]:
        r"""Return the coefficients of h, :math:`\alpha = (K + n \lambda I)^{-1} (y - f_0(X))`, with the kernel of g."""
        return self._system(kernel.gram(self.seen(data["x"]))).solve(self._deviations(data))

    def condition_parts(self, data: Data, coefficients: Float[Array, " n"]) -> ConditionParts:
        """Return what the errors of `condition_regression` need of the kernels, for a function with coefficients."""
        regression, kernel = self.condition_regression(data), self.averaged_kernel()
        if self.form == "product":
            return regression.section_parts(kernel + 1.0, data["x"], coefficients)
        return ConditionParts(kernel.combine_sections(data["sample"], data["x"], coefficients))

    def matrices(self, data: Data) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
        """Return the kernel matrix between predictions at the points and the fit to them, and the matrix of the fit."""
        kernel, x = self.deviation_kernel(data), data["x"]
        gram = kernel.gram(self.seen(x))
        return (gram if self.seen(x) is x else kernel(x, self.seen(x))), gram

    def _system(self, gram: Float[Array, "n n"]) -> DenseRidge:
        what = "the matrix K + n * regularization * I"
        return DenseRidge.create(gram, gram.shape[0] * self.regularization, what=what)

    def _deviations(self, data: Data) -> Float[Array, " n"]:
        """Return the targets minus the baseline."""
        if not self.has_baseline:
            return data["y"] - data["intercept"]
        return self._baseline_ridge(data) * self._baseline_coefficients(data)  # (K_0 + n lambda_0 I) a = y - m

    def _baseline_coefficients(self, data: Data) -> Float[Array, " n"]:
        return self._baseline_system(data).solve(data["y"] - data["intercept"])

    def _baseline_ridge(self, data: Data) -> Float[Array, ""]:
        return data["x"].shape[0] * self.baseline_regularization

    def _baseline_system(self, data: Data) -> DenseRidge:
        gram = self.kernel_of_baseline().gram(data["x"])
        what = "the matrix of the baseline plus n * baseline_regularization * I"
        return DenseRidge.create(gram, self._baseline_ridge(data), what=what)

    def _held_out_targets(self, data: Data) -> tuple[HeldOutTargets, Float[Array, " n"]]:
        r"""Return the targets minus the mean and baseline without each point, and the prediction of these for it.

        The coefficients of the baseline without i are
        :math:`a^{(i)} = M_0 u^{(i)} - M_0 e_i (M_0 u^{(i)})_i / (M_0)_{ii}`, with :math:`u^{(i)} = y - m^{(i)}`, and
        the residuals of the others are :math:`n \lambda_0 a^{(i)}`.
        """
        y, n = data["y"], data["y"].shape[0]
        means = (n * data["intercept"] - y) / max(n - 1, 1) if self.center else jnp.zeros_like(y)  # m^(i), without y_i
        columns, weights = jnp.stack([y, jnp.ones_like(y)], axis=1), jnp.stack([jnp.ones_like(y), -means], axis=1)
        if not self.has_baseline:
            return HeldOutTargets(columns, weights), means
        inverse, ridge = self._baseline_system(data).inverse(), self._baseline_ridge(data)
        solved = inverse @ columns
        left = jnp.sum(solved * weights, axis=1) / jnp.diagonal(inverse)  # target i minus the baseline without i
        return HeldOutTargets(ridge * solved, weights, -ridge * inverse * left[None, :]), y - left


_matrices = eqx.filter_jit(ColliderRidge.matrices)
_condition_parts = eqx.filter_jit(ColliderRidge.condition_parts)


@eqx.filter_jit
def _unprojected_coefficients(model: ColliderRidge, data: Data) -> Float[Array, " n"]:
    """Return the coefficients of the fit without a projection."""
    plain = dataclasses.replace(model, projection="none")
    return plain.coefficients(data, plain.deviation_kernel(data))


def _loo_squared_error(model: ColliderRidge, data: Data, matrices: tuple[Array, Array] | None) -> Float[Array, ""]:
    return jnp.mean(model.loo_residuals(data, matrices) ** 2)


def _condition_loss(
    model: ColliderRidge, data: Data, coefficients: Array, parts: ConditionParts | None
) -> Float[Array, ""]:
    parts = model.condition_parts(data, coefficients) if parts is None else parts
    return jnp.mean(model.condition_regression(data).errors(parts) ** 2)


def _read_validation(validation: Any, schema: Schema) -> tuple[Float[Array, "m d"], Float[Array, " m"]]:
    if not isinstance(validation, tuple) or len(validation) != 2:
        raise ValueError(f"`validation` must be a tuple of points and targets, got {type(validation).__name__}")
    targets = as_targets(validation[1], name="validation[1]")
    rows = jnp.asarray(schema.read(validation[0], "validation[0]"), dtype=targets.dtype)
    check_same_rows(rows.shape[0], targets.shape[0], "validation[0]", "validation[1]")
    return rows, targets


def _validation_error(model: ColliderRidge, data: Data, rows: Array, targets: Array) -> Float[Array, ""]:
    return jnp.mean((targets - model.function_draw({}, data)(rows)) ** 2)


def _validation_loss(model: ColliderRidge, data: Data, coefficients: Array, rows: Array) -> Float[Array, ""]:
    """Return the mean square of the projection of the unprojected fit."""
    projected = dataclasses.replace(model, projection="function")
    sections = projected.deviation_kernel(data)(rows, projected.seen(data["x"]))
    return jnp.mean((sections @ coefficients) ** 2)
