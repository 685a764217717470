"""Dimensions for a target number of parameters: the grid, the search, the habits by which candidates are ranked."""
