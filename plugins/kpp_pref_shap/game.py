"""Games of preferences: the part that the games of items' features and of contexts' features share."""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from kpp import RKHSFunction
from kpp.foundation.validation import count, is_concrete, one_of, warn_if_float32
from kpp.games import AbstractValueFunction, Observational
from kpp.games.toolkit import as_coalitions
from kpp.kernels import AbstractKernel
from kpp.linalg import FactorizationError
from kpp.preferences.toolkit import PreferenceTerm, preference_terms
from kpp.runtime.batching import sum_arrays
from kpp.typing import AnyArray, Leaf
from kpp_pref_shap.pair_functions import MatchTable, PairPoints, check_preference
from kpp_pref_shap.sections import Mask, Sections, absent_weights, restricted_sections

#: A function of a coalition and the weights of the references to the values of instances, (p,).
TermValues = Callable[[Mask, Float[Array, "n w"]], Float[Array, " p"]]

_CONDITIONALS = ("observational", "interventional")
# The largest number of entries of the matrices of a batch of coalitions.
_MAX_ENTRIES = 2**22


@runtime_checkable
class Instances(Protocol):
    """The instances to value: pytrees that hold the distinct rows of playing features."""

    rows: Float[AnyArray, "q d"]


class _Fields:
    """The fields of every final class, in a plain class for the sake of type checkers; see `kpp.foundation.modules`."""

    regularization: eqx.AbstractVar[Leaf]
    conditional: eqx.AbstractVar[str]
    kernel: eqx.AbstractVar[AbstractKernel | None]
    end_points: eqx.AbstractVar[str]
    batch_size: eqx.AbstractVar[int | None]


class AbstractPreferenceGame(_Fields, AbstractValueFunction):
    r"""A game whose players are features of both items of a duel, or of the context of a duel.

    Absent features are averaged over references. The function is a sum of terms, one for each term of its kernel; a
    final class defines which kernel of a term receives the players' features, and how the sections of this kernel,
    restricted to a coalition, give the values of instances.
    """

    plays_contexts: ClassVar[bool]

    def __check_init__(self) -> None:
        one_of(self.conditional, "conditional", _CONDITIONALS)
        if self.batch_size is not None:
            count(self.batch_size, "batch_size")
        self.observational()

    @abstractmethod
    def observational(self) -> Observational:
        """Return the observational game of single rows, which holds the references."""

    @abstractmethod
    def points(self, pairs: Float[AnyArray, "p 2 d"], contexts: Float[AnyArray, "p c"] | None) -> Any:
        """Return the points of instances in the form that the game takes."""

    @abstractmethod
    def playing_kernel(self, term: PreferenceTerm) -> AbstractKernel:
        """Return the kernel of a term that receives the players' features."""

    @abstractmethod
    def playing_rows(self, matches: MatchTable) -> Float[AnyArray, "m d"]:
        """Return the distinct rows of players' features of the function's matches."""

    @abstractmethod
    def read_instances(self, function: RKHSFunction, x: PairPoints) -> Instances:
        """Check the points and number their distinct rows."""

    @abstractmethod
    def term_values(
        self, term: PreferenceTerm, weights: Float[Array, " m"], sections: Sections, matches: MatchTable, instances: Any
    ) -> TermValues:
        """Return the values of one term of the kernel; the weights of the matches include the scale of the term.

        The sections are those of the playing kernel at the rows of the instances, which `read_instances` has read.
        """

    def entries_of_matches(self, num_matches: int, instances: Any) -> int:
        """Return the number of entries per coalition if matches are added one by one; by default 0."""
        return 0

    def __call__(self, function: Any, x: Any, coalitions: object) -> Float[Array, "*draws c p"]:
        """Value coalitions of the players' features, (c, d), at points in the form that the class describes: (c, p).

        The values are led by the draws of the function of pairs. Raises ValueError if the form of `x` or `coalitions`
        is wrong, or the system is numerically singular; TypeError if `function` is not an RKHS function of pairs with a
        kernel that the class describes.
        """
        function = check_preference(function, contextual=self.plays_contexts)
        instances = self.read_instances(function, x)
        coalitions = as_coalitions(coalitions, instances.rows.shape[1])
        warn_if_float32(type(self).__name__)
        values = _values(self, function, MatchTable.shared(function), instances, coalitions)
        return _check_finite(values, self.regularization)

    def predictions(self, function: RKHSFunction, x: PairPoints) -> Float[np.ndarray, "*draws p"]:
        """Return the exact values of the full coalition, which do not depend on the references."""
        return np.asarray(_predictions(self, function, MatchTable.shared(function), self.read_instances(function, x)))

    @property
    def conditioning(self) -> dict[str, Any]:
        """The options of `kpp.games.Observational` beside the references."""
        names = ("regularization", "kernel", "end_points")
        return {name: getattr(self, name) for name in names}


