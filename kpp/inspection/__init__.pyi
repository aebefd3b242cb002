from .curve_result import Curve as Curve
from .curve_result import ProbabilityIncreasing as ProbabilityIncreasing
from .curves import curve as curve
from .scores import FeatureScores as FeatureScores
