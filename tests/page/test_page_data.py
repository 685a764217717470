"""The browser reads the data of a page as Python wrote it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import llamath
from llamath.web.page_data.page_data import build_page_data
from llamath.web.server.page_html import compressed_json, page_from_data
from support.browser_page import browser, new_context, page_data, visit
from support.page_models import as_made, as_sent

assert browser
CASES: list[Any] = [
    {},
    {"a": [[], {}, [1], [0, 0], ["+", 1, ["*", 2, "B"]], [-1.5], [True], [None], [[1]]]},
    {"__proto__": {"x": 1}, "": "\u2028 · ∞ \U0001f999 \x00", "</script>": "<!--<script>"},
]


def test_no_html_parser_finds_anything_in_the_data() -> None:
    assert re.fullmatch(r"[A-Za-z0-9+/]+=*", compressed_json(CASES))
    page = build_page_data([llamath.load("gpt2")])
    assert page_data(page_from_data(page | {"cases": CASES})) == json.loads(
        json.dumps(as_sent(page) | {"cases": CASES})
    )


# what follows needs Chromium


def test_page_reads_what_python_writes(browser: Any, tmp_path: Path) -> None:
    context = new_context(browser)
    tab = context.new_page()
    page = build_page_data([llamath.load("gpt2")])
    path = tmp_path / "page.html"
    path.write_text(page_from_data(page | {"cases": CASES}))
    visit(tab, path.as_uri())
    assert json.loads(tab.evaluate("JSON.stringify(llamath.data)")) == json.loads(
        json.dumps(as_made(page) | {"cases": CASES})
    )
    context.close()
