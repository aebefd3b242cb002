"""Models of a table with one target: Gaussian processes, kernel ridge and kernel logistic regression."""

from kpp.gp import GaussianProcessMarginal as GaussianProcessMarginal
from kpp.gp import LaplaceMarginal as LaplaceMarginal
from kpp.gp import LinearMean as LinearMean
