"""CPU time of `llamath code` for each preset, as a multiple of `python -c pass`: the minimum of
five runs of each, in turn, as other work on the machine only ever adds to it.
"""

from __future__ import annotations

import compileall
import statistics
import subprocess
import sys
from pathlib import Path

import llamath
from harness import keep, once

RUNS, LIMIT, SHOWN = 5, 8, 12
EMPTY, CLICK = [sys.executable, "-c", "pass"], [sys.executable, "-c", "import click"]


def main() -> None:
    compileall.compile_dir(str(Path(llamath.__file__).parent), quiet=1)
    slugs = [x["preset"] for x in llamath.models().to_json()["models"]]
    commands = {x: [sys.executable, "-m", "llamath", "code", x] for x in slugs}
    refused = [x for x, words in commands.items() if is_refused(words)]
    commands = {x: y for x, y in commands.items() if x not in refused}
    commands |= {"python -c pass": EMPTY, "import click": CLICK}
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(RUNS):
        for name, words in commands.items():
            best[name] = min(best[name], once(words).cpu)
    for _ in range(40):
        best["python -c pass"] = min(best["python -c pass"], once(EMPTY).cpu)
        best["import click"] = min(best["import click"], once(CLICK).cpu)
    empty, click = best.pop("python -c pass"), best.pop("import click")
    ratios = sorted(((x / empty, name) for name, x in best.items()), reverse=True)
    every = [x for x, _ in ratios]
    rows = {
        "presets": len(every),
        "refused": refused,
        "python_ms": round(empty * 1000, 1),
        "import_click": round(click / empty, 2),
        "least": round(every[-1], 2),
        "median": round(statistics.median(every), 2),
        "most": round(every[0], 2),
        f"share_at_most_{LIMIT}": round(sum(x <= LIMIT for x in every) / len(every), 3),
        "llama-3-8b": round(best["llama-3-8b"] / empty, 2),
        "deepseek-v3": round(best["deepseek-v3"] / empty, 2),
        "slowest": {name: round(x, 2) for x, name in ratios[:SHOWN]},
    }
    for name, x in rows.items():
        print(f"  {name:20} {x}")
    title = f"llamath code, CPU time over `python -c pass`, minimum of {RUNS} runs"
    keep("written_code", [{"title": title, "rows": rows}])


def is_refused(words: list[str]) -> bool:
    """Whether a model has no file; the run also fills the caches."""
    done = subprocess.run(words, capture_output=True)
    if done.returncode not in (0, 2):
        raise SystemExit(done.stderr.decode())
    return done.returncode == 2


if __name__ == "__main__":
    main()
