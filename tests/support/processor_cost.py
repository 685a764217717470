"""A pytest plugin that keeps the processor time of each test: `-p support.processor_cost`, with the file in `LLAMATH_TEST_COST`.

Time of child processes counts for the test in which they end. A busy machine changes processor time little, seconds much.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest


def _processor_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Append a line for each test: its name, and its processor time and seconds, fixtures included."""
    before, start = _processor_seconds(), time.perf_counter()
    result = yield
    line = json.dumps(
        [
            item.nodeid,
            round(_processor_seconds() - before, 4),
            round(time.perf_counter() - start, 4),
        ]
    )
    with open(os.environ["LLAMATH_TEST_COST"], "a", encoding="utf-8") as file:
        file.write(line + "\n")
    return result
