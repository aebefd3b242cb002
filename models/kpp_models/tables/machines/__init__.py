"""Kernel machines: ridge and logistic regression, exact and with landmarks, chosen from a grid."""
