"""Measures the graph of a pass and what is derived from it: CPU in a warm process, and whole
commands against an earlier commit."""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable

import llamath
from harness import RESULTS, side_by_side
from llamath.analysis.graph.recorder import record

MODELS = ("llama-3.1-405b", "deepseek-v3", "qwen3-next-80b-a3b")
COMMANDS = {
    "flops": ["flops", "llama-3.1-405b", "--json"],
    "memory": ["memory", "deepseek-v3", "--json"],
    "memory --training": ["memory", "llama-3.1-405b", "--training", "--json"],
    "trace": ["trace", "llama-3-8b", "--json"],
}


def derived(model: llamath.Model) -> None:
    """Compute every number that comes from a graph, for prefill and for decoding."""
    llamath.flops(model)
    llamath.memory(model)
    llamath.training_memory(model)


def cpu_ms(name: str, work: Callable[[llamath.Model], object], rounds: int) -> float:
    """Return the median CPU time in milliseconds, each round with a model that was just built."""
    work(llamath.load(name))
    times = []
    for _ in range(rounds):
        model = llamath.load(name)
        began = time.process_time()
        work(model)
        times.append((time.process_time() - began) * 1e3)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument(
        "--before",
        metavar="SRC",
        help="src folder of the earlier commit, to compare whole commands with",
    )
    args = parser.parse_args()
    result: dict[str, object] = {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    for name in MODELS:
        model = llamath.load(name)
        both = cpu_ms(
            name, lambda model: (record(model.tree), record(model.tree, decode=True)), args.rounds
        )
        everything = cpu_ms(name, derived, args.rounds)
        nodes = sum(len(x.nodes) for x in record(model.tree).regions)
        print(
            f"{name:22}{nodes:5} nodes   two graphs {both:6.2f} ms   with flops, memory and "
            f"training memory {everything:7.2f} ms"
        )
        result[name] = {
            "nodes": nodes,
            "record_ms": round(both, 2),
            "derived_ms": round(everything, 2),
        }
    here = os.path.dirname(os.path.dirname(llamath.__file__))
    if args.before:
        compileall.compile_dir(args.before, quiet=1)
    for title, command in COMMANDS.items() if args.before else ():
        sources = {"before": args.before, "now": here}
        run = {
            name: ["env", f"PYTHONPATH={source}", sys.executable, "-m", "llamath", *command]
            for name, source in sources.items()
        }
        before, now = (x.cpu for x in side_by_side(run, args.rounds).values())
        print(
            f"{title:22}{before * 1e3:7.0f} ms before {now * 1e3:7.0f} ms now   "
            f"{now / before:.2f} of it"
        )
        result[title] = {
            "before_ms": round(before * 1e3, 1),
            "now_ms": round(now * 1e3, 1),
            "ratio": round(now / before, 3),
        }
    path = RESULTS / "record.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written: {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
