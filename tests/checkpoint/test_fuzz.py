"""Each reader survives a fixed number of fuzzed inputs; longer runs are `make fuzz` and `bench/results/fuzz-*.json`."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

import fuzz
from fuzz_targets import TARGETS, Target
from llamath.utils.errors import FormatError

pytest.importorskip("safetensors")


RUNS, MUTATIONS = 500, 250
"""Inputs of each reader, guided by coverage and not; forty and eight times as many with `--all`."""
SLOW_S = 30
"""CPU seconds that only a hang takes, on any machine."""


@pytest.mark.parametrize("reader", TARGETS)
def test_fuzzing_finds_nothing(reader: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    runs = RUNS * (40 if request.config.getoption("all") else 1)
    out = tmp_path / "result.json"
    command = [
        sys.executable,
        fuzz.__file__,
        reader,
        "--runs",
        str(runs),
        "--slow",
        str(SLOW_S),
        "--seed",
        "1",
        "--out",
        str(out),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    assert (
        result["findings"] == [] and result["executions"] >= runs and result["outcomes"]["read"] > 0
    )


@pytest.mark.parametrize("reader", TARGETS)
def test_random_mutations_find_nothing(reader: str, request: pytest.FixtureRequest) -> None:
    runs = MUTATIONS * (8 if request.config.getoption("all") else 1)
    run = fuzz.FuzzRun(TARGETS[reader], SLOW_S)
    result = fuzz.fuzz_with_mutations(run, fuzz.Budget(runs=runs), seed=2)
    assert result["findings"] == [] and result["engine"] == "mutations"
    assert result["executions"] == runs + len(list(TARGETS[reader].seeds()))


def test_faults_of_a_reader_are_found() -> None:
    now = [0.0]

    def read(data: bytes) -> object:
        if data.startswith(b"k"):
            raise KeyError(data[1:])
        if data.startswith(b"d"):
            raise fuzz.Differs("the reference refuses")
        if data.startswith(b"s"):
            now[0] += 0.6
        raise FormatError("own_code", "refused")

    run = fuzz.FuzzRun(
        Target((), lambda: iter([b"x"]), lambda: [b"k"], read),
        slow=0.5,
        clock=lambda: now[0],
        wall_clock=lambda: now[0],
    )
    for data in (b"x", b"k1", b"k2", b"d", b"s"):
        run.run_input(data)
    assert [x["kind"] for x in run.findings.values()] == ["escaped", "differs", "slow"]
    assert "KeyError in test_fuzz.py" in str(
        run.to_json()["findings"][0]["what"]
    ) and run.outcomes == {"own_code": 2}


def test_mutations_stay_short_and_differ() -> None:
    chance, words = random.Random(1), [b'"a"', b"1", b"null", b"{"]
    text = b'{"a": [1, 2.5, -3e4], "b": {"c": null, "d": true}}'
    for mutants in (
        {fuzz.rewrite(text, words, chance) for _ in range(300)},
        {fuzz.havoc(text, [text, b""], words, chance) for _ in range(300)},
    ):
        assert len(mutants) > 120
    assert len(fuzz.havoc(bytes(9000), [bytes(9000)], words, chance)) <= fuzz.MAX_BYTES
    assert fuzz.rewrite(b"", words, chance) is not None
