"""Embeddings of distributions in reproducing kernel Hilbert spaces."""

from kpp.embeddings.base import AbstractEmbedding as AbstractEmbedding
from kpp.embeddings.base import AbstractEmpiricalEmbedding as AbstractEmpiricalEmbedding
from kpp.embeddings.mean import MeanEmbedding as MeanEmbedding
