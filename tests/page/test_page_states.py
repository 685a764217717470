"""Every state of the page and of the gallery, in both themes, on phones and on desktops: accessible, within reach, large enough to touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.web.gallery.site_files import write_gallery
from llamath.web.page_data.checkpoint_data import load_with_checkpoint
from llamath.web.server.page_html import model_page
from support.browser_page import (
    EMPTY,
    at_widths,
    browser,
    go_to,
    lent_page,
    visit,
    wait_until_drawn,
)
from support.page_models import live_page, page_of, write_checkpoint
from support.release import usual
from support.serving import served

assert browser
MOST_STOPS = 45
SMALLEST_TARGET = 24


@dataclass(frozen=True)
class State:
    """A state of a page: the fragment of its address, what is pressed (a selector, or a key) after it, and the part that differs."""

    at: str = ""
    press: tuple[str, ...] = ()
    part: str = ""

    def __str__(self) -> str:
        return " ".join([self.at or "first", *self.press])


_LIVE = ".live-bar, #live"
PAGES: dict[str, tuple[State, ...]] = {
    "mixture": (
        State(),
        State("#gpus=8&context=100000&batch=64&kv=fp8", part="#hardware, #memory, #speed"),
        State("#card=custom&context=4000000", part="#hardware, #memory, #speed"),
        State("#mode=train&trainers=64&zero=3", part="#memory"),
        State("#job=serving&plan=1", part="#layouts"),
        State("#zoom=model", part=".hero"),
        State("#zoom=attn", part=".hero-plate"),
        State("#zoom=attn/attn.q_up", part=".hero-plate"),
        State("#zoom=attn/attn.q_up/3", part=".hero-plate"),
        State("#layer=0&shapes=letters&names=hf", part=".hero-plate"),
        State("#layer=embedding", part=".hero-plate"),
        State("#pass=next", ("[data-flow=next]", "[data-flow=next]"), ".flow"),
        State("#map=flops&by=kind&find=attn&sort=total", part="#parameters, #tensors"),
        State("#map=cache&section=positions", ("#positions summary",), "#parameters, #positions"),
        State("", ("[data-part=parameters]",), "dialog"),
        State("", ("?",), "dialog"),
        State("", ("[aria-label='Copy the page']",), "header"),
        State("", ("#parameters [aria-label^='Copy or save']",), "#parameters"),
        State("", ("[aria-label='Sections']",), "header"),
    ),
    "comparison": (
        State(),
        State("#mode=train", part="#memory"),
        State("#view=b&layer=3"),
        State("#view=design&target=8B"),
        State("#view=design&like=b&sizes=L20", part="#content"),
        State("#view=difference", ("#causes .number >> nth=1",), "dialog"),
        State("#view=difference", ("#sizes [aria-label^='Copy or save']",), "#sizes"),
    ),
    "hybrid": (
        State(part=".hero"),
        State("#tour=5", part=".hero-plate"),
        State("#shapes=letters&by=kind&map=flops", part=".hero, #parameters"),
        State("#view=design&sizes=k300"),
    ),
    "towers": (
        State(),
        State("#layer=3", part=".hero-plate"),
        State("#layer=vision", part=".hero-plate"),
        State("#map=bytes&by=kind", part="#parameters"),
    ),
    "unknown tower": (State("#layer=vision", part=".hero-plate"),),
    "checkpoint": (
        State(),
        State("#map=bytes", part=".sheet"),
        State("", ("[data-verdict=names]",), "dialog"),
    ),
    "live": (
        State(part=".live-bar, .hero-plate, #live"),
        State(
            f"#temperature=0.8&top_p=0.9&token=3&text={'Anna+had+a+red+kite.+' * 12}", part=_LIVE
        ),
        State("#zoom=attn/attn.k&layer=1", part=".hero-plate"),
        State(f"#layer=embedding&text={'x' * 300}", part=_LIVE),
        State("#text=", part=_LIVE),
    ),
    "file": (State(part="#files"), State("#view=design", part="#files")),
    "gallery": (
        State(),
        State("#view=cards&with=gpt2"),
        State("#view=timeline&only=Meta"),
        State("#view=plot&x=total&y=kv"),
        State("#view=compare&a=llama-2-7b&b=llama-3-8b"),
        State("#kind=moe", (".filters-button",)),
        State("", (".column-choice summary",)),
        State("#find=nothing"),
    ),
    "served": (
        State("model/gpt2"),
        State("models/gpt2/~1"),
        State("choose", part=".filters, header, .cards .card:first-child"),
        State("choose#with=gpt2&find=llama"),
        State("model/none"),
    ),
}
GALLERY = ["llama-2-7b", "llama-3-8b", "deepseek-v3", "gpt2", "falcon-mamba-7b"]


@cache
def text_of(page: str) -> str:
    slugs = {
        "mixture": ("deepseek-v3",),
        "comparison": ("llama-2-7b", "llama-3-8b"),
        "hybrid": ("nemotron-3-super-120b",),
        "towers": ("llama-3.2-11b-vision",),
        "unknown tower": ("video-llava-7b",),
        "file": ("gpt2",),
    }
    return page_of(*slugs[page])


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Give the address of a page, which is made on its first use."""
    folder = tmp_path_factory.mktemp("states")
    servers: list[Any] = []

    @cache
    def address(page: str) -> str:
        if page == "served":
            pytest.importorskip("uvicorn")
            running = served([llamath.load("gpt2").replace(name="mine")])
            servers.append(running)
            return str(running.__enter__().address)
        if page == "gallery":
            write_gallery(str(folder / "site"), GALLERY, processes=1)
            return (folder / "site/index.html").as_uri()
        path = folder / f"{page}.html"
        if page == "checkpoint":
            path.write_text(
                model_page(
                    [
                        load_with_checkpoint(
                            str(write_checkpoint(folder / "not whole", hostile=True))
                        )
                    ]
                )
            )
        elif page == "live":
            path.write_text(live_page())
        else:
            path.write_text(text_of(page))
        return path.as_uri()

    yield address
    for x in servers:
        x.__exit__(None, None, None)


