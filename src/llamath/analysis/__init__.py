"""Views of the tree: pure functions from a Decoder to small frozen reports."""
