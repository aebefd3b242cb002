"""How the prediction depends on one feature: curves and derivatives, with their laws."""
