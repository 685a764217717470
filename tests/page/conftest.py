"""The page's tests share data of models, and a browser that ends before a module without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.browser_page import close_browser, forget_pages
from support.page_models import made_once


@pytest.fixture(scope="module", autouse=True)
def _data_made_once() -> Iterator[None]:
    with made_once():
        yield


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
