"""The browser of the page's tests ends before a module that does not use it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.browser_page import close_browser


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Close the browser when the next test is of a module without one."""
    result = yield
    if not hasattr(getattr(nextitem, "module", None), "browser"):
        close_browser()
    return result
