"""The exported page: numbers equal the library's, hostile text stays text, and everything is accessible."""

from __future__ import annotations

import gzip
import json
import operator
import random
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.analysis.size.fit.fit_report import choose_split, fit
from llamath.analysis.size.fit.serving_layouts import LayoutChooser, ServingLayout, serving_layouts
from llamath.analysis.size.memory.gpu_shards import ShardedModel
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.cli import cli
from llamath.cli.export import command as export
from llamath.hardware import find_device
from llamath.model import Model
from llamath.utils.errors import LlamathError
from llamath.web.server.page_html import model_page, page_from_data
from support.browser_page import (
    NARROW,
    UNFOLD,
    Tab,
    browser,
    computed,
    go_to,
    page_data,
    shown_text,
    wait_until_drawn,
)
from support.page_expressions import FUNCTIONS, evaluate
from support.page_models import (
    as_made,
    as_sent,
    data_of,
    model_of,
    once_in_a_run,
    own_data,
    page_of,
)
from support.reference_data import tiny_configs

PARTS = {
    "weights": "weights",
    "cache": "kv_cache",
    "activations": "activations",
    "logits": "logits",
    "overhead": "overhead",
    "total": "total",
}
SAMPLE = "llama-3-8b gemma-3-27b deepseek-v2-lite qwen3-next-80b-a3b gpt-oss-20b gpt2".split()
Settings = dict[str, str]
__all__ = ["browser"]


@cache
def random_models(whole: bool) -> list[Model]:
    """Return models of many kinds, or of all, with random sizes where their config allows it."""
    rng = random.Random(7)
    made = [model_of(slug) for slug in SAMPLE]
    firsts = {
        str(x.id).rpartition("-")[0]: x.values[0] for x in reversed(tiny_configs(computed=True))
    }
    for config in list(firsts.values())[:: 2 if whole else 27]:
        changes = {
            key: rng.randint(1, 40) * 8
            for key in ("vocab_size", "intermediate_size", "sliding_window")
            if isinstance(config.get(key), int)
        }
        try:
            made.append(llamath.load(config, changes=changes))
        except LlamathError:
            continue
    return made


@cache
def random_data(whole: bool) -> dict[str, Any]:
    """Return the data of a page of all these models."""
    found: list[dict[str, Any]] = once_in_a_run(
        f"page-data-of-random-models-{whole}",
        lambda: [own_data(x) for x in random_models(whole)],
    )
    return data_of(SAMPLE[0]) | {"models": found}


def random_settings(rng: random.Random, data: dict[str, Any]) -> Settings:
    """Return random slider settings of this model."""
    sizes = data["sizes"]
    span = lambda: str(min(int(2 ** rng.uniform(0, 32)), 2**32 - 1))  # noqa: E731
    return {
        "context": span(),
        "batch": str(int(2 ** rng.uniform(0, 12))),
        "dtype": rng.choice(sizes["dtypes"])["name"],
        "kv": rng.choice(sizes["kvs"])["name"],
        "gpus": rng.choice(sizes["gpus"])["count"],
        "card": rng.choice(["h100-sxm", "gb300", "mi210", "gh200"]),
    }


CHOOSERS: dict[tuple[int, str, str], LayoutChooser] = {}
"""Of models that live as long as the tests: what is chosen is looked up by their ids."""


def chooser_of(model: Model, dtype: str, kv: str) -> LayoutChooser:
    """Return the chooser of splits of one of the random models."""
    key = (id(model), dtype, kv)
    if key not in CHOOSERS:
        CHOOSERS[key] = LayoutChooser(
            MemoryCalculator(model, MemoryRequest(dtype=dtype, kv_dtype=kv))
        )
    return CHOOSERS[key]


def library_split(model: Model, at: Settings) -> tuple[ShardedModel, ServingLayout]:
    """Return the model in the split that `fit` chooses for the chosen GPU."""
    chooser = chooser_of(model, at["dtype"], at["kv"])
    chosen = choose_split(
        chooser, find_device(at["card"]), int(at["gpus"]), int(at["context"]), int(at["batch"])
    )
    return chooser.shards(chosen.layout), chosen


def library_memory(model: Model, at: Settings) -> Settings:
    """Return the library's memory of the most loaded GPU."""
    shards, chosen = library_split(model, at)
    most_loaded = max(
        shards.stage_memory(int(at["context"]), chosen.sequences(int(at["batch"]))),
        key=lambda x: x.total,
    )
    return {part: str(getattr(most_loaded, name)) for part, name in PARTS.items()}


