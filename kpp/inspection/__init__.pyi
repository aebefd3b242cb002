from .curve_result import Curve as Curve
from .curves import curve as curve
from .gradients import gradient as gradient
from .importance import importance as importance
from .scores import FeatureScores as FeatureScores
from .sensitivity import sensitivity as sensitivity
