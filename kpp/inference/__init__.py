"""Inference: the contract of a model, ways to fit it, and the fit with its ArviZ data."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.inference.base import AbstractInference as AbstractInference
from kpp.inference.base import CalledWith as CalledWith
from kpp.inference.base import ConvergenceError as ConvergenceError
from kpp.inference.base import Posterior as Posterior
from kpp.inference.base import inspect_sites as inspect_sites
from kpp.inference.base import without_latents as without_latents
from kpp.inference.fit.fit import Fit as Fit
from kpp.inference.methods.laplace import MAP as MAP
from kpp.inference.methods.laplace import Laplace as Laplace
from kpp.inference.methods.mcmc import MCMC as MCMC
from kpp.inference.methods.natural_gradient import NaturalGradient as NaturalGradient
from kpp.inference.methods.nuts import NUTS as NUTS
from kpp.inference.methods.svi import SVI as SVI
from kpp.inference.model import AbstractModel as AbstractModel
from kpp.inference.model import Data as Data

_guard_exports(globals())