@pytest.fixture(scope="module")
def models(request: pytest.FixtureRequest) -> list[Model]:
    return random_models(request.config.getoption("--all"))


@pytest.fixture(scope="module")
def everything(request: pytest.FixtureRequest) -> dict[str, Any]:
    return random_data(request.config.getoption("--all"))


def test_expressions_equal_the_reports(models: list[Model], everything: dict[str, Any]) -> None:
    rng = random.Random(1)
    assert len(models) > 12
    for model, data in zip(models, everything["models"], strict=True):
        for _ in range(2):
            at = random_settings(rng, data)
            sizes = data["sizes"]
            _, chosen = library_split(model, at)
            splits = next(x["splits"] for x in sizes["gpus"] if x["count"] == at["gpus"])
            assert [
                (sizes["layouts"][i]["tp"], sizes["layouts"][i]["pp"], n) for i, n in splits
            ] == [
                (str(x.layout.tp), str(x.layout.pp), x.replicas)
                for x in serving_layouts(model.tree, int(at["gpus"]), int(at["gpus"]))
            ]
            wanted = [str(chosen.layout.tp), str(chosen.layout.pp)]
            split, forms = (
                next(x for x in sizes["layouts"] if [x["tp"], x["pp"]] == wanted),
                sizes["forms"],
            )
            variables = {
                "T": int(at["context"]),
                "B": chosen.sequences(int(at["batch"])),
                "TP": int(split["tp"]),
            }
            for kind, name in (("dtypes", "dtype"), ("kvs", "kv")):
                variables |= {
                    k: int(v)
                    for k, v in next(x for x in sizes[kind] if x["name"] == at[name])[
                        "variables"
                    ].items()
                }
            totals = []
            for stage in split["stages"]:
                found = {
                    "weights": evaluate(stage["weights"], variables),
                    "cache": sum(evaluate(forms[x["form"]], variables) for x in stage["cache"]),
                }
                found |= {
                    part: evaluate(forms[stage[part]], variables)
                    for part in ("activations", "logits")
                }
                found["overhead"] = evaluate(forms[stage["overhead"]], variables | found)
                totals.append(found | {"total": sum(found.values())})
            assert {
                k: str(n) for k, n in max(totals, key=lambda x: x["total"]).items()
            } == library_memory(model, at), (model.name, at)


@pytest.mark.parametrize("slug", SAMPLE)
def test_page_data_sum_to_totals(slug: str) -> None:
    model, page = model_of(slug), data_of(slug)
    data = page["models"][0]
    total = model.parameters.total
    assert (
        sum(int(x["total"]) for x in data["sections"])
        == total
        == sum(int(x["parameters"]) for x in data["tiles"])
    )
    assert sum(int(y["total"]) for x in data["sections"] for y in x["rows"]) == total
    for dtype in data["sizes"]["dtypes"]:
        tiles = sum(
            int(n) * int(each) for x in data["tiles"] for _, n, each in x["kept"][dtype["name"]]
        )
        assert tiles == int(dtype["bytes"])
        assert tiles == MemoryCalculator(model, MemoryRequest(dtype=dtype["name"])).at(1, 1).weights
    assert page_data(page_from_data(page))["models"] == json.loads(
        json.dumps(as_sent(page)["models"])
    )


PAIRS = [
    "deepseek-v3 qwen3-next-80b-a3b",
    "llama-3.1-405b deepseek-v3",
    "nemotron-3-super-120b gemma-4-26b-a4b",
    "qwen3.5-397b-a17b nemotron-3-super-120b",
]
"""What makes the largest pages of two models."""


def test_exported_page_is_small(request: pytest.FixtureRequest) -> None:
    """The budget of a page, and of one with two models, as a file and as a web server sends it.

    Places of a template are numbered as they are made: what a process has kept moves some bytes.
    """
    pairs = PAIRS if request.config.getoption("--all") else PAIRS[:1]
    for slugs, most, most_sent in (
        ("llama-3-8b", 637_700, 285_000),
        ("deepseek-v3", 666_100, 305_500),
        *((x, 817_500, 406_000) for x in pairs),
    ):
        page = page_of(*slugs.split()).encode()
        assert len(page) <= most, slugs
        sent = len(gzip.compress(page, 9))
        # of these, 600 are the licenses of the packages in the script, and 3,500 the posters of each model
        assert sent <= most_sent, slugs


