"""Explanations and explainers: the result that every explainer returns, and the interface of explainers."""

from kpp.explanations.comparison import compare as compare
from kpp.explanations.explainer import AbstractExplainer as AbstractExplainer
from kpp.explanations.explainer import AbstractPointsExplainer as AbstractPointsExplainer
from kpp.explanations.explainer import Inputs as Inputs
from kpp.explanations.explanation import Explanation as Explanation
from kpp.explanations.functions.draw_functions import DrawFunction as DrawFunction
from kpp.explanations.functions.estimator_functions import EstimatorFunction as EstimatorFunction
from kpp.explanations.functions.estimator_functions import output_names as output_names
from kpp.explanations.functions.named_functions import NamedFunction as NamedFunction
from kpp.explanations.law import Law as Law
from kpp.explanations.predictors import resolve as resolve
from kpp.foundation.arguments import guard_exports as _guard_exports

_guard_exports(globals())
