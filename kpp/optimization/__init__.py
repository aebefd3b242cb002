"""Bayesian optimisation: priors about an objective, expected improvement, the search, its regret."""

from kpp.optimization.acquisition import expected_improvement as expected_improvement
from kpp.optimization.belief import Belief as Belief
from kpp.optimization.duels import DuelSearch as DuelSearch
from kpp.optimization.duels import expected_best_utility as expected_best_utility
from kpp.optimization.duels import search_by_duels as search_by_duels
from kpp.optimization.duels import thompson_duel as thompson_duel
from kpp.optimization.priors import AbstractObjectivePrior as AbstractObjectivePrior
from kpp.optimization.priors import FitPrior as FitPrior
from kpp.optimization.priors import FunctionPrior as FunctionPrior
from kpp.optimization.priors import KernelPrior as KernelPrior
from kpp.optimization.priors import RefittedPrior as RefittedPrior
from kpp.optimization.priors import WidenedPrior as WidenedPrior
from kpp.optimization.regret import regret as regret
from kpp.optimization.regret import regrets as regrets
from kpp.optimization.regret import replicate as replicate
from kpp.optimization.search import Search as Search
from kpp.optimization.search import optimize as optimize