def test_export_does_not_overwrite_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "page.html")
    done = CliRunner().invoke(cli, ["export", "gpt2", "-o", path])
    assert done.exit_code == 0 and "wrote" in done.stderr and not done.stdout
    assert Path(path).read_text() == page_of("gpt2")
    again = CliRunner().invoke(export, ["gpt2", "-o", path], standalone_mode=False)
    assert (
        isinstance(again.exception, LlamathError)
        and again.exception.hint == "--force overwrites it"
    )
    assert CliRunner().invoke(cli, ["export", "gpt2", "-o", path, "--force"]).exit_code == 0


@pytest.mark.parametrize(
    "args",
    [
        ["export"],
        ["export", "gpt2"],
        ["export", "a", "b", "c", "-o", "x"],
        ["export", "-", "-", "-o", "x"],
    ],
)
def test_bad_input_exits_with_2(args: list[str]) -> None:
    assert CliRunner().invoke(cli, args).exit_code == 2


# what follows needs Chromium


def test_page_equals_library_digit_for_digit(
    browser: Any, tmp_path: Path, models: list[Model], everything: dict[str, Any]
) -> None:
    rng = random.Random(2)
    asks = []
    for i in [rng.randrange(len(models)) for _ in range(40 if len(models) < 60 else 120)]:
        kept = {
            key: x
            for key, x in random_settings(rng, everything["models"][i]).items()
            if key in ("dtype", "kv", "gpus", "card")
        }
        asks += [[i, random_settings(rng, everything["models"][i]) | kept] for _ in range(10)]
    with Tab(browser, tmp_path, page_from_data(everything), width=NARROW) as tab:
        answers = computed(tab, "(asks) => asks.map(([i, at]) => pageTest.memory(i, at))", asks)
    for (i, at), found in zip(asks, answers, strict=True):
        assert found == library_memory(models[i], at), (models[i].name, at)


def strip_separators(text: str) -> str:
    return text.replace(",", "")


@pytest.mark.parametrize("slug", ["llama-3-8b", "gemma-3-27b"])
def test_controls_show_the_library_values(browser: Any, tmp_path: Path, slug: str) -> None:
    model, rng, data = model_of(slug), random.Random(3), data_of(slug)
    with Tab(browser, tmp_path, page_from_data(data)) as tab:
        assert (
            tab.text_content("[data-part=parameters]") == f"parameters: {model.parameters.total:,}"
        )
        for _ in range(5):
            at = random_settings(rng, data["models"][0])
            for name in ("context", "batch"):
                tab.fill(f"#{name}", at[name])
            for name in ("dtype", "kv", "gpus", "card"):
                tab.select_option(f"#choice-{name}", at[name])
            wait_until_drawn(tab)
            shown = {
                part: strip_separators(shown_text(tab, f"[data-part={part}]")) for part in PARTS
            }
            assert shown == library_memory(model, at)
        tab.fill("#context", "4096")
        tab.fill("#batch", "2")
        for name, value in (("dtype", "bf16"), ("kv", "fp8"), ("gpus", "2")):
            tab.select_option(f"#choice-{name}", value)
        wait_until_drawn(tab)
        sizes = MemoryCalculator(
            model, MemoryRequest(dtype="bf16", kv_dtype="fp8", context=4096, batch=2)
        )
        for card in (x for x in data["gpus"] if x["shown"]):
            longest = fit(sizes, find_device(card["name"]), 2).max_context
            text = shown_text(tab, f"[data-card={card['name']}]")
            assert text == (
                "any" if longest is None else f"{longest:,} tokens" if longest else "none"
            )


def test_number_opens_its_derivation(browser: Any, tmp_path: Path) -> None:
    model = model_of("llama-3-8b")
    with Tab(browser, tmp_path, page_of("llama-3-8b")) as tab:
        tab.focus("[data-part=parameters]")
        tab.keyboard.press("Enter")
        text = tab.text_content("dialog[open] pre")
        formula = model.count.formula
        numbers = re.sub(r"\d{4,}", lambda x: f"{int(x[0]):,}", formula.numbers)
        assert text.split("\n= ") == [formula.symbols, numbers, "8,030,261,248"]
        tab.keyboard.press("Escape")
        assert tab.evaluate("document.activeElement.dataset.part") == "parameters"
        tab.click("[data-part=cache]")
        symbols, numbers, result = tab.text_content("dialog[open] pre").split("\n= ")
        assert (
            symbols == "2·L·K·h·T·B·kv_bytes"
            and numbers == "2·32·8·128·8,192·1·2"
            and result == "1,073,741,824 bytes"
        )


