"""A few seconds of `tools/fuzz.py` for every reader; long runs are `make fuzz` and `bench/results/fuzz-*.json`."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

import fuzz
from fuzz_targets import TARGETS, Target
from llamath.core.errors import FormatError

pytest.importorskip("safetensors")


@pytest.mark.parametrize("reader", TARGETS)
def test_nothing_is_found_in_a_few_seconds(reader: str, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    command = [sys.executable, fuzz.__file__, reader, "--seconds", "3", "--seed", "1", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    assert result["findings"] == [] and result["executions"] > 200 and result["outcomes"]["read"] > 0


@pytest.mark.parametrize("reader", TARGETS)
def test_blind_mutations_find_nothing_either(reader: str) -> None:
    facts = fuzz.blindly(fuzz.Tally(TARGETS[reader]), 0.5, 1)
    assert facts["findings"] == [] and facts["engine"] == "mutations" and facts["executions"] > len(list(TARGETS[reader].seeds()))


def test_what_should_be_found_is_found() -> None:
    """A reader with three faults: it lets an error escape, dawdles, and contradicts the reference."""

    def run(data: bytes) -> object:
        if data.startswith(b"k"):
            raise KeyError(data[1:])
        if data.startswith(b"d"):
            raise fuzz.Differs("the reference refuses")
        if data.startswith(b"s"):
            end = fuzz.time.process_time() + 1.1
            while fuzz.time.process_time() < end:
                pass
        raise FormatError("ours", "refused")

    tally = fuzz.Tally(Target((), lambda: iter([b"x"]), lambda: [b"k"], run))
    for data in (b"x", b"k1", b"k2", b"d", b"s"):
        tally.one(data)
    assert [x["kind"] for x in tally.findings.values()] == ["escaped", "differs", "slow"]
    assert "KeyError in test_fuzz.py" in str(tally.facts()["findings"][0]["what"]) and tally.outcomes == {"ours": 2}


def test_mutations_stay_short_and_differ() -> None:
    chance, words = random.Random(1), [b'"a"', b"1", b"null", b"{"]
    text = b'{"a": [1, 2.5, -3e4], "b": {"c": null, "d": true}}'
    for made in (
        {fuzz.rewrite(text, words, chance) for _ in range(300)},
        {fuzz.havoc(text, [text, b""], words, chance) for _ in range(300)},
    ):
        assert len(made) > 120
    assert len(fuzz.havoc(bytes(9000), [bytes(9000)], words, chance)) <= fuzz.LONGEST
    assert fuzz.rewrite(b"", words, chance) is not None
