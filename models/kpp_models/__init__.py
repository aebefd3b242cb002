"""NumPyro models built on kpp: Gaussian processes and kernel machines."""
