"""Count it yourself: the page asks what the library asks, hides what is asked, names mistakes, keeps answers in its address,
and prints exercises with their solutions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.analysis.learn.diagnosis import MISTAKES, make_mistakes
from llamath.analysis.learn.exercise import Exercise
from llamath.analysis.learn.lessons.quiz_lesson import plate_parts, quiz_exercises
from llamath.analysis.learn.study import ModelStudy
from llamath.web.page_data import page_data
from support.browser_page import Tab, at_widths, browser, go_to, wait_until_drawn
from support.page_expressions import evaluate
from support.page_models import data_of, model_of, page_of
from support.printed_pages import filled_shares

assert browser
SLUGS = ("llama-3-8b", "deepseek-v3", "gpt2", "falcon-mamba-7b", "gemma-3-27b")
CARD = ".quiz-card input"
VERDICT = ".quiz-verdict"
HAS_FOCUS = "(selector) => document.activeElement.matches(selector)"
ASKED = ("8.03B", "8,030,261,248", "218,112,000", "16.1 GB", "128 KiB", "15.01", "525.34M")
"""Numbers that the first screen shows, and labels for screen readers say."""


def quiz_of(slug: str) -> dict[str, Any]:
    found: dict[str, Any] = data_of(slug)["models"][0]["quiz"]
    return found


def letters_of(slug: str, question: dict[str, Any], **other: int) -> dict[str, int]:
    model = {x["letter"]: int(x["value"]) for x in data_of(slug)["models"][0]["letters"]}
    return model | {x: int(n) for x, n in question["given"].items()} | other


def mistakes_in(question: dict[str, Any], letters: dict[str, int]) -> dict[str, int]:
    """Return the numbers of the named mistakes of a question of the page."""
    at = letters | {"answer": evaluate(question["form"], letters)}
    return {name: evaluate(form, at) for form, name, _ in question["mistakes"]}


def mistakes_of(x: Exercise) -> dict[str, int]:
    found = make_mistakes(x, (*x.mistakes, *MISTAKES))
    return {y.name: int(wrong.number) for y, wrong in reversed(found)}


@pytest.mark.parametrize("slug", SLUGS)
def test_page_and_lesson_ask_the_same_under_the_same_numbers(slug: str) -> None:
    asked, quiz = llamath.lesson("quiz", slug), quiz_of(slug)
    assert quiz["id"] == slug and len(quiz["exercises"]) == len(asked) == 10
    study = ModelStudy.of(model_of(slug))
    pairs = [
        *zip(quiz["exercises"], asked, strict=True),
        *zip(quiz["parts"], [x.exercise for x in plate_parts(study)], strict=True),
    ]
    named = 0
    for x, y in pairs:
        letters = letters_of(slug, x)
        assert (x["text"], x["unit"]) == (y.text, y.unit)
        assert evaluate(x["form"], letters) == int(y.answer)
        expected = mistakes_of(y)
        for name, number in mistakes_in(x, letters).items():
            assert number == expected[name] != int(y.answer), (y.id, name)
            named += 1
    assert named > 40


def test_parts_name_layers_of_their_own_size() -> None:
    """OpenELM's heads change at layers 5 and 12, and every layer has an FFN of its own."""
    model = model_of("openelm-270m")
    parts = page_data._quiz(model)["parts"]
    letters = {x["letter"]: int(x["value"]) for x in page_data._letters(model)}
    queries = {
        layer: evaluate(x["form"], letters)
        for x in parts
        if x["name"] == "q"
        for layer in x["layers"]
    }
    config = model.config.data
    heads = config["num_query_heads"]
    assert queries == {
        str(i): n * config["head_dim"] * config["model_dim"] for i, n in enumerate(heads)
    }
    assert queries["5"] == 1_310_720
    assert all(x["layers"] == [x["layer"]] for x in parts if x["name"] == "gate")


