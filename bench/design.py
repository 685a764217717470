"""Candidates per second of `llamath design`: the whole process, and the search alone in one."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

from harness import keep, report, side_by_side
from llamath.analysis.design.design_report import design
from llamath.analysis.design.design_request import DesignRequest

PYTHON = sys.executable
LLAMATH = str(Path(PYTHON).parent / "llamath")
TARGETS = {"8B": 8 * 10**9, "70B": 70 * 10**9, "405B": 405 * 10**9, "10T": 10**13}
ROUNDS = 7


def rates() -> dict[str, dict[str, float]]:
    """CPU seconds of the library, and what was decided in them; a row is one interval, a candidate one point of the grid."""
    made = {}
    for name, target in TARGETS.items():
        spent = []
        for _ in range(ROUNDS):
            start = time.process_time()
            found = design(DesignRequest(target=target))
            spent.append(time.process_time() - start)
        cpu = statistics.median(spent)
        made[name] = {
            "cpu_s": round(cpu, 3),
            "candidates": found.searched,
            "rows": found.rows,
            "within": found.within,
            "candidates_per_s": round(found.searched / cpu),
            "rows_per_s": round(found.rows / cpu),
        }
        print(
            f"  {name:6} {found.searched:>13,} candidates in {found.rows:>9,} rows: {cpu:6.3f} s CPU, "
            f"{found.searched / cpu:>13,.0f} candidates and {found.rows / cpu:>9,.0f} rows a second"
        )
    return made


def main() -> None:
    commands = {"python -c pass": [PYTHON, "-c", "pass"]} | {f"llamath design {x}": [LLAMATH, "design", x, "--json"] for x in TARGETS}
    results = [report("whole processes", side_by_side(commands, ROUNDS), "python -c pass", ROUNDS)]
    print("\nthe search in one process, series and habits learnt each time")
    keep("design", [*results, {"title": "candidates per second", "rounds": ROUNDS, "targets": rates()}])


if __name__ == "__main__":
    main()
