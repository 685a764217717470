"""The page in Chromium: time until it is ready, time of a slider's step, the heap, and the bytes of its assets."""

from __future__ import annotations

import gc
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

import llamath
from harness import keep
from llamath.web.page import FOLDER, page

ROUNDS = 7
SUBJECTS = {"Llama 3 8B": ["llama-3-8b"], "Llama 3.1 405B": ["llama-3.1-405b"], "DeepSeek-V3": ["deepseek-v3"]} | {
    "both of them": ["llama-3.1-405b", "deepseek-v3"]
}
STEPS = """async () => {
  const range = document.querySelector("#context")?.previousElementSibling;
  if (!range) return [];
  const spent = [];
  for (let i = 0; i < 40; i += 1) {
    const start = performance.now();
    range.value = String(i + 20);
    range.dispatchEvent(new Event("input"));
    document.body.getBoundingClientRect();
    spent.push(performance.now() - start);
    await new Promise(requestAnimationFrame);
  }
  return spent;
}"""
READY = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"


def measured(browser: Browser, address: str) -> dict[str, Any]:
    """One visit: when the page is drawn, how long a step of the slider takes with its layout, and the heap after a collection."""
    tab = browser.new_page()
    tab.goto(address)
    ready = tab.evaluate(READY)
    steps = tab.evaluate(STEPS)
    wire = tab.context.new_cdp_session(tab)
    wire.send("HeapProfiler.collectGarbage")
    heap = wire.send("Runtime.getHeapUsage")["usedSize"]
    tab.close()
    return {"ready": ready, "step": statistics.median(steps) if steps else 0.0, "worst": max(steps, default=0.0), "heap": heap}


def main() -> None:
    rows = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, slugs in SUBJECTS.items():
            text = page([llamath.load(x) for x in slugs])
            path = Path(folder) / f"{slugs[-1]}.html"
            path.write_text(text)
            gc.collect()
            found = [measured(browser, path.as_uri()) for _ in range(ROUNDS)]
            rows[name] = {
                "bytes": len(text.encode()),
                "ready_ms": round(statistics.median(x["ready"] for x in found), 1),
                "step_ms": round(statistics.median(x["step"] for x in found), 2),
                "worst_step_ms": round(max(x["worst"] for x in found), 2),
                "heap_mib": round(statistics.median(x["heap"] for x in found) / 2**20, 2),
            }
            print(f"  {name:16} {rows[name]}")
        version = browser.version
        browser.close()
    assets = sum(x.stat().st_size for x in Path(FOLDER).iterdir())
    print(f"  assets: {assets:,} bytes; Chromium {version}")
    keep("page", [{"title": "the page in Chromium", "rounds": ROUNDS, "chromium": version, "assets_bytes": assets, "rows": rows}])


if __name__ == "__main__":
    main()