def test_mistakes_follow_an_edit_of_the_dimensions() -> None:
    """Against the library on a configuration with these dimensions."""
    config = dict(model_of("llama-3-8b").config.data)
    config |= {"num_key_value_heads": 4, "intermediate_size": 12_000, "num_hidden_layers": 20}
    study = ModelStudy.of(llamath.load(config))
    edit = {"K": 4, "F": 12_000, "L": 20}
    compared = 0
    for x, part in zip(quiz_of("llama-3-8b")["parts"], plate_parts(study), strict=True):
        letters = letters_of("llama-3-8b", x, **edit)
        assert evaluate(x["form"], letters) == int(part.exercise.answer)
        assert evaluate(x["adds"], letters) == int(part.adds.value)
        expected = mistakes_of(part.exercise)
        for name, number in mistakes_in(x, letters).items():
            if name in expected:
                assert number == expected[name], (x["name"], name)
                compared += 1
    assert compared > 40


@pytest.fixture
def tab(browser: Any, tmp_path: Path) -> Iterator[Any]:
    with Tab(browser, tmp_path, page_of("llama-3-8b"), width=1440) as page:
        yield page


def answer(tab: Any, text: str, selector: str = CARD) -> str:
    """Type an answer, and return what is said of it."""
    tab.fill(selector, text)
    tab.press(selector, "Enter")
    wait_until_drawn(tab)
    return str(tab.text_content(VERDICT))


def asked_now(tab: Any) -> str:
    key: str = tab.get_attribute(".quiz", "data-quiz")
    return key


def seen(tab: Any) -> str:
    """Return the text of the first screen, with the labels that are read aloud."""
    labels = "[...document.querySelectorAll('main [aria-label]')].map((x) => x.ariaLabel)"
    return str(tab.inner_text("main")) + " ".join(tab.evaluate(labels))


def setting(tab: Any, name: str) -> str:
    found = tab.evaluate("(x) => new URLSearchParams(location.hash.slice(1)).get(x)", name)
    return found or ""


def test_numbers_are_hidden_until_they_are_counted(tab: Any) -> None:
    assert all(x in seen(tab) for x in ASKED)
    tab.click(".quiz-start")
    wait_until_drawn(tab)
    assert setting(tab, "quiz") == "llama-3-8b"
    text = seen(tab)
    assert not [x for x in ASKED if x in text]
    assert tab.evaluate(HAS_FOCUS, CARD)
    fields = tab.locator("input[data-field]").evaluate_all("all => all.map((x) => x.ariaLabel)")
    parts = [x["text"] for x in quiz_of("llama-3-8b")["parts"]]
    assert sorted(fields) == sorted(parts) and len(parts) == 13
    pale = "document.querySelector('[data-matrix=\"attn.k.weight\"] .own').style.fill"
    before = tab.evaluate(pale)
    k = "[data-field='attn.k.weight']"
    assert answer(tab, "16,777,216", k).endswith(
        "no grouped heads. Not right: all 32 heads have their own K and V here; Llama 3 8B has 8"
    )
    assert asked_now(tab) == "p4" and tab.get_attribute(k, "aria-invalid") == "true"
    assert "2 times too small" in answer(tab, "2097152", k)
    assert "Counted so far, in all layers: 0" in tab.text_content(".quiz-sum")
    answer(tab, "K h d", k)
    assert tab.text_content(f"b{k}") == "4,194,304" and tab.evaluate(pale) != before
    assert "134,217,728, 1.67%" in tab.text_content(".quiz-sum")
    assert tab.evaluate("document.activeElement.dataset.field") == "attn.v.weight"
    tab.keyboard.press("Escape")
    wait_until_drawn(tab)
    assert not setting(tab, "quiz") and all(x in seen(tab) for x in ASKED)


