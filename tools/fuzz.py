"""Fuzz one reader: `python tools/fuzz.py READER [--seconds N | --runs N]`; `--replay FILE` runs one
input.

A finding is any exception other than LlamathError, an input that takes longer than `--slow` CPU
seconds, or a result that differs from the reference reader's. Atheris guides the inputs by coverage
in a subprocess; where it is not installed, seeds are mutated at random. With findings, the exit
code is 1.
"""

from __future__ import annotations

import argparse
import base64
import json
import platform
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from fuzz_targets import MAX_BYTES, TARGETS, Differs, Target

SLOW_S = 1.0
"""CPU seconds after which an input counts as slow."""
HANG_S = 60
"""Seconds after which atheris ends an input."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null|\s+|.', re.DOTALL)
_PULSE = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)/")


class Budget(NamedTuple):
    """How long to fuzz: for some time, or for a number of mutated inputs."""

    seconds: float = 20
    runs: int | None = None

    def is_spent(self, runs: int, start: float) -> bool:
        """Whether fuzzing should end after this many inputs."""
        return (
            runs >= self.runs if self.runs is not None else time.monotonic() - start >= self.seconds
        )


class FuzzRun:
    """Runs inputs and records their outcomes."""

    def __init__(
        self,
        target: Target,
        slow: float = SLOW_S,
        clock: Callable[[], float] = time.process_time,
        wall_clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        from llamath.utils.errors import LlamathError

        self.target, self.own_error, self.slow, self.clock, self.wall_clock = (
            target,
            LlamathError,
            slow,
            clock,
            wall_clock,
        )
        self.executions, self.slowest = 0, 0.0
        self.outcomes: Counter[str] = Counter()
        self.findings: dict[str, dict[str, Any]] = {}

    def run_input(self, data: bytes) -> None:
        """Run one input.

        Reading the CPU clock can cost more than a short input, so only an input that takes longer
        than the slowest is run again for it.
        """
        self.executions += 1
        start = self.wall_clock()
        outcome = self._outcome(data)
        if outcome is not None:
            self.outcomes[outcome] += 1
        if self.wall_clock() - start > self.slowest:
            start = self.clock()
            self._outcome(data)
            took = self.clock() - start
            self.slowest = max(self.slowest, took)
            if took > self.slow:
                self.record("slow", f"{took:.1f} s", data)

    def _outcome(self, data: bytes) -> str | None:
        """Return how an input ends: read, or the code of its error; None for a finding, which is
        recorded."""
        try:
            self.target.run(data)
        except self.own_error as error:
            return str(getattr(error, "code", type(error).__name__))
        except Differs as error:
            self.record("differs", str(error), data)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            self.record(
                "escaped",
                f"{type(error).__name__} in {Path(last.filename).name}, line "
                f"{last.lineno}: {str(error)[:200]}",
                data,
            )
        else:
            return "read"
        return None

    def record(self, kind: str, what: str, data: bytes) -> None:
        """Keep the first input of each kind and place."""
        self.findings.setdefault(
            f"{kind}: {what.partition(':')[0]}",
            {"kind": kind, "what": what, "input": base64.b64encode(data).decode()},
        )

    def to_json(self) -> dict[str, Any]:
        """Return the outcomes and findings."""
        return {
            "executions": self.executions,
            "outcomes": dict(self.outcomes.most_common()),
            "slowest_s": round(self.slowest, 3),
            "peak_mib": _peak_kib() >> 10,
            "findings": list(self.findings.values()),
        }


def _peak_kib() -> int:
    """Return the peak memory of this process in KiB; on Linux not from `ru_maxrss`, which
    includes the parent's."""
    status = Path("/proc/self/status")
    result = re.search(r"VmHWM:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(result[1]) if result else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def havoc(
    data: bytes, others: Sequence[bytes], words: Sequence[bytes], chance: random.Random
) -> bytes:
    """Change, drop, double or replace some bytes, also with words and parts of other inputs."""
    for _ in range(chance.choice([1, 1, 2, 3, 5])):
        at, length = chance.randrange(len(data) + 1), chance.choice([0, 1, 1, 2, 4, 8, 30])
        other = chance.choice(others)
        start = chance.randrange(len(other) + 1)
        new = (
            chance.randbytes(length),
            chance.choice(words),
            data[at : at + length] * 2,
            b"",
            other[start : start + 4 * length],
            bytes(x ^ 1 << chance.randrange(8) for x in data[at : at + 1]),
        )
        kind = chance.randrange(len(new))
        data = data[:at] + new[kind] + data[at + (1 if kind == 5 else length) :]
    return data[:MAX_BYTES]


