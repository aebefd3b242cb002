"""Embeddings of distributions in reproducing kernel Hilbert spaces."""

from kpp.arguments import guard_exports as _guard_exports
from kpp.embeddings.bag_embeddings import ReplicatedConditionalMeanEmbedding as ReplicatedConditionalMeanEmbedding
from kpp.embeddings.bag_embeddings import ShrinkageConditionalMeanEmbedding as ShrinkageConditionalMeanEmbedding
from kpp.embeddings.bayes_rule import KernelBayesRule as KernelBayesRule
from kpp.embeddings.bayesian import BayesianConditionalMeanEmbedding as BayesianConditionalMeanEmbedding
from kpp.embeddings.conditional import AbstractRegressionEmbedding as AbstractRegressionEmbedding
from kpp.embeddings.conditional import ConditionalMeanEmbedding as ConditionalMeanEmbedding
from kpp.embeddings.conditional_independence import IndependenceTest as IndependenceTest
from kpp.embeddings.conditional_independence import (
    conditional_independence_test as conditional_independence_test,
)
from kpp.embeddings.deconditional import DeconditionalMeanEmbedding as DeconditionalMeanEmbedding
from kpp.embeddings.embedding import AbstractEmbedding as AbstractEmbedding
from kpp.embeddings.embedding import AbstractEmpiricalEmbedding as AbstractEmpiricalEmbedding
from kpp.embeddings.estimand_embedding import EstimandEmbedding as EstimandEmbedding
from kpp.embeddings.graph_check import check_graph as check_graph
from kpp.embeddings.hsic import hsic as hsic
from kpp.embeddings.hsic import rank_features as rank_features
from kpp.embeddings.interventional_mean import InterventionalMeanEmbedding as InterventionalMeanEmbedding
from kpp.embeddings.mean import MeanEmbedding as MeanEmbedding
from kpp.embeddings.mean_independence import MeanIndependenceTest as MeanIndependenceTest
from kpp.embeddings.mean_independence import mean_independence_test as mean_independence_test
from kpp.embeddings.quadrature_posterior import QuadraturePosterior as QuadraturePosterior
from kpp.embeddings.quadrature_posterior import bayesian_quadrature as bayesian_quadrature
from kpp.embeddings.quantiles import interventional_cdf as interventional_cdf
from kpp.embeddings.quantiles import interventional_quantiles as interventional_quantiles
from kpp.embeddings.regularization import SelectedRegularization as SelectedRegularization
from kpp.embeddings.regularization import select_regularization as select_regularization
from kpp.embeddings.stated_independence import independence_test as independence_test
from kpp.embeddings.treatment_adjustment import AbstractAdjustment as AbstractAdjustment
from kpp.embeddings.treatment_adjustment import BackDoor as BackDoor
from kpp.embeddings.treatment_adjustment import FrontDoor as FrontDoor
from kpp.embeddings.treatment_adjustment import NoAdjustment as NoAdjustment
from kpp.embeddings.treatment_sections import Intervention as Intervention
from kpp.embeddings.two_sample import TwoSampleTest as TwoSampleTest
from kpp.embeddings.two_sample import two_sample_test as two_sample_test
from kpp.embeddings.two_sample import witness as witness

_guard_exports(globals())
