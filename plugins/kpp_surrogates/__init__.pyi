from .bayes_shap import BayesSHAP as BayesSHAP
from .cxplain import CXPlain as CXPlain
from .cxplain import FittedCXPlain as FittedCXPlain
from .lime import LIME as LIME
from .lime import BayesLIME as BayesLIME
from .shap_explainer import ShapExplainer as ShapExplainer
from .shapley import KernelSHAP as KernelSHAP
from .shapley import ShapleySampling as ShapleySampling
