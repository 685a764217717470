"""A page that runs its model: the numbers of `llamath.watch`, the texts of `llamath run`, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import llamath
from llamath.generation.sampling_parameters import Sampling
from llamath.native.native_session import NativeLlama
from llamath.tokenizers.chat_prompt import ChatMessage, encode_chat, question_frame
from llamath.tokenizers.model_template import ModelTemplate
from llamath.tokenizers.template_process import OwnTemplates
from llamath.tokenizers.tokenizer import Tokenizer as OwnTokenizer
from llamath.utils.errors import LlamathError
from llamath.web.page_data.checkpoint_data import load_with_checkpoint
from llamath.web.page_data.live.live_data import bundled_live_parts
from llamath.web.page_data.live.page_tokenizer import javascript_pattern, page_tokenizer
from llamath.web.page_export import export
from llamath.web.server.page_html import model_page
from support.browser_page import (
    Tab,
    at_widths,
    browser,
    go_to,
    lent_page,
    new_context,
    visit,
    wait_until_drawn,
)
from support.firefox import FIREFOX, Firefox
from support.page_models import live_page, page_of
from support.release import usual
from support.serving import served
from support.tiny_checkpoint import tiny_checkpoint
from tiny.measure import is_consistent
from tiny.words import COLOURS, PEOPLE, THINGS

__all__ = ["browser"]
PROMPT = "Tell me a story about Anna and a kite."
PARK = "Ben was in the park. He had a red ball. He played with the"
WRITE_ALL = """() => new Promise((done) => {
  const step = () => {
    const button = document.querySelector(".live-buttons .button");
    if (document.querySelector("#live-end").textContent.trim())
      return done(document.querySelector("#live-text").value);
    button.click();
    setTimeout(step);
  };
  step();
})"""
"""Chooses *Step* until the model has ended its text."""
TYPE = """(text) => {
  const field = document.querySelector("#live-text");
  Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, "value").set.call(field, text);
  field.dispatchEvent(new Event("input", { bubbles: true }));
}"""


def type_text(tab: Any, text: str) -> None:
    """Replace the text of the page, and wait until all of it is drawn."""
    tab.evaluate(TYPE, text)
    wait_until_drawn(tab)


@pytest.fixture(scope="module")
def opened(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    made = Tab(browser, tmp_path_factory.mktemp("live"), live_page(), width=1280)
    with made:
        yield made


@pytest.fixture
def tab(opened: Tab) -> Iterator[Any]:
    """The page in its first state; the tests share it, as its address has all that they change."""
    go_to(opened.page, "")
    yield opened.page
    assert not opened.wrong, opened.wrong


@pytest.fixture
def fresh(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """The page for a test that changes more than its address has."""
    with Tab(browser, tmp_path, live_page(), width=1280, unfold=False) as page:
        yield page


def run(prompt: str, **how: Any) -> str:
    """Return the text that the native engine gives in float32."""
    llama = NativeLlama.open(dtype="fp32")
    (reply,) = llama.generate([prompt], sampling=Sampling(**how), max_tokens=400)
    return prompt + written(llama, reply)


def written(llama: NativeLlama, reply: Any) -> str:
    """Return the text of a reply as the page shows it, without the token that ends it."""
    end = bundled_live_parts([load_with_checkpoint("embedded")]).data["stop"]
    ids = [x for x in reply.ids if x not in end]
    return str(llama.tokenizer.decode(ids, keep_special_tokens=True))


def test_page_writes_the_text_of_the_engine(tab: Any) -> None:
    type_text(tab, PROMPT)
    assert tab.evaluate(WRITE_ALL) == run(PROMPT)
    last = tab.locator(".live-tokens li:last-child button").text_content()
    assert last == "<|im_end|>" and last not in tab.input_value("#live-text")
    said = tab.text_content(".live-foot #live-end")
    assert last in said and "Answer" in said and "begin again" in said
    chips = tab.locator(".live-tokens button").all_text_contents()
    address = tab.evaluate("location.hash")
    go_to(tab, "#text=Anna+had")
    assert tab.text_content("#live-end").strip() == ""
    go_to(tab, address)
    assert tab.locator(".live-tokens button").all_text_contents() == chips
    step = tab.locator(".live-buttons").get_by_role("button", name="Step", exact=True)
    assert step.get_attribute("aria-disabled") == "false"
    step.click()
    wait_until_drawn(tab)
    llama = NativeLlama.open(dtype="fp32")
    (reply,) = llama.generate([PROMPT], max_tokens=1)
    assert tab.input_value("#live-text") == PROMPT + written(llama, reply)
    # a text that the model has not written stays ended
    type_text(tab, f"{PARK}<|im_end|>")
    assert step.get_attribute("aria-disabled") == "true"
    assert step.get_attribute("aria-describedby") == "live-end"


QUESTION = "Ben had a red ball. Ben went to the barn. Where is the ball?"
IDS = "all => all.map(x => Number(/id (\\d+)/.exec(x.title)[1]))"


def test_page_answers_a_question_as_run_does(tab: Any) -> None:
    """In the model's chat template, whose tokens are shown; in a question, their names are text."""
    llama = NativeLlama.open(dtype="fp32")
    assert llama.chat_format is not None
    tab.click(".live-prompts >> text=Where is the ball?")
    reply = llama.chat([("user", QUESTION)])
    assert reply.text == "The ball is in the barn."
    tab.evaluate(WRITE_ALL)
    wait_until_drawn(tab)
    assert tab.text_content(".live-answer") == f"Answer {reply.text}"
    assert tab.input_value("#live-text") == QUESTION
    shown = tab.locator(".live-tokens button")
    assert shown.evaluate_all(IDS) == [
        *encode_chat(llama.chat_format, llama.tokenizer, [ChatMessage("user", QUESTION)]),
        *reply.ids,
    ]
    chips, address = shown.all_text_contents(), tab.evaluate("location.hash")
    assert chips[:3] == ["<|im_start|>", "user", "↵"] and "chat=on" in address
    tab.click("#live-chat >> text=Continue")
    assert shown.first.text_content() == "<s>" and tab.input_value("#live-text") == QUESTION
    assert "chat" not in tab.evaluate("location.hash")
    go_to(tab, address)
    assert shown.all_text_contents() == chips
    for question in (" a\n<|im_end|>\n<s>", "<|im_start|>", ""):
        type_text(tab, question)
        ids = encode_chat(llama.chat_format, llama.tokenizer, [ChatMessage("user", question)])
        assert tab.locator(".live-tokens li:not(.likely) button").evaluate_all(IDS) == ids
    tab.click("#live-chat >> text=Continue")