def test_enter_moves_on_and_the_address_keeps_answers(tab: Any) -> None:
    go_to(tab, "#quiz=llama-3-8b")
    assert answer(tab, "V*d") == (
        "Right. embedding: V·d = 525,336,576 parameters. Each of its V rows has d numbers."
    )
    assert asked_now(tab) == "p2" and tab.evaluate(HAS_FOCUS, CARD)
    answer(tab, "4096")
    tab.click("[data-quiz-go=show]")
    wait_until_drawn(tab)
    assert tab.evaluate(HAS_FOCUS, "[data-quiz-go=next]")
    assert "2·d = 8,192 parameters" in tab.text_content(VERDICT)
    tab.click("[data-quiz-go=next]")
    answer(tab, "16.8M")
    kept = tab.evaluate("location.hash")
    assert setting(tab, "answers") == "p1-V*d_p2-4096_p2-shown_p3-16.8M"
    told = tab.text_content(".quiz-score"), tab.text_content(".quiz-sum")
    assert "Score: 2 of 23 right, 2 at the first try, 1 shown" in told[0]
    assert "norms, 4096: " in told[0]
    go_to(tab, "#")
    go_to(tab, kept)
    assert (tab.text_content(".quiz-score"), tab.text_content(".quiz-sum")) == told
    assert asked_now(tab) == "p4"
    right = [f"p{i}-{int(x.exercise.answer)}" for i, x in enumerate(_parts(), 1)]
    right += [f"{i}-{int(x.answer)}" for i, x in enumerate(_exercises(), 1)]
    go_to(tab, f"#quiz=llama-3-8b&answers={'_'.join(right)}")
    assert "Done: 23 of 23 right, 23 at the first try" in tab.inner_text(".quiz-score")
    assert "8,030,261,248, which is the total" in tab.text_content(".quiz-sum")
    assert tab.locator("input[data-field]").count() == 0
    tab.click("[data-quiz-go=again]")
    wait_until_drawn(tab)
    assert not setting(tab, "answers") and tab.locator("input[data-field]").count() == 13


def _parts() -> Any:
    return plate_parts(ModelStudy.of(model_of("llama-3-8b")))


def _exercises() -> Any:
    return quiz_exercises(ModelStudy.of(model_of("llama-3-8b")))


def test_parts_of_an_edited_model_are_counted_anew(tab: Any) -> None:
    go_to(tab, "#edit=sizes&sizes=K4&quiz=llama-3-8b,1")
    k = "[data-field='attn.k.weight']"
    assert answer(tab, "16777216", k).endswith("no grouped heads. Not right")
    answer(tab, "2097152", k)
    assert tab.text_content(f"b{k}") == "2,097,152"
    assert "67,108,864, " in tab.text_content(".quiz-sum")
    assert "Exercise" not in tab.text_content(".quiz") and tab.locator(".quiz-sheet").count() == 0


def test_link_chooses_exercises_and_says_what_is_foreign(tab: Any) -> None:
    for link, keys, said in (
        ("llama-3-8b,1-3,7", ["1", "2", "3", "7"], []),
        ("llama-3-8b,7,1-3", ["7", "1", "2", "3"], []),
        ("Llama 3 8B,10", ["10"], []),
        ("2", ["2"], []),
        ("mixtral-8x7b,2", ["2"], ["“mixtral-8x7b”", "this page is about Llama 3 8B"]),
        ("llama-3-8b,9-12", ["9", "10"], ["“9-12”: the exercises are 1 to 10"]),
        ("llama-3-8b,0,4,x", ["4"], ["“0”: the exercises", "“x” is no number of an exercise"]),
        ("<img src=x onerror=pwned()>", [str(i) for i in range(1, 11)], ["“<img src=x"]),
        ("llama-3-8b,99999999999", [str(i) for i in range(1, 11)], ["“99999999999” is no"]),
    ):
        go_to(tab, "#")
        tab.evaluate("(x) => { location.hash = new URLSearchParams({ quiz: x }); }", link)
        wait_until_drawn(tab)
        options = tab.locator(".quiz option").all_text_contents()
        assert [x.removeprefix("Exercise ") for x in options if "Exercise" in x] == keys, link
        total = len(keys) if len(keys) < 10 else len(options)
        assert len(options) == total and f"0 of {total} right" in tab.text_content(".quiz-place")
        assert len(keys) == 10 or f"1 of {total}" in tab.text_content(".quiz-card .eyebrow")
        text = " ".join(tab.locator(".quiz-wrong").all_text_contents())
        assert all(x in text for x in said) and bool(said) == bool(text), link
    for log in ("p99-1", "x", "1-", "3-<b>_p1-V*d", "_".join(["1-5"] * 900), "1-" + "9" * 500):
        go_to(tab, "#")
        tab.evaluate(
            "(x) => { location.hash = new URLSearchParams({ quiz: 'llama-3-8b', answers: x }); }",
            log,
        )
        wait_until_drawn(tab)
        assert tab.locator(CARD).is_visible()
        assert ("525,336,576" in tab.inner_text("main")) == ("V*d" in log)


