"""Every number on the page opens its derivation, by click and by keyboard; exceptions are listed here with reasons."""

from __future__ import annotations

import re
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import pytest
from test_page_block import write_checkpoint

import llamath
from llamath.web.page_data.checkpoint_data import load_with_checkpoint
from llamath.web.page_data.page_data import build_page_data
from llamath.web.server.page_html import page_from_data
from support.browser_page import Tab, browser, wait_until_drawn

assert browser
WITHOUT_DERIVATION = {
    "h1, nav button": "names of models",
    "option": "options of a setting",
    "label": "the name of a slider and its config key",
    ".set": "current settings",
    ".tick": "axis ticks and units",
    ".path, .name, .fold, .head > th": "names of tensors, of keys and of layers",
    ".source": "the source of the model",
    ".does": "the description of a step, with config values",
    ".note": "notes of the library",
    ".letters td:last-child": "the key of a letter",
    "[aria-labelledby=configs] tbody td": "values of the two configurations",
    "[aria-label='config.json']": "the config of the design",
    ".checkpoint li:has(.bad)": "a finding of `verify`, which opens its tensors",
}
"""Selectors of texts whose numbers are not computed, each with the reason."""
COLLECT_NUMBERS_JS = """([excluded, names, within]) => {
  HTMLDialogElement.prototype.showModal = function () { this.setAttribute("open", ""); };
  for (const x of document.querySelectorAll("details")) x.open = true;
  const [found, cache] = [[], new Map()];
  const open = (x) => {
    if (cache.has(x)) return cache.get(x);
    x.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    const dialog = document.querySelector("dialog[open]");
    const chains = [...(dialog?.querySelectorAll("pre[aria-label=formula]") ?? [])].map((y) => y.textContent);
    cache.set(x, { chains, keys: x.localName === "button" || x.hasAttribute("tabindex") });
    dialog?.remove();
    return cache.get(x);
  };
  const walker = document.createTreeWalker(document.getElementById("page"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const { parentElement: place, data } = walker.currentNode;
    if (!/\\d/.test(data) || place.closest("title, desc, .hidden") || place.closest(excluded) || !place.checkVisibility()) continue;
    if (within && !place.closest(within)) continue;
    let text = data;
    for (const x of names) text = text.replaceAll(x, "");
    if (!/\\d/.test(text)) continue;
    const own = place.closest("button.number, [role=button]");
    const around = own ? [own] : [...(place.closest("tr, li")?.querySelectorAll(".number") ?? [])];
    const opened = around.map(open);
    found.push([text, opened.flatMap((x) => x.chains), around.length > 0 && opened.every((x) => x.keys), place.closest("section")?.getAttribute("aria-labelledby") ?? "", place.outerHTML.slice(0, 160)]);
  }
  return found;
}"""
NUMBER = re.compile(r"\d(?:[\d,.]*\d)?(?:%|[KMBT]\b| Gi?B\b)?")


def names_with_digits(data: dict[str, Any]) -> list[str]:
    """Return the names of models, GPUs, dtypes and layouts that contain digits, longest first."""
    names = [y for x in data["models"] for y in (x["name"], *(z["name"] for z in (*x["sizes"]["dtypes"], *x["sizes"]["kvs"])))]
    layouts = [y["layout"] for x in data["models"] for y in x["sizes"]["gpus"]]
    cards = [y for x in (*data["cards"], *data["gpus"]) for y in (x["name"], x["title"])]
    codecs = [y for x in data["models"] for z in x["sizes"]["dtypes"] for y in z["codecs"]]
    return sorted({x for x in (*names, *layouts, *cards, *codecs, *data["gpus"][0]["flops"]) if re.search(r"\d", x)}, key=len, reverse=True)


def numbers_without_formula(text: str, chains: list[str]) -> list[str]:
    """Return the numbers of a text that are no result of a formula; a formula has letters first, then numbers."""
    known: set[str] = set()
    for chain in chains:
        letters, *rest = chain.split("\n= ")
        if re.search(r"[^\W\d]", letters):
            known |= {x.replace(",", "") for part in rest for x in NUMBER.findall(part)}
    return [x for x in NUMBER.findall(text) if x.replace(",", "") not in known]