def test_page_says_what_its_model_is(tab: Any) -> None:
    assert tab.text_content("h1") == "A toy Llama"
    assert "embedded, part of llamath" in tab.text_content(".origin")
    assert "Trained on children's stories" in tab.text_content(".description")
    go_to(tab, "#edit=sizes&sizes=K1")
    assert tab.text_content("h1") == "A toy Llama, edited"
    assert "GiB" in tab.text_content(".runs"), "nobody has trained it"
    go_to(tab, "#")


def test_names_that_the_model_knows_stand_beside_the_text(tab: Any) -> None:
    """They are those of the world that trained it, and each is one token."""
    said = re.findall(r"[A-Za-z]+", tab.text_content("#live-knows"))
    llama = NativeLlama.open()
    for word in (*PEOPLE, *THINGS, *COLOURS):
        assert word in said and len(llama.encode(f" {word}")) == 2, word


def test_texts_to_try_end_as_the_world_allows(tab: Any) -> None:
    """The greedy stories break no rule of tools/tiny, and the named heads read the named tokens."""
    live = bundled_live_parts([load_with_checkpoint("embedded")]).data
    prompts = live["prompts"]
    assert prompts[0]["text"] == tab.input_value("#live-text") == PARK
    for x in prompts:
        text = x["text"]
        if "chat" in x:  # what the model has read where it says the word
            frame = live["chat"]
            text = f"{frame['before']}{text}{frame['after']}The ball is in the"
        else:
            assert is_consistent(run(text)), text
        watched = llamath.watch(text, dtype="float32")
        weights = np.asarray(watched[f"layers.{x['layer']}.attn.softmax"]).squeeze()
        read = list(weights[-1, x["head"]])
        token = watched.tokens[read.index(max(read))]["text"]
        assert f"layer {x['layer']}, head {x['head']} " in x["says"].lower() and max(read) > 0.9
        assert re.search(rf"head \d (finds|reads) (the )?{token.strip()}\b", x["says"]), token


def test_steps_in_a_list_are_those_of_the_text(tab: Any) -> None:
    go_to(tab, "#zoom=attn&layer=1&batch=4")
    for text in (PARK, "Anna had"):
        type_text(tab, text)
        watched = llamath.watch(text, dtype="float32")
        n = len(watched.ids)
        assert f"Prefill: {n} tokens" in tab.text_content(".flow-text")
        assert f"FLOPs for {n} tokens ·" in tab.text_content(".plate-head")
        row = tab.locator(".block-row:has([data-step='attn.v'])")
        assert row.locator(".shape").text_content().endswith(f"[1, {n}, 64]")
        own = watched["layers.1.attn.v"].cast("B").cast("f").tolist()[-64:]
        shown = ", ".join(f"{x:.2f}".replace("-", "−") for x in own[:3])
        assert row.locator("code").text_content() == f"{shown}, …"


def test_text_and_layer_are_seen_at_once(fresh: Any) -> None:
    for _ in at_widths(fresh, 1440):
        bar, layer = (fresh.locator(x).bounding_box() for x in (".live-bar", ".plate-scene"))
        assert bar["height"] < 180 and layer["y"] + layer["height"] < 900