def test_exercises_take_units_and_name_mistakes(tab: Any) -> None:
    asked = [x.text for x in _exercises()]
    context = next(i for i, x in enumerate(asked, 1) if "8,192 tokens" in x)
    token = next(i for i, x in enumerate(asked, 1) if "one token in bf16" in x)
    flops = next(i for i, x in enumerate(asked, 1) if "FLOPs" in x)

    def last(text: str, number: int) -> str:
        go_to(tab, "#")
        go_to(tab, f"#quiz=llama-3-8b,{number}")
        return answer(tab, text)

    for right in ("1.07 GB", "1 GiB", "1024 MiB", "1073741824 bytes", "2·L·K·h·T·2"):
        assert last(right, context).startswith("Right"), right
    for wrong in ("1 GB", "1.07", "1.07 GFLOPs", "9 XB"):
        assert not last(wrong, context).startswith("Right"), wrong
    assert "only the keys are cached here" in last("64 KiB", token)
    for right in ("15.01 GFLOPs", "15.01G", "15.01B"):
        assert last(right, flops).startswith("Right"), right
    assert "multiply-add as one. " in last("7,504,658,432", flops)


def test_print_asks_everything_and_ends_with_solutions(tab: Any) -> None:
    go_to(tab, "#quiz=llama-3-8b")
    tab.emulate_media(media="print")
    wait_until_drawn(tab)
    pages = tab.locator(".quiz-page").all_inner_texts()
    assert len(pages) == 2
    for x in _exercises():
        assert x.text in pages[0] and x.text not in pages[1]
        assert f"{int(x.answer):,} {x.unit}" in pages[1] or int(x.answer) < 1000
    for part in _parts():
        assert part.exercise.text in pages[0] and f"{int(part.exercise.answer):,}" in pages[1]
    assert "4·L·H·h·d" in pages[1] and "1.00 GiB" in pages[1]
    assert "525,336,576" not in pages[0] and not tab.is_visible("#plate")
    room = tab.locator(".quiz-page:first-child ol:not(.quiz-parts) .quiz-line")
    assert min(x.bounding_box()["height"] for x in room.all()) >= 110, "30 mm"
    shares = filled_shares(tab.pdf(format="A4", prefer_css_page_size=True), 15, 15)
    assert len(shares) == 3 and min(shares[:2]) >= 0.6, shares
    tab.emulate_media(media="screen")


