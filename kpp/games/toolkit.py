"""More of `kpp.games`, for authors of models and plugins; names may change in minor versions."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.games.covariance.shapley_covariance import shapley_root as shapley_root
from kpp.games.estimators.asymmetric import asymmetric_weights as asymmetric_weights
from kpp.games.estimators.effects import check_effects as check_effects
from kpp.games.estimators.methods import choose_method as choose_method
from kpp.games.estimators.quadrature import num_nodes as num_nodes
from kpp.games.estimators.quadrature import quadrature_shapley as quadrature_shapley
from kpp.games.estimators.sampled.sampling import coalitions_of_permutations as coalitions_of_permutations
from kpp.games.players.players import Players as Players
from kpp.games.players.players import as_coalitions as as_coalitions
from kpp.games.values.conditional.conditional_embeddings import restricted_matrices as restricted_matrices
from kpp.games.values.conditional.landmark_error import LandmarkError as LandmarkError

_guard_exports(globals())
