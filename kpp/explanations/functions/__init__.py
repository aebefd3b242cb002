"""Functions that explainers take: of estimators, of posterior draws, with names."""
