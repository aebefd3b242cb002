"""Inference: the contract of a model, ways to fit it, and the fit with its ArviZ data."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.inference.base import AbstractInference as AbstractInference
from kpp.inference.base import CalledWith as CalledWith
from kpp.inference.base import ConvergenceError as ConvergenceError
from kpp.inference.base import Posterior as Posterior
from kpp.inference.base import Site as Site
from kpp.inference.base import inspect_sites as inspect_sites
from kpp.inference.base import without_latents as without_latents
from kpp.inference.fit.draws import draw_map as draw_map
from kpp.inference.fit.draws import flatten_draws as flatten_draws
from kpp.inference.fit.draws import unflatten_draws as unflatten_draws
from kpp.inference.fit.fit import Fit as Fit
from kpp.inference.fit.storage import describe_inference as describe_inference
from kpp.inference.fit.storage import read_parts as read_parts
from kpp.inference.fit.storage import rebuild_inference as rebuild_inference
from kpp.inference.methods.laplace import Laplace as Laplace
from kpp.inference.methods.map import MAP as MAP
from kpp.inference.methods.mcmc import MCMC as MCMC
from kpp.inference.methods.natural_gradient import NaturalGradient as NaturalGradient
from kpp.inference.methods.nuts import NUTS as NUTS
from kpp.inference.methods.svi import SVI as SVI
from kpp.inference.model import AbstractModel as AbstractModel
from kpp.inference.model import Data as Data
from kpp.inference.model import Sample as Sample

_guard_exports(globals())
