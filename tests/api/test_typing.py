"""A user's script runs; `make lint` checks its types, and finds what is wrong in `typed_mistakes.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("user_script.py")


def test_user_script_runs(embedded_copy: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), str(embedded_copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "context: 'abc' is not a number of tokens" in ran.stdout
