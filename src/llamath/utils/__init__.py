"""What every other package uses: errors, records and reports, numbers and units as text, and
safe parsing of untrusted text.
"""
