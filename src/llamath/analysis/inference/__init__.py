"""Memory and speed limits of inference."""
