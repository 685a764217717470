"""The data of a page survives packing, and what is in it twice is written once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import llamath
from llamath.web.page_data.page_data import build_page_data
from llamath.web.server.packed_json import pack_json
from llamath.web.server.page_html import page_from_data
from support.browser_page import browser, new_context, unpack_json

assert browser
NAMES = st.sampled_from(["a", "b", "path", "1", "__proto__", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**6) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda x: (
        st.lists(x, max_size=4) | st.dictionaries(NAMES, x, max_size=3) | st.lists(st.fixed_dictionaries({"n": x, "m": x}), max_size=3)
    ),
    max_leaves=24,
)
CASES: list[Any] = [
    {},
    {"a": [[], {}, [1], [0, 0], ["+", 1, ["*", 2, "B"]], [-1.5], [True], [None], [[1]]]},
    {"a": [{"x": 1, "y": 2}, {"y": 1, "x": 2}], "b": [{"x": [1]}, {"x": [1]}], "c": [{}, {}]},
    {"a": ["long enough to share", "once"], "b": [["long enough to share", "once"], ["long enough to share", "once"]]},
    {"a": [1, 1.0, True, "1"], "b": [[1, 2, 3, 4, 5, 6], [1.0, 2, 3, 4, 5, 6], [True, 2, 3, 4, 5, 6]]},
]


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_packed_data_unpack_to_the_same(data: dict[str, Any]) -> None:
    assert json.dumps(unpack_json(pack_json(data))) == json.dumps(data)


def test_equal_parts_are_written_once() -> None:
    part = {"shape": [str(n * 7919) for n in range(400)]}
    once, many = pack_json({"a": [part]}), pack_json({"a": [part], "b": {f"model {i}": {"deep": part} for i in range(9)}})
    assert len(many) < len(once) + 250


# what follows needs Chromium


def test_page_reads_what_python_packs(browser: Any, tmp_path: Path) -> None:
    context = new_context(browser)
    tab = context.new_page()
    page = build_page_data([llamath.load("gpt2")])
    path = tmp_path / "page.html"
    path.write_text(page_from_data(page | {"cases": CASES}))
    tab.goto(path.as_uri())
    assert json.loads(tab.evaluate("JSON.stringify(llamath.data)")) == json.loads(json.dumps(page | {"cases": CASES}))
    context.close()
