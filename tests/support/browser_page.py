"""The page in Chromium for tests: one browser, and tabs that record errors, dialogs and requests."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from .chromium import CHROMIUM, HANG_MS, NO_CHROMIUM, launch_chromium

PAGE_TEST_FUNCTIONS = """(() => {
globalThis.pwned = () => { throw new Error("pwned"); };
globalThis.scheduled = new Set();
const noting = (name, end, isNoted) => {
  const [schedule, cancel] = [globalThis[name], globalThis[end]];
  globalThis[name] = (act, ...rest) => {
    if (!isNoted(act, ...rest)) return schedule(act, ...rest);
    const id = schedule((...given) => { scheduled.delete(name + id); act(...given); }, ...rest);
    scheduled.add(name + id);
    return id;
  };
  globalThis[end] = (id) => { scheduled.delete(name + id); cancel(id); };
};
noting("requestAnimationFrame", "cancelAnimationFrame", () => true);
noting("setTimeout", "clearTimeout", (act, delay) => typeof act === "function" && !delay);
globalThis.pageTest = {
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
  set: (index, at) => llamath.settings(llamath.data.models[index], llamath.stateWith({ tp: "", ...at })),
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
};
})();"""
"""What hostile text would call, what the page has scheduled for the next frame or task, and functions of the page that tests call; they
return strings: a design, a file header, memory and speed of the most loaded GPU."""
EMPTY = "about:blank"
NARROW = 390
"""The width for tests that call functions of a page: it draws half as much."""
USUAL_MEDIA = {"color_scheme": "light", "reduced_motion": "no-preference"}


_running: list[Any] = []
"""The driver, and the browser that modules share which are run one after another."""
_free: dict[Any, list[Any]] = {}
"""Empty pages that tests have left, of each kind of context: loading into a new one costs thrice as much."""


@pytest.fixture(scope="module")
def browser() -> Any:
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    if not _running:
        from playwright.sync_api import sync_playwright

        _running.append(sync_playwright().start())
        _running.append(launch_chromium(_running[0], "--js-flags=--single-threaded"))
    return _running[1]


def forget_pages() -> None:
    """Close the pages that tests have left."""
    for page in chain.from_iterable(_free.values()):
        page.context.close()
    _free.clear()


def close_browser() -> None:
    """End the browser, whose driver has an event loop: `asyncio.run` fails beside it."""
    _free.clear()
    if len(_running) > 1:
        _running[1].close()
    if _running:
        _running[0].stop()
    _running.clear()


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


UNTIL_WHOLE = f"""new Promise((done, fail) => {{
  const start = performance.now();
  const look = () => {{
    if (!document.querySelector("#page[data-busy]")) done();
    else if (performance.now() - start > {HANG_MS}) fail(new Error("the page is never whole"));
    else setTimeout(look);
  }};
  look();
}})"""
"""Waits until the page has drawn all of its sections; one that failed does not draw them at all."""
FRAMES = """async () => {
  for (let i = 0; i < 3; i++) {
    await new Promise((done) => { requestAnimationFrame(done); setTimeout(done, 20_000); });
    await new Promise((done) => { setTimeout(() => setTimeout(done)); });
    if (globalThis.scheduled?.size === 0) return;
  }
}"""
"""Waits for a frame, and for up to two more if the page has something to do in them. On a busy machine Chromium may draw no more of a window
whose size has changed; then it goes on."""
UNTIL_DRAWN = f"() => ({FRAMES})().then(() => {UNTIL_WHOLE})"


UNFOLD = f"""async () => {{
  document.querySelectorAll("main .unfold").forEach((x) => x.click());
  document.querySelectorAll("main details.folded").forEach((x) => (x.open = true));
  document.activeElement.blur();
  await {UNTIL_WHOLE};
}}"""
"""Shows every part of which the page first shows the finding alone."""


def visit(tab: Any, address: str) -> None:
    """Open a page and wait until all of it is drawn."""
    tab.goto(address)
    tab.evaluate(UNTIL_WHOLE)


def wait_until_drawn(tab: Any) -> None:
    """Wait for the frames in which the page draws a change and writes its address, and for what it draws later."""
    tab.evaluate(UNTIL_DRAWN)


def go_to(tab: Any, at: str) -> None:
    """Open another state of the page that is open, once the entry of a closed dialog is left."""
    tab.evaluate(
        """async (at) => {
          while (history.state === "dialog" && !document.querySelector("dialog[open]")) {
            await new Promise((done) => setTimeout(done, 5));
          }
          location.hash = at;
        }""",
        at,
    )
    wait_until_drawn(tab)


PRESS = """([selector, index]) => [...document.querySelectorAll(selector)].filter((x) => x.checkVisibility())[index].click()"""


def press(tab: Any, selector: str, index: int = 0) -> None:
    """Click a visible element by its own method: that costs a fraction of what a pointer does."""
    tab.evaluate(PRESS, [selector, index])


def at_widths(tab: Any, *widths: int) -> Iterator[int]:
    """Give the window each width, one after the other."""
    for width in widths:
        tab.set_viewport_size({"width": width, "height": 800})
        wait_until_drawn(tab)
        yield width


def shown_text(tab: Any, selector: str) -> str:
    """Return the text of a number without its label for screen readers."""
    text = "x => [...x.childNodes].filter(y => !y.classList?.contains('hidden')).map(y => y.textContent).join('')"
    return str(tab.locator(selector).first.evaluate(text))


@contextmanager
def lent_page(
    browser: Any, width: int, height: int, scripts: Sequence[str] = (), **how: Any
) -> Iterator[Any]:
    """Lend an empty page of a context with these scripts and options, which earlier tests may have used.

    A page whose test fails is thrown away. A test may change the size and the media of the page; more it changes back.
    """
    media = {x: how.pop(x, default) for x, default in USUAL_MEDIA.items()}
    free = _free.setdefault((*scripts, *sorted(how.items())), [])
    size = {"width": width, "height": height}
    if free:
        page = free.pop()
        page.set_viewport_size(size)
    else:
        context = new_context(browser, viewport=size, **how)
        for script in (PAGE_TEST_FUNCTIONS, *scripts):
            context.add_init_script(script)
        page = context.new_page()
    if media != USUAL_MEDIA:
        page.emulate_media(**media)
    try:
        yield page
    except Exception:
        page.context.close()
        raise
    for other in page.context.pages:
        if other != page:
            other.close()
    page.goto(EMPTY)
    page.emulate_media(media="null", **USUAL_MEDIA)
    page.mouse.move(-1, -1)
    free.append(page)


def computed(tab: Any, function: str, *values: Any) -> Any:
    """Return what a function in JavaScript makes of data, which go to and fro as JSON: playwright looks through each value by itself."""
    texts = [json.dumps(x) for x in values]
    given = "...texts.map((x) => JSON.parse(x))"
    made = tab.evaluate(f"async (texts) => JSON.stringify(await ({function})({given}))", texts)
    return json.loads(made)


def shown_config(tab: Any) -> str:
    """Return the config.json of an edit, or of Design."""
    if tab.locator("#config-text").count():
        return str(tab.input_value("#config-text"))
    return str(tab.text_content("pre[aria-label='config.json']"))


class Tab:
    """A page in a tab that records errors, browser dialogs and network requests.

    All parts are shown, so that tests of numbers find them, but for tests of how the page begins.
    """

    def __init__(self, browser: Any, folder: Path, text: str, at: str = "", **how: Any) -> None:
        self.wrong: list[str] = []
        path = folder / "page.html"
        path.write_text(text)
        unfold = how.pop("unfold", True)
        self.lent = lent_page(browser, how.pop("width", 1100), 800, **how)
        self.page = self.lent.__enter__()
        self.context = self.page.context
        known = (path.as_uri(), EMPTY)
        self.listeners = {
            "pageerror": lambda x: self.wrong.append(str(x)),
            "console": lambda x: (
                self.wrong.append(x.text) if x.type in ("error", "warning") else None
            ),
            "dialog": lambda x: (self.wrong.append(x.message), x.dismiss()),
            "request": lambda x: (
                None
                if x.url.partition("#")[0] in known or x.url.startswith("blob:")
                else self.wrong.append(x.url)
            ),
        }
        for event, listener in self.listeners.items():
            self.page.on(event, listener)
        visit(self.page, path.as_uri() + at)
        if unfold:
            self.page.evaluate(UNFOLD)

    def __enter__(self) -> Any:
        return self.page

    def __exit__(self, kind: Any, *rest: Any) -> None:
        self.lent.__exit__(kind, *rest)
        for event, listener in self.listeners.items():
            self.page.remove_listener(event, listener)
        assert kind or not self.wrong, self.wrong
