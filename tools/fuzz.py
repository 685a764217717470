"""Fuzz one reader: `python tools/fuzz.py safetensors|gguf|pth|index|config --seconds N --out FILE`; `--replay FILE` runs one input.

The property: nothing but a LlamathError escapes, no input takes a second, and what is read is what the reference reads. Atheris guides
the inputs by coverage in a process of its own; without it, mutations of the seeds are drawn blindly. Findings end with exit code 1.
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
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fuzz_targets import LONGEST, TARGETS, Differs, Target

SLOW = 1.0
"""CPU seconds that no input may take."""
HANG = 20
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null|\s+|.', re.DOTALL)
_PULSE = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)/")


class Tally:
    """What has been run and found."""

    def __init__(self, target: Target) -> None:
        from llamath.core.errors import LlamathError

        self.target, self.ours = target, LlamathError
        self.executions, self.slowest = 0, 0.0
        self.outcomes: Counter[str] = Counter()
        self.findings: dict[str, dict[str, Any]] = {}

    def one(self, data: bytes) -> None:
        """Run one input."""
        self.executions += 1
        start = time.process_time()
        try:
            self.target.run(data)
            self.outcomes["read"] += 1
        except self.ours as error:
            self.outcomes[getattr(error, "code", type(error).__name__)] += 1
        except Differs as error:
            self.found("differs", str(error), data)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            self.found("escaped", f"{type(error).__name__} in {Path(last.filename).name}, line {last.lineno}: {str(error)[:200]}", data)
        took = time.process_time() - start
        self.slowest = max(self.slowest, took)
        if took > SLOW:
            self.found("slow", f"{took:.1f} s", data)

    def found(self, kind: str, what: str, data: bytes) -> None:
        """Keep the first input of each kind and place."""
        self.findings.setdefault(
            f"{kind}: {what.partition(':')[0]}", {"kind": kind, "what": what, "input": base64.b64encode(data).decode()}
        )

    def facts(self) -> dict[str, Any]:
        """For the record."""
        return {
            "executions": self.executions,
            "outcomes": dict(self.outcomes.most_common()),
            "slowest_s": round(self.slowest, 3),
            "peak_mib": _peak() >> 10,
            "findings": list(self.findings.values()),
        }


def _peak() -> int:
    """The most memory this process has had, in KiB; on Linux not by `ru_maxrss`, which begins with what the parent had."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def havoc(data: bytes, others: Sequence[bytes], words: Sequence[bytes], chance: random.Random) -> bytes:
    """Some bytes changed, lost, doubled, or taken from a word or another input."""
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
    return data[:LONGEST]


def reshape(data: bytes, words: Sequence[bytes], chance: random.Random) -> bytes | None:
    """A JSON text with some values exchanged, lost or added; None of what is none."""
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
    """Every value within a JSON value: what holds it, and where."""
    for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(item, (dict, list)):
            yield from _places(item)


def rewrite(data: bytes, words: Sequence[bytes], chance: random.Random) -> bytes:
    """Some values of a JSON text exchanged, or some of its tokens, mostly for their like, or lost, doubled or added."""
    if chance.random() < 0.5 and (made := reshape(data, words, chance)):
        return made[:LONGEST]
    tokens = _TOKEN.findall(data)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        tokens = tokens or [b"{}"]
        i = chance.randrange(len(tokens))
        word, other = chance.choice(words), chance.choice(tokens)
        if chance.random() < 0.6:
            i = next((j for j in range(i, len(tokens)) if tokens[j][0] not in b":,{}[] "), i)
            likes = [x for x in (*chance.choices(words, k=9), *chance.choices(tokens, k=9)) if (x[:1] == b'"') == (tokens[i][:1] == b'"')]
            tokens[i] = chance.choice(likes or [word])
        else:
            tokens[i : i + chance.choice([0, 1, 1, 1, 2])] = chance.choice([[word], [other], [], [word, b",", other]])
    return b"".join(tokens)[:LONGEST]


def blindly(tally: Tally, seconds: float, seed: int) -> dict[str, Any]:
    """Mutations of the seeds, without a guide."""
    chance, target = random.Random(seed), tally.target
    pool, words, end = list(target.seeds()), list(target.words()), time.monotonic() + seconds
    for data in pool:
        tally.one(data)
    while time.monotonic() < end:
        data = chance.choice(pool)
        tally.one(rewrite(data, words, chance) if target.json and chance.random() < 0.6 else havoc(data, pool, words, chance))
    return {"engine": "mutations", "corpus": len(pool), **tally.facts()}