def test_phone_has_a_card_for_each_question(browser: Any, tmp_path: Path) -> None:
    page = page_of("llama-3-8b")
    with Tab(browser, tmp_path, page, "#quiz=llama-3-8b", width=390) as tab:
        for _ in at_widths(tab, 390, 768, 1024, 1440):
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert tab.locator(CARD).is_visible()
        assert answer(tab, "V d").startswith("Right")
        tab.set_viewport_size({"width": 390, "height": 800})
        wait_until_drawn(tab)
        assert tab.locator(".layer-picture input").count() == 0
        assert answer(tab, "8192").startswith("Right") and asked_now(tab) == "p3"
        for part, step in (("1", "attn_norm"), ("6", "mlp.gate")):
            tab.select_option(".quiz select", part)
            wait_until_drawn(tab)
            tab.wait_for_function(
                """(step) => {
                  const node = document.querySelector(`[data-steps~="${step}"]`);
                  const { top, bottom } = node.getBoundingClientRect();
                  const bar = document.querySelector(".quiz").getBoundingClientRect();
                  return top >= 0 && bottom <= bar.top;
                }""",
                arg=step,
            )
        for _ in at_widths(tab, 1440):
            # the picture stays as it is without fields
            box = tab.locator(".plate-scene svg").first.bounding_box()
            assert box["width"] > 1.5 * box["height"]
            tab.set_viewport_size({"width": 1440, "height": 900})
            wait_until_drawn(tab)
            tab.select_option(".quiz select", "0")
            tab.wait_for_function(
                """() => {
                  const { top } = document.querySelector(".quiz").getBoundingClientRect();
                  const fields = [...document.querySelectorAll(".hero [data-item]")];
                  return fields.length > 9 &&
                    fields.every((x) => x.getBoundingClientRect().bottom <= top);
                }"""
            )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_parts_of_other_architectures_have_fields(browser: Any, tmp_path: Path, theme: str) -> None:
    page = page_of("deepseek-v3")
    with Tab(browser, tmp_path, page, "#quiz=deepseek-v3", width=1440, color_scheme=theme) as tab:
        drawn = tab.locator(".layer-picture input").evaluate_all(
            "x => x.map((y) => y.dataset.field)"
        )
        assert {"attn.kv_down.weight", "mlp.experts.{e}.up.weight", "mlp.router.weight"} <= set(
            drawn
        )
        names = [x["name"] for x in quiz_of("deepseek-v3")["parts"]]
        tab.select_option(".quiz select", str(names.index("gate")))
        wait_until_drawn(tab)
        assert "Layer 0" in tab.text_content(".plate-path")
        assert answer(tab, "F d").startswith("Right. gate: F·d = 132,120,576")
        assert tab.text_content("b[data-field='mlp.gate.weight']") == "132,120,576"


COVERED = """(key) => {
  const { top } = document.querySelector(".quiz").getBoundingClientRect();
  const head = Math.max(0, document.querySelector("header").getBoundingClientRect().bottom);
  const paths = llamath.data.models[0].quiz.parts[key.slice(1) - 1].paths;
  return [`.hero [data-item="${key}"]`, ...paths.map((x) => `[data-matrix="${x}"]`)]
    .flatMap((x) => [...document.querySelectorAll(x)])
    .filter((x) => x.checkVisibility())
    .map((x) => [x.getBoundingClientRect(), top - head])
    .filter(([x, room]) => (x.bottom > top || x.top < head) && x.height < room).length;
}"""
"""Fields and matrices of a part under the bar, or under what stands at the top of the window."""


@pytest.mark.parametrize("width", [1440, 768, 390])
def test_bar_does_not_cover_the_asked_part(browser: Any, tmp_path: Path, width: int) -> None:
    with Tab(browser, tmp_path, page_of("deepseek-v3"), "#quiz=deepseek-v3", width=width) as tab:
        tab.wait_for_function(f"({COVERED})('p1') === 0")
        tab.focus(CARD)
        place = tab.evaluate("scrollY")
        tab.keyboard.press("1")
        wait_until_drawn(tab)
        assert tab.evaluate("scrollY") == place, "typing scrolls nothing"
        for i in (0, 3, 9, 13, 2, 21):
            tab.select_option(".quiz select", str(i))
            wait_until_drawn(tab)
            assert asked_now(tab) == f"p{i + 1}"
            tab.wait_for_function(f"(key) => ({COVERED})(key) === 0", arg=f"p{i + 1}")
            bar = tab.locator(".quiz").bounding_box()
            assert bar["height"] <= 0.4 * 800 + 1 and bar["y"] + bar["height"] <= 801


def test_wrong_answer_is_marked_in_its_field(tab: Any) -> None:
    go_to(tab, "#quiz=llama-3-8b")
    k = "[data-field='attn.k.weight']"
    mark = f"getComputedStyle(document.querySelector(\"{k}\").form, '::after').content"
    assert tab.evaluate(mark) == "none"
    answer(tab, "4096", k)
    assert tab.evaluate(mark) == '"✗"'
    tab.fill(k, "4097")
    wait_until_drawn(tab)
    assert tab.evaluate(mark) == "none", "another answer is not judged yet"
