"""More of `kpp.causal`, for authors of models and plugins; names may change in minor versions."""

from kpp.causal.criteria.adjustment_sets import proper_backdoor_graph as proper_backdoor_graph
from kpp.causal.criteria.causal_paths import causal_nodes as causal_nodes
from kpp.causal.criteria.causal_paths import directed_path as directed_path
from kpp.causal.criteria.causal_paths import forbidden_nodes as forbidden_nodes
from kpp.causal.criteria.checks import CriterionCheck as CriterionCheck
from kpp.causal.criteria.docalculus import RuleCheck as RuleCheck
from kpp.causal.errors import NotDisjointError as NotDisjointError
from kpp.causal.errors import TreatmentIsOutcomeError as TreatmentIsOutcomeError
from kpp.causal.errors import UnreachableOutcomeError as UnreachableOutcomeError
from kpp.causal.graph.causal_order import as_causal_graph as as_causal_graph
from kpp.causal.graph.causal_order import as_order as as_order
from kpp.causal.graph.nodes import as_nodes as as_nodes
from kpp.causal.graph.nodes import check_disjoint as check_disjoint
from kpp.causal.graph.nodes import check_effect as check_effect
from kpp.causal.graph.nodes import check_question as check_question
from kpp.causal.graph.separation import reachable as reachable
from kpp.causal.identification.chains import Chain as Chain
from kpp.causal.identification.chains import ConditionalLaw as ConditionalLaw
from kpp.causal.identification.chains import Variable as Variable
from kpp.causal.identification.chains import read_chain as read_chain
from kpp.causal.identification.gaussian import gaussian_precision as gaussian_precision
from kpp.causal.identification.gaussian import marginal_precision as marginal_precision
from kpp.causal.identification.intervention_law import LawFactor as LawFactor
from kpp.causal.identification.intervention_law import factors_of_features as factors_of_features
from kpp.foundation.arguments import guard_exports as _guard_exports

_guard_exports(globals())
