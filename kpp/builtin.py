"""kpp's own plugin: the parts of the core, registered by the same hooks as the parts of any other plugin."""

from __future__ import annotations

import kpp
from kpp import embeddings, features, games, kernels
from kpp.conversion.scikit_learn import SklearnConverter

_KERNELS = (
    kernels.BagMean,
    kernels.Categorical,
    kernels.Constant,
    kernels.Contextual,
    kernels.GeneralizedPreferential,
    kernels.Linear,
    kernels.Matern,
    kernels.Matern12,
    kernels.Matern32,
    kernels.Matern52,
    kernels.NuclearDominant,
    kernels.PairProduct,
    kernels.Periodic,
    kernels.Polynomial,
    kernels.Preferential,
    kernels.Product,
    kernels.ProductKernel,
    kernels.Projected,
    kernels.RBF,
    kernels.RationalQuadratic,
    kernels.Scaled,
    kernels.Selected,
    kernels.SkewSymmetrized,
    kernels.Sum,
    features.GeneralizedPreferentialFeatures,
    features.Nystrom,
    features.PreferentialFeatures,
    features.HilbertSpace,
    features.RandomFourier,
)

_EMBEDDINGS = (
    embeddings.BayesianConditionalMeanEmbedding,
    embeddings.ConditionalMeanEmbedding,
    embeddings.DeconditionalMeanEmbedding,
    embeddings.InterventionalMeanEmbedding,
    embeddings.KernelBayesRule,
    embeddings.MeanEmbedding,
    embeddings.ReplicatedConditionalMeanEmbedding,
    embeddings.ShrinkageConditionalMeanEmbedding,
)


@kpp.hookimpl
def register_kernels() -> dict[str, type]:
    """Register the kernels."""
    return {cls.__name__: cls for cls in _KERNELS}


@kpp.hookimpl
def register_embeddings() -> dict[str, type]:
    """Register the embeddings."""
    return {cls.__name__: cls for cls in _EMBEDDINGS}


@kpp.hookimpl
def register_value_functions() -> dict[str, type]:
    """Register the value functions."""
    return {
        "baseline": games.Baseline,
        "causal": games.Causal,
        "causal-embedding": games.CausalEmbedding,
        "interventional": games.Interventional,
        "observational": games.Observational,
        "observational-copula": games.CopulaConditional,
        "observational-gaussian": games.GaussianConditional,
        "observational-masked": games.MaskedRegression,
    }


@kpp.hookimpl
def register_converters() -> dict[str, type]:
    """Register the converters."""
    return {"sklearn": SklearnConverter}


@kpp.hookimpl
def register_inferences() -> dict[str, type]:
    """Register the inferences."""
    from kpp import inference  # here, so that looking kernels up does not wait for it

    classes = (
        inference.Laplace,
        inference.MAP,
        inference.MCMC,
        inference.NUTS,
        inference.NaturalGradient,
        inference.SVI,
    )
    return {cls.__name__: cls for cls in classes}
