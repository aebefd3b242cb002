from .explainer import RKHSShap as RKHSShap
