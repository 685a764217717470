"""The gallery of the server: search, opening and comparing by keyboard, facts that arrive in parts, and robustness to hostile input."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from test_page import PAYLOADS

import llamath
from llamath.catalog import presets
from llamath.web.gallery import live_gallery
from llamath.web.gallery.live_gallery import LiveGallery
from llamath.web.server.error_page import PageError, error_page
from support.browser_page import browser, lent_page, page_data, visit
from support.serving import Place, served

pytest.importorskip("uvicorn")
assert browser
OWN = [llamath.load("gpt2").replace(name=x) for x in ("mine", *PAYLOADS[:2])]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        with served(OWN, hub=True) as found:
            yield found


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    wrong: list[str] = []
    listeners = {
        "pageerror": lambda x: wrong.append(str(x)),
        "dialog": lambda x: (wrong.append(x.message), x.dismiss()),
    }
    with lent_page(browser, 1280, 720) as page:
        for event, listener in listeners.items():
            page.on(event, listener)
        yield page
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
    assert not wrong


def current_path(tab: Any, place: Place) -> str:
    return urlsplit(tab.url).path.removeprefix(place.path)


def visible_models(tab: Any) -> list[str]:
    return [x for x in tab.locator(".models a.model").all_text_contents() if isinstance(x, str)]


def test_model_list_equals_the_catalog() -> None:
    text = LiveGallery({f"~{i}": x for i, x in enumerate(OWN, 1)}, hub=True).page()
    data = page_data(text)
    own, listed = data["models"][: len(OWN)], data["models"][len(OWN) :]
    pictured = sorted(listed, key=lambda x: x["released"] or "", reverse=True)[:20]
    assert all(x["picture"]["kinds"] for x in pictured), "the first screen"
    assert {(x["id"], x["name"], x["total"]) for x in listed} == {
        (x.slug, x.name, x.parameters) for x in presets()
    }
    assert [x["id"] for x in own] == ["~1", "~2", "~3"] and data["hub"]
    assert not any(x in text for x in PAYLOADS[:2])


def test_parts_have_every_preset_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first screen's facts, all pictures, all facts, and who is nearest to whom."""
    monkeypatch.setattr(live_gallery, "_picture", lambda slug: (slug, "picture"))
    monkeypatch.setattr(live_gallery, "_facts", lambda slug: (slug, "facts"))
    monkeypatch.setattr(live_gallery, "kinship_entry", lambda slug: (slug, "kin"))
    gallery = LiveGallery({}, hub=False)
    parts = [gallery.chunk(i)["models"] for i in range(gallery.num_chunks)]
    slugs = [x.slug for x in sorted(presets(), key=lambda x: x.released or "", reverse=True)]
    first, *rest = parts
    assert first == [(x, "facts") for x in slugs[: len(first)]]
    kept = [(x, what) for what in ("picture", "facts") for x in slugs[len(first) :]]
    assert [x for part in rest for x in part] == kept + [(x, "kin") for x in slugs]


def test_notice_is_shown_as_text() -> None:
    for x in PAYLOADS:
        text = error_page(PageError(404, x), "../")
        assert len(re.findall("<(?!/)", text.partition("</style>")[2])) == 6


def test_model_is_found_and_opened_by_keyboard(tab: Any, place: Place) -> None:
    visit(tab, place.address)
    assert len(visible_models(tab)) == 3 + len(list(presets()))
    assert tab.text_content("h1") == f"{len(list(presets()))} language models", "of the catalog"
    assert "computed" not in tab.text_content(".filters")
    tab.keyboard.press("/")
    tab.keyboard.type("llama 3 8b")
    assert "Llama 3 8B" in visible_models(tab) and "Enter opens the first" in tab.text_content(
        ".filters [role=status]"
    )
    tab.fill("#find", "meta-llama/Llama-2-7b-hf")
    assert visible_models(tab) == ["Llama 2 7B"]
    tab.fill("#find", "gpt2")
    tab.keyboard.press("ArrowDown")
    first = tab.evaluate("document.activeElement.textContent")
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate("document.activeElement.textContent") != first
    tab.keyboard.press("ArrowUp")
    tab.keyboard.press("ArrowUp")
    assert tab.evaluate("document.activeElement.id") == "find"
    tab.fill("#find", "distilgpt2")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/model/distilgpt2")
    assert "81,912,576" in tab.text_content("main")
    tab.click("text=Another model")
    tab.wait_for_url("**/choose")


def test_two_models_are_compared(tab: Any, place: Place) -> None:
    visit(tab, f"{place.address}model/gpt2")
    tab.click("text=Compare with…")
    tab.wait_for_url("**/choose#with=gpt2")
    assert "GPT-2 small" in tab.text_content(".comparing")
    tab.fill("#find", "distilgpt2")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/models/gpt2/distilgpt2")
    assert "−42,527,232" in tab.text_content("main")
    tab.click("text=Swap models")
    tab.wait_for_url("**/models/distilgpt2/gpt2")
    visit(tab, f"{place.address}choose")
    tab.click(".models .compare-button >> nth=0")
    assert tab.evaluate("document.activeElement.id") == "find" and "mine" in tab.text_content(
        ".comparing"
    )
    tab.focus(".comparing button")
    tab.keyboard.press("Enter")
    assert (
        tab.is_hidden(".comparing")
        and tab.get_attribute(".models a.model >> nth=0", "href") == "model/~1"
    )


def test_hub_repository_is_opened(tab: Any, place: Place) -> None:
    visit(tab, place.address)
    for text in ("x", "https://x.invalid/a", "../..", "a/b/c", "javascript:pwned()", "a/b?c"):
        tab.fill("#hub", text)
        tab.keyboard.press("Enter")
        assert (
            tab.get_attribute("#hub", "aria-invalid") == "true" and current_path(tab, place) == ""
        )
    tab.fill("#hub", "org/name")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/model/hub*")
    assert tab.text_content("h1") == "The hub did not answer"
    tab.click("text=Choose a model")
    tab.wait_for_url("**/choose")


@pytest.mark.parametrize(
    "at",
    [
        "#with=<img src=x onerror=pwned()>",
        "#with=none",
        "#with=hub:a",
        "#with=~9",
        "#" + "x" * 5000,
        "#%",
    ],
)
def test_invalid_address_shows_the_initial_state(tab: Any, place: Place, at: str) -> None:
    visit(tab, f"{place.address}choose{at}")
    assert (
        tab.is_hidden(".comparing")
        and tab.get_attribute(".models a.model >> nth=0", "href") == "model/~1"
    )
    assert (
        tab.locator("img, script:not([type])").count() == 0
        and visible_models(tab)[1:3] == PAYLOADS[:2]
    )
