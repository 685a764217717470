"""Whether two checkpoints hold the same weights, why not, and the canonical hash of a
checkpoint's weights.
"""
