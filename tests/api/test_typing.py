"""A user's script type-checks under mypy --strict, and runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("user_script.py")
MISTAKES = """import llamath
model = llamath.load("gpt2")
llamath.memory(model, contxt=8192)
llamath.fit(model, on=3)
llamath.stored_names(model, names="mlx")
llamath.plan(model)
model.family
llamath.memory({"a": 1}).kv_cache
from llamath.native import native_operations as ops
x = ops.View()
rope = ops.Rope(path="", out=x, x=x, rope=ops.RopeNumber(0), interleaved=True)
ops.Rope(path="", out=x, x=x, rope=ops.RopeNumber(0), interleaved=True, window=4)
ops.Rope(path="", out=x, x=x, rope=ops.WeightNumber(0), interleaved=True)
ops.Rope(path="", out=x, x=x, rope=ops.RopeNumber(0))
rope.window
"""


def test_user_script_passes_mypy_strict_and_mistakes_do_not(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (mistakes := tmp_path / "mistakes.py").write_text(MISTAKES)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        f"--cache-dir={ROOT / '.mypy_cache' / 'user_script'}",
        "--follow-imports=silent",
        str(SCRIPT),
        str(mistakes),
    ]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "user_script" not in checked.stdout, checked.stdout
    assert "mistakes.py:11:" not in checked.stdout, checked.stdout
    for line in (*range(3, 9), *range(12, 16)):
        assert f"mistakes.py:{line}: error" in checked.stdout, checked.stdout


def test_user_script_runs(embedded_copy: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), str(embedded_copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "context: 'abc' is not a number of tokens" in ran.stdout