@contextmanager
def tab_of(
    browser: Any, address: str, width: int, theme: str = "light", **how: Any
) -> Iterator[Any]:
    wrong: list[str] = []
    with lent_page(browser, width, 900, color_scheme=theme, bypass_csp=True, **how) as tab:
        note = lambda x: wrong.append(str(x))  # noqa: E731
        tab.on("pageerror", note)
        visit(tab, address)
        yield tab
        tab.remove_listener("pageerror", note)
    assert not wrong


def states_of(
    tab: Any, address: str, page: str, folder: Path, states: Sequence[State]
) -> Iterator[State]:
    """Bring a page that is open into these states: by its address, or loaded anew where something was pressed before."""
    loaded: str | None = ""
    for state in states:
        path, _, at = state.at.partition("#")
        if loaded == path and page != "file":
            go_to(tab, at)
        else:
            tab.goto(EMPTY)
            visit(tab, address + state.at)
        loaded = None if state.press else path
        if page == "file":
            path = folder / ("wrong.gguf" if state.at else "model.safetensors")
            path.write_bytes(b"GGUF" if state.at else (folder / "model.bytes").read_bytes())
            tab.set_input_files("#file-input", str(path))
            tab.wait_for_selector(".wrong" if state.at else ".file")
        for what in state.press:
            if len(what) == 1:
                tab.keyboard.press(what)
            elif tab.locator(what).first.is_visible():
                tab.locator(what).first.click()
        wait_until_drawn(tab)
        yield state


