"""Run the commands shown in README and docs, and write their output below them; with --check, fail where it is not what is shown.

A block of ```console that begins with `$ llamath …` is regenerated; `…` alone on a line stands for lines left out, and stays. A block of
```tree becomes the files of the project, each with its own first sentence; one of ```bench the figures kept in bench/results, one of
```speed those of bench/run.py.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```console\n(\$ .*?)^```$", re.MULTILINE | re.DOTALL)
TREE = re.compile(r"^```tree\n.*?^```$", re.MULTILINE | re.DOTALL)
BENCH = re.compile(r"^```bench\n.*?^```$", re.MULTILINE | re.DOTALL)
SPEED = re.compile(r"^```speed\n.*?^```$", re.MULTILINE | re.DOTALL)
CUT = "…\n"
PEERS = ("llama-cpp-python", "openvino")
SPEEDS = {"ready": "ready", "first": "first", "answer": "answer", "512 read": "prefill", "decode 1": "decode_1", "decode 8": "decode_8"}
LINES = {
    "Makefile": "demo, test, lint, docs, fuzz, bench",
    "pyproject.toml": "what the package is and needs; ruff, mypy and pytest",
    "constraints.txt": "the versions that the Makefile installs",
    ".ci/run": "what a change must pass",
    "CONTRIBUTING.md": "run the checks, add a family, add a preset",
    "CHANGELOG.md": "what each version brought",
    "LOG.md": "what was tried, what surprised, which oracles disagree",
    "examples/": "a Llama of 33,000 parameters, for the commands shown here",
    "docs/": "guides, concepts and reference, in part generated",
}
"""The files that have no sentence of their own."""


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


def sentence(path: Path) -> str:
    """The first sentence of a module, on one line."""
    doc = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.:]) |[:;] ", doc)[0].rstrip(".:")


def tree(_: re.Match[str]) -> str:
    lines = [f"{name:<28} {what}" for name, what in LINES.items()]
    for folder in ("src/llamath", "tools", "bench", "tests"):
        lines += ["", f"{folder}/"]
        for path in sorted((ROOT / folder).rglob("*.py"), key=lambda x: (x.parent, x.name)):
            name = str(path.relative_to(ROOT / folder)).removesuffix("__init__.py") or "__init__.py"
            if path.stat().st_size:
                lines.append(f"  {name:<26} {sentence(path)}"[:140].rstrip())
        if folder == "src/llamath":
            count = len(list((ROOT / folder / "catalog").glob("*.json")))
            lines.append(f"  {'catalog/*.json':<26} {count} published models, one file each")
    return "```tree\n" + "\n".join(lines) + "\n```"


def bench(_: re.Match[str]) -> str:
    lines = []
    for path in sorted((ROOT / "bench" / "results").glob("[ch]*.json")):
        for result in json.loads(path.read_text())["results"]:
            base = result["rows"][result["against"]]
            lines.append(f"{result['title']}, against {result['against']} ({base['cpu_ms']:g} ms CPU, {base['memory_mib']:g} MiB)")
            for name, row in result["rows"].items():
                if name != result["against"]:
                    lines.append(f"  {name:<46} {row['cpu_ratio']:8.1f} × CPU {row['memory_ratio']:7.1f} × memory")
    return "```bench\n" + "\n".join(lines) + "\n```"


def speed(_: re.Match[str]) -> str:
    """What bench/run.py measured: by how much less processor time each engine takes than transformers."""
    results = json.loads((ROOT / "bench" / "results" / "run.json").read_text())["results"]
    lines = []
    for result in results:
        where = result["machine"]
        against = f"transformers {where['transformers']}" if result["against"] == "transformers" else result["against"]
        lines.append(f"{result['title']}, {result['weights'] / 1e9:.2f} GB, against {against},")
        threads = f"{where['threads']} thread{'s' * (where['threads'] > 1)} on {where['cores']} cores"
        versions = ", ".join(f"{x} {where[x]}" for x in ("torch", *PEERS) if x in where)
        lines.append(f"  {where['processor']}, {threads}, {versions}, rounds: {result['rounds']}")
        lines.append(f"  {'':24}" + "".join(f"{x:>9}" for x in (*SPEEDS, "of limit", "beyond", "apart")))
        for name, row in result["rows"].items():
            cells = "".join(f"{row[f'{x}_cpu_speedup']:8.2f}×" for x in SPEEDS.values())
            beyond = f"{row['memory_beyond_weights'] / 1e9:.2f} GB" if "memory_beyond_weights" in row else "–"
            apart = f"{row['apart']:.1g}" if "apart" in row else "–"
            lines.append(f"  {name:24}{cells}{row['of_limit_1']:9.2f}{beyond:>9}{apart:>9}")
    return "```speed\n" + "\n".join(lines) + "\n```"


def main() -> int:
    stale = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = path.read_text()
        fresh = SPEED.sub(speed, BENCH.sub(bench, TREE.sub(tree, BLOCK.sub(shown, text))))
        if fresh != text:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in sys.argv:
                path.write_text(fresh)
    if stale:
        print(("stale: " if "--check" in sys.argv else "written: ") + ", ".join(stale), file=sys.stderr)
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