@pytest.mark.parametrize("slug", ["gemma-3-27b", "deepseek-v2-lite", "qwen3-next-80b-a3b"])
def test_derivations_evaluate_to_the_shown_number(browser: Any, tmp_path: Path, slug: str) -> None:
    """Python evaluates the displayed formulas again."""
    words = {"⌊": "int(", "⌋": ")", "⌈": "-int(-(", "⌉": ")//1)", "·": "*", ",": "", " / ": "/"}
    words["−"] = "-"
    with Tab(browser, tmp_path, page_of(slug), "#context=5000&batch=3&kv=fp8") as tab:
        for part in ("cache", "activations", "logits", "total"):
            tab.click(f"[data-part={part}]")
            *_, numbers, result = tab.text_content("dialog[open] pre").split("\n= ")
            tab.keyboard.press("Escape")
            numbers = re.sub(r"(?<=\d),(?=\d{3})", "", numbers)
            for word, plain in words.items():
                numbers = numbers if word == "," else numbers.replace(word, plain)
            assert re.fullmatch(r"[\d\s+*/(),maxint-]+", numbers)
            assert evaluate_formula(numbers) == int(
                strip_separators(result).removesuffix(" bytes")
            ), part


def evaluate_formula(text: str) -> int:
    import ast

    def value(x: Any) -> int:
        if isinstance(x, ast.Constant):
            return Fraction(int(x.value))
        if isinstance(x, ast.Call):
            return {"min": min, "max": max, "int": lambda values: next(iter(values))}[x.func.id](
                map(value, x.args)
            )  # type: ignore[attr-defined]
        if isinstance(x, ast.UnaryOp):
            return -value(x.operand)
        assert isinstance(x, ast.BinOp)
        operations = {
            ast.Add: operator.add,
            ast.Sub: operator.sub,
            ast.Mult: operator.mul,
            ast.Div: operator.truediv,
        }
        return Fraction(
            {**operations, ast.FloorDiv: operator.floordiv}[type(x.op)](
                value(x.left), value(x.right)
            )
        )

    return value(ast.parse(text.strip(), mode="eval").body)


EVENTS = (
    "onerror",
    "onload",
    "onclick",
    "onfocus",
    "onmouseover",
    "onanimationstart",
    "ontoggle",
    "onpointerenter",
)
TAGS = (
    "img src=x",
    "svg",
    "body",
    "iframe srcdoc='<script>pwned()</script>'",
    "details open",
    "input autofocus",
    "video src=x",
    "math",
    "a href=javascript:pwned()",
)
PAYLOADS = [
    *(f'"\'><{tag} {event}=pwned()>' for tag in TAGS for event in EVENTS),
    *(f"{start}<script>pwned()</script>" for start in ("", "</script>", "</style>", "</title>", "</noscript>", "-->", "]]>", "</textarea>")),
    *("javascript:pwned()", "data:text/html,<script>pwned()</script>", "{{constructor.constructor('pwned()')()}}", "${pwned()}", "`-pwned()-`"),
    *("';pwned();//", '";pwned();//', "\\u003cscript\\u003epwned()\\u003c/script\\u003e", "&lt;script&gt;pwned()&lt;/script&gt;", "<!--<script>"),
    *("</script><script>pwned()//", "<base href=//x.invalid>", "<meta http-equiv=refresh content='0;url=//x.invalid'>", "<link rel=stylesheet href=//x.invalid>"),
    *("<form action=//x.invalid><button>", "<object data=//x.invalid>", "<embed src=//x.invalid>", "__proto__", "constructor", "\u202egnp.exe", "\u2028pwned()"),
]  # fmt: skip
EXACT = {
    "form",
    "activations",
    "logits",
    "overhead",
    "variables",
    "weights",
    "count",
    "dtype",
    "kv",
    "memory",
    "bytes",
}
FORMS = {
    "windows",
    "form",
    "activations",
    "logits",
    "overhead",
    "training",
    "speed",
    "work",
    "read",
    "rates",
    "roof",
    "settings",
    "tp",
    "shape",
    "stream",
    "takes",
}


