"""Whether a model fits GPUs, how it is split over them, and what to change if it does not."""
