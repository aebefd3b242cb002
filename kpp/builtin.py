"""kpp's own plugin: the parts of the core, registered by the same hooks as the parts of any other plugin.

Hooks import what they return, so that a look-up waits for its own kind only, and the command line for none.
"""

from __future__ import annotations

import kpp


@kpp.hookimpl
def register_kernels() -> dict[str, type]:
    """Register the kernels."""
    from kpp import features, kernels

    classes = (
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
    return {cls.__name__: cls for cls in classes}


@kpp.hookimpl
def register_embeddings() -> dict[str, type]:
    """Register the embeddings."""
    from kpp import embeddings

    classes = (
        embeddings.BayesianConditionalMeanEmbedding,
        embeddings.ConditionalMeanEmbedding,
        embeddings.DeconditionalMeanEmbedding,
        embeddings.InterventionalMeanEmbedding,
        embeddings.KernelBayesRule,
        embeddings.MeanEmbedding,
        embeddings.ReplicatedConditionalMeanEmbedding,
        embeddings.ShrinkageConditionalMeanEmbedding,
    )
    return {cls.__name__: cls for cls in classes}


@kpp.hookimpl
def register_value_functions() -> dict[str, type]:
    """Register the value functions."""
    from kpp import games

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
def register_inferences() -> dict[str, type]:
    """Register the inferences."""
    from kpp import inference

    classes = (
        inference.Laplace,
        inference.MAP,
        inference.MCMC,
        inference.NUTS,
        inference.NaturalGradient,
        inference.SVI,
    )
    return {cls.__name__: cls for cls in classes}
