"""Progress on a terminal: every command that can take longer than two seconds says what it does."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

SLOW_START = """
import sys, time
from llamath import loading
from llamath.render import progress
progress.MESSAGE_DELAY = 0.01
load = loading.load
loading.load = lambda *args, **settings: (time.sleep(0.5), load(*args, **settings))[1]
from llamath.cli import main
main()
"""


def stderr_of_a_terminal(args: list[str]) -> bytes:
    """Run a command whose config is read slowly, with a terminal as stderr."""
    ours, theirs = pty.openpty()
    env = {name: x for name, x in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-c", SLOW_START, *args],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=env,
        timeout=120,
    )
    os.close(theirs)
    assert done.returncode == 0
    text = b""
    try:
        while part := os.read(ours, 4096):
            text += part
    except OSError:
        pass
    os.close(ours)
    return text


@pytest.mark.parametrize("command", ["count", "fit"])
@pytest.mark.slow
def test_slow_configs_show_progress(command: str, tmp_path: Path) -> None:
    text = stderr_of_a_terminal([command, "gpt2"])
    assert "reading the config … 0 s".encode() in text and text.rstrip(b"\r").endswith(b" ")
