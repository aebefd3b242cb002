"""scikit-learn estimators for the models of tables, and transformers to features of a kernel."""
