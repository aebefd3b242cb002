"""More of `kpp.explanations`, for authors of models and plugins; names may change in minor versions."""

from kpp.explanations.functions.estimator_functions import is_estimator as is_estimator
from kpp.explanations.functions.named_functions import holds_named_function as holds_named_function
from kpp.explanations.grouped_points import GroupedPoints as GroupedPoints
from kpp.explanations.grouped_points import freeze_groups as freeze_groups
from kpp.explanations.grouped_points import group_points as group_points
from kpp.explanations.law import LawOfDraws as LawOfDraws
from kpp.explanations.parts.export import load_shap as load_shap
from kpp.explanations.parts.export import marked as marked
from kpp.explanations.parts.uncertainty import drawn_independently as drawn_independently
from kpp.explanations.predictors import ReadPredictor as ReadPredictor
from kpp.explanations.predictors import Requirement as Requirement
from kpp.explanations.predictors import Resolved as Resolved
from kpp.explanations.predictors import check_features as check_features
from kpp.explanations.predictors import describe_uncertainty as describe_uncertainty
from kpp.explanations.predictors import fit_of as fit_of
from kpp.explanations.predictors import fitted_schema as fitted_schema
from kpp.explanations.predictors import has_function_law as has_function_law
from kpp.explanations.predictors import is_fit as is_fit
from kpp.explanations.predictors import read_rows as read_rows
from kpp.explanations.record import describe_estimate as describe_estimate
from kpp.explanations.record import describe_key as describe_key
from kpp.explanations.record import describe_value_function as describe_value_function
from kpp.explanations.representatives import Representatives as Representatives
from kpp.explanations.representatives import representatives as representatives
from kpp.explanations.shapley_blocks import solve_in_blocks as solve_in_blocks
from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.runtime.batching import in_blocks as in_blocks

_guard_exports(globals())
