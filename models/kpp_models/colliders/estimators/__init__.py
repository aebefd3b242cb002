"""scikit-learn estimators for collider regression."""