def replace_strings(x: Any, words: Iterator[str], used: list[str]) -> Any:
    """Return the data with every string replaced except numbers, expressions and identifiers."""
    if isinstance(x, dict):
        ties = (
            {"name"} if "variables" in x or "row" in x else {"letter"} if "absent" in x else set()
        )
        kept = {
            key
            for key, y in x.items()
            if key in ties or key in FORMS or (key in EXACT and not isinstance(y, list))
        }
        return {key: y if key in kept else replace_strings(y, words, used) for key, y in x.items()}
    if isinstance(x, list):
        return (
            x
            if x[:1] and x[0] in ("let", "as", "+", "*", *FUNCTIONS)
            else [replace_strings(y, words, used) for y in x]
        )
    if not isinstance(x, str) or re.fullmatch(r"-?\d*", x):
        return x
    used.append(next(words))
    return used[-1]


@cache
def hostile_page() -> str:
    """Return the page of two models whose strings are all hostile."""
    assert len(set(PAYLOADS)) >= 100
    used: list[str] = []
    made = as_made(data_of("llama-3-8b", "deepseek-v2-lite"))
    data = replace_strings(made, cycle(PAYLOADS), used)
    assert set(used) == set(PAYLOADS)
    return page_from_data(data)


@pytest.mark.parametrize("view", ["a", "b", "difference", "design"])
def test_hostile_strings_do_not_change_the_page(browser: Any, tmp_path: Path, view: str) -> None:
    with Tab(browser, tmp_path, hostile_page(), f"#view={view}") as tab:
        text = tab.text_content("main")
        assert sum(x in text for x in PAYLOADS) > (30 if view == "design" else 80)
        assert tab.locator("script").count() == 2
        assert (
            tab.locator(
                "img, iframe, object, embed, video, base, form, math, link:not([rel=icon][href^='data:']), meta[http-equiv=refresh], a:not([href^='#'])"
            ).count()
            == 0
        )
        assert (
            tab.evaluate(
                "[...document.querySelectorAll('*')].flatMap(x => x.getAttributeNames()).filter(x => x.startsWith('on'))"
            )
            == []
        )
        tab.evaluate(
            """for (const x of document.querySelectorAll("button.number, .tile, [data-step], [data-verdict]")) {
              x.dispatchEvent(new MouseEvent("click", { bubbles: true }));
              document.querySelector("dialog[open]")?.close();
            }"""
        )
        assert (
            tab.locator("script").count() == 2
            and tab.locator("img, iframe, form, a:not([href^='#'])").count() == 0
        )


def test_hostile_tensor_names_are_shown_as_text(browser: Any, tmp_path: Path) -> None:
    model = llamath.load("gpt2")
    hostile = model.replace(
        name="</title><script>document.title='x'</script>",
        source="<img src=x>",
        notes=tuple(PAYLOADS),
    )
    with Tab(browser, tmp_path, model_page([hostile])) as tab:
        assert tab.text_content("h1") == hostile.name
        assert tab.locator("img").count() == 0


INVALID = [
    "#" + "x" * 5000,  # of a page that is open, the name of an element, which changes no setting
    "#context=1e9&gpus=3&dtype=<img>",
    "#view=b",
    "#context=0&batch=-1",
    "#context=4294967296",
    "#focus=999&map=x&sort=y&theme=z",
    "#%",
]


def test_invalid_address_shows_the_initial_state(browser: Any, tmp_path: Path) -> None:
    """Of a page that is loaded, and of one whose address changes."""
    with Tab(browser, tmp_path, page_of("gpt2"), INVALID[0]) as tab:
        for i, at in enumerate(INVALID):
            if i:
                go_to(tab, "#context=77&batch=5")
                assert tab.input_value("#context") == "77" and tab.input_value("#batch") == "5"
                go_to(tab, at)
            assert tab.input_value("#context") == "1,024" and tab.input_value("#batch") == "1", at
            assert tab.text_content("h1") == "GPT-2 small", at
            if i:
                assert tab.evaluate("location.hash") == "", "what is not known is removed"
                said = tab.text_content(".status-line")
                parts = at.removeprefix("#").split("&")
                assert [x for x in parts if "=" in x and x not in said] == [], said
        for kept, unknown in (
            ("", "layer=99"),
            ("", "tour=99"),
            ("", "zoom=attn/nothing"),
            ("layer=3", "zoom=x"),
            ("", "sizes=L3"),
            ("edit=sizes", "sizes=Z9"),
            ("view=design", "tour=2"),
        ):
            go_to(tab, f"#{kept}&{unknown}".replace("#&", "#"))
            wait_until_drawn(tab)
            assert tab.evaluate("location.hash") == (kept and f"#{kept}"), unknown
            said = tab.text_content(".status-line")
            assert unknown in said and (not kept or kept not in said), said
        go_to(tab, "#tour=99&gpus=3&layer=1")
        said = tab.text_content(".status-line")
        assert "tour=99 (1 … " in said and "gpus=3 (1, 2, 4, 8, 16)" in said
        assert tab.evaluate("location.hash") == "#layer=1", "the rest applies"


