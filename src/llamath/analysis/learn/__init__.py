"""Lessons whose questions are made from a model's tree, and diagnoses of wrong answers."""
