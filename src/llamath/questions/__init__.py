"""The questions that llamath answers, as records: their fields have units, defaults, bounds and
help, from which the options of commands, the signatures of functions and JSON Schemas are made.
"""
