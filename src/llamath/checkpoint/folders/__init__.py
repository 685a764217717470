"""Folders that are no single model's checkpoint: distributed checkpoints, DeepSpeed, and
diffusers pipelines.
"""
