"""The data that the page shows, as exact values and expressions."""
