"""Where each weight goes on GPUs, RAM and disk."""
