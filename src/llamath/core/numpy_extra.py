"""`require_numpy`: numpy, which the core of the package does without."""

from __future__ import annotations

from typing import Any

from .errors import MissingExtra


def require_numpy() -> Any:
    """Return numpy, or raise an error that says how to install it."""
    try:
        import numpy as np
    except ImportError:
        raise MissingExtra("numpy", "convert") from None
    return np
