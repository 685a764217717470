"""The walks of the architecture page: each file that it names is run by the command."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = r"^\| `(count|memory|run)` \| (.*) \|$"
WORDS = {
    "count": "llama-3-8b",
    "memory": "llama-3-8b",
    "run": "embedded hello --max-tokens 2",
}
FILES_THAT_RAN = """
import sys, threading
files = set()
def note(frame, event, _):
    files.add(frame.f_code.co_filename)
threading.setprofile(note)
sys.setprofile(note)
from llamath.cli import main
try:
    main()
finally:
    sys.setprofile(None)
    print(*sorted(files), sep="\\n", file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", WORDS)
def test_command_runs_the_files_of_its_walk(name: str) -> None:
    walks = dict(re.findall(ROWS, (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE))
    hops = re.findall("`([^`]+)`", walks[name])
    words = [sys.executable, "-c", FILES_THAT_RAN, name, *WORDS[name].split()]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    ran = {x for x in done.stderr.splitlines() if "llamath" in x}
    assert len(hops) == 10
    assert [x for x in hops if not any(y.endswith(f"llamath/{x}") for y in ran)] == []
