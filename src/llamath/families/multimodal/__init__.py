"""One module per multimodal model type: which towers and projectors it adds to its text model."""