def test_state_is_kept_in_the_address(browser: Any, tmp_path: Path) -> None:
    text = page_of("llama-2-7b", "llama-3-8b")
    with Tab(browser, tmp_path, text) as tab:
        tab.click("[data-view=a]")
        wait_until_drawn(tab)
        tab.evaluate(UNFOLD)
        tab.fill("#context", "777")
        tab.select_option("#choice-dtype", "q4_k_m")
        tab.evaluate("document.querySelector('#map [data-value=bytes]').click()")
        tab.fill("#find", "attn q")
        tab.wait_for_function("() => location.hash.includes('attn')")
        at, shown = tab.evaluate("location.hash"), shown_text(tab, "[data-part=total]")
    with Tab(browser, tmp_path, text, at) as tab:
        assert (
            tab.input_value("#context"),
            tab.input_value("#choice-dtype"),
            tab.input_value("#find"),
        ) == ("777", "q4_k_m", "attn q")
        assert shown_text(tab, "[data-part=total]") == shown
        assert tab.locator("td + td").count() > 0 and "attn.q" in tab.text_content("main")


def test_everything_is_reachable_by_keyboard(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b")) as tab:
        tab.keyboard.press("/")
        assert tab.evaluate("document.activeElement.id") == "find"
        tab.keyboard.type("norm")
        assert tab.locator("th.path").all_text_contents() == [
            "layers.{l}.attn_norm.weight",
            "layers.{l}.mlp_norm.weight",
            "norm.weight",
        ]
        tab.fill("#find", "")
        tab.focus("button[data-section='1']")
        tab.keyboard.press("ArrowLeft")
        assert (
            tab.get_attribute("button[data-section='1']", "aria-expanded") == "false"
            and tab.locator("th.path").count() == 3
        )
        tab.keyboard.press("ArrowDown")
        assert tab.evaluate("document.activeElement.dataset.section") == "2"
        tab.keyboard.press("?")
        assert "Keyboard" in tab.text_content("dialog[open]")
        tab.keyboard.press("Escape")
        tab.focus("#parameters svg [tabindex='0']")
        tab.keyboard.press("ArrowRight")
        assert "parameters" in tab.text_content(":focus title")
        tab.keyboard.press("Enter")
        assert tab.locator("dialog[open]").count() == 1


def test_reduced_motion_disables_animations(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("gpt2"), reduced_motion="reduce") as tab:
        moving = "document.getAnimations().length + [...document.querySelectorAll('*')].filter(x => parseFloat(getComputedStyle(x).transitionDuration) > 0).length"
        assert (
            tab.evaluate("matchMedia('(prefers-reduced-motion: reduce)').matches")
            and tab.evaluate(moving) == 0
        )


def test_print_shows_numbers_without_controls(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b")) as tab:
        tab.emulate_media(media="print")
        assert tab.is_visible("[data-part=parameters]") and tab.is_visible(
            "#memory .memory-chart svg"
        )
        controls = "input:visible, select:visible, nav:visible, .tools:visible"
        assert tab.locator(controls).count() == 0
        said = tab.inner_text(".settings-said")
        assert "8,192 tokens · batch 1 · weights bf16" in said, "the settings are on the paper"
        tab.evaluate("document.querySelector('[aria-label=\"Dark theme\"]').click()")
        assert (
            tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        )
        hidden = "[...document.querySelectorAll('.scroll')].filter(x => x.scrollWidth > x.clientWidth + 1 && getComputedStyle(x).overflowX !== 'visible').length"
        assert tab.evaluate(hidden) == 0 and tab.pdf()[:5] == b"%PDF-"


def test_content_security_policy_blocks_everything_else(browser: Any, tmp_path: Path) -> None:
    tab = Tab(browser, tmp_path, page_of("gpt2"))
    assert (
        tab.page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')")
        == "refused"
    )
    assert (
        tab.page.evaluate(
            "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'set' } catch { return 'refused' } })()"
        )
        == "refused"
    )
    assert (
        tab.page.evaluate(
            "new Promise(done => { const x = document.createElement('img'); x.onerror = () => done('refused'); x.src = 'data:,'; })"
        )
        == "refused"
    )
    tab.context.close()
    assert tab.wrong and not [x for x in tab.wrong if x.startswith("http")]
