"""Causal graphs: what causes what, and what follows from it."""

from kpp.causal.docalculus import RuleCheck as RuleCheck
from kpp.causal.docalculus import exchange_action as exchange_action
from kpp.causal.docalculus import insert_action as insert_action
from kpp.causal.docalculus import insert_observation as insert_observation
from kpp.causal.errors import CausalError as CausalError
from kpp.causal.errors import CycleError as CycleError
from kpp.causal.errors import GraphSyntaxError as GraphSyntaxError
from kpp.causal.errors import LatentNodeError as LatentNodeError
from kpp.causal.errors import NoAdjustmentError as NoAdjustmentError
from kpp.causal.errors import NotCoveredError as NotCoveredError
from kpp.causal.errors import NotDisjointError as NotDisjointError
from kpp.causal.errors import NotIdentifiableError as NotIdentifiableError
from kpp.causal.errors import TreatmentIsOutcomeError as TreatmentIsOutcomeError
from kpp.causal.errors import UnknownNodeError as UnknownNodeError
from kpp.causal.errors import UnreachableOutcomeError as UnreachableOutcomeError
from kpp.causal.graph import CausalDAG as CausalDAG
from kpp.causal.nodes import as_nodes as as_nodes
from kpp.causal.nodes import check_disjoint as check_disjoint
from kpp.causal.nodes import check_effect as check_effect
from kpp.causal.separation import Path as Path
from kpp.causal.separation import d_connecting_path as d_connecting_path
from kpp.causal.separation import d_separated as d_separated
from kpp.causal.separation import is_minimal_separator as is_minimal_separator
from kpp.causal.separation import minimal_separator as minimal_separator
from kpp.causal.separation import reachable as reachable
