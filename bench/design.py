"""Candidates per second of `llamath design`: as a whole process, and the search alone."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

from harness import keep, report, side_by_side
from llamath.analysis.understand.design.design_report import design
from llamath.analysis.understand.design.design_request import DesignRequest

PYTHON = sys.executable
LLAMATH = str(Path(PYTHON).parent / "llamath")
TARGETS = {"8B": 8 * 10**9, "70B": 70 * 10**9, "405B": 405 * 10**9, "10T": 10**13}
ROUNDS = 7


def rates() -> dict[str, dict[str, float]]:
    """Measure candidates and rows searched per CPU second; a candidate is a point of the grid, a
    row an interval of candidates."""
    rates_ = {}
    for name, target in TARGETS.items():
        spent = []
        for _ in range(ROUNDS):
            start = time.process_time()
            result = design(DesignRequest(target=target))
            spent.append(time.process_time() - start)
        cpu = statistics.median(spent)
        rates_[name] = {
            "cpu_s": round(cpu, 3),
            "candidates": result.searched,
            "rows": result.rows,
            "within": result.within,
            "candidates_per_s": round(result.searched / cpu),
            "rows_per_s": round(result.rows / cpu),
        }
        print(
            f"  {name:6} {result.searched:>13,} candidates in {result.rows:>9,} rows: {cpu:6.3f} "
            "s CPU, "
            f"{result.searched / cpu:>13,.0f} candidates and {result.rows / cpu:>9,.0f} rows a "
            "second"
        )
    return rates_


def main() -> None:
    commands = {"python -c pass": [PYTHON, "-c", "pass"]} | {
        f"llamath design {x}": [LLAMATH, "design", x, "--json"] for x in TARGETS
    }
    results = [report("whole processes", side_by_side(commands, ROUNDS), "python -c pass", ROUNDS)]
    print("\nthe search alone in one process, catalog statistics recomputed each time")
    keep(
        "design",
        [*results, {"title": "candidates per second", "rounds": ROUNDS, "targets": rates()}],
    )


if __name__ == "__main__":
    main()
