"""Configuration keys: every key has an entry with its true effect, and `llamath config` explains them."""

from __future__ import annotations

import copy
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import config_reference as page
import llamath
from llamath.analysis.understand.config_report import (
    META_FIELDS,
    config_report,
    params_json,
    params_json_text,
)
from llamath.analysis.understand.config_tables import UNREAD, format_value
from llamath.catalog import presets
from llamath.checkpoint.meta_args import config_to_args, ffn_width
from llamath.cli import cli
from llamath.config_keys import NO_EFFECT, SYNONYMS
from llamath.config_keys.key_meanings import (
    CONFIG_KEYS,
    GROUPS,
    MODEL_ARGS,
    describe_key,
    describe_tower_key,
)
from llamath.core.config import Config
from llamath.core.tree import fold
from llamath.families.multimodal_registry import TEXT_KEYS
from llamath.families.rope_shared import ROPE_TYPES
from llamath.render.report_text import report_text as config_text
from support.reference_data import multimodal_configs, truth

HERE = Path(__file__).parents[1]
GOLDEN = HERE / "golden" / "config-llama-3-8b.txt"
BOOKKEEPING = """add_cross_attention auto_map _attn_implementation attn_implementation bad_words_ids begin_suppress_tokens bos_token_id
    chunk_size_feed_forward compression_config cross_attention_hidden_size decoder_start_token_id diversity_penalty do_sample dtype
    early_stopping embedding_dropout encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty finetuning_task
    forced_bos_token_id forced_eos_token_id gradient_checkpointing id2label initializer_factor is_decoder is_encoder_decoder label2id
    length_penalty max_length min_length _name_or_path no_repeat_ngram_size num_beam_groups num_beams num_return_sequences
    output_attentions output_hidden_states output_scores pad_token_id prefix problem_type pruned_heads quantization_config
    remove_invalid_values repetition_penalty return_dict return_dict_in_generate sep_token_id suppress_tokens task_specific_params
    temperature tf_legacy_loss tie_encoder_decoder tokenizer_class top_k top_p torch_dtype torchscript transformers_version typical_p
    use_bfloat16 use_cache image_token_index image_token_id"""
"""Keys that transformers 4 writes for every model: those of `PretrainedConfig` 4.57, and of loaders and savers."""

UNPROVABLE = {
    "attn_config",
    "attn_output_gate",
    "expand",
    "linear_attn_config.full_attn_layers",
    "linear_attn_config.kda_layers",
    "mamba_d_ssm",
    "num_heads",
}
"""Keys that affect weights, although no other accepted value of them alone changes the total."""

NOT_IN_META = {
    "deepseek-coder-1.3b": "scaling",
    "deepseek-coder-33b": "scaling",
    "deepseek-coder-6.7b": "scaling",
    "devstral-small-24b": "dim / n_heads",
    "granite-code-3b": "biases",
    "h2o-danube-1.8b": "sliding_window",
    "kanana-nano-2.1b": "dim / n_heads",
    "llama-2-7b-32k": "scaling",
    "ministral-8b": "sliding_window",
    "minitron-4b-llama-width": "dim / n_heads",
    "mistral-7b": "sliding_window",
    "mistral-nemo-12b": "dim / n_heads",
    "mistral-small-24b": "dim / n_heads",
    "openchat-3.5": "sliding_window",
    "openhermes-2.5-mistral-7b": "sliding_window",
}
"""Presets of the llama family that Meta's reference cannot express, and a word of the reason."""


def sources() -> Iterator[tuple[str, dict[str, Any]]]:
    yield from ((x.slug, dict(x.config)) for x in presets())
    for path in sorted([*HERE.glob("tiny/*.json"), *HERE.glob("tiny_unproven/*.json")]):
        yield from (
            (f"{path.stem} {label}", config)
            for label, config in json.loads(path.read_text()).items()
        )
    yield from ((x["name"], x["config"]) for x in truth("configs.jsonl"))


