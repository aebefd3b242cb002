"""From a causal graph to a NumPyro model: one site per variable, and a mechanism with priors for each."""

from kpp.arguments import guard_exports as _guard_exports
from kpp.mechanisms.gaussian_process import GPMechanism as GPMechanism
from kpp.mechanisms.linear import LinearMechanism as LinearMechanism
from kpp.mechanisms.mechanism import AbstractMechanism as AbstractMechanism
from kpp.mechanisms.mechanism import Inputs as Inputs
from kpp.mechanisms.mechanism import Training as Training
from kpp.mechanisms.structural_model import StructuralModel as StructuralModel

_guard_exports(globals())
