"""A model of the page at other dimensions: the page follows, says what does not, and why the size differs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_plus

import pytest

import llamath
from llamath.analysis.learn.tour.tour import tour_of
from llamath.analysis.understand.diff.model_diff import diff
from llamath.analysis.understand.fact_sheet import fact_sheet
from llamath.loading import load
from llamath.utils.number_format import short_bytes
from support.browser_page import Tab, at_widths, browser, go_to, shown_text, wait_until_drawn
from support.page_models import page_of

__all__ = ["browser"]
MODEL = "llama-3-8b"


@pytest.fixture(scope="module")
def tab(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with Tab(browser, tmp_path_factory.mktemp("edit"), page_of(MODEL), "#edit=sizes") as page:
        yield page


def causes(tab: Any) -> list[tuple[str, int]]:
    """The causes that the waterfall shows, with their numbers."""
    rows = tab.evaluate(
        """() => [...document.querySelectorAll("#edit tr:not(.total, .mixture-layer *)")].map((row) =>
        [row.querySelector("th")?.textContent, row.querySelector("td.n")?.textContent])"""
    )
    return [
        (cause.strip(), int(n.rpartition(": ")[2].replace(",", "").replace("−", "-")))
        for cause, n in rows
        if cause and n
    ]


def total(tab: Any) -> int:
    """The total of the first screen."""
    return int(shown_text(tab, ".hero [data-part=parameters]").replace(",", ""))


@pytest.mark.parametrize(
    "edit",
    [
        {"num_key_value_heads": 32},
        {"vocab_size": 32000, "num_hidden_layers": 40},
        {"hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 10},
    ],
)
def test_page_follows_an_edit_as_diff_does(tab: Any, edit: dict[str, int]) -> None:
    original = load(MODEL)
    letters = {"hidden_size": "d", "num_hidden_layers": "L", "num_attention_heads": "H"}
    letters |= {"num_key_value_heads": "K", "vocab_size": "V"}
    go_to(tab, "edit=sizes&sizes=" + ".".join(f"{letters[x]}{n}" for x, n in edit.items()))
    edited = llamath.load({**original.config.data, **edit})
    assert total(tab) == edited.parameters.total
    report = diff(original, edited)
    found = causes(tab)
    assert [n for _, n in found] == [x.delta for x in report.causes]
    for (text, _), cause in zip(found, report.causes, strict=True):
        assert text.startswith(cause.cause) and f"{cause.b:,}" in text
    assert tab.locator(".skyline .before").count() > 0, "outlines of the original"
    if "num_key_value_heads" in edit and len(edit) == 1:
        assert "(was 1,024)" in tab.text_content(".layer-picture"), (
            "sizes before the edit, in brackets"
        )


def test_letter_without_its_key_follows_others(tab: Any) -> None:
    go_to(tab, "edit=sizes&sizes=d5120")
    assert tab.input_value("#size-h") == "160"
    tab.fill("#size-h", "128")
    wait_until_drawn(tab)
    assert tab.evaluate("location.hash").startswith("#sizes=d5120.h128&")
    same = llamath.load({**load(MODEL).config.data, "hidden_size": 5120, "head_dim": 128})
    assert total(tab) == same.parameters.total
    tab.go_back()
    wait_until_drawn(tab)


def test_question_is_pressed_and_undone(tab: Any) -> None:
    go_to(tab, "edit=sizes")
    names = tab.evaluate(
        "() => [...document.querySelectorAll('.edit-questions button')].map((x) => x.textContent)"
    )
    assert {"multi-head attention", "a vocabulary of 32,000", "a tied head"} <= set(names)
    button = tab.get_by_role("button", name="multi-head attention")
    button.click()
    wait_until_drawn(tab)
    assert tab.evaluate("location.hash") == "#sizes=K32&edit=sizes"
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    wait_until_drawn(tab)
    assert total(tab) == 8_030_261_248 and tab.evaluate("location.hash") == "#edit=sizes"


def ask(tab: Any, question: str) -> None:
    tab.get_by_role("button", name=question).click()
    wait_until_drawn(tab)


def test_questions_keep_what_was_edited_before(tab: Any) -> None:
    go_to(tab, "edit=sizes")
    ask(tab, "twice as deep")
    ask(tab, "twice as wide")
    config = load(MODEL).config.data
    both = {"num_hidden_layers": 64, "hidden_size": 8192, "intermediate_size": 28672}
    both |= {"num_attention_heads": 64}  # of the same size
    assert total(tab) == llamath.load({**config, **both}).parameters.total
    pressed = tab.locator(".edit-questions [aria-pressed=true]").all_text_contents()
    assert pressed == ["twice as deep", "twice as wide"]
    ask(tab, "twice as deep")
    assert total(tab) == llamath.load({**config, **both, "num_hidden_layers": 32}).parameters.total


def test_window_is_a_key_that_a_slider_moves(browser: Any, tmp_path: Path) -> None:
    slug = "gemma-2-2b"
    config = load(slug).config.data

    def facts(tab: Any) -> str:
        return " ".join(tab.inner_text(".facts").split())

    def shows(tab: Any, window: int) -> bool:
        known = fact_sheet(llamath.load({**config, "sliding_window": window}))
        said = (f"{window:,} tokens", short_bytes(known.kv_full_context))
        return all(x in facts(tab) for x in said)

    with Tab(browser, tmp_path, page_of(slug), "#edit=sizes") as tab:
        own = facts(tab)
        ask(tab, "a window of 1,024")
        assert 'keys={"sliding_window":1024}' in unquote_plus(tab.evaluate("location.hash"))
        assert shows(tab, 1024) and "no weight" in tab.inner_text("[data-part=window]")
        ask(tab, "all tokens in every layer")
        assert tab.input_value("#size-W") == "8192" and shows(tab, 8192)
        assert "26 all alike" in facts(tab)
        assert not re.search(r"\blocal\b|the last [\d,]+ keys", tab.inner_text(".hero"))
        drag(tab, "W", 2048, 2560)
        tab.fill("#size-L", "30")
        wait_until_drawn(tab)
        assert "2,560 tokens in 15 layers" in facts(tab)
        at = str(tab.evaluate("location.hash"))[1:]
        go_to(tab, at.replace("edit=sizes", "edit=text"))
        typed = json.loads(tab.input_value("#config-text"))
        assert typed["sliding_window"] == 2560 and typed["num_hidden_layers"] == 30
        for other in ("null", "9000"):
            go_to(tab, "edit=sizes&keys=" + quote(f'{{"sliding_window":{other}}}'))
            said = tab.inner_text(".edit-result")
            assert f"sliding_window {other}" in said and "llamath export config.json" in said
            assert facts(tab) == own


def drag(tab: Any, letter: str, *values: int) -> None:
    """Move a slider through values, and let it go."""
    tab.evaluate(
        """([letter, values]) => {
          const range = document.querySelector(`#size-${letter}`).previousElementSibling;
          for (const n of values) {
            range.value = String(n);
            range.dispatchEvent(new Event("input", { bubbles: true }));
          }
          range.dispatchEvent(new PointerEvent("pointerup", { bubbles: true }));
        }""",
        [letter, values],
    )
    wait_until_drawn(tab)


def test_each_edit_is_one_step_of_back(tab: Any) -> None:
    go_to(tab, "edit=sizes")
    ask(tab, "multi-head attention")
    drag(tab, "L", 33, 34, 40)
    drag(tab, "L", 41, 48)
    tab.fill("#size-V", "32000")
    wait_until_drawn(tab)
    tab.check("#edit-tied")
    wait_until_drawn(tab)
    seen = [tab.evaluate("location.hash")]
    for _ in range(5):
        tab.go_back()
        wait_until_drawn(tab)
        seen.append(tab.evaluate("location.hash"))
    steps = ["K32.L48.V32000.tied1", "K32.L48.V32000", "K32.L48", "K32.L40", "K32"]
    assert seen == [*(f"#sizes={x}&edit=sizes" for x in steps), "#edit=sizes"]
    assert total(tab) == 8_030_261_248 and tab.locator("#edit").count() == 1


def test_page_follows_another_head(tab: Any) -> None:
    go_to(tab, "edit=sizes&sizes=tied1")
    tied = llamath.load({**load(MODEL).config.data, "tie_word_embeddings": True})
    assert total(tab) == tied.parameters.total and "tied head" in tab.inner_text(".facts")
    for part in ("#edit [data-part=designed]", "#parameters"):
        assert f"{tied.parameters.total:,}" in tab.text_content(part), part
    assert causes(tab) == [("head tied to the embedding", -525_336_576)]
    assert not tab.locator(".stale").count()
    smallest = fact_sheet(tied).runs_on[0].gpu
    used = f"{smallest.total / 2**30:.1f} of {smallest.device.memory / 2**30:.1f} GiB"
    assert used in tab.text_content(".runs")


def test_what_the_page_cannot_follow_is_said(tab: Any) -> None:
    """What follows is marked as another model's, and cannot be used."""
    for sizes, why in (("E8.k2.tied1", "keeps the head"), ("L1000000", "layers are drawn")):
        go_to(tab, f"edit=sizes&sizes={sizes}")
        note = tab.text_content(".stale-note")
        assert why in note and "as published" in note
        assert total(tab) == 8_030_261_248 and tab.locator(".stale[inert] .hero").count() == 1
        assert "+" in tab.text_content(".edit-status") and tab.is_visible(".edit-status")


