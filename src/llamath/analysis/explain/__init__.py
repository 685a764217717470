"""`explain`: which model, changed how, has just so many parameters. `base` and `moves` span the ways, `search` finds, `answer` ranks."""

from __future__ import annotations

from .explain_base import Base
from .explanation import MARGIN, SHOWN, WINDOW, Candidate, Explanation, Name, explain, explain_name

__all__ = ["MARGIN", "SHOWN", "WINDOW", "Base", "Candidate", "Explanation", "Name", "explain", "explain_name"]
