"""What a model is, and how it differs from others: counts, diffs, explanations, configs."""