@eqx.filter_jit
def _values(
    game: AbstractPreferenceGame,
    function: RKHSFunction,
    table: MatchTable | None,
    instances: Any,
    coalitions: Bool[AnyArray, "c d"],
) -> Float[Array, "*draws c p"]:
    observational, rows = game.observational(), jnp.asarray(instances.rows)

    def of_draw(draw: RKHSFunction) -> Array:
        matches = MatchTable.read(draw.points) if table is None else table
        points, terms = jnp.asarray(game.playing_rows(matches)), preference_terms(draw.kernel)
        conditional_weights = absent_weights(observational, game.conditional, game.playing_kernel(terms[0]), rows)

        def of_term(term: PreferenceTerm) -> TermValues:
            kernel = game.playing_kernel(term)
            sections = restricted_sections(observational, game.conditional, kernel, points, rows)
            return game.term_values(term, term.weigh(draw.coefficients), sections, matches, instances)

        parts = [of_term(term) for term in terms]

        def of_coalition(mask: Mask) -> Float[Array, " p"]:
            weights = conditional_weights(mask)
            return sum_arrays(part(mask, weights) for part in parts)

        num_references = observational.background.shape[0]
        entries = (points.shape[0] + num_references) * (rows.shape[0] + num_references)
        entries += game.entries_of_matches(draw.num_points, instances)
        size = game.batch_size or max(1, min(coalitions.shape[0], _MAX_ENTRIES // entries))
        return jax.lax.map(of_coalition, coalitions, batch_size=size) + draw.intercept

    return function.map_draws(of_draw)


@eqx.filter_jit
def _predictions(
    game: AbstractPreferenceGame, function: RKHSFunction, table: MatchTable | None, instances: Any
) -> Float[Array, "*draws p"]:
    rows = jnp.asarray(instances.rows)
    everything, weights = jnp.ones(rows.shape[1], dtype=bool), jnp.ones((1, 1), rows.dtype)

    def of_draw(draw: RKHSFunction) -> Array:
        matches = MatchTable.read(draw.points) if table is None else table
        points = jnp.asarray(game.playing_rows(matches))

        def of_term(term: PreferenceTerm) -> Float[Array, " p"]:
            sections = game.playing_kernel(term)(points, rows)
            scaled = term.weigh(draw.coefficients)
            return game.term_values(term, scaled, lambda *_: sections, matches, instances)(everything, weights)

        return sum_arrays(map(of_term, preference_terms(draw.kernel))) + draw.intercept

    return function.map_draws(of_draw)


def _check_finite(values: Array, regularization: ArrayLike) -> Array:
    """Return the values, or raise FactorizationError if a matrix could not be factorized, so that some are NaN."""
    if is_concrete(values) and not np.isfinite(values).all():
        raise FactorizationError(
            f"`regularization` {regularization} is too small for the kernel matrix of the references: some values are "
            "NaN or infinite; make it larger, or remove duplicated rows"
        )
    return values