@cache
def models() -> dict[str, llamath.Model]:
    """Every model that loads: presets, tiny and published configurations."""
    results = {}
    for name, config in sources():
        try:
            results[name] = llamath.load(config)
        except llamath.LlamathError:
            assert name in {x["name"] for x in truth("configs.jsonl")}, name
    return results


def read_keys(config: Config, path: str = "") -> Iterator[str]:
    """Every key that a family reads or ignores, dotted."""
    yield from (path + key for key in config.keys_read)
    for key, sub in config.nested.items():
        yield from read_keys(sub, f"{path}{key}.")


def dotted_keys(data: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Every key of a configuration, dotted."""
    for key, value in data.items():
        yield path + key
        if isinstance(value, dict):
            yield from dotted_keys(value, f"{path}{key}.")


def run(*args: str) -> str:
    done = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(
        cli, args, catch_exceptions=False, standalone_mode=False
    )
    return done.stdout


def test_every_key_that_is_read_has_an_entry() -> None:
    missing = {
        (model.family.name, key)
        for model in models().values()
        for key in read_keys(model.config)
        if describe_key(key, model.family.name) is None and key not in NO_EFFECT
    }
    assert not missing


def test_every_key_that_a_tower_reads_has_an_entry() -> None:
    missing = set()
    for x in multimodal_configs():
        outer = llamath.load(x.values[0]).outer
        assert outer is not None
        for key in read_keys(outer):
            own = key.rpartition(".")[2]
            if own not in TEXT_KEYS and describe_tower_key(key) is None and own not in NO_EFFECT:
                missing.add((x.values[0]["model_type"], key))
    assert not missing


def test_config_explains_the_keys_of_towers() -> None:
    text = run("config", "examples/gemma-3-4b-it")
    assert (
        "vision_config " in text and "the width of the tower" in text and "unknown key" not in text
    )
    keys = {
        x["key"]: x for x in json.loads(run("config", "examples/gemma-3-4b-it", "--json"))["keys"]
    }
    assert (
        keys["vision_config.num_hidden_layers"]["value"] == 27
        and keys["mm_tokens_per_image"]["value"] == 256
    )
    assert keys["hidden_size"]["value"] == 2560 and "text_config" not in keys


def test_every_key_that_is_published_has_an_entry() -> None:
    keys = {
        (name, key)
        for name, model in models().items()
        for key in model.config.data
        if key != "_quantized"
    }
    assert not {
        (name, key) for name, key in keys if describe_key(key) is None and key not in NO_EFFECT
    }


def test_every_entry_is_for_a_known_key() -> None:
    known = {key for model in models().values() for key in read_keys(model.config)} | {
        key for _, config in sources() for key in dotted_keys(config)
    }
    known |= {key.replace("rope_parameters", "rope_scaling") for key in known} | {
        key.rpartition(".")[2] for key in known
    }
    own = {key.rpartition("/")[2] for key in CONFIG_KEYS}
    assert not own - known and not set(NO_EFFECT) - known - set(BOOKKEEPING.split())
    families = {model.family.name for model in models().values()} | {"latent", "hybrid", "learned"}
    assert {key.partition("/")[0] for key in CONFIG_KEYS if "/" in key} <= families


@pytest.mark.transformers
def test_bookkeeping_keys_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    written = {
        *transformers.PretrainedConfig().to_dict(),
        *transformers.GenerationConfig().to_dict(),
    }
    assert len(written & set(BOOKKEEPING.split())) > 30
    assert not {
        key
        for key in written & set(CONFIG_KEYS) - set(NO_EFFECT)
        if key not in {"architectures", "id2label", "use_mtp"}
    }


def test_entries_are_short_lines_with_an_effect_group() -> None:
    for key, (says, moves) in [*CONFIG_KEYS.items(), *MODEL_ARGS.items()]:
        assert 0 < len(says.split("; elsewhere ")[0]) <= 120 and 0 < len(moves) <= 90, key
        assert not re.search(r"[\n\t|]|  |\.$", says + moves) and says == says.strip(), key
        assert re.split(r"\W", moves)[0] in GROUPS, key
    assert all(0 < len(reason) <= 120 and "\n" not in reason for reason in NO_EFFECT.values())


def test_rope_type_names_every_kind_that_is_read() -> None:
    default, *kinds = ROPE_TYPES
    expected = f"type of scaling: {default} (none), {', '.join(kinds)}"
    assert CONFIG_KEYS["rope_scaling.rope_type"][0] == expected


def test_meanings_are_unique_except_for_synonyms() -> None:
    says = Counter(text for key, (text, _) in CONFIG_KEYS.items() if key not in SYNONYMS)
    assert [text for text, n in says.items() if n > 1] == []
    assert all(
        CONFIG_KEYS[word][0].startswith(CONFIG_KEYS[key][0])
        and CONFIG_KEYS[word][1] == CONFIG_KEYS[key][1]
        for word, key in SYNONYMS.items()
    )
    both = set(NO_EFFECT) & set(CONFIG_KEYS)
    assert both == {"architectures", "id2label", "model_type", "router_jitter_noise"}, (
        "read by some, and nothing where nobody reads it"
    )


def test_every_model_args_field_has_an_entry() -> None:
    assert tuple(MODEL_ARGS) == llamath.ModelArgs.fields
    assert {field for fields in META_FIELDS.values() for field in fields} == set(MODEL_ARGS) - {
        "max_batch_size",
        "max_seq_len",
    }


def test_meaning_of_a_dimension_names_its_letter() -> None:
    for name, model in models().items():
        letters = {
            letter for x in fold(model.tree) for dim in x.weight.shape for letter in dim.atoms
        }
        says = {x.key: x.says for x in config_report(model).keys}
        for key in set(model.config.key_by_symbol.values()) & set(says):
            if its := [
                letter
                for letter, source in model.config.key_by_symbol.items()
                if source == key and letter in letters
            ]:
                words = re.findall("[A-Za-z]+", says[key])
                assert set(its) & set(words), (name, its, key, says[key])


CHOICES: dict[str, list[Any]] = {
    "moe_layers_enum": ["1"],
    "topk_method": ["greedy", "noaux_tc"],
    "attn_config.attn_type": ["multihead_attention", "multiquery_attention"],
    "index_topk_pattern": ["FSF", "FFF"],
    "kv_source_layers": [[0, 1, 2, 3, 4, 5]],
    "kv_source_layer_ids": [[2, 4, 5]],
    "index_source_layer_ids": [[2, 5]],
    "engram_num_embeddings": [[400]],
}


def others(key: str, value: Any) -> list[Any]:
    """Other values that a key might have."""
    if key in CHOICES:
        return CHOICES[key]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value, max(value // 2, 1), value + 2, 3 * value, value - 1]
    if isinstance(value, float):
        return [2 * value, value / 2]
    if isinstance(value, list):
        flipped = [1 - x if type(x) is int and x in (0, 1) else x for x in value]
        return [value[::-1], flipped, *([x] * len(value) for x in value[:2]), [0], [1], []]
    return [True, 3, 4] if value is None else [value[::-1]] if isinstance(value, str) else []


def changed(config: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    result: dict[str, Any] = copy.deepcopy(dict(config))
    *path, last = key.split(".")
    node = result
    for part in path:
        node = node.setdefault(part, {})
    node[last] = value
    return result


def moved(model: llamath.Model, key: str, value: Any, tries: int | None = None) -> bool:
    """Whether another value of this key gives another total; with a number, of the first that load."""
    for x in others(key, value):
        if tries == 0:
            return False
        try:
            if (
                llamath.load(changed(model.config.data, key, x)).parameters.total
                != model.parameters.total
            ):
                return True
        except llamath.LlamathError:
            continue
        tries = None if tries is None else tries - 1
    return False


def test_exactly_the_keys_said_to_affect_weights_do(request: pytest.FixtureRequest) -> None:
    """Each key of a configuration is changed, and the totals compared: all keys of the first
    configuration of a file, of the others those that are said to affect weights.

    A key that is said to affect none gets one other value, or all with `--all`.
    """
    tries = None if request.config.getoption("all") else 1
    ends = {"model_type", "architectures", "num_labels", "id2label"}
    wrong, moving, declared = set(), set(), set()
    for path in sorted([*HERE.glob("tiny/*.json"), *HERE.glob("tiny_unproven/*.json")]):
        for i, (label, config) in enumerate(json.loads(path.read_text()).items()):
            model = llamath.load(config)
            for x in config_report(model).keys:
                weighty = x.group == "weights"
                if x.key in ends or isinstance(x.value, dict) or (i and not weighty):
                    continue
                declared |= {SYNONYMS.get(x.key, x.key)} if weighty else set()
                if weighty and SYNONYMS.get(x.key, x.key) in moving:
                    continue
                if moved(model, x.key, x.value, None if weighty else tries):
                    moving.add(SYNONYMS.get(x.key, x.key))
                    wrong |= set() if weighty else {(path.stem, label, x.key)}
    assert not wrong, "these affect weights, but their entries say not"
    never = {
        key for key in declared - moving - UNPROVABLE if not key.startswith("per_layer_config.")
    }
    assert not never - {"layers_block_type"}, "these never affect weights, but their entries say so"


def test_config_text_is_golden() -> None:
    text = run("config", "llama-3-8b")
    if os.environ.get("LLAMATH_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "LLAMATH_GOLDEN=1 regenerates it; read the diff"


def test_config_text_fits_80_columns_with_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name, model in models().items():
        text = config_text(config_report(model))
        assert max(map(len, text.splitlines())) <= 80, name
        assert "not a key that is known" not in text, name
        assert all(key in text for key in model.config.data), name


def test_config_json_contract() -> None:
    data = json.loads(run("config", "llama-3.1-8b", "--json"))
    assert data.keys() >= {"model", "hf", "meta", "why", "keys", "derived", "widths", "remarks"}
    assert data["hf"]["hidden_size"] == data["meta"]["dim"] == 4096 and data["why"] is None
    keys = {x["key"]: x for x in data["keys"]}
    assert all(
        x.keys() >= {"key", "value", "absent", "says", "moves", "group", "meta"}
        for x in data["keys"]
    )
    assert keys["num_key_value_heads"] | {"says": "", "moves": ""} == {
        "key": "num_key_value_heads", "value": 8, "absent": False, "says": "", "moves": "", "group": "weights", "meta": ["n_kv_heads"],
    }  # fmt: skip
    assert keys["mlp_bias"]["absent"] and keys["mlp_bias"]["value"] is False
    assert (
        keys["rope_scaling.factor"]["value"] == 8.0
        and "slower" in keys["rope_scaling.factor"]["says"]
    )
    assert {"multiple_of": 1024, "ffn_dim_multiplier": 1.3} in data["widths"]
    assert all(
        ffn_width(4096, x["multiple_of"], x["ffn_dim_multiplier"]) == 14336 for x in data["widths"]
    )
    assert {x["formula"]: x["value"] for x in data["derived"]} == {
        "h = d / H": 128,
        "H / K": 4,
        "2·L·K·h": 65_536,
        "F / d": 3.5,
    }


@pytest.mark.parametrize(
    "name", ["gpt2", "deepseek-v3", "mpt-7b", "gemma-4-31b", "qwen3-next-80b-a3b"]
)
def test_config_json_gives_the_reason_without_model_args(name: str) -> None:
    data = json.loads(run("config", name, "--json"))
    assert data["meta"] is None and "llama family" in data["why"] and data["widths"] == []


def test_null_values_are_explained() -> None:
    keys = {
        x.key: x
        for x in config_report(
            llamath.load("gemma-2-2b", changes={"sliding_window": None, "head_dim": None})
        ).keys
    }
    assert keys["sliding_window"].value is None and not keys["sliding_window"].absent, "no window"
    assert keys["head_dim"].value == 256 and keys["head_dim"].absent, "the family's own size"


def test_unread_keys_are_listed_separately() -> None:
    config = {
        **llamath.load("llama-3-8b").config.data,
        "made_up\x1b[31m": "\u202ex",
        "logit_scale": 2.0,
        "bos_token_id": 1,
    }
    model = llamath.load(config)
    keys = {x["key"]: x for x in config_report(model).to_json()["keys"]}
    assert (keys["made_up\x1b[31m"]["group"], keys["made_up\x1b[31m"]["says"]) == (
        UNREAD,
        "unknown key",
    )
    assert keys["logit_scale"]["group"] == UNREAD and "elsewhere" in keys["logit_scale"]["moves"]
    assert keys["bos_token_id"]["group"] == "nothing"
    apart = config_text(config_report(model)).partition("not read by this family")[2]
    assert "made_up\\u{1b}[31m" in apart and "\x1b[31m" not in apart and "\u202e" not in apart


def test_unused_keys_affect_nothing() -> None:
    keys = {x.key: x for x in config_report(llamath.load("nemotron-3-nano-30b")).keys}
    assert (
        keys["rope_theta"].moves == "nothing in this model"
        and keys["hidden_size"].group == "weights"
    )
    assert {x.key: x for x in config_report(llamath.load("deepseek-v3")).keys}[
        "num_nextn_predict_layers"
    ].group == "apart"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("silu", '"silu"'),
        (None, "null"),
        (1e-05, "1e-05"),
        ({}, "{}"),
        ({"factor": 2}, "1 key"),
        ([], "[]"),
        ([0], "[0]"),
        (["a"] * 5 + ["b"], "[5 × a, b]"),
        (
            (["sliding_attention"] * 5 + ["full_attention"]) * 5,
            "[5 × sliding_attention, full_attention, …] (30)",
        ),
        (["x" * 99], "[" + "x" * 40 + "… (99 characters)]"),
        ([[1, 2], [1, 2]], "[2 × [1, 2]]"),
        ("\x1b", '"\\u001b"'),
        (["\x1b"], "[\\u{1b}]"),
    ],
)
def test_values_are_shortened_and_escaped(value: object, text: str) -> None:
    assert format_value(value, 60) == text


@pytest.mark.parametrize(
    "slug", [x.slug for x in presets() if x.config["model_type"] in ("llama", "mistral")]
)
def test_params_json_gives_the_same_model_back(slug: str, tmp_path: Path) -> None:
    model = llamath.load(slug)
    result = config_report(model)
    if slug in NOT_IN_META:
        assert result.meta is None and NOT_IN_META[slug] in result.why
        with pytest.raises(llamath.ConfigError, match="cannot be expressed"):
            params_json_text(model)
        return
    assert result.meta is not None
    path = tmp_path / "params.json"
    path.write_text(run("config", slug, "--format", "params"))
    tied = model.tree.head is not None and bool(model.tree.head.weight.tied)
    again = llamath.load(path, changes={"tie_word_embeddings": True} if tied else {})
    assert again.parameters == model.parameters
    assert config_to_args(Config(again.config.data)) == result.meta
    assert dict(params_json(result.meta)) == json.loads(path.read_text())
    for key in (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
    ):
        assert again.config.data[key] == model.config.data[key]
    assert tied == any("tied to the embedding" in x for x in result.remarks)


def test_limits_of_model_args_are_remarked() -> None:
    text = " ".join(run("config", "llama-3.2-1b").split())
    assert "the model counts 262,668,288 more" in text and "factor 32.0, not 8.0" in text
    assert "note:" not in run("config", "llama-3-8b")


def test_config_accepts_model_args() -> None:
    text = run("config", "dim=288,n_layers=6,n_heads=6,vocab_size=32000,multiple_of=32")
    assert "F = 768 = " in text and "n_kv_heads = null" in text


def test_config_reference_page_is_up_to_date() -> None:
    assert page.PAGE.read_text() == page.page(), "python tools/config_reference.py writes it"


def test_a_long_list_is_shown_in_linear_steps() -> None:
    class Counted(list[int]):
        read = 0

        def __iter__(self) -> Iterator[int]:
            for x in super().__iter__():
                Counted.read += 1
                yield x

    assert (
        format_value(Counted(range(300_000)), 60)
        == f"[{', '.join(map(str, range(14)))}, …] (300000)"
    )
    assert Counted.read < 100  # what does not fit is not read
