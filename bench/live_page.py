"""The bundled model in its page, in Chromium and Firefox: time until its numbers are there, tokens
a second beside the native engine, and time of a keystroke."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from harness import keep
from llamath.native.native_session import NativeLlama
from llamath.web.page_data.checkpoint_data import load_with_checkpoint
from llamath.web.page_data.live.live_data import bundled_live_parts
from llamath.web.server.page_html import model_page

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.chromium import launch_chromium
from support.firefox import Firefox

ROUNDS, TOKENS = 7, 100
WHOLE = """new Promise((done) => {
  const look = () => (document.querySelector("#page[data-busy]") ? setTimeout(look) : done());
  look();
})"""
READY = "performance.getEntriesByName('live')[0].startTime"
DECODE = f"""(async () => {{
  const model = await llamathLive.open(llamath.data.models[0].live);
  const greedy = {{ temperature: 0, topP: 1 }};
  model.run([0]);
  const rate = () => {{
    const start = performance.now();
    for (let i = 0; i < {TOKENS}; i++) model.run([model.choose(greedy, 0)]);
    const spent = performance.now() - start;
    model.truncate(1);
    model.run([5]);
    return {TOKENS} / spent * 1000;
  }};
  rate();
  return Math.max(rate(), rate(), rate());
}})()"""
"""Tokens a second, one after the other: of the second to fourth {TOKENS}, when the module is
compiled."""
KEYSTROKE = """(async () => {
  const field = document.querySelector("#live-text");
  const set = Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, "value").set;
  const times = [];
  for (let i = 0; i < 40; i++) {
    const start = performance.now();
    set.call(field, `Ben was in the park. He had a red ball. Who has the ${"abcdefghij"[i % 10]}`);
    field.dispatchEvent(new Event("input", { bubbles: true }));
    await Promise.resolve();
    document.body.getBoundingClientRect();
    times.push(performance.now() - start);
    await new Promise(requestAnimationFrame);
  }
  times.sort((a, b) => a - b);
  return [times[20], times[38]];
})()"""
"""The median and the 95th percentile of 40 keystrokes: reading, and drawing what has changed."""


def native_rate() -> float:
    """Tokens a second of the native engine in float32 with `llamath run`'s loop around it."""
    llama = NativeLlama.open(dtype="fp32")
    prompt = "Tell me a story about Anna and a kite."
    return max(llama.generate([prompt], max_tokens=TOKENS)[0].tokens_per_second for _ in range(4))


def measure(load: Callable[[], Any], evaluate: Callable[[str], Any]) -> dict[str, Any]:
    """Return the figures of one browser; it loads the page anew for each round."""
    ready = []
    for _ in range(ROUNDS):
        load()
        evaluate(WHOLE)
        ready.append(evaluate(READY))
    rates = [evaluate(DECODE) for _ in range(3)]
    keys = [evaluate(KEYSTROKE) for _ in range(3)]
    return {
        "ready_ms": round(statistics.median(ready), 1),
        "tokens_per_second": round(max(rates)),
        "keystroke_ms": round(min(x[0] for x in keys), 2),
        "keystroke_ms_of_95_percent": round(min(x[1] for x in keys), 2),
    }


def main() -> None:
    models = [load_with_checkpoint("embedded")]
    text = model_page(models, bundled_live_parts(models))
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = Path(folder) / "page.html"
        path.write_text(text)
        browser = launch_chromium(driver)
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        rows[f"Chromium {browser.version}"] = measure(
            lambda: (tab.goto("about:blank"), tab.goto(path.as_uri())), tab.evaluate
        )
        browser.close()
        with Firefox(Path(folder)) as firefox:
            rows["Firefox"] = measure(
                lambda: firefox.open(path.as_uri(), width=1280), firefox.evaluate
            )
    native = native_rate()
    for name, found in rows.items():
        found["native_ratio"] = round(found["tokens_per_second"] / native, 2)
        print(f"  {name:24} {found}", flush=True)
    print(f"  native, in the loop of `llamath run`: {native:,.0f} tokens/s")
    keep(
        "live_page",
        [
            {
                "title": "the bundled model in its page",
                "rounds": ROUNDS,
                "bytes": len(text.encode()),
                "native_tokens_per_second": round(native),
                "rows": rows,
            }
        ],
    )


if __name__ == "__main__":
    main()
