"""Value functions that condition on the features of a coalition, or intervene on them."""
