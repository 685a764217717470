"""Checkpoints of one kind rewritten as another: names, layouts, number types and configuration, tensor by tensor."""
