"""Cooperative games whose players are features: coalitions, their values, and exact Shapley values."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.games.covariance.pair_covariance import CoalitionValues as CoalitionValues
from kpp.games.covariance.shapley_covariance import ShapleyValues as ShapleyValues
from kpp.games.covariance.shapley_covariance import shapley_covariance as shapley_covariance
from kpp.games.estimators.asymmetric import asymmetric_shapley_values as asymmetric_shapley_values
from kpp.games.estimators.effects import ShapleyEffects as ShapleyEffects
from kpp.games.estimators.effects import direct_and_indirect_effects as direct_and_indirect_effects
from kpp.games.estimators.game import ShapleyEstimate as ShapleyEstimate
from kpp.games.estimators.interactions import interaction_values as interaction_values
from kpp.games.estimators.interactions import interactions_from_table as interactions_from_table
from kpp.games.estimators.methods import interventional_shapley as interventional_shapley
from kpp.games.estimators.methods import shapley_values as shapley_values
from kpp.games.estimators.quadrature import gauss_legendre as gauss_legendre
from kpp.games.estimators.sampled.coalition_weights import shapley_values_from_table as shapley_values_from_table
from kpp.games.estimators.sampled.coalition_weights import shapley_weights as shapley_weights
from kpp.games.estimators.sampled.estimates import estimate_shapley as estimate_shapley
from kpp.games.estimators.sampled.least_squares import shapley_values_from_pairs as shapley_values_from_pairs
from kpp.games.estimators.sampled.sampling import sample_coalition_pairs as sample_coalition_pairs
from kpp.games.estimators.sampled.sampling import sample_permutations as sample_permutations
from kpp.games.estimators.sampled.sampling import shapley_values_from_permutations as shapley_values_from_permutations
from kpp.games.estimators.shapiq_game import as_shapiq_game as as_shapiq_game
from kpp.games.estimators.value_error import value_error as value_error
from kpp.games.players.players import all_coalitions as all_coalitions
from kpp.games.players.players import as_players as as_players
from kpp.games.values.abstract import AbstractProductValueFunction as AbstractProductValueFunction
from kpp.games.values.abstract import AbstractValueFunction as AbstractValueFunction
from kpp.games.values.conditional.causal import Causal as Causal
from kpp.games.values.conditional.causal import CausalEmbedding as CausalEmbedding
from kpp.games.values.conditional.gaussian_conditionals import CopulaConditional as CopulaConditional
from kpp.games.values.conditional.gaussian_conditionals import GaussianConditional as GaussianConditional
from kpp.games.values.conditional.landmark_error import landmark_error as landmark_error
from kpp.games.values.conditional.observational import Observational as Observational
from kpp.games.values.imputation import AbstractImputation as AbstractImputation
from kpp.games.values.interventional import Baseline as Baseline
from kpp.games.values.interventional import Interventional as Interventional
from kpp.games.values.masked import MaskedRegression as MaskedRegression

_guard_exports(globals())
