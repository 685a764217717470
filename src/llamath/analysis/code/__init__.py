"""The model as source code: one readable PyTorch file, written from its forward pass."""