def test_added_layers_have_no_outlines(tab: Any) -> None:
    go_to(tab, "edit=sizes&sizes=L64")
    assert "Q4_K_M" in tab.text_content("#edit [data-part=left-out]")
    kinds = tab.evaluate("() => llamath.data.models[0].attention.alternatives.map((x) => x.kind)")
    shown = tab.text_content("#attention")
    assert len(kinds) == 4 and all(x in shown for x in kinds), "cards of each kind"
    assert tab.get_attribute(".skyline .before", "d").count("M") == 32
    assert total(tab) > 15 * 10**9


def test_dimensions_of_no_model_leave_the_last_one(tab: Any) -> None:
    go_to(tab, "edit=sizes&sizes=K16")
    sound = total(tab)
    go_to(tab, "edit=sizes&sizes=K3")
    assert "should divide" in tab.text_content("#edit .broken") and total(tab) == sound
    assert (
        "the last valid edit" in tab.text_content(".stale-note") and tab.locator(".stale").count()
    )
    go_to(tab, "edit=foreign&sizes=K16")
    assert not tab.locator("#edit").count() and total(tab) == 8_030_261_248


def notes(tab: Any, text: str) -> list[str]:
    """What is said of a config that is typed."""
    tab.fill("#config-text", text)
    # what is typed is read when it rests
    tab.evaluate("() => new Promise((done) => setTimeout(done, 300))")
    wait_until_drawn(tab)
    return [str(x) for x in tab.locator("#config-notes li").all_text_contents()]


