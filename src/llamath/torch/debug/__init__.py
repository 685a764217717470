"""Debugging a running model: captured activations, comparisons and NaN checks."""
