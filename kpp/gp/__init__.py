"""The Gaussian-process toolkit: densities, likelihoods and approximations shared by Gaussian-process models."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.gp.conditioned.conditioning import ConditionedGP as ConditionedGP
from kpp.gp.conditioned.conditioning import condition as condition
from kpp.gp.conditioned.conditioning import condition_on_values as condition_on_values
from kpp.gp.fields import read_data as read_data
from kpp.gp.fields import replace_priors as replace_priors
from kpp.gp.fields import scalar_field as scalar_field
from kpp.gp.integrals.expectations import deviation as deviation
from kpp.gp.integrals.expectations import expectation as expectation
from kpp.gp.integrals.links import log_likelihood as log_likelihood
from kpp.gp.integrals.links import probability as probability
from kpp.gp.iterative.system import IterativeSettings as IterativeSettings
from kpp.gp.laws.distributions import GaussianProcessMarginal as GaussianProcessMarginal
from kpp.gp.laws.distributions import LaplaceMarginal as LaplaceMarginal
from kpp.gp.likelihoods.base import AbstractLikelihood as AbstractLikelihood
from kpp.gp.likelihoods.base import AbstractPointwiseLikelihood as AbstractPointwiseLikelihood
from kpp.gp.likelihoods.base import FunctionLikelihood as FunctionLikelihood
from kpp.gp.likelihoods.base import observed_field as observed_field
from kpp.gp.likelihoods.coregional import CoregionalLikelihood as CoregionalLikelihood
from kpp.gp.likelihoods.counts import BinomialLikelihood as BinomialLikelihood
from kpp.gp.likelihoods.counts import NegativeBinomialLikelihood as NegativeBinomialLikelihood
from kpp.gp.likelihoods.counts import PoissonLikelihood as PoissonLikelihood
from kpp.gp.likelihoods.gaussian import GaussianLikelihood as GaussianLikelihood
from kpp.gp.likelihoods.gaussian import HeteroscedasticLikelihood as HeteroscedasticLikelihood
from kpp.gp.likelihoods.gaussian import StudentTLikelihood as StudentTLikelihood
from kpp.gp.likelihoods.labels import BernoulliLikelihood as BernoulliLikelihood
from kpp.gp.likelihoods.labels import OrdinalLikelihood as OrdinalLikelihood
from kpp.gp.likelihoods.multi_latent import SoftmaxLikelihood as SoftmaxLikelihood
from kpp.gp.means import LinearMean as LinearMean
from kpp.gp.model import AbstractGPModel as AbstractGPModel

_guard_exports(globals())
