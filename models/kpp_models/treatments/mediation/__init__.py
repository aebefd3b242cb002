"""Direct and indirect effects of a treatment: identification by edge interventions, and estimates by simulation."""
