"""The page in Chromium: time until it is ready, time of a slider's step, the heap, and the bytes of its assets."""

from __future__ import annotations

import gc
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

import llamath
from harness import keep
from llamath.web.server.page_html import STATIC_FOLDER, model_page

ROUNDS = 7
SUBJECTS = {"Llama 3 8B": ["llama-3-8b"], "Llama 3.1 405B": ["llama-3.1-405b"], "DeepSeek-V3": ["deepseek-v3"]} | {
    "both of them": ["llama-3.1-405b", "deepseek-v3"]
}
STATES = {"run": "", "train": "#mode=train", "eight GPUs": "#gpus=8&map=flops", "design": "#view=design"}
STEP = """async i => {
  const range = document.querySelector("#context")?.previousElementSibling ?? document.querySelector("input[type=range]");
  const start = performance.now();
  range.value = String(i + 20);
  range.dispatchEvent(new Event("input"));
  document.body.getBoundingClientRect();
  const spent = performance.now() - start;
  await new Promise(requestAnimationFrame);
  return spent;
}"""
OWN = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")
READY = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"


def steps(tab: Page, wire: CDPSession) -> list[tuple[float, float]]:
    """Of forty steps of the slider: the time, and the page's own share of it, script, style and layout by the clock of its thread."""
    found = []
    for i in range(40):
        before = own(wire)
        spent = tab.evaluate(STEP, i)
        found.append((spent, own(wire) - before))
    return found


def own(wire: CDPSession) -> float:
    """Milliseconds of work so far."""
    return sum(1000 * x["value"] for x in wire.send("Performance.getMetrics")["metrics"] if x["name"] in OWN)


def measured(browser: Browser, address: str) -> dict[str, Any]:
    """One visit: when the page is drawn; in each state the steps of its slider; the heap in the end, after a collection."""
    tab = browser.new_page()
    wire = tab.context.new_cdp_session(tab)
    wire.send("Performance.enable", {"timeDomain": "threadTicks"})
    tab.goto(address)
    ready = tab.evaluate(READY)
    found = {}
    for name, state in STATES.items():
        tab.goto("about:blank")
        tab.goto(address + state)
        found[name] = steps(tab, wire)
    wire.send("HeapProfiler.collectGarbage")
    held = wire.send("Runtime.getHeapUsage")["usedSize"]
    tab.close()
    return {"ready": ready, "steps": found, "heap": held}


def row(text: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarize several visits."""
    spent = {name: [y for x in found for y in x["steps"][name]] for name in STATES}
    return {
        "bytes": len(text.encode()),
        "ready_ms": round(statistics.median(x["ready"] for x in found), 1),
        "step_ms": {name: round(statistics.median(x[0] for x in each), 2) for name, each in spent.items()},
        "own_step_ms": {name: round(statistics.median(x[1] for x in each), 2) for name, each in spent.items()},
        "own_worst_step_ms": {name: round(max(x[1] for x in each), 2) for name, each in spent.items()},
        "steps_over_16_ms": sum(x[0] > 16 for each in spent.values() for x in each),
        "steps": sum(map(len, spent.values())),
        "heap_mib": round(max(x["heap"] for x in found) / 2**20, 2),
    }


def main() -> None:
    rows = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
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
    print(f"  assets: {assets:,} bytes; Chromium {version}")
    keep("page", [{"title": "the page in Chromium", "rounds": ROUNDS, "chromium": version, "assets_bytes": assets, "rows": rows}])


if __name__ == "__main__":
    main()
