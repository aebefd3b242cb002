r"""The shared part of collider regressions: the roles of the columns, the rows, and the projected kernel."""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.causal import CausalDAG, collider_partition
from kpp.data.tables import Schema, read_points
from kpp.features import landmarks as choose_landmarks
from kpp.foundation.validation import as_targets, check_same_rows, count, one_of, warn_if_float32
from kpp.gp.toolkit import check_categories, check_kernel_fits
from kpp.inference import AbstractModel, Data
from kpp.kernels import AbstractKernel, Projected, check_non_negative, resolve_features
from kpp.kernels.toolkit import AbstractBatchKernel, Unprojected
from kpp.typing import AnyArray, Leaf
from kpp_models.colliders.held_out import ConditionRegression

Model = TypeVar("Model", bound="AbstractColliderModel")

PROJECTIONS = ("space", "function", "none")
FORMS = ("product", "general")
_PARTS = ("children", "spouses", "parents")
_MAX_HERDED = 5000  # the number of rows from which landmarks are chosen


def feature_field(name: str, **options: Any) -> Any:
    """Return a static Equinox field that holds columns, by position or by name, possibly empty."""
    return eqx.field(static=True, converter=lambda value: _as_features(value, name), **options)


def _as_features(features: object, name: str) -> tuple[int | str, ...]:
    if isinstance(features, str) or not isinstance(features, Iterable):
        raise TypeError(f"`{name}` must be a tuple of columns, got {features!r}; write ({features!r},)")
    converted = tuple(int(feature) if isinstance(feature, np.integer) else feature for feature in features)
    wrong = [feature for feature in converted if isinstance(feature, bool) or not isinstance(feature, (int, str))]
    if wrong:
        raise TypeError(f"`{name}` must hold positions or names of columns, got {wrong}")
    return converted


class _Fields:
    """The fields of every final class, in a plain class for the sake of type checkers; see `kpp.foundation.modules`."""

    kernel: eqx.AbstractVar[AbstractKernel]
    condition_kernel: eqx.AbstractVar[AbstractKernel | None]
    condition_regularization: eqx.AbstractVar[Leaf | None]
    children: eqx.AbstractVar[tuple[int | str, ...]]
    spouses: eqx.AbstractVar[tuple[int | str, ...]]
    parents: eqx.AbstractVar[tuple[int | str, ...]]


