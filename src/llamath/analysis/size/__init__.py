"""What it costs to run and to train a model: memory, FLOPs, hardware and layouts."""
