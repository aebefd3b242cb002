from .explainer import RKHSShap as RKHSShap
from .integrated_gradients import IntegratedGradients as IntegratedGradients
