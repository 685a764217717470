"""FLOPs, their conventions, and scaling laws."""
