"""scikit-learn's kernel methods and Gaussian processes as functions and posteriors of kpp."""
