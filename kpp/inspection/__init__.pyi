from .scores import FeatureScores as FeatureScores
