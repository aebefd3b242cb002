"""Likelihoods of n observations, each of which depends on its own latent value, or on several of its own."""

from kpp.gp.likelihoods.base import AbstractLikelihood as AbstractLikelihood
from kpp.gp.likelihoods.base import AbstractPointwiseLikelihood as AbstractPointwiseLikelihood
from kpp.gp.likelihoods.base import observed_field as observed_field
from kpp.gp.likelihoods.bernoulli import BernoulliLikelihood as BernoulliLikelihood
from kpp.gp.likelihoods.by_function import FunctionLikelihood as FunctionLikelihood
from kpp.gp.likelihoods.coregional import CoregionalLikelihood as CoregionalLikelihood
from kpp.gp.likelihoods.counts import AbstractCountLikelihood as AbstractCountLikelihood
from kpp.gp.likelihoods.counts import BinomialLikelihood as BinomialLikelihood
from kpp.gp.likelihoods.counts import NegativeBinomialLikelihood as NegativeBinomialLikelihood
from kpp.gp.likelihoods.counts import PoissonLikelihood as PoissonLikelihood
from kpp.gp.likelihoods.gaussian import GaussianLikelihood as GaussianLikelihood
from kpp.gp.likelihoods.heteroscedastic import HeteroscedasticLikelihood as HeteroscedasticLikelihood
from kpp.gp.likelihoods.multi_latent import AbstractMultiLatentLikelihood as AbstractMultiLatentLikelihood
from kpp.gp.likelihoods.ordinal import OrdinalLikelihood as OrdinalLikelihood
from kpp.gp.likelihoods.softmax import SoftmaxLikelihood as SoftmaxLikelihood
from kpp.gp.likelihoods.student_t import StudentTLikelihood as StudentTLikelihood
