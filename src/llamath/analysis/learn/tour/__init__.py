"""A guided tour of a model, along the path of one token."""
