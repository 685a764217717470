"""A user's script runs, before a release; `make lint` checks its types, and finds what is wrong in `typed_mistakes.py`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("user_script.py")


@pytest.mark.release
def test_user_script_runs(
    embedded_copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(embedded_copy)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert "context: 'abc' is not a number of tokens" in capsys.readouterr().out
