"""Embeddings of distributions in reproducing kernel Hilbert spaces."""

from kpp.embeddings.adjustment import AbstractAdjustment as AbstractAdjustment
from kpp.embeddings.adjustment import BackDoor as BackDoor
from kpp.embeddings.adjustment import FrontDoor as FrontDoor
from kpp.embeddings.adjustment import NoAdjustment as NoAdjustment
from kpp.embeddings.bags import AbstractBagEmbedding as AbstractBagEmbedding
from kpp.embeddings.bags import ReplicatedConditionalMeanEmbedding as ReplicatedConditionalMeanEmbedding
from kpp.embeddings.bags import ShrinkageConditionalMeanEmbedding as ShrinkageConditionalMeanEmbedding
from kpp.embeddings.base import AbstractEmbedding as AbstractEmbedding
from kpp.embeddings.base import AbstractEmpiricalEmbedding as AbstractEmpiricalEmbedding
from kpp.embeddings.bayesian import BayesianConditionalMeanEmbedding as BayesianConditionalMeanEmbedding
from kpp.embeddings.conditional import ConditionalMeanEmbedding as ConditionalMeanEmbedding
from kpp.embeddings.deconditional import DeconditionalMeanEmbedding as DeconditionalMeanEmbedding
from kpp.embeddings.distributions import interventional_cdf as interventional_cdf
from kpp.embeddings.distributions import interventional_quantiles as interventional_quantiles
from kpp.embeddings.intervention import Intervention as Intervention
from kpp.embeddings.interventional import InterventionalMeanEmbedding as InterventionalMeanEmbedding
from kpp.embeddings.mean import MeanEmbedding as MeanEmbedding
from kpp.embeddings.quadrature import QuadraturePosterior as QuadraturePosterior
from kpp.embeddings.quadrature import bayesian_quadrature as bayesian_quadrature
from kpp.embeddings.regression import AbstractConditionalEmbedding as AbstractConditionalEmbedding
from kpp.embeddings.regression import AbstractRegressionEmbedding as AbstractRegressionEmbedding
from kpp.embeddings.selection import SelectedRegularization as SelectedRegularization
from kpp.embeddings.selection import select_regularization as select_regularization
from kpp.embeddings.two_sample import TwoSampleTest as TwoSampleTest
from kpp.embeddings.two_sample import two_sample_test as two_sample_test
from kpp.embeddings.two_sample import witness as witness
