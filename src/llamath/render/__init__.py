"""Reports made visible: text for terminals, HTML for notebooks, JSON, CSV and Markdown for
everything else.
"""
