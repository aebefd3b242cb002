"""Cooperative games whose players are features: coalitions, their values, and exact Shapley values."""

from kpp.games.abstract import AbstractProductValueFunction as AbstractProductValueFunction
from kpp.games.abstract import AbstractValueFunction as AbstractValueFunction
from kpp.games.baseline import Baseline as Baseline
from kpp.games.coalitions import all_coalitions as all_coalitions
from kpp.games.covariance import shapley_covariance as shapley_covariance
from kpp.games.estimates import ShapleyEstimate as ShapleyEstimate
from kpp.games.estimates import estimate_shapley as estimate_shapley
from kpp.games.exact import choose_method as choose_method
from kpp.games.exact import interventional_shapley as interventional_shapley
from kpp.games.exact import shapley_values as shapley_values
from kpp.games.imputation import AbstractImputation as AbstractImputation
from kpp.games.interactions import interaction_values as interaction_values
from kpp.games.interactions import interactions_from_table as interactions_from_table
from kpp.games.interventional import Interventional as Interventional
from kpp.games.least_squares import shapley_values_from_pairs as shapley_values_from_pairs
from kpp.games.observational import Observational as Observational
from kpp.games.permutations import coalitions_of_permutations as coalitions_of_permutations
from kpp.games.permutations import shapley_values_from_permutations as shapley_values_from_permutations
from kpp.games.players import Players as Players
from kpp.games.players import as_players as as_players
from kpp.games.quadrature import gauss_legendre as gauss_legendre
from kpp.games.quadrature import num_nodes as num_nodes
from kpp.games.sampling import sample_coalition_pairs as sample_coalition_pairs
from kpp.games.sampling import sample_permutations as sample_permutations
from kpp.games.shapley import shapley_values_from_table as shapley_values_from_table
from kpp.games.shapley import shapley_weights as shapley_weights
