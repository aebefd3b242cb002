"""scikit-learn estimators for preferences between items."""
