"""Run the commands shown in README and docs, and write their output below them; with --check, fail where it is not what is shown.

A block of ```console that begins with `$ llamath …` is regenerated; `…` alone on a line stands for lines left out, and stays.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```console\n(\$ .*?)^```$", re.MULTILINE | re.DOTALL)
CUT = "…\n"


def output(command: str) -> str:
    env = os.environ | {"COLUMNS": "80", "NO_COLOR": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, env=env, cwd=ROOT, timeout=120)
    return done.stdout + done.stderr


def shown(found: re.Match[str]) -> str:
    """The block with each command's output as it is now; a block that leaves lines out keeps what it leaves out."""
    text = ""
    for part in re.split(r"^(?=\$ )", found[1], flags=re.MULTILINE):
        if not part:
            continue
        command, _, old = part.partition("\n")
        new = output(command.removeprefix("$ "))
        text += f"{command}\n{abridged(old, new) if CUT in old else new}"
    return f"```console\n{text}```"


def abridged(old: str, new: str) -> str:
    """The head and the tail that the block shows, as many lines as it showed."""
    head, _, tail = old.partition(CUT)
    lines = new.splitlines(keepends=True)
    last = lines[len(lines) - tail.count("\n") :] if tail else []
    return "".join([*lines[: head.count("\n")], CUT, *last])


def main() -> int:
    stale = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = path.read_text()
        fresh = BLOCK.sub(shown, text)
        if fresh != text:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in sys.argv:
                path.write_text(fresh)
    if stale:
        print(("stale: " if "--check" in sys.argv else "written: ") + ", ".join(stale), file=sys.stderr)
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
