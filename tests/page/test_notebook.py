"""`model.show()` and the tables of reports in a notebook: sandboxed, escaped, in the page's colors."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.render.report_html import DARK, LIGHT
from llamath.utils.errors import ConfigError, LlamathError
from llamath.web.server.page_html import model_page
from support.browser_page import browser, new_context, wait_until_drawn  # noqa: F401

TOKENS = Path(__file__).parents[2] / "web" / "src" / "styles" / "tokens.css"
FOLDER = str(Path(__file__).parents[2] / "examples" / "tiny-llama")


def test_show_returns_the_exported_page_in_a_sandboxed_frame() -> None:
    model = llamath.load("gpt2")
    page = model.show(height=500)
    assert (
        repr(page) == "<NotebookPage: GPT-2 small>"
        and page.html == model_page([model]) == llamath.show("gpt2").html
    )
    frame = page._repr_html_()
    assert re.findall(r' sandbox="([^"]*)"', frame) == ["allow-scripts"] and "height:500px" in frame
    assert frame.count("<") == 2 and frame.endswith("></iframe>")
    inside = html.unescape(re.search(r'srcdoc="([^"]*)"', frame)[1])  # type: ignore[index]
    changed = inside.replace('<base href="about:srcdoc">', "").replace(
        "base-uri about:", "base-uri 'none'"
    )
    assert changed == page.html


def test_show_compares_models_and_verifies_local_files() -> None:
    page = llamath.load("llama-2-7b").show(llamath.load("llama-3-8b"))
    assert page.title == "Llama 2 7B and Llama 3 8B" and page.html == model_page(
        [llamath.load("llama-2-7b"), llamath.load("llama-3-8b")]
    )
    assert "checkpoint" in llamath.show(FOLDER).html


def test_show_refuses_what_cannot_be_shown() -> None:
    with pytest.raises(LlamathError, match="height should be from 200 to 10,000 pixels, found 5"):
        llamath.show("gpt2", height=5)
    with pytest.raises(ConfigError, match="1,000,000,000 layers"):
        llamath.load("gpt2", changes={"n_layer": 10**9}).show()


def test_a_strangers_name_is_escaped() -> None:
    model = llamath.load("gpt2").replace(name='"><script>alert(1)</script>')
    assert "<script>" not in model.show()._repr_html_() and "<script>" not in model._repr_html_()


@pytest.mark.parametrize(
    ("theme", "start"), [(LIGHT, '[data-theme="light"] {'), (DARK, '[data-theme="dark"] {')]
)
def test_tables_have_the_colors_of_the_page(theme: dict[str, str], start: str) -> None:
    found = dict(
        re.findall(
            r"--([\w-]+): (#[0-9a-f]{6})", TOKENS.read_text().partition(start)[2].partition("}")[0]
        )
    )
    assert theme == {name: found[name] for name in theme}


def test_the_page_works_inside_a_notebook(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    place = tmp_path / "notebook.html"
    place.write_text(
        f"<!doctype html><title>notebook</title><body>{llamath.load('llama-3-8b').show()._repr_html_()}"
    )
    wrong: list[str] = []
    context = new_context(browser)
    tab = context.new_page()
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on(
        "console", lambda message: wrong.append(message.text) if message.type == "error" else None
    )
    tab.goto(place.as_uri())
    frame = tab.frame_locator("iframe").locator("body")
    frame.locator("h1").first.wait_for()
    inner = tab.frames[1]
    assert inner.locator("h1").first.text_content() == "Llama 3 8B"
    inner.evaluate(
        "() => { location.hash = 'context=4096'; history.replaceState(null, '', '#context=8000') }"
    )
    wait_until_drawn(inner)
    assert inner.url == "about:srcdoc#context=8000" and tab.url == place.as_uri()
    inner.evaluate("() => document.querySelector('a[href^=\"#\"]').click()")
    wait_until_drawn(inner)
    assert (
        inner.url.startswith("about:srcdoc#")
        and inner.locator("h1").first.text_content() == "Llama 3 8B"
    )
    assert (
        inner.evaluate(
            "() => { try { return parent.document.title } catch (error) { return error.name } }"
        )
        == "SecurityError"
    )
    assert not wrong
    context.close()


@pytest.mark.parametrize(
    ("system", "body", "theme"),
    [
        ("light", "<body>", LIGHT),
        ("dark", "<body>", DARK),
        ("dark", '<body data-jp-theme-light="true">', LIGHT),
        ("light", '<body data-jp-theme-light="false">', DARK),
        ("light", '<body class="vscode-dark">', DARK),
        ("dark", '<body class="vscode-light">', LIGHT),
    ],
)
def test_tables_follow_the_theme_of_the_notebook(
    browser: Any,  # noqa: F811
    system: str,
    body: str,
    theme: dict[str, str],
) -> None:
    context = new_context(browser, color_scheme=system)
    tab = context.new_page()
    tab.set_content(f"<!doctype html>{body}{llamath.memory('gpt2')._repr_html_()}")
    color, background = tab.evaluate(
        "() => { const s = getComputedStyle(document.querySelector('.llamath')); return [s.color, s.backgroundColor] }"
    )
    rgb = {
        name: tuple(int(theme[name][i : i + 2], 16) for i in (1, 3, 5)) for name in ("ink", "paper")
    }
    assert (color, background) == (f"rgb{rgb['ink']}", f"rgb{rgb['paper']}")
    context.close()
