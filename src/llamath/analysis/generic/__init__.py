"""Reports on models without a family: what a state dict tells."""
