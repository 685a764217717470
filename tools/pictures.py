"""Regenerate the pictures of the page in docs/images with Chromium: `pictures.py [folder of
`llamath export`]`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from llamath.web.page_data.checkpoint_data import load_with_checkpoint
from llamath.web.page_data.live.live_data import bundled_live_parts
from llamath.web.server.page_html import model_page

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.chromium import launch_chromium

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PICTURES: dict[str, tuple[list[str], str, int, str, str]] = {
    "difference": (["llama-2-7b", "llama-3-8b"], "light", 1080, "", "#causes .wrap, #shapes .wrap"),
    "plate": (["llama-3-8b"], "light", 1440, "", ".plate"),
    "block": (["deepseek-v3"], "light", 1440, "", ".plate"),
    "attention": (["llama-3-8b"], "light", 1180, "", ".attention-cards"),
    "masks": (["gemma-3-27b"], "light", 1180, "", ".mask-cards"),
    "rope": (["llama-3.1-8b"], "light", 1080, "", "#positions .wrap"),
    "experts": (["deepseek-v3"], "light", 1180, "", ".experts-pair"),
    "memory": (["llama-3-8b"], "dark", 1180, "#context=32768&batch=4", "#memory .wrap"),
    "hardware": (["llama-3.1-70b"], "light", 1180, "", "#hardware .wrap"),
    "layouts": (["llama-3.1-405b"], "light", 1180, "", "#layouts .wrap"),
    "page": (["deepseek-v3"], "light", 1440, "", "header, .hero"),
    "live": (["embedded"], "light", 1440, "", ".live-bar, #live .wrap"),
    "page-phone": (["deepseek-v3"], "dark", 390, "", "header, .hero"),
}
"""Each picture's models, theme, width of the window, URL fragment, and the elements that it
shows."""
BOUNDING_BOX = """elements => {
  const boxes = [...document.querySelectorAll(elements)].map(x => x.getBoundingClientRect());
  const [left, top] = [Math.min(...boxes.map(x => x.left)), Math.min(...boxes.map(x => x.top))];
  return { x: left - 16, y: top - 12,
    width: Math.max(...boxes.map(x => x.right)) - left + 32, height: Math.max(...boxes.map(x => x.bottom)) - top + 24 };
}"""

REMOVE_OTHERS = """elements => {
  for (const x of document.querySelectorAll('main section[id]')) if (!x.querySelector(elements)) x.remove();
}"""
"""Leaves out the sections between those that a picture shows."""


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = launch_chromium(driver)
        for name, (slugs, theme, width, fragment, elements) in PICTURES.items():
            path = Path(folder) / f"{name}.html"
            models = [load_with_checkpoint(x) for x in slugs]
            path.write_text(model_page(models, bundled_live_parts(models)))
            options: Any = {
                "color_scheme": theme,
                "viewport": {"width": width, "height": 1000},
                "reduced_motion": "reduce",
            }
            tab = browser.new_page(**options)
            tab.goto(path.as_uri() + fragment)
            tab.wait_for_selector("#page:not([data-busy])")
            tab.evaluate(REMOVE_OTHERS, elements)
            tab.screenshot(
                path=IMAGES / f"{name}.png",
                full_page=True,
                clip=tab.evaluate(BOUNDING_BOX, elements),
            )
            print(f"{name}: {(IMAGES / f'{name}.png').stat().st_size:,} bytes")
        if len(sys.argv) > 1:
            tab = browser.new_page(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
            tab.goto(f"{Path(sys.argv[1]).resolve().as_uri()}/index.html#view=cards")
            tab.screenshot(path=IMAGES / "gallery.png")
        browser.close()


if __name__ == "__main__":
    main()
