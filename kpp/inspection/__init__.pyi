from .curves.curve import curve as curve
from .curves.curve import gradient as gradient
from .curves.result import Curve as Curve
from .reductions.importance import importance as importance
from .scores import FeatureScores as FeatureScores
from .variances.sensitivity import sensitivity as sensitivity
