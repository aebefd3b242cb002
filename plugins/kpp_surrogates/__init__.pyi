from .cxplain import CXPlain as CXPlain
from .cxplain import FittedCXPlain as FittedCXPlain
from .linear_explainers import LIME as LIME
from .linear_explainers import BayesLIME as BayesLIME
from .linear_explainers import BayesSHAP as BayesSHAP
from .shap_explainer import ShapExplainer as ShapExplainer
from .shapley import KernelSHAP as KernelSHAP
from .shapley import ShapleySampling as ShapleySampling
