from .importance import importance as importance
from .scores import FeatureScores as FeatureScores
