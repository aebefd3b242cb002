"""Value functions: what a coalition of features is worth."""