def reshape(data: bytes, words: Sequence[bytes], chance: random.Random) -> bytes | None:
    """Replace, drop or add some values of a JSON text; None if it is not JSON."""
    try:
        top = json.loads(data)
        places = list(_places(top))
        for _ in range(chance.choice([1, 1, 2, 3])):
            holder, key = chance.choice(places)
            try:
                new = json.loads(chance.choice(words))
            except ValueError:
                continue
            if isinstance(holder, dict) and chance.random() < 0.3:
                key = new if isinstance(new, str) else chance.choice(places)[1]
            holder[key] = new
            if chance.random() < 0.1:
                del holder[key]
        return json.dumps(top).encode()
    except (ValueError, RecursionError, LookupError, TypeError):
        return None


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every value within a JSON value as its container and key."""
    for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(item, (dict, list)):
            yield from _places(item)


def rewrite(data: bytes, words: Sequence[bytes], chance: random.Random) -> bytes:
    """Replace, drop, double or add some values or tokens of a JSON text, mostly by ones of the
    same kind."""
    if chance.random() < 0.5 and (reshaped := reshape(data, words, chance)):
        return reshaped[:MAX_BYTES]
    tokens = _TOKEN.findall(data)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        tokens = tokens or [b"{}"]
        i = chance.randrange(len(tokens))
        word, other = chance.choice(words), chance.choice(tokens)
        if chance.random() < 0.6:
            i = next((j for j in range(i, len(tokens)) if tokens[j][0] not in b":,{}[] "), i)
            likes = [
                x
                for x in (*chance.choices(words, k=9), *chance.choices(tokens, k=9))
                if (x[:1] == b'"') == (tokens[i][:1] == b'"')
            ]
            tokens[i] = chance.choice(likes or [word])
        else:
            tokens[i : i + chance.choice([0, 1, 1, 1, 2])] = chance.choice(
                [[word], [other], [], [word, b",", other]]
            )
    return b"".join(tokens)[:MAX_BYTES]


def fuzz_with_mutations(run: FuzzRun, budget: Budget, seed: int) -> dict[str, Any]:
    """Run all seeds, then random mutations of them."""
    chance, target = random.Random(seed), run.target
    pool, words, start = list(target.seeds()), list(target.words()), time.monotonic()
    for data in pool:
        run.run_input(data)
    while not budget.is_spent(run.executions - len(pool), start):
        data = chance.choice(pool)
        run.run_input(
            rewrite(data, words, chance)
            if target.json and chance.random() < 0.6
            else havoc(data, pool, words, chance)
        )
    return {"engine": "mutations", "corpus": len(pool), **run.to_json()}


def fuzz_with_atheris(name: str, budget: Budget, seed: int, slow: float) -> dict[str, Any]:
    """Run atheris in a subprocess, which an input that hangs or takes too much memory ends; that
    is a finding."""
    target = TARGETS[name]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "corpus").mkdir()
        for i, data in enumerate(target.seeds()):
            (place / "corpus" / f"{i:05}").write_bytes(data)
        lines = (
            "".join(f"\\x{byte:02x}" for byte in word)
            for word in target.words()
            if 0 < len(word) <= 64
        )
        (place / "words").write_text("".join(f'"{line}"\n' for line in lines))
        limits = (
            ["--seconds", str(budget.seconds)]
            if budget.runs is None
            else ["--runs", str(budget.runs)]
        )
        command = [
            sys.executable,
            __file__,
            name,
            *limits,
            "--seed",
            str(seed),
            "--slow",
            str(slow),
            "--inside",
            folder,
        ]
        with (place / "log").open("w") as log:
            code = subprocess.run(command, stdout=log, stderr=log).returncode
        result, log_text = place / "result.json", (place / "log").read_text(errors="replace")
        facts: dict[str, Any] = (
            json.loads(result.read_text()) if result.exists() else {"executions": 0, "findings": []}
        )
        ends = [*place.glob("timeout-*"), *place.glob("oom-*"), *place.glob("crash-*")]
        for path in ends:
            facts["findings"].append(
                {
                    "kind": path.name.partition("-")[0],
                    "what": "",
                    "input": base64.b64encode(path.read_bytes()).decode(),
                }
            )
        if code and not ends:
            facts["findings"].append(
                {"kind": "died", "what": f"exit code {code}: {log_text[-3000:]}", "input": ""}
            )
        pulse = _PULSE.findall(log_text)[-1:]
        seen = (
            dict(zip(("coverage", "features", "corpus"), map(int, pulse[0]), strict=True))
            if pulse
            else {}
        )
        return {"engine": "atheris", "exit": code, **seen, **facts}


def run_atheris(name: str, budget: Budget, seed: int, slow: float, place: Path) -> None:
    """Run atheris in this process and end the process when the budget is spent."""
    import os

    import atheris

    target = TARGETS[name]
    with atheris.instrument_imports(include=list(target.modules)):
        for module in target.modules:
            import_module(module)
    run, start = FuzzRun(target, slow), time.monotonic()
    words, saved = list(target.words()), start

    def run_input(data: bytes) -> None:
        nonlocal saved
        run.run_input(data)
        is_done = budget.is_spent(run.executions, start)
        if is_done or time.monotonic() > saved + 5:
            saved = time.monotonic()
            (place / "result.json").write_text(json.dumps(run.to_json()))
        if is_done:
            os._exit(0)

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        result = (
            rewrite(data, words, chance)
            if target.json and chance.random() < 0.5
            else atheris.Mutate(data, most)
        )
        return bytes(result[:most])

    options = [
        f"-dict={place}/words",
        f"-artifact_prefix={place}/",
        f"-timeout={HANG_S}",
        "-rss_limit_mb=2048",
        f"-max_len={MAX_BYTES}",
        f"-seed={seed}",
    ]
    atheris.Setup([sys.argv[0], str(place / "corpus"), *options], run_input, custom_mutator=mutated)
    (place / "result.json").write_text(json.dumps(run.to_json()))
    atheris.Fuzz()


def is_reproducible(name: str, finding: dict[str, Any], slow: float) -> bool:
    """Whether an input that was slow under instrumentation is also slow without it; other
    findings need no confirmation."""
    if finding["kind"] != "slow":
        return True
    with tempfile.NamedTemporaryFile() as file:
        file.write(base64.b64decode(finding["input"]))
        file.flush()
        return (
            subprocess.run(
                [sys.executable, __file__, name, "--slow", str(slow), "--replay", file.name],
                capture_output=True,
            ).returncode
            != 0
        )


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of Python and of the packages used."""
    versions_ = {"python": platform.python_version()}
    for package in ("llamath", "atheris", *packages):
        try:
            versions_[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions_


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="fuzz one reader")
    parser.add_argument("reader", choices=TARGETS)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=float, default=20, help="how long to fuzz (default: 20)")
    length.add_argument("--runs", type=int, help="number of inputs to run instead")
    parser.add_argument(
        "--slow",
        type=float,
        default=SLOW_S,
        help="CPU seconds after which an input is a finding (default: 1)",
    )
    parser.add_argument(
        "--seed", type=int, default=int(time.time()) & 0xFFFFFFF, help="random seed"
    )
    parser.add_argument("--out", type=Path, help="write the result to this JSON file")
    parser.add_argument("--blind", action="store_true", help="do not use atheris")
    parser.add_argument("--replay", type=Path, help="run the input in this file")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    budget = Budget(options.seconds, options.runs)
    if options.inside:
        run_atheris(options.reader, budget, options.seed, options.slow, options.inside)
    run = FuzzRun(TARGETS[options.reader], options.slow)
    if options.replay:
        run.run_input(options.replay.read_bytes())
        print(json.dumps(run.to_json(), indent=1))
        return bool(run.findings)
    start = time.monotonic()
    if not options.blind and find_spec("atheris") is not None:
        facts = fuzz_with_atheris(options.reader, budget, options.seed, options.slow)
    else:
        facts = fuzz_with_mutations(run, budget, options.seed)
    facts["findings"] = [
        x for x in facts["findings"] if is_reproducible(options.reader, x, options.slow)
    ]
    took = round(time.monotonic() - start, 1)
    head = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "reader": options.reader,
        "seed": options.seed,
        "seconds": took,
    }
    result = {**head, "versions": versions(run.target.packages), **facts}
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"{options.reader}: {facts['executions']:,} executions in {took:g} s with "
        f"{facts['engine']}, {len(facts['findings'])} findings"
    )
    for finding in facts["findings"]:
        print(f"  {finding['kind']}: {finding['what']}\n    {finding['input'][:400]}")
    return bool(facts["findings"])


if __name__ == "__main__":
    sys.exit(main())
