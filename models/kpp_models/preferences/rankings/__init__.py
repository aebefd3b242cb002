"""Rankings of several items and choices from sets: the law, the model, and its approximation."""