def test_seed_draws_the_tokens_of_the_engine(browser: Any, tmp_path: Path) -> None:
    at = "#temperature=0.8&top_p=0.95&seed=7&text=Once+upon+a+time,+Ida+was+at+the+river."
    with Tab(browser, tmp_path, live_page(), at) as page:
        found = page.evaluate(WRITE_ALL)
    text = "Once upon a time, Ida was at the river."
    assert found == run(text, temperature=0.8, top_p=0.95, seed=7) != run(text)


def test_strips_and_heads_show_the_watched_numbers(tab: Any) -> None:
    """Each row of numbers is that of `llamath.watch`, for two tokens and two layers."""
    watched = llamath.watch(PARK, dtype="float32")
    last = len(watched.ids) - 1
    for layer, token in ((3, last), (1, 10)):
        tab.evaluate(
            "([layer, token]) => { location.hash = `layer=${layer}&token=${token}&head=2` }",
            [layer, token],
        )
        wait_until_drawn(tab)
        rows = tab.locator(".live-strip").evaluate_all(
            "all => all.map(x => [...x.querySelectorAll('span')].map(y => y.textContent))"
        )
        shown = dict(rows[1:])
        prefix = f"layers.{layer}."
        own = [x for x in watched.names if x.startswith(prefix) and not x.endswith("softmax")]
        assert sorted(shown) == sorted(x.removeprefix(prefix) for x in own)
        products = ["attn.q", "attn.k", "attn.v", "attn.q_rope", "attn.k_rope"]
        assert [x for x in shown if x in products] == products
        for name in own:
            values = watched[name].cast("B").cast("f").tolist()
            row = values[token * (len(values) // (last + 1)) :][: len(values) // (last + 1)]
            rms = (sum(x * x for x in row) / len(row)) ** 0.5
            said = re.fullmatch(r"(\d+) numbers, rms ([\d.]+)", shown[name.removeprefix(prefix)])
            assert said and int(said[1]) == len(row)
            assert float(said[2]) == pytest.approx(rms, abs=0.006 if rms < 10 else 0.06)
        weights = watched[f"{prefix}attn.softmax"].tolist()[token][2]
        best = max(range(token + 1), key=lambda i: weights[i])
        caption = tab.text_content(".live-map figcaption")
        share = re.search(r"reads \S+ >?([\d.]+)%", caption)
        assert share and float(share[1]) == pytest.approx(100 * weights[best], abs=0.51)


def test_products_of_query_and_key_give_the_weights(tab: Any) -> None:
    """The table of scores has the softmax of its own column, over all keys."""
    type_text(tab, "Anna had")
    rows = tab.locator(".live-steps tbody tr").evaluate_all(
        "all => all.map(x => [...x.querySelectorAll('td')].map(y => y.textContent))"
    )

    def number(text: str) -> float:
        return float(text.replace("−", "-").replace("%", "").lstrip("<> "))

    scores = [number(x[1]) for x in rows]
    total = sum(2.718281828**x for x in scores)
    assert len(rows) == 3
    products = [number(x[0]) for x in rows]
    undivided = sum(2.718281828**x for x in products)
    for (product, score, share, other), own in zip(rows, scores, strict=True):
        assert number(product) / 32**0.5 == pytest.approx(number(score), abs=0.01)
        assert number(share) == pytest.approx(100 * 2.718281828**own / total, abs=1)
        expected = 100 * 2.718281828 ** number(product) / undivided
        assert number(other) == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("step", ["attn/attn.q", "attn/attn.o", "mlp/mlp.up", "mlp/mlp.down"])
def test_dot_product_of_a_row_is_the_output(tab: Any, step: str) -> None:
    """The opened matrix shows the weights as stored, and the sum of a row's products is what the engine computed."""
    for token in (0, 9):
        tab.evaluate("at => { location.hash = at }", f"zoom={step}&layer=1&token={token}")
        wait_until_drawn(tab)
        assert tab.locator(".live-matrix-cells").bounding_box()["height"] <= 321
        for row in (0, 17):
            tab.fill(".live-matrix input", str(row))
            found = tab.locator(".live-sum").evaluate("x => [x.dataset.sum, x.dataset.output]")
            assert float(found[0]) == pytest.approx(float(found[1]), rel=1e-4, abs=1e-4)


def test_sizing_of_a_tiny_model_is_folded_and_opens(fresh: Any) -> None:
    folded = "all => all.map(x => x.closest('section').id)"
    for ids in (["hardware", "memory", "speed", "layouts"], ["hardware", "speed", "layouts"]):
        assert fresh.locator("#what-it-needs .unfold").evaluate_all(folded) == ids
        assert not fresh.locator("#speed table").count()
        fresh.click(".chapter-parts a[href*='section=memory']")
        wait_until_drawn(fresh)
        fresh.wait_for_selector("#memory table", state="attached")
    for place in (".settings-answer", "#hardware-title"):
        assert " in this page; " in fresh.text_content(place)


def test_tiny_models_have_no_ceilings_on_the_first_screen(
    fresh: Any, browser: Any, tmp_path: Path
) -> None:
    runs = fresh.text_content(".runs")
    assert "in this page" in runs and "tokens/s" not in runs
    fresh.click(".runs")
    assert fresh.evaluate("location.hash") == "#live"
    tiny = model_page([llamath.load(Path("examples") / "tiny-llama")])
    with Tab(browser, tmp_path, tiny) as tab:
        runs = tab.text_content(".runs")
        assert "GiB" in runs and "tokens/s" not in runs


def test_expectation_after_each_layer_ends_in_the_logits(tab: Any) -> None:
    rows = tab.locator("[data-lens]").evaluate_all(
        "all => all.map(x => [...x.children].map(y => y.textContent))"
    )
    first = tab.text_content(".live-bars li:first-child .live-token")
    assert [x[0] for x in rows] == ["the embedding", *(f"layer {i}" for i in range(4))]
    assert rows[-1][1].startswith(first) and first == "·ball"
    assert "95" in rows[1][1] and rows[1][1].startswith("·red")


def test_changed_end_keeps_the_tokens_before_it(tab: Any) -> None:
    """Editing the end of a text reads the new tokens alone, and gives what the whole text gives."""
    type_text(tab, "Anna was very sad. Finn gave")
    note = tab.text_content(".live-note")
    type_text(tab, "Anna was very sad. Finn had")
    assert "the last one took" in tab.text_content(".live-note") and "8 tokens" in note
    changed = tab.text_content("#live-title"), tab.text_content(".live-lens tbody")
    type_text(tab, "")
    type_text(tab, "Anna was very sad. Finn had")
    assert changed == (tab.text_content("#live-title"), tab.text_content(".live-lens tbody"))


@pytest.mark.parametrize(
    "text",
    ["🪁 und ñ 漢字", "مرحبا بالعالم", "<script>pwned()</script>", "<s></s><|im_end|>", "\u202egnp a\u0301", "the " * 500],
    ids=["emoji", "right-to-left", "markup", "special", "marks", "long"],
)  # fmt: skip
def test_any_text_is_read_as_the_engine_reads_it(tab: Any, text: str) -> None:
    type_text(tab, text)
    ids = NativeLlama.open().encode(text)[:512]
    shown = tab.locator(".live-tokens li:not(.likely) button").evaluate_all(IDS)
    assert shown == ids
    assert ("512 tokens of the model's context" in tab.text_content("#live-end")) == (
        len(ids) == 512
    )


def test_story_follows_the_address_and_keeps_special_tokens(tab: Any) -> None:
    """Back, Forward and a typed address change the text; a reloaded address gives the same tokens."""
    chips = "all => all.map(x => x.title).filter(x => x.startsWith('token '))"
    type_text(tab, "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n")
    for _ in range(3):
        tab.click(".live-buttons .button")
    wait_until_drawn(tab)
    before = tab.locator(".live-tokens button").evaluate_all(chips)
    assert len(before) == 13 and "<|im_end|>" in tab.input_value("#live-text")
    at = tab.evaluate("location.hash")
    tab.evaluate("() => { location.hash = '#text=Anna+had+a' }")
    wait_until_drawn(tab)
    assert tab.input_value("#live-text") == "Anna had a"
    assert "·a" in tab.text_content("#live-title")
    tab.evaluate("at => { location.hash = at }", at)
    wait_until_drawn(tab)
    assert tab.locator(".live-tokens button").evaluate_all(chips) == before


def test_address_keeps_tokens_that_are_no_text(tab: Any) -> None:
    """Parts of characters that the model wrote are the same tokens when the address is opened."""
    chips = "all => all.map(x => x.title).filter(x => x.startsWith('token '))"
    tokenizer = NativeLlama.open().tokenizer
    part = next(i for i in range(896) if tokenizer.decode([i]) == "\ufffd")
    tab.evaluate("at => { location.hash = at }", f"text=Anna+had&written={part}.{part}.899999")
    wait_until_drawn(tab)
    tab.click(".live-buttons .button")
    wait_until_drawn(tab)
    before = tab.locator(".live-tokens button").evaluate_all(chips)
    assert [f"id {part}" in x for x in before] == [False, False, False, True, True, False]
    at = tab.evaluate("location.hash")
    type_text(tab, "Ben")
    assert "written" not in tab.evaluate("location.hash")
    tab.evaluate("at => { location.hash = at }", at)
    wait_until_drawn(tab)
    assert tab.locator(".live-tokens button").evaluate_all(chips) == before


def test_other_seeds_give_other_texts(tab: Any) -> None:
    tab.evaluate("() => { location.hash = '#temperature=1.5&text=Anna+had+a' }")
    wait_until_drawn(tab)
    found = [tab.evaluate(WRITE_ALL)]
    for _ in range(2):
        tab.click("text=Try again")
        tab.click("text=Pause")
        found.append(tab.evaluate(WRITE_ALL))
    wait_until_drawn(tab)
    assert len(set(found)) == 3 and "seed=2" in tab.evaluate("location.hash")
    assert found == [run("Anna had a", temperature=1.5, seed=i) for i in range(3)]


def test_shares_of_top_p_are_those_of_all_tokens(tab: Any) -> None:
    """Of a flat distribution top-p keeps hundreds of tokens."""
    tab.evaluate("() => { location.hash = '#text=&temperature=1.5&top_p=0.95' }")
    wait_until_drawn(tab)
    watched = llamath.watch("<s>", dtype="float32")
    logits = watched.session.logits(0)[: watched.llama.native.vocab]
    shares = sorted((2.718281828459045 ** (x / 1.5) for x in logits), reverse=True)
    total, kept = sum(shares), []
    while sum(kept) < 0.95 * total:
        kept.append(shares[len(kept)])
    said = tab.text_content(".live-next figcaption")
    assert f"drawn from {len(kept)}, the fewest" in said and len(kept) > 64
    first = tab.text_content(".live-bars li:first-child .n")
    assert float(first.removesuffix("%")) == pytest.approx(100 * kept[0] / sum(kept), abs=0.5)


def test_keys_choose_tokens_and_heads(fresh: Any) -> None:
    fresh.locator(".live-tokens button").first.focus()
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        fresh.keyboard.press(key)
    wait_until_drawn(fresh)
    assert "token=2" in fresh.evaluate("location.hash")
    assert fresh.text_content(".live-tokens [aria-pressed=true]") == "·was"
    fresh.locator(".live-heads button").first.focus()
    for key in ("End", "Enter"):
        fresh.keyboard.press(key)
    wait_until_drawn(fresh)
    assert "Layer 3, head 3" in fresh.text_content(".live-map .sub")


def test_keys_reach_pairs_and_numbers_of_strips(fresh: Any) -> None:
    fresh.locator(".live-clocks button").first.focus()
    for _ in range(3):
        fresh.keyboard.press("ArrowRight")
    wait_until_drawn(fresh)
    pressed = fresh.get_attribute(".live-clocks [aria-pressed=true]", "aria-label")
    assert pressed.endswith("°: pair 3") and "It turns by" in fresh.text_content(".live-rotation")
    fresh.locator(".live-strip-cells").first.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        fresh.keyboard.press(key)
    wait_until_drawn(fresh)
    watched = llamath.watch(PARK, dtype="float32")
    values = watched["layers.3.attn_norm"].cast("B").cast("f").tolist()
    third = values[-(len(values) // len(watched.ids)) :][2]
    said = fresh.get_attribute(".live-strip-cells:focus", "aria-valuetext")
    assert said == f"[2] = {third:.4f}".replace("-", "−")
    assert said == fresh.text_content(".live-strip:has(:focus) .live-strip-note")


def test_phone_has_the_text_below_the_title(browser: Any, tmp_path: Path) -> None:
    """All that is touched is at least 32 pixels high; numbers in a text are underlined instead."""
    path = tmp_path / "page.html"
    path.write_text(live_page())
    size = {"width": 390, "height": 844}
    context = new_context(browser, viewport=size, is_mobile=True, has_touch=True)
    page = context.new_page()
    visit(page, path.as_uri())
    top = page.locator("#live-text").bounding_box()["y"]
    assert page.locator("h1").bounding_box()["y"] < top < 844 / 2
    low = page.evaluate(
        """() => [...document.querySelectorAll("main :is(button, select, input, textarea, summary)")]
        .filter((x) => x.checkVisibility() && !x.matches(".number") && x.offsetHeight < 32)
        .map((x) => x.outerHTML)"""
    )
    assert low == []
    # what follows and what is read is right below the text, the rest of the numbers folded
    for part in (".live-bars", ".live-map"):
        assert page.locator(part).count() == 1 and page.is_visible(f".live-reading {part}"), part
    assert page.locator("#live .live-grid").count() == 0
    page.click("#live .unfold")
    hands = "[...document.querySelectorAll('.live-clocks .hand')].map((x) => Math.round(x.getTotalLength()))"
    assert set(page.evaluate(hands)) == {19}
    assert page.locator(".live-bars").count() == 1
    context.close()


OTHER_MODULE = """
const { instantiate } = WebAssembly;
WebAssembly.instantiate = async (...given) => {
  const { exports } = await instantiate.apply(WebAssembly, given);
  const forward = (...from) => {
    if (!globalThis.trapNext) return exports.live_forward(...from);
    globalThis.trapNext = false;
    throw new WebAssembly.RuntimeError("unreachable");
  };
  const truncate = (live, length) => (globalThis.noWayBack && length ? -1 : exports.live_truncate(live, length));
  return { exports: { ...exports, live_forward: forward, live_truncate: truncate } };
};
"""
"""Lets the module stop when it is told to, and refuse to forget some tokens, as a model with recurrent states does."""


@pytest.fixture
def other_module(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """A page of the bundled model whose module `OTHER_MODULE` changes."""
    path = tmp_path / "page.html"
    path.write_text(live_page())
    with lent_page(browser, 1000, 800, (OTHER_MODULE,)) as page:
        visit(page, path.as_uri())
        yield page


def test_trap_is_told_and_the_page_goes_on(other_module: Any) -> None:
    """A module that has stopped is replaced by the next text."""
    page = other_module
    before = page.text_content("#live-title")
    page.evaluate("globalThis.trapNext = true")
    type_text(page, "Anna had a red")
    assert page.get_attribute("[data-live]", "data-live") == "failed"
    assert "has stopped" in page.text_content(".live-note")
    type_text(page, PARK)
    page.wait_for_selector("[data-live=ready]")
    wait_until_drawn(page)
    assert page.text_content("#live-title") == before


def test_states_without_a_way_back_read_the_text_anew(other_module: Any) -> None:
    """All tokens are read again, and the numbers are those of the text read at once."""
    found = []
    for no_way_back in (False, True):
        other_module.evaluate("x => { globalThis.noWayBack = x }", no_way_back)
        type_text(other_module, f"{PARK} ball. Finn")
        type_text(other_module, PARK)
        note = other_module.text_content(".live-note")
        assert ("17 tokens, read in" in note) == no_way_back
        found.append(other_module.text_content(".live-lens tbody"))
    assert found[0] == found[1]


@pytest.mark.parametrize("script", ["", "delete globalThis.WebAssembly"])
def test_page_without_webassembly_explains_itself(
    browser: Any, tmp_path: Path, script: str
) -> None:
    """Where a policy forbids to compile, and where there is no WebAssembly, the rest of the page stands."""
    path = tmp_path / "page.html"
    path.write_text(live_page().replace(" 'wasm-unsafe-eval'", "", 1))
    with lent_page(browser, 1000, 800, (script,) if script else ()) as page:
        visit(page, path.as_uri())
        assert page.get_attribute("[data-live]", "data-live") == "failed"
        assert "The model does not run here" in page.text_content("#live-end")
        assert page.locator("#live figure").count() == 0
        assert "803,968" in page.text_content("main")
        assert "RTX" in page.text_content(".runs")


def test_policy_lets_only_live_pages_compile(browser: Any, tmp_path: Path) -> None:
    pages = (page_of("llama-3-8b"), live_page())
    policies = [
        "".join(re.findall(r'Content-Security-Policy" content="([^"]*)"', x)) for x in pages
    ]
    assert "wasm" not in policies[0] and "'wasm-unsafe-eval'" in policies[1]
    assert "connect-src" not in policies[1] and "'unsafe-eval'" not in policies[1]
    path = tmp_path / "page.html"
    path.write_text(live_page())
    with lent_page(browser, 1000, 800) as page:
        visit(page, path.as_uri())
        blocked = page.evaluate(
            """() => ["eval('1')", "new Function('1')"].map((x) => { try {
              const element = document.createElement("script");
              element.textContent = `globalThis.ran = ${x}`;
              document.body.append(element);
              return "ran" in globalThis;
            } catch (error) { return error.name; } })"""
        )
    assert blocked == ["TypeError", "TypeError"]


def test_page_is_small_and_says_why_others_do_not_run(tmp_path: Path) -> None:
    assert len(live_page().encode()) <= 2_400_000, "2.3 MB, and the forms of all families"
    with pytest.raises(LlamathError, match="a page runs a checkpoint with its weights"):
        export("llama-3-8b", tmp_path / "page.html", live=True)
    with pytest.raises(LlamathError, match="a page runs one model, found two models"):
        export(["embedded", "embedded"], tmp_path / "page.html", live=True)


OTHERS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "mixtral": {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "gemma2": {
        "model_type": "gemma2",
        "tie_word_embeddings": True,
        "head_dim": 8,
        "query_pre_attn_scalar": 8,
        "sliding_window": 16,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
}


@pytest.mark.parametrize("name", usual("gemma2", "mixtral", release=OTHERS))
def test_any_small_checkpoint_runs_in_its_page(browser: Any, tmp_path: Path, name: str) -> None:
    """Weights in float32, untied heads, biases, experts, windows and caps: the page writes what the engine writes."""
    folder = tiny_checkpoint(tmp_path / "model", **OTHERS[name])
    export(folder, tmp_path / "out.html", live=True)
    llama = NativeLlama.open(folder, dtype="fp32")
    text = "The cat sat"
    (reply,) = llama.generate([text], sampling=Sampling(), max_tokens=12)
    with Tab(browser, tmp_path, (tmp_path / "out.html").read_text(), "#text=The+cat+sat") as page:
        assert page.get_attribute("[data-live]", "data-live") == "ready"
        for _ in range(12):
            if not page.text_content("#live-end").strip():
                page.click(".live-buttons .button")
        found = page.input_value("#live-text")
        assert found == text + written(llama, reply)
        assert page.locator(".live-map").count() == 1
        assert page.locator("#live-chat").count() == 0, "it has no chat template"
        has_lens = name != "gemma2"  # its logits are capped after the head
        assert page.locator(".live-lens").count() == has_lens


def test_dropped_weights_run_if_they_fit_the_program(fresh: Any, tmp_path: Path) -> None:
    """Other weights of the same shapes run with the page's tokenizer; others are named before a byte is read."""
    source = Path(llamath.embedded.path())
    numbers = load_file(source / "model.safetensors")
    for name in ("config.json", "tokenizer.json", "generation_config.json"):
        shutil.copy(source / name, tmp_path)
    mixed = {x: (y.float() * 0.9 if "mlp" in x else y) for x, y in numbers.items()}
    save_file(mixed, tmp_path / "model.safetensors", {"format": "pt"})
    fresh.set_input_files("#file-input", str(tmp_path / "model.safetensors"))
    fresh.click(".live-file button")
    fresh.wait_for_selector(".live-file span:not(:empty)")
    assert "runs the weights of model.safetensors" in fresh.text_content(".live-file")
    llama = NativeLlama.open(tmp_path, dtype="fp32")
    (reply,) = llama.generate([PARK], sampling=Sampling(), max_tokens=400)
    assert fresh.evaluate(WRITE_ALL) == PARK + written(llama, reply)
    key = "model.layers.1.self_attn.k_proj.weight"
    for changed, says in (
        ({key: numbers[key].T.contiguous()}, "is [128, 64], expected [64, 128]"),
        ({key: numbers[key].double()}, "is in F64, expected F32, F16, BF16"),
        ({key: None}, "is missing"),
    ):
        kept = {x: y for x, y in (numbers | changed).items() if y is not None}
        save_file(kept, tmp_path / "other.safetensors", {"format": "pt"})
        fresh.set_input_files("#file-input", str(tmp_path / "other.safetensors"))
        fresh.click("[data-file='other.safetensors'] .live-file button")
        fresh.wait_for_selector(".live-file span:not(:empty)")
        assert f"{key} {says}" in fresh.text_content(".live-file")
        assert fresh.get_attribute("[data-live]", "data-live") == "ready"


def test_gallery_and_server_run_the_bundled_model(browser: Any, tmp_path: Path) -> None:
    """A gallery shares the engine's script; only the page of the bundled model may compile."""
    export(["embedded", "gpt2", "llama-3-8b"], tmp_path / "site")
    pages = {x: (tmp_path / f"site/models/{x}.html").read_text() for x in ("embedded", "gpt2")}
    assert ["wasm-unsafe-eval" in x for x in pages.values()] == [True, False]
    with lent_page(browser, 1000, 800) as page:
        visit(page, (tmp_path / "site/models/embedded.html").as_uri())
        assert page.get_attribute("[data-live]", "data-live") == "ready"
        with served([load_with_checkpoint("embedded")]) as place:
            visit(page, place.address)
            assert page.get_attribute("[data-live]", "data-live") == "ready"


def test_firefox_writes_the_same_text(tmp_path: Path) -> None:
    if FIREFOX is None:
        pytest.skip("Firefox is not installed (as root, `make browser` installs it)")
    path = tmp_path / "page.html"
    path.write_text(live_page())
    with Firefox(tmp_path) as firefox:
        firefox.open(f"{path.as_uri()}#text=Anna+had+a+red", width=1200)
        assert firefox.evaluate(f"({WRITE_ALL})()") == run("Anna had a red")
        assert not firefox.errors


TEXTS = [
    *("", " ", "  a  b", "don't DON'T donſt we'LL", "x\u0085y\ufeffz", "a\r\n\r\n b", "12345 ١٢٣"),
    *(
        "café cafe\u0301",
        "日本語テキスト",
        "🙂👍🏽",
        "tab\there",
        "fn(x) {\n    return x;\n}",
        "'''s",
    ),
]


def trained_tokenizers() -> dict[str, Any]:
    """Return small tokenizers of the kinds that Llamas have."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    corpus = [PROMPT, PARK, *TEXTS, "def f(x): return x + 1", "aaaa bbbb  cccc"]
    found = {}
    steps: dict[str, list[Any]] = {
        "gpt2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
        "prefixed": [pre_tokenizers.ByteLevel(add_prefix_space=True)],
        "digits": [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ],
        "o200k": [
            pre_tokenizers.Split(
                Regex(r"[^\r\n\p{L}\p{N}]?\p{Lu}*\p{Ll}+(?i:'s|'d)?|\p{N}{1,3}|\s+(?!\S)|\s+"),
                "isolated",
            ),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ],
    }
    for name, split in steps.items():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=420, initial_alphabet=alphabet, special_tokens=["<s>"], show_progress=False
        )
        tokenizer.train_from_iterator(corpus * 3, trainer)
        found[name] = tokenizer
    for name, scheme in (("llama2", None), ("metaspace", "first")):
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True))
        bytes_ = [f"<0x{i:02X}>" for i in range(256)]
        trainer = trainers.BpeTrainer(
            vocab_size=480, special_tokens=["<unk>", "<s>", *bytes_], show_progress=False,
            limit_alphabet=60,
        )  # fmt: skip
        if scheme is None:
            tokenizer.normalizer = normalizers.Sequence(
                [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
            )
        else:
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
                replacement="▁", prepend_scheme=scheme, split=False
            )
        tokenizer.train_from_iterator(corpus * 3, trainer)
        data = json.loads(tokenizer.to_str())
        data["added_tokens"] = [x for x in data["added_tokens"] if x["content"] in ("<unk>", "<s>")]
        found[name] = Tokenizer.from_str(json.dumps(data))
    return found


def test_page_tokenizer_gives_the_ids_of_tokenizers(tab: Any) -> None:
    own = json.loads((Path(llamath.embedded.path()) / "tokenizer.json").read_text())
    from tokenizers import Tokenizer

    all_kinds = trained_tokenizers() | {"bundled": Tokenizer.from_str(json.dumps(own))}
    texts = [*TEXTS, *(a + b for a in TEXTS for b in TEXTS), "a<s>b", PROMPT * 20]
    template = ModelTemplate(
        {"default": "<s>user: {{ messages[0].content | trim }} <s>\n<s>model:"},
        "test",
        process=OwnTemplates(),
    )
    for name, engine in all_kinds.items():
        data = page_tokenizer(json.loads(engine.to_str()), name)
        found = tab.evaluate(
            "([data, texts, frame]) => { const x = new llamathLive.Tokenizer(data); "
            "return texts.map(y => [x.encode(y), x.continue(x.encode(y)), x.encodeChat(frame, y)]); }",
            [data, texts, question_frame(template)._asdict()],
        )
        own_tokenizer = OwnTokenizer(Tokenizer.from_str(engine.to_str()), name)
        for text, (ids, decoded, asked) in zip(texts, found, strict=True):
            assert ids == engine.encode(text).ids, (name, text)
            question = [ChatMessage("user", text)]
            assert asked == encode_chat(template, own_tokenizer, question), (name, text)
            if name == "bundled":
                assert decoded == engine.decode(ids, skip_special_tokens=False), (name, text)


@pytest.mark.parametrize(
    ("pattern", "word"),
    [(r"a++", "quantifier"), (r"(?<=a)b", "it has"), (r"\w+", "it has"), (r"[a&&b]", "set operation"), ("a" * 2000, "longer"), ("(?:a", "ends"), ("a)", "parenthesis"), ("^a", "it has"), ("(?i:é)", "case")],
)  # fmt: skip
def test_patterns_that_may_differ_are_refused(pattern: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        javascript_pattern(pattern)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"model": {"type": "Unigram"}}, "Unigram"),
        ({"normalizer": {"type": "NFC"}}, "NFC"),
        ({"pre_tokenizer": {"type": "BertPreTokenizer"}}, "BertPreTokenizer"),
        ({"added_tokens": [{"content": "x", "id": 1, "lstrip": True}]}, "added_tokens"),
        ({"post_processor": {"type": "RobertaProcessing"}}, "RobertaProcessing"),
        ({"pre_tokenizer": None}, "pre_tokenizer"),
        ({"added_tokens": 7}, "added_tokens"),
        ({"added_tokens": [{"id": 1}]}, "added_tokens"),
        ({"model": {"vocab": {"a": 0}, "merges": 7}}, "merges"),
        (
            {
                "post_processor": {
                    "type": "TemplateProcessing",
                    "special_tokens": {"<s>": {"ids": 3}},
                    "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
                }
            },
            "special_tokens",
        ),
        ({"post_processor": {"type": "Sequence", "processors": 5}}, "processors"),
    ],
)
def test_other_tokenizers_are_refused_by_name(change: dict[str, Any], found: str) -> None:
    data = json.loads((Path(llamath.embedded.path()) / "tokenizer.json").read_text())
    with pytest.raises(LlamathError, match=found):
        page_tokenizer(data | change, "tokenizer.json")
