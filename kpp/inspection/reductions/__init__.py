"""How much each feature reduces the expected loss of a predictor."""
