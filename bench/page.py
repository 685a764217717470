"""The page in Chromium: times until its first screen and all of it are drawn, time per slider
step, heap size, bytes of its assets."""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

import llamath
from harness import keep
from llamath.web.server.page_html import STATIC_FOLDER, model_page

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.chromium import CHROMIUM, launch_chromium

ROUNDS = 7
SUBJECTS = {
    "Llama 3 8B": ["llama-3-8b"],
    "Llama 3.1 405B": ["llama-3.1-405b"],
    "DeepSeek-V3": ["deepseek-v3"],
} | {"both of them": ["llama-3.1-405b", "deepseek-v3"]}
STATES = {
    "run": "",
    "train": "#mode=train",
    "eight GPUs": "#gpus=8&map=flops",
    "edit": "#edit=sizes",
}
RANGE = """(() => document.querySelector("#edit input[type=range]") ?? document.querySelector("#context")?.previousElementSibling)()"""
WHOLE = """new Promise((done) => {
  const look = () => (document.querySelector("#page[data-busy]") ? setTimeout(look) : done());
  look();
})"""
SCROLL = f"{RANGE}.scrollIntoView({{ block: 'center' }})"
STEP = f"""async i => {{
  const range = {RANGE};
  const start = performance.now();
  range.value = String(i + 20);
  range.dispatchEvent(new Event("input", {{ bubbles: true }}));
  await Promise.resolve();  // the page draws at the end of the task
  document.body.getBoundingClientRect();
  const spent = performance.now() - start;
  await new Promise(requestAnimationFrame);
  await {WHOLE};  // sections that are not on the screen follow
  return spent;
}}"""
OWN = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")
LOADED = """() => new Promise((done) => {
  const { domContentLoadedEventEnd: ready } = performance.getEntriesByType("navigation")[0];
  const at = (name) => performance.getEntriesByName(name)[0]?.startTime ?? ready;
  const [long, largest] = [[], []];
  new PerformanceObserver((list) => largest.push(...list.getEntries())).observe({ type: "largest-contentful-paint", buffered: true });
  new PerformanceObserver((list) => long.push(...list.getEntries())).observe({ type: "longtask", buffered: true });
  const longest = () => Math.max(0, ...long.filter((x) => x.startTime > ready).map((x) => x.duration));
  const drawn = () => ({ ready, first_screen: Math.max(ready, ...largest.map((x) => x.startTime)), whole: at("whole") });
  setTimeout(() => done({ ...drawn(), longest_later_task: longest() }), 200);
})"""
"""When the first screen (its largest part) and the page were drawn, and the longest task after the
first one that took 50 ms or more.

That is 0 if there was none.
"""


def steps(tab: Page, wire: CDPSession) -> list[tuple[float, float]]:
    """Move the slider forty times; return for each step the wall time until what is seen is
    drawn, and the thread time of all of it."""
    tab.evaluate(WHOLE)
    tab.evaluate(SCROLL)
    tab.wait_for_timeout(200)
    times = []
    for i in range(40):
        before = own(wire)
        spent = tab.evaluate(STEP, i)
        times.append((spent, own(wire) - before))
    return times


def own(wire: CDPSession) -> float:
    """Return the milliseconds that script, style and layout have taken so far."""
    return sum(
        1000 * x["value"]
        for x in wire.send("Performance.getMetrics")["metrics"]
        if x["name"] in OWN
    )


def measured(browser: Browser, address: str) -> dict[str, Any]:
    """Load the page once; return the times to draw it, the step times in each state, and the
    heap after garbage collection."""
    tab = browser.new_page()
    wire = tab.context.new_cdp_session(tab)
    wire.send("Performance.enable", {"timeDomain": "threadTicks"})
    tab.goto(address)
    tab.evaluate(WHOLE)
    loaded = tab.evaluate(LOADED)
    times = {}
    for name, state in STATES.items():
        tab.goto("about:blank")
        tab.goto(address + state)
        times[name] = steps(tab, wire)
    wire.send("HeapProfiler.collectGarbage")
    heap = wire.send("Runtime.getHeapUsage")["usedSize"]
    tab.close()
    return {"loaded": loaded, "steps": times, "heap": heap}


def row(text: str, measurements: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarize several visits."""
    spent = {name: [y for x in measurements for y in x["steps"][name]] for name in STATES}
    return {
        "bytes": len(text.encode()),
        **{
            f"{name}_ms": round(statistics.median(x["loaded"][name] for x in measurements), 1)
            for name in measurements[0]["loaded"]
        },
        "step_ms": {
            name: round(statistics.median(x[0] for x in each), 2) for name, each in spent.items()
        },
        "own_step_ms": {
            name: round(statistics.median(x[1] for x in each), 2) for name, each in spent.items()
        },
        "own_step_ms_of_95_percent": {
            name: round(_percentile(each, 95), 2) for name, each in spent.items()
        },
        "own_worst_step_ms": {
            name: round(max(x[1] for x in each), 2) for name, each in spent.items()
        },
        "steps_over_16_ms": sum(x[0] > 16 for each in spent.values() for x in each),
        "own_steps_over_16_ms": sum(x[1] > 16 for each in spent.values() for x in each),
        "steps": sum(map(len, spent.values())),
        "heap_mib": round(max(x["heap"] for x in measurements) / 2**20, 2),
    }


def _percentile(steps: list[tuple[float, float]], percent: int) -> float:
    """The thread time that so many percent of the steps do not exceed."""
    return statistics.quantiles((x[1] for x in steps), n=100)[percent - 1]


def main() -> None:
    rows = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = launch_chromium(driver)
        for name, slugs in SUBJECTS.items():
            text = model_page([llamath.load(x) for x in slugs])
            path = Path(folder) / f"{slugs[-1]}.html"
            path.write_text(text)
            gc.collect()
            rows[name] = row(text, [measured(browser, path.as_uri()) for _ in range(ROUNDS)])
            print(f"  {name:16} {rows[name]}", flush=True)
        version = browser.version
        browser.close()
    assets = sum(x.stat().st_size for x in Path(STATIC_FOLDER).iterdir())
    print(f"  assets: {assets:,} bytes; {CHROMIUM} {version}")
    keep(
        "page",
        [
            {
                "title": "the page in Chromium",
                "rounds": ROUNDS,
                "browser": f"{CHROMIUM} {version}",
                "assets_bytes": assets,
                "rows": rows,
            }
        ],
    )


if __name__ == "__main__":
    main()
