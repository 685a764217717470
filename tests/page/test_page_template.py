"""The page makes the data of a model with other dimensions as the library builds them, from the model's template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import llamath
from llamath.catalog import read_preset
from llamath.model import FamilyModel
from llamath.web.forms.arranged_layers import LAYER_LIST_KEYS
from llamath.web.page_data.template_variants import template_variants
from llamath.web.server.page_html import page_from_data
from support.browser_page import NARROW, Tab, browser, computed
from support.page_expressions import evaluate, expression_from_json
from support.page_models import as_made, data_of, model_of, own_data
from support.release import usual

assert browser
LEFT_OUT = {
    "design",
    "followed",
    "quiz",
    "posters",
    "copy",
    "parallel",
    "checkpoint",
    "live",
    "template",
}
CHANGES = {
    "llama-3-8b": (
        {"hidden_size": 8192, "num_attention_heads": 64, "num_hidden_layers": 80},
        {"num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 32000},
    ),
    "mistral-7b": (
        {"hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 30},
        {"intermediate_size": 11000, "num_key_value_heads": 1},
    ),
    "qwen2-7b": (
        {"hidden_size": 5120, "num_attention_heads": 40, "intermediate_size": 27648},
        {"num_hidden_layers": 36, "vocab_size": 151936},
    ),
    "qwen3-0.6b": (
        {"hidden_size": 5120, "num_attention_heads": 64, "num_hidden_layers": 64},
        {"head_dim": 64, "intermediate_size": 4096},
    ),
    "gemma-7b": (
        {"hidden_size": 2048, "num_hidden_layers": 18, "intermediate_size": 16384},
        {"num_key_value_heads": 4, "vocab_size": 32000},
    ),
    "gpt2": (
        {"n_embd": 1024, "n_layer": 24, "n_head": 16},
        {"vocab_size": 32000, "n_embd": 1536, "n_head": 24},
    ),
    "mixtral-8x7b": (
        {"hidden_size": 8192, "num_local_experts": 16, "num_experts_per_tok": 4},
        {"num_hidden_layers": 64},
    ),
    "deepseek-v2-lite": (
        {"kv_lora_rank": 1024, "num_hidden_layers": 54, "n_shared_experts": 1},
        {"moe_intermediate_size": 2048, "n_routed_experts": 32, "num_experts_per_tok": 4},
    ),
    "deepseek-v3": (
        {"num_hidden_layers": 122, "n_routed_experts": 128, "num_experts_per_tok": 4},
        {"vocab_size": 32000},
    ),
    "gpt-oss-20b": (
        {"num_hidden_layers": 37, "vocab_size": 32000, "num_local_experts": 16},
        {"num_key_value_heads": 64, "num_experts_per_tok": 8},
    ),
    "gemma-2-2b": ({"num_hidden_layers": 13}, {"num_attention_heads": 16}),
    "gemma-3-1b": ({"num_hidden_layers": 41}, {"intermediate_size": 8192}),
    "minicpm-2b": ({"hidden_size": 4608}, {"num_hidden_layers": 80}),
    "nemotron-h-8b": ({"conv_kernel": 8}, {"hidden_size": 8192}),
    "phi-1.5": (
        {"hidden_size": 4096, "num_attention_heads": 64, "num_key_value_heads": 64},
        {"intermediate_size": 10240, "num_hidden_layers": 32},
    ),
    "olmo-2-7b": (
        {"hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40},
        {"num_attention_heads": 16, "num_key_value_heads": 16},
    ),
}
WITH_KINDS_OF_LAYERS = ("deepseek-v3", "gpt-oss-20b", "gemma-2-2b", "gemma-3-1b")
USUAL = ("llama-3-8b", "qwen2-7b", "gemma-7b", "deepseek-v2-lite", "gpt-oss-20b", "minicpm-2b")


def _family_model(config: dict[str, Any]) -> FamilyModel:
    model = llamath.load(config)
    assert isinstance(model, FamilyModel)
    return model


def _letters(model: FamilyModel, template: dict[str, Any]) -> dict[str, int]:
    """The letters of the template, of which the count has not that of chosen experts."""
    config = model.config
    chosen = {x: config.data.get(key) for x, key in config.key_by_symbol.items()}
    found = {x: n for x, n in chosen.items() if type(n) is int} | model.count.formula.letters
    return {x: int(n) for x, n in found.items() if x in template["own"]}


def _value(form: Any, known: dict[str, int]) -> int:
    """Return the value of an expression at arbitrary values of its variables."""
    names = expression_from_json(form).variables
    return evaluate(form, {x: known.get(x, 2 + crc32(x.encode()) % 7) for x in names})


def _lines(x: Any, lines: list[dict[str, Any]]) -> Any:
    if isinstance(x, dict):
        return {name: _lines(y, lines) for name, y in x.items()}
    return [(lines[i]["what"], lines[i]["says"], _value(lines[i]["form"], {})) for i in x]


def _stage(stage: dict[str, Any], forms: list[Any], formats: list[dict[str, Any]]) -> Any:
    known = [{name: int(n) for name, n in x["variables"].items()} for x in formats]
    return {
        "weights": [_value(stage["weights"], x) for x in known],
        "cache": [(x["what"], _value(forms[x["form"]], {})) for x in stage["cache"]],
        "rest": [_value(forms[stage[x]], {}) for x in ("activations", "logits", "overhead")],
        "where": stage["where"],
    }


def _speed(layout: dict[str, Any], dtype: dict[str, Any]) -> Any:
    """The work of each pass in a format; equal weights may be read as one or as several."""
    known, read = {name: int(n) for name, n in dtype["variables"].items()}, dict[str, int]()
    for name, x in layout["read"].items():
        form, more = (x["form"], x["more"]) if isinstance(x, dict) else (x, {})
        read[name] = _value(form, known) + int(more.get(dtype["name"], 0))
    return {
        name: {part: _value(y, known | read) for part, y in forms.items()}
        for name, forms in layout["speed"].items()
    }


def _stop(stop: dict[str, Any], letters: dict[str, int]) -> Any:
    """A stop with the answers to its questions: which mistakes give another number than the answer
    depends on the dimensions.
    """
    asked = [
        (x["kind"], x["text"], x["why"], x["off"], _answer(x, letters)) for x in stop["questions"]
    ]
    return stop | {"questions": asked}


def _answer(question: dict[str, Any], letters: dict[str, int]) -> int:
    return evaluate(question["form"], letters | {x: int(n) for x, n in question["given"].items()})


def _comparable(model: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """Return the data with values in place of places and of expressions that may be written
    otherwise; only what `like` has of formats, layouts and ranks.
    """
    found = {name: x for name, x in model.items() if name not in LEFT_OUT}
    names = {x["name"] for x in like["sizes"]["dtypes"]}
    sizes, training = model["sizes"], model["sizes"]["training"]
    formats = [x for x in sizes["dtypes"] if x["name"] in names]
    shown = {
        like["sizes"]["layouts"][i]["name"] for x in like["sizes"]["gpus"] for i, _ in x["splits"]
    }
    ranks = set(like["sizes"]["training"]["ranks"])
    kept = ("what", "static", "moving", "lines", "start", "ranks")
    found["sizes"] = {
        name: x
        for name, x in sizes.items()
        if name not in ("layouts", "forms", "gpus", "start", "notes")
    } | {
        "dtypes": [
            {k: v for k, v in x.items() if k not in ("each", "variables")}
            | {"of": [sorted(y.split(" + ")) for y in x["of"]]}  # in order of their size
            for x in formats
        ],
        "spine": {
            name: {dtype: n for dtype, n in x.items() if dtype in names}
            for name, x in sizes["spine"].items()
        },
        "layouts": {
            x["name"]: {
                "stages": [_stage(y, sizes["forms"], formats) for y in x["stages"]],
                "speed": [_speed(x, dtype) for dtype in formats],
            }
            for x in sizes["layouts"]
            if x["name"] in shown
        },
        "training": {k: v for k, v in training.items() if k not in kept}
        | {
            "choices": like["sizes"]["training"]["choices"],
            "moving": {
                name: _lines(x, training["lines"])
                for name, x in training["moving"].items()
                if name in like["sizes"]["training"]["moving"]
            },
            "static": {
                name: {n: _lines(y, training["lines"]) for n, y in x.items() if n in ranks}
                for name, x in training["static"].items()
            },
        },
    }
    letters = {x["letter"]: int(x["value"]) for x in model["letters"]}
    found["tour"] = [_stop(x, letters) for x in model["tour"]]
    found["tiles"] = [
        x | {"kept": {dtype: y for dtype, y in x["kept"].items() if dtype in names}}
        for x in model["tiles"]
    ]
    found["layers"] = [
        {
            name: {dtype: y for dtype, y in x.items() if dtype in names} if name == "of" else x
            for name, x in model["layers"]["kinds"][i].items()
        }
        for i in model["layers"]["order"]
    ]
    found["facts"] = model["facts"] | {
        "weights": [x for x in model["facts"]["weights"] if x["dtype"] in names]
    }
    if like["experts"] is None:
        found["experts"] = None
    ropes = like["attention"]["ropes"] != []
    found["attention"] = model["attention"] | {
        "ropes": model["attention"]["ropes"] if ropes else [],
        "kinds": [x if ropes else x | {"rope": None} for x in model["attention"]["kinds"]],
    }
    return json.loads(json.dumps(found))


def _differences(a: Any, b: Any, at: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(a, dict) and isinstance(b, dict):
        keys = [*a, *(x for x in b if x not in a)]
        return [y for x in keys for y in _differences(a.get(x), b.get(x), f"{at}/{x}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return [y for i, (m, n) in pairs for y in _differences(m, n, f"{at}/{i}")]
    return [] if a == b else [(at, a, b)]


@pytest.fixture(scope="module")
def page() -> str:
    return page_from_data(as_made(data_of("gpt2")))


@pytest.mark.parametrize("slug", usual(*USUAL, release=CHANGES))
def test_page_makes_the_data_of_other_dimensions(
    browser: Any, tmp_path: Path, page: str, slug: str, request: pytest.FixtureRequest
) -> None:
    """All at once; of one model, and with `--all` of each, some at a time."""
    config = dict(read_preset(slug).config)
    some, others = CHANGES[slug]
    apart = slug == "llama-3-8b" or request.config.getoption("--all")
    template = data_of(slug)["models"][0]["template"]
    with Tab(browser, tmp_path, page, width=NARROW) as tab:
        for changes in (some, others) if apart else (some | others,):
            # the order of layers is the family's own, of any number
            listed = {x: y for x, y in config.items() if x not in LAYER_LIST_KEYS}
            other = _family_model(listed | changes)
            model = model_of(slug).replace(tree=other.tree, config=other.config)
            letters = _letters(model, template)
            made = computed(
                tab,
                """(template, letters) => llamath.instantiate(template, Object.fromEntries(
                  Object.entries(letters).map(([x, n]) => [x, BigInt(n)])))""",
                template,
                {x: str(n) for x, n in letters.items()},
            )
            built = own_data(model)
            wrong = _differences(_comparable(built, made), _comparable(made, made))
            assert not wrong, (changes, wrong[:10])
            assert made["counts"][0]["value"] == str(model.parameters.total)


@pytest.mark.parametrize("slug", usual("llama-3-8b", release=CHANGES))
def test_page_makes_the_data_of_variants(
    browser: Any, tmp_path: Path, page: str, slug: str
) -> None:
    """The head tied or not, and experts in the place of each FFN, at other dimensions as well."""
    data = data_of(slug)["models"][0]
    variants = dict(template_variants(model_of(slug), data["design"]))
    assert slug != "llama-3-8b" or {*variants} == {"head", "mixture"}
    with Tab(browser, tmp_path, page, width=NARROW) as tab:
        for name, variant in variants.items():
            config = {x: y for x, y in variant.config.data.items() if x not in LAYER_LIST_KEYS}
            for changes in ({}, CHANGES[slug][0]):
                other = _family_model(config | changes)
                model = variant.replace(tree=other.tree, config=other.config)
                letters = _letters(model, data["template"])
                made = computed(
                    tab,
                    """(template, name, letters) => llamath.instantiate(
                      llamath.variantOf(template, name),
                      Object.fromEntries(Object.entries(letters).map(([x, n]) => [x, BigInt(n)])),
                    )""",
                    data["template"],
                    name,
                    {x: str(n) for x, n in letters.items()},
                )
                built = own_data(model)
                assert changes or made["quiz"] == built["quiz"]
                for x in (built, made):  # the example stays that of the model
                    x["tour"] = [y | {"example": None} for y in x["tour"]]
                wrong = _differences(_comparable(built, made), _comparable(made, made))
                assert not wrong, (name, changes, wrong[:10])
                assert made["counts"][0]["value"] == str(model.parameters.total)


def test_page_refuses_letters_that_the_data_do_not_follow(
    browser: Any, tmp_path: Path, page: str
) -> None:
    template = data_of("gpt2")["models"][0]["template"]
    assert template["fixed"] == ["C"]
    with Tab(browser, tmp_path, page, width=NARROW) as tab:
        for letter in ("C", "Q"):
            says = tab.evaluate(
                """([template, letter]) => {
                  try { llamath.instantiate(template, { [letter]: 3n }); return ""; }
                  catch (error) { return error.message; }
                }""",
                [template, letter],
            )
            assert says == f"the data do not follow the letter {letter}"


LLAMA_3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"type": "yarn", "factor": 4, "original_max_position_embeddings": 4096}
RESTATED: tuple[dict[str, Any], ...] = (
    {"max_position_embeddings": 131072, "rope_theta": 1234567.5, "hidden_act": "gelu"},
    {"max_position_embeddings": 2048, "rope_scaling": LLAMA_3, "torch_dtype": "float32"},
    {"rope_scaling": YARN, "hidden_act": "relu2", "torch_dtype": "float16"},
    {"rope_scaling": {"rope_type": "linear", "factor": 2.5}, "hidden_activation": "relu2"},
    {"rope_scaling": {"type": "dynamic", "factor": 1.0}, "torch_dtype": None},
    {"rope_scaling": None, "rope_theta": None, "hidden_size": 4096},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 3e6}},
)
"""Keys that are no dimensions; None: absent."""
OTHERS_RESTATED = ("mistral-7b", "gemma-7b", "deepseek-v2-lite", "phi-1.5", "gemma-2-2b")
WINDOWS = {"mistral-7b": 900, "gemma-2-2b": 131071, "gemma-3-1b": 1024, "gpt-oss-20b": 16}
"""Smaller and larger ones than the model's own; of one as long as the context the page says more."""
RESTATING = [x for x in CHANGES if x not in ("gpt2", *WITH_KINDS_OF_LAYERS)]


