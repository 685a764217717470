"""The gallery: a table, cards, plots and comparisons of many models, as a static site and on the
local server.
"""
