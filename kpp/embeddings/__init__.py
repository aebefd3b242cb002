"""Embeddings of distributions in reproducing kernel Hilbert spaces."""

from kpp.embeddings.base import AbstractEmbedding as AbstractEmbedding
from kpp.embeddings.base import AbstractEmpiricalEmbedding as AbstractEmpiricalEmbedding
from kpp.embeddings.conditional import ConditionalMeanEmbedding as ConditionalMeanEmbedding
from kpp.embeddings.conditional import SelectedRegularization as SelectedRegularization
from kpp.embeddings.conditional import select_regularization as select_regularization
from kpp.embeddings.mean import MeanEmbedding as MeanEmbedding
from kpp.embeddings.two_sample import TwoSampleTest as TwoSampleTest
from kpp.embeddings.two_sample import two_sample_test as two_sample_test
from kpp.embeddings.two_sample import witness as witness