def test_typed_config_is_checked_by_line(tab: Any) -> None:
    go_to(tab, "edit=text")
    config = tab.input_value("#config-text")
    assert llamath.load(json.loads(config)).parameters.total == 8_030_261_248
    assert notes(tab, config.replace('"vocab_size": 128256', '"vocab_size": 32000')) == []
    smaller = total(tab)
    assert smaller == 8_030_261_248 - 2 * 4096 * (128_256 - 32_000)
    assert not tab.locator("ul[role=status]").count(), "a list stays a list"
    line = next(i for i, x in enumerate(config.splitlines(), 1) if "vocab_size" in x)
    half = notes(tab, config.replace('"vocab_size": 128256', '"vocab_size": '))
    assert len(half) == 1 and half[0].startswith(f"Line {line}: expected a value")
    said, typed = (tab.locator(x).bounding_box() for x in ("#config-notes li", "#config-text"))
    assert said["y"] + said["height"] <= typed["y"] + 1, "in sight, above a long text"
    assert total(tab) == smaller and tab.locator(".stale").count(), "the last sound state stays"
    assert tab.locator(".config-lines .marked").text_content() == str(line)
    wrong = notes(
        tab,
        config.replace(
            '"vocab_size": 128256', '"vocab_size": "<img src=x onerror=pwned()>"'
        ).replace('"num_key_value_heads": 8', '"num_key_value_heads": 0'),
    )
    assert len(wrong) == 2 and all("whole number" in x for x in wrong)
    broken = notes(tab, config.replace('"num_key_value_heads": 8', '"num_key_value_heads": 3'))
    assert len(broken) == 1 and "should divide" in broken[0]
    line = next(i for i, x in enumerate(config.splitlines(), 1) if '"model_type"' in x)
    other = notes(tab, config.replace('"llama"', '"nobody"'))[0]
    assert line > 1 and other.startswith(f"Line {line}: it describes")
    assert "no config" in notes(tab, '{"a": 1}')[0]
    assert "characters" in notes(tab, "[" * 70_000)[0]
    assert total(tab) == smaller
    assert notes(tab, config) == [] and total(tab) == 8_030_261_248
    assert notes(tab, config.replace("500000.0", "7.5").replace('"silu"', '"relu2"')) == []
    facts = tab.inner_text(".facts")
    assert not tab.locator(".edit-note").count() and "RoPE θ 7.5" in facts and "ReLU²" in facts
    added = config.replace("{", '{"sliding_window": 4096, "attention_dropout": 0.0,', 1)
    assert notes(tab, added) == []
    said = tab.text_content(".edit-note")
    assert (
        "Not followed" in said and "sliding_window 4096" in said and "attention_dropout" not in said
    )
    long = config.replace("500000.0", "[" + "0," * 12_000 + "0]")  # more values than are compared
    assert notes(tab, long) == [] and "rope_theta [ 0, 0" in tab.text_content(".edit-note")
    assert notes(tab, config) == [] and not tab.locator(".edit-note").count()


