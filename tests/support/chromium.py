"""The Chromium of this machine: its headless shell where there is one, which does with a fourth less."""

from __future__ import annotations

import shutil
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")
CHROMIUM = next((x for x in NAMES if shutil.which(x)), None)
NO_CHROMIUM = "Chromium is not installed (as root, `make browser` installs it)"
HANG_MS = 120_000


def launch_chromium(driver: Any, *arguments: str) -> Any:
    """Start Chromium with a driver of playwright."""
    assert CHROMIUM is not None, NO_CHROMIUM
    return driver.chromium.launch(
        executable_path=shutil.which(CHROMIUM),
        args=["--no-sandbox", "--disable-gpu", "--disable-software-rasterizer", *arguments],
        timeout=HANG_MS,
    )
