"""Benchmarks of whole processes: each command in turn for several rounds, medians of CPU time
and peak memory, and their ratios."""

from __future__ import annotations

import compileall
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import llamath

RESULTS = Path(__file__).parent / "results"
Command = Sequence[str]


class Cost(NamedTuple):
    """The time and memory of one process."""

    cpu: float  # seconds, user and system
    memory: int  # peak, KiB


LAUNCHER = """
import os, sys
null = os.open(os.devnull, os.O_RDWR)
actions = [(os.POSIX_SPAWN_DUP2, null, 1)]
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=actions)
_, status, usage = os.wait4(pid, 0)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss, os.waitstatus_to_exitcode(status))
"""
"""An intermediate process with little memory: a process's peak memory includes that of its
parent at the time of the fork."""


def once(command: Command, verdicts: Sequence[str] = ("0",)) -> Cost:
    """Run a command once; `verdicts` are the exit codes that it may end with."""
    with tempfile.TemporaryFile() as errors:
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, *command]
        done = subprocess.run(
            launcher, stdout=subprocess.PIPE, stderr=errors, text=True, check=True
        )
        cpu, memory, status = done.stdout.split()
        if status not in verdicts:
            errors.seek(0)
            message = errors.read().decode(errors="replace").strip()[-500:]
            raise SystemExit(f"{' '.join(command)[:200]} ended with {status}: {message}")
    return Cost(float(cpu), int(memory))


def side_by_side(
    commands: dict[str, Command], rounds: int, verdicts: Sequence[str] = ("0",)
) -> dict[str, Cost]:
    """Medians over the rounds; each round runs every command once, in turn, after one round that is
    not counted.

    The package is compiled to bytecode first, as every installer does with it and with the peers.
    """
    compileall.compile_dir(str(Path(llamath.__file__).parent), quiet=1)
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for i in range(rounds + 1):
        for name, command in commands.items():
            cost = once(command, verdicts)
            if i:
                costs[name].append(cost)
    return {
        name: Cost(
            statistics.median(x.cpu for x in all_), int(statistics.median(x.memory for x in all_))
        )
        for name, all_ in costs.items()
    }


def report(title: str, costs: dict[str, Cost], against: str, rounds: int) -> dict[str, object]:
    """Print the ratios to one of the commands; return the result to store."""
    base = costs[against]
    print(
        f"\n{title} (medians of {rounds}, relative to {against!r}: {base.cpu * 1000:.1f} ms "
        f"CPU, {base.memory / 1024:.1f} MiB)"
    )
    rows = {}
    for name, cost in costs.items():
        rows[name] = {
            "cpu_ms": round(cost.cpu * 1000, 1),
            "cpu_ratio": round(cost.cpu / base.cpu, 2),
            "memory_mib": round(cost.memory / 1024, 1),
            "memory_ratio": round(cost.memory / base.memory, 2),
        }
        print(
            f"  {name:44} {cost.cpu / base.cpu:8.1f} × CPU {cost.memory / base.memory:7.2f} × "
            "memory"
        )
    return {"title": title, "rounds": rounds, "against": against, "rows": rows}


def keep(name: str, results: list[dict[str, object]]) -> None:
    """Write the results and the machine they were measured on."""
    machine = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "system": platform.system(),
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(
        json.dumps(
            {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine, "results": results},
            indent=1,
        )
        + "\n"
    )
    print(f"\nwritten: {path}", file=sys.stderr)
