"""Checks of a checkpoint against its config."""