OPENERS = [
    "[data-part=parameters]",
    "[data-part=cache]",
    ".map .tile",
    ".legend .number",
    ".block-list .number",
    "[data-block]",
    "[data-matrix-fact]",
    ".plots .tile",
    "[aria-labelledby=speed] .plots .tile",
    "[aria-labelledby=letters] .number",
    "[data-column=shape]",
]
"""One element of each kind that opens a derivation."""
MODELS_OF_PAGE: dict[str, tuple[str, ...]] = {
    "llama-3-8b": ("llama-3-8b",),
    "deepseek-v3": ("deepseek-v3",),
    "gpt2": ("gpt2",),
    "nemotron-3-nano-30b": ("nemotron-3-nano-30b",),
    "falcon-mamba-7b": ("falcon-mamba-7b",),
    "two": ("llama-2-7b", "llama-3-8b"),
}
MAPS = [
    f"#view=a&context=5000&batch=3&map={x}&by={y}" for x in ("parameters", "bytes", "flops", "cache") for y in ("part", "kind", "layer")
]
STATES = {
    "section[aria-labelledby=where]": [*MAPS, "#view=a&focus=1", "#view=a&map=bytes&dtype=q4_k_m", "#view=a&map=bytes&dtype=fp8&by=layer"],
    ".plate": [
        "#view=a&zoom=attn",
        "#view=a&zoom=attn&shapes=letters&context=3000",
        "#view=a&zoom=attn&pass=next",
        "#view=a&zoom=attn/attn.q",
    ],
    "section[aria-labelledby=memory], section[aria-labelledby=speed]": [
        "#view=a&context=5000&batch=7",
        "#view=a&gpus=8&dtype=q4_k_m&kv=q8_0&card=b200",
        "#view=a&mode=train&trainers=8&tp=2&zero=3&context=4097",
    ],
    "": ["#view=a", "#view=a&names=gguf&sort=total"],
}
DESIGN = ["#view=design", "#view=design&target=8.03B", "#view=design&target=405B"]
COMPARISONS = ["#view=difference&context=5000", "#view=difference&mode=train&context=4097"]


@cache
def data_of(name: str) -> dict[str, Any]:
    return build_page_data([llamath.load(x) for x in MODELS_OF_PAGE[name]])


def unexplained_numbers(tab: Any, data: dict[str, Any], at: str, within: str) -> list[tuple[str, ...]]:
    """Return the numbers of a state without a derivation that contains them."""
    tab.evaluate("at => { location.hash = at }", at)
    tab.wait_for_function("at => location.hash === at && !document.querySelector('dialog[open]')", arg=at)
    wait_until_drawn(tab)
    found = tab.evaluate(COLLECT_NUMBERS_JS, [", ".join(WITHOUT_DERIVATION), names_with_digits(data), within])
    assert found or "cache" in at, (at, within)
    return [
        (at, x, section, text.strip()[:60], html)
        for text, chains, keys, section, html in found
        for x in numbers_without_formula(text, chains) or ([] if keys else ["no key"])
    ]


@pytest.mark.parametrize("name", ["llama-3-8b", "deepseek-v3", "gpt2", "nemotron-3-nano-30b", "falcon-mamba-7b"])
def test_every_number_of_a_model_has_a_derivation(browser: Any, tmp_path: Path, name: str) -> None:
    data = data_of(name)
    with Tab(browser, tmp_path, page_from_data(data)) as tab:
        left = [y for within, states in STATES.items() for at in states for y in unexplained_numbers(tab, data, at, within)]
        left += [y for at in DESIGN for y in unexplained_numbers(tab, data, at, "")]
    assert not left, left


def test_every_number_of_two_models_has_a_derivation(browser: Any, tmp_path: Path) -> None:
    data = data_of("two")
    with Tab(browser, tmp_path, page_from_data(data)) as tab:
        left = [y for at in (*COMPARISONS, *DESIGN) for y in unexplained_numbers(tab, data, at, "")]
    assert not left, left


