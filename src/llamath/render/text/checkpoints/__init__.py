"""Tables and lines of the commands that read or write checkpoints."""