VIOLATIONS = """async ([parts, every]) => {
  const roots = parts.length ? parts.flatMap((x) => [...document.querySelectorAll(x)]) : [document.documentElement];
  const backgroundsOf = new Map();
  const lookOf = (x) => {
    if (!x) return "";
    if (!backgroundsOf.has(x)) {
      const { backgroundColor, backgroundImage, opacity, filter } = getComputedStyle(x);
      const own = [x.localName, x.getAttribute("class"), backgroundColor, backgroundImage, opacity, filter].join();
      backgroundsOf.set(x, `${lookOf(x.parentElement)}>${own}`);
    }
    return backgroundsOf.get(x);
  };
  const looks = new Set();
  for (const x of roots.flatMap((y) => [y, ...y.querySelectorAll("*")])) {
    if (![...x.childNodes].some((y) => y.nodeType === 3 && y.data.trim()) && !x.matches("input, select, textarea")) continue;
    const { width, height } = x.getBoundingClientRect();
    if (!width || !height || !x.checkVisibility({ visibilityProperty: true })) continue;
    const { color, fill, fontSize, fontWeight, textShadow } = getComputedStyle(x);
    const look = [lookOf(x), color, fill, fontSize, fontWeight, textShadow, x.disabled, x.ariaDisabled].join();
    x.toggleAttribute("data-look", every || !looks.has(look));
    looks.add(look);
  }
  const beside = (x) => (x.matches("html, body") ? [] : [...x.parentElement.children, ...beside(x.parentElement)]);
  const isApart = (x) => !x.matches("script, style") && !roots.some((y) => x.contains(y) || y.contains(x));
  const apart = [...new Set(roots.flatMap(beside))].filter(isApart).map((x) => [x, x.getBoundingClientRect(), x.getAttribute("style")]);
  const top = document.scrollingElement.scrollTop;
  const emptied = apart.map(([x, { width, height }, style]) => {
    const inside = document.createDocumentFragment();
    inside.append(...x.childNodes);
    x.style.cssText += `; box-sizing: border-box; width: ${width}px; height: ${height}px`;
    return () => {
      x.append(inside);
      style === null ? x.removeAttribute("style") : x.setAttribute("style", style);
    };
  });
  axe.configure({ rules: [{ id: "color-contrast", selector: "[data-look]" }] });
  const rules = { "label-content-name-mismatch": { enabled: true } };
  const { violations } = await axe.run({ include: roots }, { preload: false, resultTypes: ["violations"], rules });
  emptied.forEach((restore) => restore());
  document.scrollingElement.scrollTop = top;
  return violations.map((x) => [x.id, x.nodes.slice(0, 3).map((y) => y.html.slice(0, 200))]);
}"""
"""All rules of axe, and that names begin with what is read; the contrast of colours, which takes most of its time, of one text of each look:
texts of the same colours, sizes and classes within the same backgrounds have the same contrast.
What is beside the parts is emptied meanwhile: axe walks the whole document for each of them."""


def violations(tab: Any, part: str, every: bool) -> list[Any]:
    """Return what axe finds in the parts of the page that match a selector, or in all of it."""
    from axe_playwright_python.sync_playwright import Axe

    if not tab.evaluate("'axe' in globalThis"):
        tab.evaluate(Axe().axe_script)
    found: list[Any] = tab.evaluate(VIOLATIONS, [part.split(",") if part else [], every])
    return found


