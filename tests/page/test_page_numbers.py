"""Every number button on the page opens a derivation that contains its number, by click and by keyboard."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path
from typing import Any

import pytest
from test_page_block import write_checkpoint

from llamath.web.page_data.checkpoint_data import load_with_checkpoint
from llamath.web.page_data.page_data import build_page_data
from llamath.web.server.page_html import page_from_data
from support import page_models
from support.browser_page import Tab, browser
from support.page_numbers import NUMBER, opened_numbers
from support.release import usual

assert browser
SCALES = (1, 100, 1e3, 1e6, 1e9, 1e12, 1e15, 2**10, 2**20, 2**30, 2**40)
"""Units of the short form of a number: percent, K, M, B, T, P, KiB, MiB, GiB, TiB."""
FACTS_IN_WORDS = re.compile(r" in \d+ layers?$| of \d[\d,]*(?: \+ \d+ shared)?$")
"""Facts such as "GQA in 6 layers" and "8 of 256 + 1 shared", which open their dimension alone."""
MODELS_OF_PAGE: dict[str, tuple[str, ...]] = {
    "llama-3-8b": ("llama-3-8b",),
    "deepseek-v3": ("deepseek-v3",),
    "gpt2": ("gpt2",),
    "nemotron-3-nano-30b": ("nemotron-3-nano-30b",),
    "falcon-mamba-7b": ("falcon-mamba-7b",),
    "two": ("llama-2-7b", "llama-3-8b"),
}
STATES = [
    "#view=a",
    "#view=a&context=5000&batch=7&map=bytes",
    "#view=a&gpus=8&dtype=q4_k_m&kv=q8_0&map=cache",
    "#view=a&mode=train&context=4096",
    "#view=a&zoom=attn",
    "#view=a&zoom=attn/attn.q&shapes=letters",
    "#view=a&names=gguf&sort=total",
]
DESIGN = ["#view=design", "#view=design&target=8.03B", "#view=design&target=405B"]
COMPARISONS = [
    "#view=difference",
    "#view=difference&context=5000",
    "#view=difference&mode=train&context=4096",
]


def data_of(name: str) -> dict[str, Any]:
    return page_models.data_of(*MODELS_OF_PAGE[name])


def is_derived(shown: str, known: set[float]) -> bool:
    """Whether a number, as far as it is written out, is one of those in the formulas, or one of them in a larger unit."""
    digits = re.sub(r"[^\d.]", "", shown)
    half = 0.5 * 10.0 ** -len(digits.partition(".")[2]) if "." in digits else 0.5
    return any(
        abs(x / scale - float(digits)) <= half * (1 + 1e-9) or abs(x * 100 - float(digits)) <= half
        for x in known
        for scale in SCALES
    )


def not_derived(tab: Any, at: str, within: str = "#page") -> list[tuple[str, ...]]:
    """Return the number buttons of a state whose dialog has no formula with their number."""
    left = []
    for text, chains in opened_numbers(tab, at, within):
        known = {
            float(x)
            for chain in chains
            for x in re.findall(r"\d+(?:\.\d+)?", chain.replace(",", ""))
        }
        missing = (
            []
            if FACTS_IN_WORDS.search(text)
            else [x for x in NUMBER.findall(text) if not is_derived(x, known)]
        )
        if missing or (NUMBER.search(text) and not chains):
            left.append((at, text, " | ".join(chains)[:300]))
    return left


@pytest.mark.parametrize(
    "name",
    usual("deepseek-v3", "nemotron-3-nano-30b", release=["llama-3-8b", "gpt2", "falcon-mamba-7b"]),
)
def test_every_number_of_a_model_has_a_derivation(browser: Any, tmp_path: Path, name: str) -> None:
    with Tab(browser, tmp_path, page_from_data(data_of(name))) as tab:
        left = [y for at in (*STATES, *DESIGN) for y in not_derived(tab, at)]
    assert not left, left


def test_every_number_of_two_models_has_a_derivation(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_from_data(data_of("two"))) as tab:
        left = [y for at in COMPARISONS for y in not_derived(tab, at)]
    assert not left, left


@pytest.mark.parametrize("hostile", [False, True])
def test_every_number_of_a_checkpoint_has_a_derivation(
    browser: Any, tmp_path: Path, hostile: bool
) -> None:
    data = build_page_data(
        [load_with_checkpoint(str(write_checkpoint(tmp_path / "model", hostile)))]
    )
    with Tab(browser, tmp_path, page_from_data(data)) as tab:
        left = [y for at in ("#view=a", "#map=bytes") for y in not_derived(tab, at)]
    assert not left, left


def test_every_number_of_a_dropped_file_has_a_derivation(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_from_data(data_of("gpt2"))) as tab:
        tab.set_input_files(
            "#file-input", str(write_checkpoint(tmp_path / "model") / "model.safetensors")
        )
        tab.wait_for_selector("#files table")
        left = not_derived(tab, "#view=a&batch=2", "#files")
    assert not left, left


def test_derivations_are_reachable_by_keyboard(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_from_data(data_of("llama-3-8b")), "#context=5000") as tab:
        sections = tab.evaluate(
            "[...document.querySelectorAll('section[id]')].filter(x => x.querySelector('button.number')).map(x => x.id)"
        )
        assert {
            "parameters",
            "hardware",
            "memory",
            "speed",
            "attention",
            "positions",
            "tensors",
        } <= set(sections)
        for section in sections:
            found = tab.locator(f"#{section} button.number:visible").first
            found.focus()
            tab.keyboard.press("Enter")
            assert "\n= " in tab.text_content("dialog[open] pre[aria-label=formula]"), section
            tab.keyboard.press("Escape")
            assert found.evaluate("x => x === document.activeElement"), section


def test_open_derivations_are_printed(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_from_data(data_of("gpt2"))) as tab:
        tab.click("[data-part=cache]")
        tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        tab.emulate_media(media="print")
        assert (
            tab.is_visible(".printed pre")
            and not tab.is_visible("dialog")
            and tab.locator(".printed button:visible").count() == 0
        )
        tab.evaluate("dispatchEvent(new Event('afterprint'))")
        tab.emulate_media(media="screen")
        assert not tab.is_visible(".printed")


@pytest.mark.parametrize(
    "name", ["llama-3-8b", "deepseek-v3", "nemotron-3-nano-30b", "falcon-mamba-7b"]
)
def test_bytes_of_a_weight_equal_its_formula(name: str) -> None:
    """The bytes of each codec, evaluated for a weight's shape, equal the library's bytes."""
    model = data_of(name)["models"][0]
    codecs = {x["name"]: x["codecs"] for x in model["sizes"]["dtypes"]}
    seen = set()
    for tile in model["tiles"]:
        n, shape = prod(map(int, tile["shape"])), [*map(int, tile["shape"]), 1]
        for dtype, kept in tile["kept"].items():
            for codec, _, each in kept:
                text = (
                    codecs[dtype][codec]
                    .replace("out", str(shape[0]))
                    .replace("in", str(shape[1]))
                    .replace("n", str(n))
                )
                text = (
                    text.replace("·", "*")
                    .replace("⌈", "-int(-(")
                    .replace("⌉", ")//1)")
                    .replace(",", "")
                )
                seen.add(codec)
                assert eval(text, {"__builtins__": {"int": int}}) == int(each), (
                    codec,
                    tile["path"],
                    text,
                )
    assert len(seen) > 8


def test_sums_and_letters_evaluate_to_their_values() -> None:
    for name in ("llama-3-8b", "deepseek-v3", "gpt2", "nemotron-3-nano-30b"):
        model = data_of(name)["models"][0]
        assert all(x["symbols"] for x in model["counts"]) and all(
            x["of"][-1] == f"{int(x['value']):,}" for x in model["letters"]
        )
    letters = {x["letter"]: x["of"] for x in data_of("gpt2")["models"][0]["letters"]}
    assert letters["h"] == ["h", "⌊d / H⌋", "⌊768 / 12⌋", "64"] and letters["F"] == [
        "F",
        "4·d",
        "4·768",
        "3,072",
    ]
