"""Samples of the decision boundary of a classifier, and distances along it."""