STOPS = """() => {
  const dialog = document.querySelector("dialog[open]");
  const all = [...(dialog ?? document).querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")]
    .filter((x) => x.tabIndex >= 0 && !x.disabled && x.checkVisibility({ visibilityProperty: true }));
  const isControl = (x) => !x.closest(".eyebrow");
  const starts = [["start", 0], ...[...document.querySelectorAll("main :is(section[id], .settings-bar)")].filter((x) => !dialog && x.checkVisibility())
    .map((x) => [x.id, all.findIndex((y) => x.contains(y) && isControl(y))]).filter((x) => x[1] >= 0), ["end", all.length]];
  const header = all.filter((x) => x.closest("header, .skip"));
  return { between: starts.slice(1).map(([id, at], i) => [id, at - starts[i][1]]), header: header.length, all: all.length,
    links: [...document.querySelectorAll("main section[id]:not(#files)")].filter((x) => x.checkVisibility()).map((x) => x.id) };
}"""
"""The number of tab stops from the first control of a section, or of the settings, to that of the next."""
LONELY = """() => [...document.querySelectorAll("[data-numbers]")].filter((x) => x.checkVisibility()).map((group) => {
  const numbers = [...group.querySelectorAll(".number[data-stop]")].filter((x) => x.closest("[data-numbers]") === group && x.checkVisibility());
  return [group.id || group.className, numbers.length, numbers.filter((x) => x.tabIndex === 0).length];
}).filter(([, all, stops]) => all > 0 && stops !== 1)"""
"""Groups of numbers that do not have exactly one tab stop."""
SMALL = """(least) => [...document.querySelectorAll("button, select, input, a, summary, [role=button], [role=slider]")].filter((x) => {
  const { width, height } = x.getBoundingClientRect();
  return x.checkVisibility() && width && height && (height < least - 0.5 || width < 8) && !x.closest("svg, p, li, small, label, .skip, .eyebrow, h2, .number:not(.facts .number)");
}).map((x) => x.outerHTML.slice(0, 120))"""
"""Targets too small to touch; those within text, tables and pictures are as large as their line or shape."""


