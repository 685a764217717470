"""A page in Chromium for tests: one browser for a module, and tabs that note what should not happen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Tab:
    """A page in a tab that notes what should not happen: an error, a dialog of the browser's, a request."""

    def __init__(self, browser: Any, folder: Path, text: str, at: str = "", **how: Any) -> None:
        self.wrong: list[str] = []
        path = folder / "page.html"
        path.write_text(text)
        self.context = browser.new_context(viewport={"width": how.pop("width", 1100), "height": 800}, **how)
        self.context.add_init_script("globalThis.pwned = () => { throw new Error('pwned') }")
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda x: self.wrong.append(str(x)))
        self.page.on("console", lambda x: self.wrong.append(x.text) if x.type in ("error", "warning") else None)
        self.page.on("dialog", lambda x: (self.wrong.append(x.message), x.dismiss()))
        self.page.on(
            "request", lambda x: None if x.url.partition("#")[0] == path.as_uri() or x.url.startswith("blob:") else self.wrong.append(x.url)
        )
        self.page.goto(path.as_uri() + at)

    def __enter__(self) -> Any:
        return self.page

    def __exit__(self, kind: Any, *rest: Any) -> None:
        self.context.close()
        assert kind or not self.wrong, self.wrong
