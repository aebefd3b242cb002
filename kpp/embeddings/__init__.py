"""Embeddings of distributions in reproducing kernel Hilbert spaces."""

from kpp.embeddings.identified.estimand_embedding import EstimandEmbedding as EstimandEmbedding
from kpp.embeddings.identified.interventional_mean import InterventionalMeanEmbedding as InterventionalMeanEmbedding
from kpp.embeddings.identified.treatment_adjustment import AbstractAdjustment as AbstractAdjustment
from kpp.embeddings.identified.treatment_adjustment import BackDoor as BackDoor
from kpp.embeddings.identified.treatment_adjustment import FrontDoor as FrontDoor
from kpp.embeddings.identified.treatment_adjustment import Intervention as Intervention
from kpp.embeddings.identified.treatment_adjustment import NoAdjustment as NoAdjustment
from kpp.embeddings.means.bag_embeddings import ReplicatedConditionalMeanEmbedding as ReplicatedConditionalMeanEmbedding
from kpp.embeddings.means.bag_embeddings import ShrinkageConditionalMeanEmbedding as ShrinkageConditionalMeanEmbedding
from kpp.embeddings.means.bayes_rule import KernelBayesRule as KernelBayesRule
from kpp.embeddings.means.bayesian import BayesianConditionalMeanEmbedding as BayesianConditionalMeanEmbedding
from kpp.embeddings.means.conditional import AbstractRegressionEmbedding as AbstractRegressionEmbedding
from kpp.embeddings.means.conditional import ConditionalMeanEmbedding as ConditionalMeanEmbedding
from kpp.embeddings.means.conditional import select_regularization as select_regularization
from kpp.embeddings.means.deconditional import DeconditionalMeanEmbedding as DeconditionalMeanEmbedding
from kpp.embeddings.means.embedded import Embedded as Embedded
from kpp.embeddings.means.embedded import bayesian_quadrature as bayesian_quadrature
from kpp.embeddings.means.embedding import AbstractEmbedding as AbstractEmbedding
from kpp.embeddings.means.embedding import AbstractEmpiricalEmbedding as AbstractEmpiricalEmbedding
from kpp.embeddings.means.mean import MeanEmbedding as MeanEmbedding
from kpp.embeddings.means.quantiles import interventional_cdf as interventional_cdf
from kpp.embeddings.means.quantiles import interventional_quantiles as interventional_quantiles
from kpp.embeddings.tests.conditional_independence import conditional_independence_test as conditional_independence_test
from kpp.embeddings.tests.hsic import hsic as hsic
from kpp.embeddings.tests.hsic import rank_features as rank_features
from kpp.embeddings.tests.mean_independence import MeanIndependenceTest as MeanIndependenceTest
from kpp.embeddings.tests.mean_independence import mean_independence_test as mean_independence_test
from kpp.embeddings.tests.residuals import IndependenceTest as IndependenceTest
from kpp.embeddings.tests.stated_independence import check_graph as check_graph
from kpp.embeddings.tests.stated_independence import independence_test as independence_test
from kpp.embeddings.tests.two_sample import TwoSampleTest as TwoSampleTest
from kpp.embeddings.tests.two_sample import two_sample_test as two_sample_test
from kpp.embeddings.tests.two_sample import witness as witness
from kpp.foundation.arguments import guard_exports as _guard_exports

_guard_exports(globals())