@pytest.mark.parametrize("slug", dict.fromkeys((*RESTATING, *WINDOWS)))
def test_page_follows_keys_that_are_no_dimensions(
    browser: Any, tmp_path: Path, page: str, slug: str, request: pytest.FixtureRequest
) -> None:
    """Those that it says it follows, as the library does: all of one model, and with `--all` of each."""
    every = slug == "llama-3-8b" or request.config.getoption("--all")
    if not every and slug not in OTHERS_RESTATED:
        pytest.skip("with --all")
    config = dict(model_of(slug).config.data)
    template, followed = data_of(slug)["models"][0]["template"], set[str]()
    with Tab(browser, tmp_path, page, width=NARROW) as tab:
        for restated in RESTATED if every else RESTATED[:1]:
            changes = restated | ({"sliding_window": WINDOWS[slug]} if slug in WINDOWS else {})
            other = {key: x for key, x in {**config, **changes}.items() if x is not None}
            made, keys = computed(
                tab,
                """(template, own, entries) => {
                  const original = llamath.instantiate(template);
                  const found = llamath.readRestated(original, new Map(own), new Map(entries));
                  const at = llamath.instantiate(template, found.letters);
                  return [found.apply(at, ""), [...found.keys]];
                }""",
                template,
                *([(k, json.dumps(v)) for k, v in x.items()] for x in (config, other)),
            )
            known = {x: other[x] for x in keys if x in other}
            same = {key: x for key, x in config.items() if key not in keys} | known
            model = model_of(slug).replace(
                tree=(built := _family_model(same)).tree, config=built.config
            )
            data = own_data(model)
            for x, y in zip(data["tour"], made["tour"], strict=True):
                # of another model: the one that is most like it may be another one
                x["example"] = y["example"] = None
                if not y["code"]:  # not followed
                    x["code"] = []
            for x in (made, data):
                for row in x["facts"]["rows"][-1:]:  # of decode, in numbers at the full context
                    row["of"] = [y if i != 1 else y[:1] + y[-2:] for i, y in enumerate(row["of"])]
            wrong = _differences(_comparable(data, made), _comparable(made, made))
            assert not wrong, (changes, keys, wrong[:10])
            followed |= {*keys} & changes.keys()
    assert "max_position_embeddings" in followed or slug in WINDOWS
    assert ("sliding_window" in followed) == (slug in WINDOWS)
    if slug == "llama-3-8b":
        own = {"hidden_size", "hidden_activation"}
        assert followed == {y for x in RESTATED for y in x} - own
    if slug == "deepseek-v2-lite":
        assert "rope_theta" not in followed, "scores depend on it"
