"""Memory and speed of inference."""
