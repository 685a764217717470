"""Explanations of a parameter count: the models, and changes to them, that have exactly that
count.
"""

from __future__ import annotations

from .explain_base import BaseModel
from .explanation import (
    LISTED_BITS,
    MAX_LISTED,
    MIN_BITS_SAVED,
    Candidate,
    Explanation,
    RoundedNumber,
    explain_name,
    explain_number,
)

__all__ = [
    "LISTED_BITS",
    "MAX_LISTED",
    "MIN_BITS_SAVED",
    "BaseModel",
    "Candidate",
    "Explanation",
    "RoundedNumber",
    "explain_name",
    "explain_number",
]
