"""The browser of the page's tests ends before a module that does not use it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.browser_page import close_browser, forget_pages


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any) -> Iterator[None]:
    """Keep whether the test failed."""
    report = yield
    item.has_failed = report.failed or getattr(item, "has_failed", False)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: Any, nextitem: Any) -> Iterator[None]:
    """Throw pages away after a failure, and close the browser before a module without one."""
    result = yield
    if getattr(item, "has_failed", False):
        forget_pages()
    if not hasattr(getattr(nextitem, "module", None), "browser"):
        close_browser()
    return result
