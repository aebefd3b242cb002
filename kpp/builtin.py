"""kpp's own plugin: the parts of the core, registered by the same hooks as the parts of any other plugin.

Hooks import what they return, so that a look-up waits for its own kind only, and the command line for none.
"""

from __future__ import annotations

from types import ModuleType

import kpp


@kpp.hookimpl
def register_kernels() -> dict[str, type]:
    """Register the kernels."""
    from kpp import features, kernels

    names = "BagMean Categorical Constant Contextual GeneralizedPreferential Linear Matern Matern12 Matern32 Matern52"
    names += " NuclearDominant PairProduct Periodic Polynomial Preferential Product ProductKernel Projected RBF"
    names += " RationalQuadratic Scaled Selected SkewSymmetrized Sum"
    finite = "GeneralizedPreferentialFeatures Nystrom PreferentialFeatures HilbertSpace RandomFourier"
    return _by_name(kernels, names) | _by_name(features, finite)


@kpp.hookimpl
def register_embeddings() -> dict[str, type]:
    """Register the embeddings."""
    from kpp import embeddings

    names = "BayesianConditionalMeanEmbedding ConditionalMeanEmbedding DeconditionalMeanEmbedding"
    names += " InterventionalMeanEmbedding KernelBayesRule MeanEmbedding ReplicatedConditionalMeanEmbedding"
    names += " ShrinkageConditionalMeanEmbedding"
    return _by_name(embeddings, names)


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

    return _by_name(inference, "Laplace MAP MCMC NUTS NaturalGradient SVI")


def _by_name(package: ModuleType, names: str) -> dict[str, type]:
    return {name: getattr(package, name) for name in names.split()}