def guided(name: str, seconds: float, seed: int) -> dict[str, Any]:
    """Atheris, in a process of its own: an input that hangs or takes too much memory ends it and is a finding."""
    target = TARGETS[name]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "corpus").mkdir()
        for i, data in enumerate(target.seeds()):
            (place / "corpus" / f"{i:05}").write_bytes(data)
        lines = ("".join(f"\\x{byte:02x}" for byte in word) for word in target.words() if 0 < len(word) <= 64)
        (place / "words").write_text("".join(f'"{line}"\n' for line in lines))
        command = [sys.executable, __file__, name, "--seconds", str(seconds), "--seed", str(seed), "--inside", folder]
        with (place / "log").open("w") as log:
            code = subprocess.run(command, stdout=log, stderr=log).returncode
        tally, log_text = place / "tally.json", (place / "log").read_text(errors="replace")
        facts: dict[str, Any] = json.loads(tally.read_text()) if tally.exists() else {"executions": 0, "findings": []}
        ends = [*place.glob("timeout-*"), *place.glob("oom-*"), *place.glob("crash-*")]
        for path in ends:
            facts["findings"].append(
                {"kind": path.name.partition("-")[0], "what": "", "input": base64.b64encode(path.read_bytes()).decode()}
            )
        if code and not ends:
            facts["findings"].append({"kind": "died", "what": f"exit code {code}: {log_text[-3000:]}", "input": ""})
        pulse = _PULSE.findall(log_text)[-1:]
        seen = dict(zip(("coverage", "features", "corpus"), map(int, pulse[0]), strict=True)) if pulse else {}
        return {"engine": "atheris", "exit": code, **seen, **facts}


def inside(name: str, seconds: float, seed: int, place: Path) -> None:
    """The process in which atheris runs; it ends when the time is over."""
    import os

    import atheris

    target = TARGETS[name]
    with atheris.instrument_imports(include=list(target.modules)):
        for module in target.modules:
            import_module(module)
    tally, end = Tally(target), time.monotonic() + seconds
    words, saved = list(target.words()), time.monotonic()

    def one(data: bytes) -> None:
        nonlocal saved
        tally.one(data)
        now = time.monotonic()
        if now > end or now > saved + 5:
            saved = now
            (place / "tally.json").write_text(json.dumps(tally.facts()))
        if now > end:
            os._exit(0)

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        made = rewrite(data, words, chance) if target.json and chance.random() < 0.5 else atheris.Mutate(data, most)
        return bytes(made[:most])

    options = [
        f"-dict={place}/words",
        f"-artifact_prefix={place}/",
        f"-timeout={HANG}",
        "-rss_limit_mb=2048",
        f"-max_len={LONGEST}",
        f"-seed={seed}",
    ]
    atheris.Setup([sys.argv[0], str(place / "corpus"), *options], one, custom_mutator=mutated)
    (place / "tally.json").write_text(json.dumps(tally.facts()))
    atheris.Fuzz()


def confirmed(name: str, finding: dict[str, Any]) -> bool:
    """Whether an input that was slow while it was watched is slow without that, too; anything else is believed."""
    if finding["kind"] != "slow":
        return True
    with tempfile.NamedTemporaryFile() as file:
        file.write(base64.b64decode(finding["input"]))
        file.flush()
        return subprocess.run([sys.executable, __file__, name, "--replay", file.name], capture_output=True).returncode != 0


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Of Python and of what took part."""
    found = {"python": platform.python_version()}
    for package in ("llamath", "atheris", *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="fuzz one reader")
    parser.add_argument("reader", choices=TARGETS)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()) & 0xFFFFFFF)
    parser.add_argument("--out", type=Path, help="where to write the result, as JSON")
    parser.add_argument("--blind", action="store_true", help="without atheris, even where it is installed")
    parser.add_argument("--replay", type=Path, help="run the one input in this file")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    said = parser.parse_args(arguments)
    if said.inside:
        inside(said.reader, said.seconds, said.seed, said.inside)
    target = TARGETS[said.reader]
    if said.replay:
        tally = Tally(target)
        tally.one(said.replay.read_bytes())
        print(json.dumps(tally.facts(), indent=1))
        return bool(tally.findings)
    start = time.monotonic()
    guide = not said.blind and find_spec("atheris") is not None
    facts = guided(said.reader, said.seconds, said.seed) if guide else blindly(Tally(target), said.seconds, said.seed)
    facts["findings"] = [x for x in facts["findings"] if confirmed(said.reader, x)]
    took = round(time.monotonic() - start, 1)
    head = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "reader": said.reader, "seed": said.seed, "seconds": took}
    result = {**head, "versions": versions(target.packages), **facts}
    if said.out:
        said.out.parent.mkdir(parents=True, exist_ok=True)
        said.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{said.reader}: {facts['executions']:,} executions in {took:g} s with {facts['engine']}, {len(facts['findings'])} findings")
    for finding in facts["findings"]:
        print(f"  {finding['kind']}: {finding['what']}\n    {finding['input'][:400]}")
    return bool(facts["findings"])


if __name__ == "__main__":
    sys.exit(main())