SCROLLED = "document.documentElement.scrollWidth"
LOOKS = [("light", 1440), ("dark", 390)]
EVERY_LOOK = [*LOOKS, ("light", 390), ("dark", 1440)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "theme" in metafunc.fixturenames:
        every = EVERY_LOOK if metafunc.config.getoption("--all") else LOOKS
        metafunc.parametrize(("theme", "width"), every)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the bytes of a checkpoint."""
    whole = write_checkpoint(tmp_path / "small") / "model.safetensors"
    (tmp_path / "model.bytes").write_bytes(whole.read_bytes())
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_every_state_is_accessible(
    browser: Any,
    folder: Path,
    addresses: Callable[[str], str],
    page: str,
    theme: str,
    width: int,
    request: pytest.FixtureRequest,
) -> None:
    """The first state in both looks, of the others every third one; before a release, all of them and each text."""
    every = request.config.getoption("--all")
    first, *others = PAGES[page]
    states = [first, *(others if every else others[LOOKS.index((theme, width)) :: 3])]
    with tab_of(browser, addresses(page), width, theme, reduced_motion="reduce") as tab:
        for state in states_of(tab, addresses(page), page, folder, states):
            assert not violations(tab, state.part, every), state
            found = tab.evaluate(STOPS)
            assert [
                x for x in found["between"] if x[1] > MOST_STOPS and x[0] != "end"
            ] == [] and found["header"] <= MOST_STOPS, state
            assert tab.evaluate(LONELY) == [] and tab.evaluate(SMALL, SMALLEST_TARGET) == [], state


@pytest.mark.parametrize("page", PAGES)
def test_nothing_scrolls_sideways_on_small_screens(
    browser: Any,
    folder: Path,
    addresses: Callable[[str], str],
    page: str,
    request: pytest.FixtureRequest,
) -> None:
    """On the smallest phones, and in a window of 1280 or 1440 pixels at 200 % zoom; between these, the first state."""
    every = request.config.getoption("--all")
    own = [x for x in PAGES[page] if not x.press and page not in ("file", "served")]
    with tab_of(browser, addresses(page), 320) as tab:
        for width in at_widths(tab, 720, 640, 390, 320):
            chosen = own if every or width in (720, 320) else own[:1]
            for state in states_of(tab, addresses(page), page, folder, chosen):
                assert tab.evaluate(SCROLLED) <= width, (state, width)
        rest = [x for x in PAGES[page] if x not in own]
        for state in states_of(tab, addresses(page), page, folder, rest):
            for width in at_widths(tab, 720, 320):
                assert tab.evaluate(SCROLLED) <= width, (state, width)


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("page", usual("mixture", "served", release=["comparison", "towers"]))
def test_every_section_has_a_link(
    browser: Any, addresses: Callable[[str], str], page: str, width: int
) -> None:
    """It moves the focus to the heading of the section; Back and Forward follow."""
    with tab_of(browser, addresses(page) + PAGES[page][0].at, width) as tab:
        tab.wait_for_selector("main section")
        sections = tab.evaluate(
            "[...document.querySelectorAll('main section[id]:not(#files)')].map((x) => x.id)"
        )
        for name in sections:
            if tab.is_visible("button[aria-label=Sections]"):
                tab.click("button[aria-label=Sections]")
            links = f"a[href*='section={name}']:visible"
            tab.locator(f"header {links}, .chapter-parts {links}").first.click()
            assert tab.evaluate("document.activeElement.id") == f"{name}-title"
            top, rest = tab.evaluate(
                "(x) => [document.getElementById(x).getBoundingClientRect().top, "
                "document.documentElement.scrollHeight - innerHeight - scrollY]",
                name,
            )
            assert top >= -1 and (top <= 110 or rest < 1), name
        for name in sections[-2::-1]:
            tab.go_back()
            wait_until_drawn(tab)
            assert (
                f"section={name}" in tab.url
                and tab.evaluate("document.activeElement.id") == f"{name}-title"
            )
        tab.go_forward()
        wait_until_drawn(tab)
        assert f"section={sections[1]}" in tab.url


def test_skip_link_leads_past_the_header(browser: Any, addresses: Callable[[str], str]) -> None:
    for page in ("mixture", "gallery"):
        with tab_of(browser, addresses(page), 1440) as tab:
            tab.keyboard.press("Tab")
            tab.keyboard.press("Enter")
            tab.keyboard.press("Tab")
            assert tab.evaluate("document.activeElement.closest('main') !== null"), page


def test_numbers_of_a_section_are_one_tab_stop(
    browser: Any, addresses: Callable[[str], str]
) -> None:
    with tab_of(browser, addresses("mixture"), 1440) as tab:
        label = "document.activeElement.textContent"
        tab.focus(".sheet .number")
        first = tab.evaluate(label)
        tab.keyboard.press("ArrowRight")
        second = tab.evaluate(label)
        assert second != first and tab.evaluate("document.activeElement.tabIndex") == 0
        assert tab.locator(".sheet .number[tabindex='0']").count() == 1
        tab.keyboard.press("Home")
        assert tab.evaluate(label) == first
        tab.focus("#memory .parts tbody tr:first-child td:nth-of-type(2) .number")
        tab.keyboard.press("ArrowDown")
        assert tab.evaluate(
            "document.activeElement.closest('tr') === document.querySelector('#memory .parts tbody tr:nth-child(2)')"
        )
        assert tab.evaluate("document.activeElement.closest('td').cellIndex") == 2
        tab.keyboard.press("Enter")
        assert tab.is_visible("dialog[open]")


def test_choices_are_one_tab_stop(browser: Any, addresses: Callable[[str], str]) -> None:
    with tab_of(browser, addresses("mixture"), 1440) as tab:
        assert tab.locator("#map [tabindex='0']").count() == 1
        tab.focus("#map [aria-checked=true]")
        tab.keyboard.press("ArrowRight")
        wait_until_drawn(tab)
        assert tab.get_attribute("#map [data-value=bytes]", "aria-checked") == "true"
        assert tab.evaluate("document.activeElement.dataset.value") == "bytes"


def test_phone_shows_findings_until_a_section_is_asked_for(
    browser: Any, addresses: Callable[[str], str]
) -> None:
    with tab_of(browser, addresses("mixture"), 390, has_touch=True, is_mobile=True) as tab:
        assert "distinct weights" in tab.text_content("#tensors-title")
        small = """[...document.querySelectorAll('a[href]:not(.skip), button, summary, select')]
          .map((x) => [x.textContent, x.checkVisibility() ? x.getBoundingClientRect().height : 24])
          .filter((x) => x[1] < 24)"""
        assert tab.evaluate(small) == [], "fingers reach all"
        tab.evaluate("scrollTo(0, 3000)")
        wait_until_drawn(tab)
        assert tab.locator("header").bounding_box()["y"] < -90
        tab.evaluate("scrollTo(0, 2800)")
        wait_until_drawn(tab)
        head, sections = (tab.locator(x).bounding_box() for x in ("header", ".narrow-only"))
        assert head["y"] == 0 and sections["y"] + sections["height"] < head["height"]
        shown = "['attention', 'experts', 'tensors'].map((x) => !document.querySelector(`#${x} .unfold`))"
        assert tab.evaluate(shown) == [False, False, False]
        tab.click("#attention .unfold")
        tab.evaluate("document.querySelector(`a[href*='section=tensors']`).click()")
        wait_until_drawn(tab)
        assert tab.evaluate(shown) == [True, False, True]
        assert tab.locator("#attention svg").count() and tab.locator("#tensors table").count()
        tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert tab.evaluate(shown) == [True, True, True], "paper has all"
        tab.evaluate("dispatchEvent(new Event('afterprint'))")
        assert tab.evaluate(shown) == [True, False, True]


def test_pinching_and_dragging_change_the_picture(
    browser: Any, addresses: Callable[[str], str]
) -> None:
    with tab_of(browser, addresses("mixture"), 390, has_touch=True, is_mobile=True) as tab:
        fingers = tab.context.new_cdp_session(tab)

        def touch(kind: str, *points: tuple[float, float]) -> None:
            fingers.send(
                "Input.dispatchTouchEvent",
                {
                    "type": kind,
                    "touchPoints": [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)],
                },
            )

        def pinch(at: str, start: float, end: float) -> None:
            tab.locator(at).first.scroll_into_view_if_needed()
            box = tab.locator(at).first.bounding_box()
            x, y = 190, max(150.0, min(box["y"] + box["height"] / 2, 600.0))
            touch("touchStart", (x - start, y), (x + start, y))
            for i in range(1, 5):
                reach = start + (end - start) * i / 4
                touch("touchMove", (x - reach, y), (x + reach, y))
            touch("touchEnd")
            wait_until_drawn(tab)

        pinch(".plate-scene", 80, 20)
        assert "zoom=model" in tab.url
        pinch(".hero-plate .skyline", 20, 80)
        assert "zoom" not in tab.url
        pinch(".plate-scene", 20, 80)
        assert "zoom=" in tab.url and "zoom=model" not in tab.url
        box = tab.locator(".layers-hit").first.bounding_box()
        tab.evaluate("scrollTo(0, 0)")
        box = tab.locator(".layers-hit").first.bounding_box()
        y = box["y"] + box["height"] / 2
        touch("touchStart", (box["x"] + 20, y))
        for x in range(20, 120, 10):
            touch("touchMove", (box["x"] + x, y))
        touch("touchEnd")
        wait_until_drawn(tab)
        assert "layer=" in tab.url


def test_filters_of_the_gallery_leave_room_on_phones(
    browser: Any, addresses: Callable[[str], str]
) -> None:
    """Models are on the first screen; the filters open by keyboard, say how many are set, and are cleared."""
    with tab_of(browser, addresses("gallery"), 390) as tab:
        assert tab.locator(".cards .card").first.bounding_box()["y"] < 400, "cards, not columns"
        assert tab.is_visible("#find") and not tab.is_visible("#kind")
        tab.focus(".filters-button")
        assert tab.get_attribute(".filters-button", "aria-expanded") == "false"
        tab.keyboard.press("Enter")
        assert tab.get_attribute(".filters-button", "aria-expanded") == "true" and tab.is_visible(
            "#kind"
        )
        tab.select_option("#kind", "moe")
        assert (
            tab.text_content(".filters-button") == "Filters: 1"
            and tab.locator("a.model").count() == 1
        )
        tab.click("text=Clear filters")
        assert tab.evaluate("document.activeElement.id") == "find" and tab.locator(
            "a.model"
        ).count() == len(GALLERY)
    with tab_of(browser, addresses("gallery"), 1440) as tab:
        assert tab.is_visible("#kind") and not tab.is_visible(".filters-button")
