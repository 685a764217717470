"""Reading weights from checkpoint files."""