def test_typed_keys_survive_a_reload(tab: Any) -> None:
    go_to(tab, "edit=text")
    config = tab.input_value("#config-text")
    assert notes(tab, config.replace("500000.0", "7.5")) == []
    shown = tab.text_content(".hero")
    at = tab.evaluate("location.hash")
    assert 'keys={"rope_theta":7.5}' in unquote_plus(at)
    tab.reload()
    wait_until_drawn(tab)
    assert '"rope_theta": 7.5,' in tab.input_value("#config-text")
    assert tab.evaluate("location.hash") == at and tab.text_content(".hero") == shown
    tab.go_back()
    wait_until_drawn(tab)
    assert tab.input_value("#config-text") == config
    for hostile in ("[]", "{", '{"hidden_size":1}', '{"__proto__":{"a":1}}', "[" * 1999):
        go_to(tab, "edit=text&keys=" + quote(hostile))
        assert tab.input_value("#config-text") == config, hostile
        assert total(tab) == 8_030_261_248


def test_closing_ends_the_edit(tab: Any, tmp_path: Path) -> None:
    go_to(tab, "edit=sizes&sizes=K32")
    tab.get_by_role("button", name="Close").click()
    wait_until_drawn(tab)
    assert not tab.locator("#edit").count() and total(tab) == 8_030_261_248
    tab.click("[data-view=edit]")
    wait_until_drawn(tab)
    assert tab.locator("#edit").count() == 1 and tab.locator(".skyline .before").count() == 0
    tab.get_by_role("button", name="Close").click()
    tab.evaluate("scrollTo(0, 1500)")
    tab.click("[data-view=edit]")
    wait_until_drawn(tab)
    assert tab.evaluate("scrollY") == 0 and tab.is_visible("#edit input[type=range]")