@pytest.mark.parametrize("hostile", [False, True])
def test_every_number_of_a_checkpoint_has_a_derivation(browser: Any, tmp_path: Path, hostile: bool) -> None:
    data = build_page_data([load_with_checkpoint(str(write_checkpoint(tmp_path / "model", hostile)))])
    with Tab(browser, tmp_path, page_from_data(data)) as tab:
        left = [y for at in ("#view=a", "#map=bytes&by=layer", "#map=bytes&by=kind") for y in unexplained_numbers(tab, data, at, "")]
    assert not left, left


def test_every_number_of_a_dropped_file_has_a_derivation(browser: Any, tmp_path: Path) -> None:
    data = data_of("gpt2")
    with Tab(browser, tmp_path, page_from_data(data)) as tab:
        tab.set_input_files("#file-input", str(write_checkpoint(tmp_path / "model") / "model.safetensors"))
        tab.wait_for_selector("section[aria-labelledby=file]")
        left = unexplained_numbers(tab, data, "#view=a&batch=2", "section[aria-labelledby=file]")
    assert not left, left


def test_derivations_are_reachable_by_keyboard(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_from_data(data_of("llama-3-8b")), "#context=5000") as tab:
        for opener in OPENERS:
            found = tab.locator(opener).first
            found.focus()
            tab.keyboard.press("Enter")
            assert "\n= " in tab.text_content("dialog[open] pre[aria-label=formula]"), opener
            tab.keyboard.press("Escape")
            assert found.evaluate("x => x === document.activeElement"), opener


def test_neighboring_units_open_the_same_derivation(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_from_data(data_of("llama-3-8b"))) as tab:
        tab.click("tr:has([data-part=cache]) td >> nth=2")
        assert "2³⁰" in tab.text_content("dialog[open]") and "cache / all" in tab.text_content("dialog[open]")


def test_open_derivations_are_printed(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_from_data(data_of("gpt2"))) as tab:
        tab.click("[data-part=cache]")
        tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        tab.emulate_media(media="print")
        assert tab.is_visible(".printed pre") and not tab.is_visible("dialog") and tab.locator(".printed button:visible").count() == 0
        tab.evaluate("dispatchEvent(new Event('afterprint'))")
        assert tab.locator(".printed").count() == 0


@pytest.mark.parametrize("name", ["llama-3-8b", "deepseek-v3", "nemotron-3-nano-30b", "falcon-mamba-7b"])
def test_bytes_of_a_weight_equal_its_formula(name: str) -> None:
    """The bytes of each codec, evaluated for a weight's shape, equal the library's bytes."""
    model = data_of(name)["models"][0]
    codecs = {x["name"]: x["codecs"] for x in model["sizes"]["dtypes"]}
    seen = set()
    for tile in model["tiles"]:
        n, shape = prod(map(int, tile["shape"])), [*map(int, tile["shape"]), 1]
        for dtype, kept in tile["kept"].items():
            assert sum(int(many) * int(each) for _, many, each in kept) == int(tile["bytes"][dtype])
            for codec, _, each in kept:
                text = codecs[dtype][codec].replace("out", str(shape[0])).replace("in", str(shape[1])).replace("n", str(n))
                text = text.replace("·", "*").replace("⌈", "-int(-(").replace("⌉", ")//1)").replace(",", "")
                seen.add(codec)
                assert eval(text, {"__builtins__": {"int": int}}) == int(each), (codec, tile["path"], text)
    assert len(seen) > 8


def test_sums_and_letters_evaluate_to_their_values() -> None:
    for name in ("llama-3-8b", "deepseek-v3", "gpt2", "nemotron-3-nano-30b"):
        model = data_of(name)["models"][0]
        for kind in model["layers"]["kinds"]:
            assert {dtype: str(sum(map(int, x))) for dtype, x in kind["of"].items()} == kind["bytes"]
        assert all(x["symbols"] for x in model["counts"]) and all(x["of"][-1] == f"{int(x['value']):,}" for x in model["letters"])
    letters = {x["letter"]: x["of"] for x in data_of("gpt2")["models"][0]["letters"]}
    assert letters["h"] == ["h", "⌊d / H⌋", "⌊768 / 12⌋", "64"] and letters["F"] == ["F", "4·d", "4·768", "3,072"]
