"""A checkpoint to inspect, verify and convert."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from llamath import embedded


@pytest.fixture
def embedded_copy(tmp_path: Path) -> Path:
    """A copy of the embedded model's folder."""
    return Path(shutil.copytree(embedded.path(), tmp_path / "model"))