class AbstractColliderModel(_Fields, AbstractModel):
    r"""A regression :math:`f = f_0 + g` of Y on X that obeys the independence :math:`Y \perp X_2 \mid X_3`.

    .. math:: E[f(X) \mid X_2, X_3] = f_0(X_3) = E[Y \mid X_3], \qquad \text{that is} \quad E[g(X) \mid X_2, X_3] = 0

    Subclasses have these and the fields above. Their data are ``x``, ``y``, ``sample``, the rows from which conditional
    expectations are estimated, ``landmarks``, the rows among them that Nyström's method uses, or None, and further
    entries of each subclass.
    """

    projection: str = eqx.field(static=True, default="space", kw_only=True)
    form: str = eqx.field(static=True, default="product", kw_only=True)
    baseline_kernel: AbstractKernel | None = eqx.field(default=None, kw_only=True)
    num_landmarks: int | None = eqx.field(static=True, default=None, kw_only=True)

    @classmethod
    def from_graph(
        cls: type[Model], graph: CausalDAG, outcome: str, *, columns: Sequence[str] | None = None, **fields: Any
    ) -> Model:
        """Build the model from a causal graph.

        Args:
            graph: The graph.
            outcome: The node that is regressed on its Markov boundary.
            columns: The names of the columns of x, in their order, if x will be an array; None for a data frame, which
                has its own names. Columns that are not in the boundary are ignored.
            **fields: The other fields of the model.

        Returns:
            The model with the parts of `kpp.causal.collider_partition`.

        Raises:
            kpp.causal.ColliderError: If the graph does not imply the independence.
            ValueError: If a variable of the boundary is not among `columns`.
        """
        partition = collider_partition(graph, outcome)
        parts: dict[str, Any] = {part: _locate(getattr(partition, part), columns) for part in _PARTS}
        return cls(**parts, **fields)

    @property
    def condition(self) -> tuple[int | str, ...]:
        """The columns that expectations are conditioned on: spouses, then parents."""
        return self.spouses + self.parents

    @property
    def projects(self) -> bool:
        """Whether anything is projected."""
        return bool(self.spouses) and self.projection != "none"

    @property
    def has_baseline(self) -> bool:
        """Whether the model has a function of the parents alone, which projected functions are added to."""
        return bool(self.spouses and self.parents)

    def check_parts(self) -> None:
        """Raise ValueError if the parts do not fit each other; subclasses call it in `__check_init__`."""
        one_of(self.projection, "projection", PROJECTIONS)
        one_of(self.form, "form", FORMS)
        features = self.children + self.condition
        if not self.children or len(set(features)) < len(features):
            raise ValueError(
                "`children`, `spouses` and `parents` must name each column once, and `children` at least one; "
                f"got {self.children}, {self.spouses} and {self.parents}"
            )
        for part in ("spouses", "parents") if self.form == "product" else ("spouses",):
            if getattr(self, part):
                self.need("condition_kernel", part)
        if self.spouses:
            self.need("condition_regularization", "spouses")
            check_non_negative(self.condition_regularization, "condition_regularization")
        if self.has_baseline:
            self.need("baseline_kernel", "parents")
        if self.num_landmarks is not None:
            count(self.num_landmarks, "num_landmarks")

    def prepare(
        self: Model, x: object, y: object, unlabeled: object = None, *, use_labeled: bool = True
    ) -> tuple[Model, dict[str, Any], Schema]:
        """Read the data; see `AbstractModel.prepare`.

        Args:
            x: The points: an array of shape (n, d) or a data frame.
            y: The targets, of shape (n,).
            unlabeled: Further points without targets, for the conditional expectation; None for none.
            use_labeled: Whether the points with targets are used for the expectation, too.

        Returns:
            The model with names of columns resolved, the data, and the schema of x.

        Raises:
            ValueError: If the data are invalid, or do not fit the columns and kernels of the model.
        """
        warn_if_float32(type(self).__name__)
        rows, schema = read_points(x)
        targets = as_targets(y, name="y")
        check_same_rows(rows.shape[0], targets.shape[0], "x", "y")
        model, points = self._resolve(schema), jnp.asarray(rows, dtype=targets.dtype)
        model._check_kernels(points, schema)
        sample = model.read_sample(points, schema, unlabeled, use_labeled)
        return model, {"x": points, **sample, **model.read_targets(targets)}, schema

    def read_targets(self, y: Float[Array, " n"]) -> dict[str, Array]:
        """Return the data computed from the targets, with ``y`` last; a model may add statistics of the targets."""
        return {"y": y}

    def read_sample(self, x: Array, schema: Schema, unlabeled: object, use_labeled: bool = True) -> dict[str, Any]:
        """Return the rows for conditional expectations, labeled ones first, and the landmarks among them."""
        if unlabeled is None and not use_labeled:
            raise ValueError("`use_labeled` must be True where there are no unlabeled rows, got False")
        sample = x
        if unlabeled is not None:
            further = jnp.asarray(schema.read(unlabeled, "unlabeled"), dtype=x.dtype)
            sample = jnp.concatenate([x, further]) if use_labeled else further
        return {"sample": sample, "landmarks": self._choose_landmarks(sample)}

    def deviation_kernel(self, data: Data) -> AbstractKernel:
        """Return the kernel of g: `Projected`, or k itself if nothing is projected, for a model without priors."""
        if not self.projects:
            return self._plain_kernel()
        gamma, landmarks = self.condition_regularization, data["landmarks"]
        kernel, condition_kernel = self.averaged_kernel(), self._on_condition()
        return Projected(kernel, condition_kernel, data["sample"], gamma, landmarks, self.form)

    def condition_regression(self, data: Data) -> ConditionRegression:
        """Return the regression on the condition by which `deviation_kernel` averages."""
        condition = self._on_condition()
        assert self.condition_regularization is not None  # `check_parts` ensures this
        return ConditionRegression(condition, data["sample"], data["landmarks"], self.condition_regularization)

    def seen(self, x: Array) -> Array | Unprojected:
        """Return points as the data observe g: `Unprojected` if only the posterior of g is projected."""
        return Unprojected(x) if self.projects and self.projection == "function" else x

    def kernel_of_baseline(self) -> AbstractKernel:
        """Return the kernel of the baseline as a kernel of all columns."""
        assert self.baseline_kernel is not None  # `check_parts` ensures this
        return self.baseline_kernel.on(self.parents)

    def averaged_kernel(self) -> AbstractKernel:
        """Return r, or k for the general form, as a kernel of all columns."""
        return self.kernel.on(self.children) if self.form == "product" else self.kernel

    def _on_condition(self) -> AbstractKernel:
        assert self.condition_kernel is not None  # `check_parts` ensures this
        return self.condition_kernel.on(self.condition)

    def _plain_kernel(self) -> AbstractKernel:
        """Return k without a projection; in the product form it is r if the condition is empty."""
        kernel = self.averaged_kernel()
        if self.form == "general" or not self.condition:
            return kernel
        return (kernel + 1.0) * self._on_condition()

    def need(self, field: str, because: str) -> None:
        """Raise ValueError if a field is None although another field makes it necessary."""
        if getattr(self, field) is None:
            raise ValueError(f"`{field}` is needed with {because} {getattr(self, because)}, got None")

    def _resolve(self: Model, schema: Schema) -> Model:
        """Put positions in place of the names of columns."""
        names = schema.feature_names
        parts: dict[str, Any] = {part: _locate(getattr(self, part), names) for part in _PARTS}
        own = self.children if self.form == "product" else tuple(range(len(names)))
        columns = {"kernel": own, "condition_kernel": self.condition, "baseline_kernel": self.parents}
        kernels: dict[str, Any] = {
            field: resolve_features(getattr(self, field).on(seen), names).kernel
            for field, seen in columns.items()
            if getattr(self, field) is not None and seen
        }
        return dataclasses.replace(self, **parts, **kernels)

    def _check_kernels(self, x: Float[Array, "n d"], schema: Schema) -> None:
        kernels = {"kernel": self.averaged_kernel()}
        if self.condition_kernel is not None and self.condition:
            kernels["condition_kernel"] = self._on_condition()
        if self.has_baseline:
            kernels["baseline_kernel"] = self.kernel_of_baseline()
        for name, kernel in kernels.items():
            check_kernel_fits(kernel, x, name)
            check_categories(kernel, schema, name)

    def _choose_landmarks(self, sample: Array) -> Array | None:
        """Choose rows by herding on their conditions, among evenly spaced rows; herding does not need a random key."""
        if self.num_landmarks is None or not self.spouses:
            return None
        step = -(-sample.shape[0] // max(_MAX_HERDED, self.num_landmarks))
        rows = sample[::step]
        if self.num_landmarks > rows.shape[0]:
            raise ValueError(
                f"`num_landmarks` must be at most the number of rows to choose among, {rows.shape[0]}, "
                f"got {self.num_landmarks}"
            )
        return rows[choose_landmarks(rows[:, np.array(self.condition)], self.num_landmarks).indices]


def _locate(features: Sequence[int | str], names: Sequence[str] | None) -> tuple[int | str, ...]:
    """Return the positions of columns among names; without names the columns are returned unchanged."""
    if names is None:
        return tuple(features)
    known = list(names)
    missing = [f for f in features if (f not in known if isinstance(f, str) else not 0 <= f < len(known))]
    if missing:
        raise ValueError(f"the model needs the columns {missing}, which are not among {known}")
    return tuple(known.index(f) if isinstance(f, str) else f for f in features)


def example_rows(rng_key: Array) -> tuple[Float[Array, "12 3"], Float[Array, " 12"]]:
    """Return 12 points, a child of Y first and two of its spouses, and Y, for the conformance suite."""
    first, second, third = jax.random.split(rng_key, 3)
    y, spouses = jax.random.normal(first, (12,)), jax.random.normal(second, (12, 2))
    child = y + spouses[:, 0] + 0.3 * jax.random.normal(third, (12,))
    return jnp.concatenate([child[:, None], spouses], axis=1), y


class Sections(eqx.Module):
    """Points at which a `Decomposed` kernel means a combination of the two parts, :math:`a_i f_0(x_i) + b_i g(x_i)`.

    The weights are a and b, and the points may be `Unprojected`.
    """

    points: AnyArray | Unprojected
    weights: Float[Array, "n 2"]


# Points of the kernel: ordinary ones, or with the parts that they stand for.
Section = AnyArray | Unprojected | Sections


class Decomposed(AbstractBatchKernel):
    r"""The kernel of :math:`f = f_0 + g` with independent parts.

    .. math:: k(x, x') = k_0(x, x') + k_g(x, x')

    At `Sections` it is the covariance with :math:`a f_0 + b g`, so that a function :math:`\sum_i a_i k_0(\cdot, x_i) +
    \sum_i b_i k_g(\cdot, x_i)`, in which each part has its own coefficients, is spanned by sections of this kernel. For
    the baseline `Unprojected` points are ordinary points.
    """

    baseline: AbstractKernel
    deviation: AbstractKernel

    def __call__(self, x1: Section, x2: Section) -> Float[Array, "n1 n2"]:
        first, second = _as_sections(x1), _as_sections(x2)
        baseline = self.baseline(_bare(first.points), _bare(second.points))
        deviation = self.deviation(first.points, second.points)
        return _scaled(baseline, first, second, 0) + _scaled(deviation, first, second, 1)

    def gram(self, x: Section) -> Float[Array, "n n"]:
        sections = _as_sections(x)
        baseline, deviation = self.baseline.gram(_bare(sections.points)), self.deviation.gram(sections.points)
        return _scaled(baseline, sections, sections, 0) + _scaled(deviation, sections, sections, 1)

    def diagonal(self, x: Section) -> Float[Array, " n"]:
        sections = _as_sections(x)
        parts = self.baseline.diagonal(_bare(sections.points)), self.deviation.diagonal(sections.points)
        return jnp.sum(sections.weights**2 * jnp.stack(parts, axis=1), axis=1)


def _as_sections(x: Section) -> Sections:
    if isinstance(x, Sections):
        return x
    bare = _bare(x)
    return Sections(x, jnp.ones((bare.shape[0], 2), dtype=bare.dtype))


def _bare(x: AnyArray | Unprojected) -> AnyArray:
    return x.points if isinstance(x, Unprojected) else x


def _scaled(matrix: Array, first: Sections, second: Sections, part: int) -> Array:
    return first.weights[:, part][:, None] * matrix * second.weights[:, part][None, :]
