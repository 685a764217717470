"""Processor time of the tests, and the slowest: `python bench/suite.py [RUNS]`.

Runs `make test` and `make test-fast`, so that whatever they do counts, collection and children
included: of processes whose parents end before them, as Chromium's renderers, this one becomes the
parent (on Linux). Seconds stand beside the processor time for the record.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from harness import keep

ROOT = Path(__file__).parents[1]
SLOWEST = 20
PR_SET_CHILD_SUBREAPER = 36


def measure(target: str, costs: Path) -> dict[str, object]:
    """Run a target of the Makefile, and return its times and its slowest tests."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    plugin = {"PYTEST": "-p support.processor_cost", "LLAMATH_TEST_COST": str(costs)}
    with costs.with_suffix(".log").open("w+") as said:
        done = subprocess.run(["make", target], cwd=ROOT, env=os.environ | plugin, stdout=said)
        if done.returncode:
            said.seek(0)
            print("".join(said.readlines()[-SLOWEST:]), file=sys.stderr)
    with suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    rows = [json.loads(x) for x in costs.read_text().splitlines()]
    rows.sort(key=lambda x: -x[1])
    return {
        "passed": done.returncode == 0,
        "tests": len(rows),
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime),
        "seconds": round(time.perf_counter() - start),
        "slowest_cpu_s": {name: round(cpu, 1) for name, cpu, _ in rows[:SLOWEST]},
    }


def main() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    results = []
    for target in ("test-fast", "test"):
        with tempfile.TemporaryDirectory() as folder:
            rows = {f"run {i + 1}": measure(target, Path(folder) / f"{i}") for i in range(runs)}
        load = os.getloadavg()[0]
        results.append({"title": f"make {target}", "load": round(load, 1), "rows": rows})
        for name, row in rows.items():
            print(f"make {target}, {name}: {row['tests']} tests, {row['cpu_s']} s CPU")
    keep("suite", results)


if __name__ == "__main__":
    main()
