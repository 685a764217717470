"""Checks of checkpoints that are not one complete model: adapters, training folders, pipelines
and files of other models.
"""
