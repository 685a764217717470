"""Parameter counts, with their formulas."""