def test_dense_model_is_counted_as_a_mixture(tab: Any) -> None:
    go_to(tab, "edit=sizes")
    ask(tab, "8 experts, 2 used by a token")
    assert tab.evaluate("location.hash") == "#sizes=E8.k2&edit=sizes"
    config = load(MODEL).config.data
    mixture = llamath.load(
        {**config, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    )
    assert shown_text(tab, "#edit [data-part=designed]") == f"{mixture.parameters.total:,}"
    assert shown_text(tab, "#edit [data-part=live]") == f"{mixture.parameters.active:,}"
    experts = 8 * 3 * 4096 * 14_336
    assert f"{experts:,}" in tab.text_content(".mixture-layer")
    assert total(tab) == mixture.parameters.total
    assert f"{mixture.parameters.active:,}" in tab.text_content(".hero")
    assert "router" in tab.text_content(".layer-picture") and tab.locator("#experts").count() == 1
    assert [n for _, n in causes(tab)] == [mixture.parameters.total - 8_030_261_248]
    go_to(tab, "edit=sizes&sizes=E16.k2.K1")
    tab.locator("#edit .dimension", has_text="experts per token").locator("input").last.fill("4")
    wait_until_drawn(tab)
    assert tab.evaluate("location.hash") == "#sizes=E16.k4.K1&edit=sizes"
    own = {"num_local_experts": 16, "num_experts_per_tok": 4, "num_key_value_heads": 1}
    tour = tour_of(llamath.load({**mixture.config.data, **own})).stops
    router = next(i for i, x in enumerate(tour) if x.name == "router")
    go_to(tab, f"edit=sizes&sizes=E16.k4.K1&tour={router + 1}")
    assert tour[router].what in tab.text_content(".tour")
    go_to(tab, f"edit=sizes&sizes=E16.k4.K1&tour={len(tour)}")
    assert f"so far {tour[-1].so_far:,}" in tab.text_content(".tour")
    go_to(tab, "edit=sizes&sizes=E8.k2")
    tab.evaluate("scrollTo(0, 0)")
    ask(tab, "one KV head")
    assert tab.evaluate("location.hash") == "#sizes=E8.k2.K1&edit=sizes", "it stays"
    ask(tab, "one KV head")
    ask(tab, "8 experts, 2 used by a token")
    assert tab.evaluate("location.hash") == "#edit=sizes" and total(tab) == 8_030_261_248


def test_mixture_that_the_page_cannot_follow_has_its_sizes(tab: Any) -> None:
    go_to(tab, "edit=sizes&sizes=E8.k2.tied1")
    ask(tab, "Memory and hardware of the mixture")
    designed = shown_text(tab, "[data-part=designed]")
    assert tab.locator("header nav a").all_text_contents() == [
        *("Dimensions", "Hardware", "Memory", "config.json"),
    ]
    assert "GiB at 8,192 tokens" in tab.text_content("[data-part=bytes]")
    assert shown_text(tab, "[data-part=cache]") == "1 GiB"
    tab.click("[data-view=a]")
    wait_until_drawn(tab)
    assert tab.evaluate("location.hash") == "", "nothing of the mixture stays in the address"
    tab.go_back()
    wait_until_drawn(tab)
    assert shown_text(tab, "[data-part=designed]") == designed
    tab.go_back()
    wait_until_drawn(tab)
    assert tab.locator("#edit .mixture-layer").count() == 1 and tab.locator(".stale").count() == 1


@pytest.mark.parametrize("sizes", ["", "&sizes=L40.V32000"])
def test_sliders_are_wide_and_labels_whole(browser: Any, tmp_path: Path, sizes: str) -> None:
    page = page_of("deepseek-v3")
    with Tab(browser, tmp_path, page, f"#edit=sizes{sizes}", width=1440) as tab:
        if sizes:  # layers of both kinds, in the format that it is published in
            assert "40 layers (3 dense + 37 MoE)" in tab.inner_text(".hero")
            assert "37 × MLA + MoE" in tab.inner_text(".hero-plate") and "fp8" in tab.inner_text(
                ".facts"
            )
        for width in at_widths(tab, 1440, 1024, 768, 390):
            rows = tab.evaluate(
                """() => [...document.querySelectorAll("#edit .dimension")].map((row) => {
                const [label, slider] = row.children;
                const words = document.createRange(), cut = [];
                for (const text of label.childNodes) {
                    if (text.nodeType !== Node.TEXT_NODE) continue;
                    words.selectNodeContents(text);
                    if (!/ /.test(text.data) && words.getClientRects().length > 1)
                        cut.push(text.data);
                }
                const box = row.getBoundingClientRect();
                return [box.x, slider.getBoundingClientRect().width, cut,
                    label.scrollWidth - label.clientWidth]; })"""
            )
            sliders = [slider for _, slider, _, _ in rows]
            assert min(sliders) >= 140, (width, sliders)
            assert not [x for _, _, cut, over in rows for x in (*cut, over) if x], width
            columns = {round(x) for x, *_ in rows}
            assert min(columns) == round(tab.locator("header .wrap > *").first.bounding_box()["x"])
            if width == 1440:
                assert len(columns) == (2 if sizes else 3)
        if not sizes:
            label = tab.inner_text("label[for=size-r]").split()
            assert label == ["KV", "latent", "r", "kv_lora_rank"], "words, and the key"
            ask(tab, "multi-head attention")
            assert f"cache {128 * (192 + 128) * 2:,} bytes" in tab.inner_text("[data-part=latent]")
            ask(tab, "half the KV latent")
            config = load("deepseek-v3").config.data
            assert causes(tab)[0][0] == "smaller KV latent 512 → 256"
            ticks = tab.locator("#edit .waterfall .axis text").all_text_contents()
            assert len({*ticks}) == len(ticks) > 1, "no two with one label"
            ask(tab, "half the KV latent")
            wide = tab.get_by_role("button", name="twice as wide")
            assert "expert FFN size 2,048 → 4,096" in wide.get_attribute("title")
            ask(tab, "twice as wide")
            widths = ("hidden_size", "intermediate_size", "moe_intermediate_size")
            edited = llamath.load({**config, **{x: 2 * config[x] for x in widths}})
            assert total(tab) == edited.parameters.total
