"""What the page needs to size a model: memory and speed of inference, memory of training, and
parallel layouts.
"""
