"""The computation of a model: the graph of one pass, and rules for each of its operations."""
