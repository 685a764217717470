"""The page in Chromium for tests: one browser per module, and tabs that record errors, dialogs and requests."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE_TEST_FUNCTIONS = """globalThis.pageTest = {
  design(index, sizes) {
    const { design: one } = llamath.data.models[index];
    const { form, active, groups, total, live, ...rest } = llamath.evaluateDesign(one, llamath.decodeSizes(one, sizes));
    return { ...rest, total: total.toString(), live: live.toString(), groups: groups.map((x) => x.n.toString()) };
  },
  async file(bytes, name) {
    const { data, isConfig, readConfig, readHeader, indexFormats, FileError } = llamath;
    const file = new File([bytes], name);
    try {
      if (isConfig(file)) return await readConfig(file, data);
      const { tensors } = await readHeader(file, indexFormats(data.files));
      return { tensors: tensors.map((x) => [x.name, x.dtype, ...[x.elements, x.bytes, ...x.shape].map(String)]) };
    } catch (error) {
      return { wrong: error instanceof FileError ? error.message : `?${error}` };
    }
  },
  quantity(text, total) {
    const found = llamath.parseCount(text);
    return found && [found.toString(), llamath.formatPpm(BigInt(total), found)];
  },
  evaluate: (expression, at) => llamath.value(expression, Object.fromEntries(Object.entries(at).map(([name, n]) => [name, BigInt(n)]))).toString(),
  set: (index, at) => llamath.settings(llamath.data.models[index], { ...llamath.state, tp: "", ...at }),
  memory(index, at) {
    const set = pageTest.set(index, at);
    const { mostLoaded } = llamath.memoryPerGpu(set);
    return Object.fromEntries([...set.plan.parts, "total"].map((x) => [x, mostLoaded.values[x].toString()]));
  },
  speed(index, at, gpu) {
    const { data } = llamath;
    const found = llamath.speedLimits(pageTest.set(index, at), data.gpus.find((x) => x.name === gpu), data.roof);
    return Object.fromEntries(found.passes.map((x) => [x.name, [...["tokens", "bytes", "FLOPs", "rate"].map((y) => String(x.values[y])), x.bound]]));
  },
};"""
"""Functions of the page that tests call; they return strings: a design, a file header, memory and speed of the most loaded GPU."""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
HANG_MS = 120_000
NO_CHROMIUM = "Chromium is not installed (as root, `make browser` installs it)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=HANG_MS
        )
        yield chromium
        chromium.close()


def page_data(text: str) -> dict[str, Any]:
    """Return the data of a page."""
    found = re.search('id="data">([^<]*)</script>', text)
    assert found is not None
    data: dict[str, Any] = json.loads(zlib.decompress(b64decode(found[1])))
    return data


def new_context(browser: Any, **how: Any) -> Any:
    """Open a browser context whose actions may take as long as a busy machine needs."""
    context = browser.new_context(**how)
    context.set_default_timeout(HANG_MS)
    return context


UNTIL_WHOLE = """new Promise((done) => {
  const look = () => (document.querySelector("#page[data-busy]") ? setTimeout(look) : done());
  look();
})"""
"""Waits until the page has drawn all of its sections."""
UNTIL_DRAWN = (
    "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done))))"
    f".then(() => {UNTIL_WHOLE})"
)


def visit(tab: Any, address: str) -> None:
    """Open a page and wait until all of it is drawn."""
    tab.goto(address)
    tab.evaluate(UNTIL_WHOLE)


def wait_until_drawn(tab: Any) -> None:
    """Wait for the frames in which the page draws a change and writes its address, and for what it draws later."""
    tab.evaluate(UNTIL_DRAWN)


def shown_text(tab: Any, selector: str) -> str:
    """Return the text of a number without its label for screen readers."""
    text = "x => [...x.childNodes].filter(y => !y.classList?.contains('hidden')).map(y => y.textContent).join('')"
    return str(tab.locator(selector).first.evaluate(text))


class Tab:
    """A page in a tab that records errors, browser dialogs and network requests."""

    def __init__(self, browser: Any, folder: Path, text: str, at: str = "", **how: Any) -> None:
        self.wrong: list[str] = []
        path = folder / "page.html"
        path.write_text(text)
        self.context = new_context(
            browser, viewport={"width": how.pop("width", 1100), "height": 800}, **how
        )
        self.context.add_init_script("globalThis.pwned = () => { throw new Error('pwned') }")
        self.context.add_init_script(PAGE_TEST_FUNCTIONS)
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda x: self.wrong.append(str(x)))
        self.page.on(
            "console",
            lambda x: self.wrong.append(x.text) if x.type in ("error", "warning") else None,
        )
        self.page.on("dialog", lambda x: (self.wrong.append(x.message), x.dismiss()))
        self.page.on(
            "request",
            lambda x: (
                None
                if x.url.partition("#")[0] == path.as_uri() or x.url.startswith("blob:")
                else self.wrong.append(x.url)
            ),
        )
        visit(self.page, path.as_uri() + at)

    def __enter__(self) -> Any:
        return self.page

    def __exit__(self, kind: Any, *rest: Any) -> None:
        self.context.close()
        assert kind or not self.wrong, self.wrong
