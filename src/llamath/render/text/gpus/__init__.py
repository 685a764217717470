"""Reports on GPUs as text: what fits, plans, and dtypes."""
