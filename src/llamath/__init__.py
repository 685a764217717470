"""llamath: know a Llama down to its last weight."""
