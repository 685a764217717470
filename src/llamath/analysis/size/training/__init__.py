"""Memory of a training step."""
