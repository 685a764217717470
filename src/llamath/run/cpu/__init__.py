"""Fast matrix products on a CPU."""
