"""Posters: one picture of a model, composed for a link's preview, a square and a sheet of paper."""
