"""The committed bundle of the page is built from the sources in web/."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from llamath.web.server.page_html import STATIC_FOLDER

WEB = Path(__file__).parents[2] / "web"
BUILD_FILES = ("build.mjs", "package.json", "package-lock.json", "tsconfig.json")


def source_digest() -> str:
    """Return the sum that web/build.mjs writes beside the bundle."""
    paths = [x.relative_to(WEB).as_posix() for x in (WEB / "src").rglob("*") if x.is_file()]
    digest = hashlib.sha256()
    for path in sorted([*paths, *BUILD_FILES]):
        digest.update(path.encode() + b"\0" + (WEB / path).read_bytes() + b"\0")
    return digest.hexdigest()


def test_bundle_is_built_from_these_sources() -> None:
    assert (Path(STATIC_FOLDER) / "sources.sha256").read_text().strip() == source_digest(), "run `make web`"


def test_building_again_gives_the_same_bytes() -> None:
    if shutil.which("node") is None or not (WEB / "node_modules").is_dir():
        pytest.skip("node and the packages of web/ are not installed")
    done = subprocess.run(["node", "build.mjs", "--check"], cwd=WEB, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
