"""Models without a family: trees made from a state dict."""
