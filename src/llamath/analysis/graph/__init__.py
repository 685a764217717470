"""The computation of a model: the graph of one pass, and what is known of its operations."""
