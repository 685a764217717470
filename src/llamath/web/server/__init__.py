"""The local web server and its pages."""
