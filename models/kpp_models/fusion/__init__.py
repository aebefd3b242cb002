"""Models of causal effects from several data sets."""
