"""Reports as SVG pictures."""
