"""Loading the tensors of a checkpoint into modules."""
