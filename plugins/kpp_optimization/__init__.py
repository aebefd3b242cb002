"""Bayesian optimisation: priors about an objective, expected improvement, the search, its regret."""

from kpp_optimization.acquisition import expected_improvement as expected_improvement
from kpp_optimization.belief import Belief as Belief
from kpp_optimization.duels import DuelSearch as DuelSearch
from kpp_optimization.duels import expected_best_utility as expected_best_utility
from kpp_optimization.duels import search_by_duels as search_by_duels
from kpp_optimization.duels import thompson_duel as thompson_duel
from kpp_optimization.objective_priors import AbstractObjectivePrior as AbstractObjectivePrior
from kpp_optimization.objective_priors import FitPrior as FitPrior
from kpp_optimization.objective_priors import FunctionPrior as FunctionPrior
from kpp_optimization.objective_priors import KernelPrior as KernelPrior
from kpp_optimization.objective_priors import RefittedPrior as RefittedPrior
from kpp_optimization.objective_priors import WidenedPrior as WidenedPrior
from kpp_optimization.regret import regret as regret
from kpp_optimization.regret import regrets as regrets
from kpp_optimization.regret import replicate as replicate
from kpp_optimization.search import Search as Search
from kpp_optimization.search import optimize as optimize
