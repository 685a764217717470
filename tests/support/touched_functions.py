"""A pytest plugin that keeps which tests call which functions of the package: `-p
support.touched_functions`, with a folder in `LLAMATH_TEST_MAP`. `tools/mutants.py` reads it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import llamath

SOURCE = str(Path(llamath.__file__).parent) + os.sep
MOST = 6
"""The most tests that are kept of one test function for one function of the package: the cheapest."""


class TouchedFunctions:
    """The tests that called each function of the package, in this process."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, list[tuple[float, str]]]] = {}
        self._seen: dict[int, CodeType] = {}

    def _called(self, frame: FrameType, *_: Any) -> None:
        code = frame.f_code
        if id(code) not in self._seen:
            self._seen[id(code)] = code

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note the functions that are called while a test runs, in its threads as well."""
        self._seen, start = {}, time.process_time()
        sys.settrace(self._called)
        threading.settrace(self._called)
        try:
            result = yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
        seconds = round(time.process_time() - start, 3)
        test, _, _ = item.nodeid.partition("[")
        for code in self._seen.values():
            if code.co_filename.startswith(SOURCE):
                place = f"{code.co_filename.removeprefix(SOURCE)}:{code.co_firstlineno}"
                tests = self.found.setdefault(place, {}).setdefault(test, [])
                tests.append((seconds, item.nodeid))
                if len(tests) > MOST:
                    tests.remove(max(tests))
        return result

    def pytest_sessionfinish(self) -> None:
        """Write what was found into a file of this process."""
        if self.found:
            path = Path(os.environ["LLAMATH_TEST_MAP"]) / f"{os.getpid()}.json"
            path.write_text(json.dumps(self.found), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Begin in each process that runs tests."""
    config.pluginmanager.register(TouchedFunctions())
