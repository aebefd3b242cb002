"""Value functions: the values of coalitions of features."""
