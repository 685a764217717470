"""The example in CONTRIBUTING.md is the code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_example_of_a_block_is_the_code() -> None:
    (diff,) = re.findall(r"```diff\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    parts = diff.split("--- ")[1:]
    assert len(parts) == 5
    for part in parts:
        name, *lines = part.splitlines()
        code = (ROOT / name).read_text().splitlines()
        assert [x[1:] for x in lines if x[1:] not in code] == [], name
