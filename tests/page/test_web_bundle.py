"""The committed bundle of the page is built from the sources in web/."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from llamath.web.server.page_html import STATIC_FOLDER, read_asset
from support.page_models import page_of

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
    assert (Path(STATIC_FOLDER) / "sources.sha256").read_text().strip() == source_digest(), (
        "run `make web`"
    )


def test_scripts_begin_with_the_notices_of_their_packages() -> None:
    """Each package that the sources import, and what it contains; without the texts of these licenses no copy may be given away."""
    imported = {
        x
        for path in (WEB / "src").rglob("*.ts*")
        for x in re.findall(r"""from ["']((?:@[^/"']+/)?[^./"'][^/"']*)""", path.read_text())
    }
    assert "preact" in imported
    named: set[str] = set()
    for bundle in ("page", "page_pair", "gallery"):
        head, _, code = read_asset(f"{bundle}.js").partition("*/")
        names = set(re.findall(r"(?m)^(\S+) [\d.]+ \((?:MIT|ISC)\): Copyright .*\d{4}", head))
        assert head.startswith("/*!\n") and code.startswith('\n"use strict";') and "preact" in names
        for license_id, words in (
            ("MIT", "Permission is hereby granted, free of charge"),
            ("ISC", "Permission to use, copy, modify"),
        ):
            assert (words in head) == (f"({license_id})" in head)
        assert "</script" not in head and len(head) < 4000
        named |= names
    assert imported <= named
    page = page_of("llama-3-8b")
    assert "preact 11" in page and "THE SOFTWARE IS PROVIDED" in page, "also in an exported page"


def test_no_class_or_variable_of_the_style_is_unused() -> None:
    styles = "".join(x.read_text() for x in (WEB / "src").rglob("*.css"))
    styles = re.sub(r"/\*.*?\*/", "", styles, flags=re.DOTALL)
    scripts = "".join(x.read_text() for x in (WEB / "src").rglob("*.ts*"))
    words = set(re.findall(r"[A-Za-z][\w-]*", scripts))
    made = tuple(re.findall(r"([A-Za-z]+-|\bf)\$\{", scripts))
    classes = set(re.findall(r"\.([a-zA-Z][\w-]*)", re.sub(r"\{[^{}]*\}", "{}", styles)))
    assert len(classes) > 400 and made
    unused = {x for x in classes - words if not re.fullmatch(f"({'|'.join(made)})[a-z]*[0-9]*", x)}
    assert unused == set()
    variables = set(re.findall(r"(--[\w-]+):", styles))
    made = tuple(re.findall(r"(--[a-z-]+)\$\{", scripts))
    used = set(re.findall(r"--[\w-]+\b(?![\w:-])", styles + scripts))
    # by two of them the golden pictures name white and black
    used |= {f"--{x}" for x in {*words, "on-dark", "on-light"}}
    assert {x for x in variables - used if not x.startswith(made)} == set()


def test_building_again_gives_the_same_bytes() -> None:
    if shutil.which("node") is None or not (WEB / "node_modules").is_dir():
        pytest.skip("node and the packages of web/ are not installed")
    done = subprocess.run(
        ["node", "build.mjs", "--check"], cwd=WEB, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
