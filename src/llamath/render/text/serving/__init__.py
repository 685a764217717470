"""Reports about inference engines, drafts and placements as text."""
