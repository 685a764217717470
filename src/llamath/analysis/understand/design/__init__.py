"""Find the dimensions of a model with a target number of parameters."""
