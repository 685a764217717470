"""The presets: well-formed, found by all their names, without unread keys, and counted to their published totals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import pytest

import llamath
from llamath import catalog
from llamath.analysis.size.fit.fit_report import FitReport
from llamath.analysis.understand.preset_list import READING
from llamath.catalog import Preset, normalize_name, normalize_with_dots
from llamath.catalog.refused_models import RefusedModel
from llamath.core.tree import fold
from llamath.families.multimodal_registry import find_wrapper
from llamath.families.registry import FAMILIES, type_of_architecture
from llamath.utils.units import parse_tokens
from support.reference_data import published, truth

PRESETS = {preset.slug: preset for preset in catalog.presets()}
UNUSED = {"model_type", "torch_dtype", "dtype", "quantization_config"}
"""Keys that no family reads: one for the loader, and the format of the stored weights."""
DIMS = "hidden_size n_embd d_model num_hidden_layers n_layer n_layers vocab_size intermediate_size num_key_value_heads".split()
TEXT = ("language_model", "lm_head")


def is_multimodal(preset: Preset) -> bool:
    """Whether a preset has a vision tower beside its text model."""
    classes = preset.config.get("architectures", [""])
    if type_of_architecture(classes[0]) is not None:
        return False
    wrapper = find_wrapper(preset.config["model_type"])
    return "vision_config" in preset.config or wrapper.family is not None


DOT_DECIDES = {"opt13b", "facebookopt13b", "cerebrasgpt13b", "cerebrascerebrasgpt13b"}
"""Names that two presets share without dots: OPT 1.3B and OPT 13B, and Cerebras-GPT of these sizes."""


def names(preset: Preset, form: Callable[[str], str] = normalize_name) -> set[str]:
    """The normalized names of a preset."""
    return {
        form(x)
        for x in (
            preset.slug,
            *preset.aliases,
            *preset.ids,
            *(x.rpartition("/")[2] for x in preset.ids),
        )
    }


def test_catalog_has_at_least_330_presets() -> None:
    assert len(PRESETS) >= 330


def test_presets_are_well_formed_and_sorted() -> None:
    with open(catalog.FILE, encoding="utf-8") as file:
        text = file.read()
    entries = json.loads(text)
    assert list(entries) == list(PRESETS) == sorted(PRESETS), "each begins a line"
    assert text.endswith("}\n") and max(map(len, text.splitlines())) <= 200
    for slug in PRESETS:
        check_entry(slug, entries[slug])


def check_entry(slug: str, data: dict[str, Any]) -> None:
    optional = {"aliases", "released", "license", "organization", "same_release", "facts"}
    optional |= {"grade", "unknown_keys", "quantized", "mtp_copies"}
    keys = [
        "name",
        "ids",
        "aliases",
        "released",
        "license",
        "organization",
        "same_release",
        "facts",
        "source",
        "grade",
        "unknown_keys",
        "parameters",
        "quantized",
        "mtp_copies",
        "config",
    ]
    assert list(data) == [key for key in keys if key in data]
    assert set(keys) - set(data) <= optional
    own_facts = data.get("facts", {})
    assert {*data.get("same_release", ()), *own_facts} <= set(data["ids"][1:]) and not set(
        own_facts
    ) & {*data.get("same_release", ())}
    for stated in (data, *own_facts.values()):
        assert re.fullmatch(
            r"20\d\d-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?", stated.get("released", "2020-01")
        )
        assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", stated.get("license", "mit"))
    known = {"released", "license", "context", "name", "note", "unknown_keys"}
    assert all(x and set(x) <= known for x in own_facts.values())
    assert data.get("grade", "") in {"", *catalog.GRADES} - {"file"}
    assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", slug)
    assert all(type(data[key]) is str and data[key] for key in ("name", "source"))
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+", x) for x in data["ids"])
    assert all(re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", x) for x in data.get("aliases", []))
    assert type(data["parameters"]) is int
    named = type_of_architecture(data["config"].get("architectures", [""])[0])
    known = FAMILIES.find(named or data["config"]["model_type"]) is not None
    assert known or is_multimodal(PRESETS[slug])
    assert next(iter(data["config"])) == "model_type"


def test_no_two_presets_share_a_name() -> None:
    owner: dict[str, str] = {}
    for preset in PRESETS.values():
        for name in names(preset):
            assert owner.setdefault(name, preset.slug) == preset.slug or name in DOT_DECIDES, name


def test_names_equal_without_dots_differ_with_dots() -> None:
    owner: dict[str, str] = {}
    for preset in PRESETS.values():
        for name in names(preset, normalize_with_dots):
            assert owner.setdefault(name, preset.slug) == preset.slug, name


def test_names_within_a_preset_are_unique() -> None:
    for preset in PRESETS.values():
        given = [preset.slug, *preset.aliases, *preset.ids]
        assert len({normalize_name(x) for x in given}) == len(given), preset.slug


def test_presets_are_found_by_every_name() -> None:
    for slug, preset in PRESETS.items():
        for name in (slug, slug.upper().replace("-", " "), *preset.aliases, *preset.ids):
            assert catalog.find_preset(name).slug == slug


def test_an_id_has_no_facts_of_its_sibling() -> None:
    for preset in PRESETS.values():
        for known in preset.ids:
            found = catalog.find_public_id(known.upper())
            assert found is not None and found.public_id == known
            if known in (preset.ids[0], *preset.same_release):
                assert found == preset.replace(public_id=known) and not found.unknown
                continue
            own = preset.facts.get(known, {})
            assert (found.released, found.license) == (own.get("released"), own.get("license"))
            unknown = len({"released", "license", "context"} & set(own)) < 3
            of_preset = found.replace(unknown=(), note="").notes
            siblings = [x for x in found.notes if x not in (*of_preset, own.get("note"))]
            assert len(siblings) == unknown and all(
                preset.name in x and known in x for x in siblings
            )


@pytest.mark.slow
def test_loaded_id_states_its_own_facts() -> None:
    """Each of these ids once had the license, date or context of another model."""
    for public_id, facts in {
        "MiniMaxAI/MiniMax-M2.7": ("minimax-m2.7-non-commercial", "2026-03-18", None),
        "mosaicml/mpt-7b-chat": ("cc-by-nc-sa-4.0", None, None),
        "Salesforce/xgen-7b-8k-inst": (None, None, None),
        "deepseek-ai/DeepSeek-V3.1": ("mit", "2025-08", 163840),
        "Qwen/Qwen2.5-Math-7B": ("apache-2.0", "2024-09-19", 4096),
        "Qwen/Qwen2.5-7B-Instruct": ("apache-2.0", "2024-09-19", 32768),
        "Qwen/Qwen3-Coder-30B-A3B-Instruct": ("apache-2.0", "2025-07-31", 262144),
        "Qwen/Qwen3.6-27B": ("apache-2.0", "2026-04-22", 262144),
        "nvidia/Nemotron-H-4B-Instruct-128K": (None, None, None),
        "meta-llama/Llama-3.1-8B-Instruct": ("llama3.1", "2024-07-23", 131072),
    }.items():
        sheet = llamath.facts(public_id)
        assert (sheet.license, sheet.released, sheet.context) == facts, public_id
        assert any("not known here" in x for x in sheet.notes) == (None in facts), public_id
        assert (None not in facts) or "same architecture as" in " ".join(sheet.notes)
    changed = llamath.load("MiniMaxAI/MiniMax-M2.7", changes={"num_hidden_layers": 4})
    assert changed.tree.context is None and any("not known here" in x for x in changed.notes)


@pytest.mark.slow
def test_parts_sum_to_the_published_total() -> None:
    """Of every preset, and each key is read."""
    wrong = []
    for slug, preset in PRESETS.items():
        model = llamath.load(slug)
        report = model.count
        sums = (
            sum(report.groups.values()),
            sum(x.each * int(x.times) for x in report.sections),
            report.formula.value,
            model.parameters.total,
        )
        if {*sums} != {preset.parameters}:
            wrong.append(f"{slug}: {sums}, expected {preset.parameters}")
        if any("ignored config keys" in x or "not counted" in x for x in model.notes):
            wrong.append(f"{slug}: {model.notes}")
        if not is_multimodal(preset) and (unread := set(model.config.unread()) - UNUSED):
            wrong.append(f"{slug}: {unread} are not read")
    assert not wrong


def twins() -> Iterator[tuple[Preset, dict[str, Any]]]:
    """Published configurations with a preset's name and dimensions, with their totals."""
    owner = {name: preset for preset in PRESETS.values() for name in names(preset)}
    for entry in truth("configs.jsonl"):
        preset = owner.get(
            normalize_name(
                entry["name"]
                .partition("@")[0]
                .rpartition("--")[2]
                .partition(".st")[0]
                .partition(".pt")[0]
            )
        )
        config = {**entry["config"], **entry["config"].get("text_config", {})}
        whole = config.get("architectures", ["ForCausalLM"])[0].endswith(
            ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
        )
        if preset is None or entry["params"] is None or not whole:
            continue
        ours = {**preset.config, **preset.config.get("text_config", {})}
        if all(config[key] == ours[key] for key in DIMS if key in config and key in ours):
            yield preset, entry


def test_presets_agree_with_published_configurations() -> None:
    found = list(twins())
    assert len(found) >= 60
    for preset, entry in found:
        expected = entry["params"]
        tower = "vision_config" in entry["config"]  # else that of transformers' defaults was built
        whole = is_multimodal(preset) and tower
        if "text_config" in entry["config"] and "components" in entry and not whole:
            expected = sum(
                n for part, n in entry["components"].items() if any(x in part for x in TEXT)
            )
        tree = llamath.load(preset.slug).tree
        if tree.is_multimodal and not (whole and "text_config" in entry["config"]):
            tree = tree.text
        assert (
            sum(int(x.weight.parameters) * int(x.copies) for x in fold(tree) if not x.weight.buffer)
            == expected
        ), entry["name"]


def test_presets_agree_with_published_tables() -> None:
    for suffix, _, total, _ in published("pythia_model_card")["rows"]:
        assert PRESETS[f"pythia-{suffix.lower()}"].parameters == total
    for size, d, heads, layers in published("llama1_table2")["rows"]:
        preset = PRESETS[f"llama-1-{ {6.7: 7, 13.0: 13, 32.5: 30, 65.2: 65}[float(size[:-1])] }b"]
        keys = ("hidden_size", "num_attention_heads", "num_hidden_layers")
        assert [preset.config[key] for key in keys] == [d, heads, layers]
        assert abs(preset.parameters / 1e9 - float(size[:-1])) < 0.1
    for size, total in zip(
        ("120b", "20b"), published("gpt_oss_model_card_table1")["rows"]["Total"], strict=True
    ):
        assert f"{PRESETS[f'gpt-oss-{size}'].parameters / 1e9:.2f}B" == total


def test_textbook_405b_preset() -> None:
    assert PRESETS["classic-405b"].parameters == 403_350_487_040
    assert PRESETS["llama-3.1-405b"].parameters == 405_853_388_800


@pytest.mark.slow
def test_presets_are_sorted_and_chosen_by_kind() -> None:
    largest = llamath.models(sort="params")
    assert [x.total for x in largest] == sorted((x.total for x in llamath.models()), reverse=True)
    mixtures = {x.preset: x for x in llamath.models("moe")}
    assert mixtures and all("moe" in x.kinds for x in mixtures.values())
    assert {"qwen3-next-80b-a3b", "lfm2-1.2b"} <= {x.preset for x in llamath.models("hybrid")}
    assert {x.family for x in llamath.models("recurrent")} == {
        "mamba",
        "falcon_mamba",
        "mamba2",
        "xlstm",
    }
    assert (
        {x.preset for x in llamath.models("vision")}
        == {x.slug for x in PRESETS.values() if is_multimodal(x)}
        != set()
    )
    with pytest.raises(llamath.LlamathError, match="no preset matches 'llama recurrent'"):
        llamath.models("llama", "recurrent")


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("qwen", "3"), {"on": "mem=24GiB bw=1TB/s"}),
        (("llama",), {"on": "rtx-4090", "dtype": "q4_k_m", "context": "32k"}),
        (("phi",), {"on": "2xrtx-3060-12gb"}),
        (("gemma",), {"on": "3060-12gb+4090"}),
    ],
)
@pytest.mark.slow
def test_presets_that_fit_are_those_of_fit(
    words: tuple[str, ...], asked: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """Every sixth preset, and before a release each, is asked by itself."""
    found = llamath.models(*words, **asked)
    fits = {x.preset: x for x in found.fits}
    assert [x.preset for x in found] == list(fits) and fits and found.rows()
    assert [x.total for x in found] == sorted((x.total for x in found), reverse=True)
    assert all((x.decode_ceiling or 0) > READING for x in found.fits) and found.best_first
    context = parse_tokens(asked.get("context", "1"))
    smaller = () if "dtype" in asked else ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "awq", "nvfp4")
    every = request.config.getoption("--all")
    for x in list(llamath.models(*words))[:: 1 if every else 6]:
        own = fit_or_none(x.preset, **asked)
        fit = fits.get(x.preset)
        if own is None or (x.context or context) < context:
            assert fit is None
            continue
        tried = chain([own], (fit_or_none(x.preset, **asked, dtype=y) for y in smaller))
        best = next((y for y in tried if y is not None and y.fits), None)
        assert (fit is None) == (best is None), x.preset
        if fit is None or best is None:
            continue
        assert fit.dtype == best.dtype or (best is not own and fit.dtype in ("fp8", "nvfp4"))
        report = own if own.fits else llamath.fit(x.preset, **asked, dtype=fit.dtype)
        stage, gpu = report.fullest
        assert (fit.total, fit.memory, fit.context) == (stage.total, gpu.memory, report.context)
        assert fit.max_context == report.max_context and report.ceilings is not None
        assert fit.decode_ceiling == report.ceilings.decode.tokens_per_second


def fit_or_none(preset: str, **asked: Any) -> FitReport | None:
    try:
        return llamath.fit(preset, **asked)
    except llamath.LlamathError:
        return None


@pytest.mark.slow
def test_slow_presets_come_last_and_unknown_speed_is_said() -> None:
    """At 20 GB/s, a model of more than some 4 GB is slower than one reads."""
    slow = llamath.models("llama-3", on="mem=48GiB bw=20GB/s")
    rates = [x.decode_ceiling or 0 for x in slow.fits]
    reached = [x >= READING for x in rates]
    assert True in reached and False in reached and reached == sorted(reached, reverse=True)
    for speed in (True, False):
        sizes = [x.total for x, y in zip(slow, reached, strict=True) if y == speed]
        assert sizes == sorted(sizes, reverse=True)
    sort = [x.preset for x in llamath.models("llama-3", on="mem=48GiB bw=20GB/s", sort="date")]
    assert sort != [x.preset for x in slow] and set(sort) == {x.preset for x in slow}
    unknown = llamath.models("llama-3", on="rtx-4070-laptop")
    assert unknown and all(x.decode_ceiling is None for x in unknown.fits)
    said = "as the memory bandwidth of GeForce RTX 4070 Laptop 8GB is not known"
    assert said in " ".join(unknown.terminal_text().split())
    assert {x.dtype for x in unknown.fits} > {"bf16"}


def test_no_fitting_preset_is_a_verdict() -> None:
    none = llamath.models("llama", "moe", on="mem=1GiB", dtype="fp32")
    assert not none and none.summary.startswith("no preset fits on ") and not none.rows()
    unknown = RefusedModel(name="X 1", public_id="x/x-1", released="", license="", reason="unknown")
    assert llamath.PresetList(models=(), refused=(unknown,))
    assert not llamath.PresetList(models=(), refused=(unknown,), on="mem=1GiB")
    with pytest.raises(llamath.LlamathError, match="unknown dtype"):
        llamath.models("llama", on="rtx-4090", dtype="q9")
    with pytest.raises(llamath.LlamathError, match="dtype is for models that fit on GPUs"):
        llamath.models("llama", dtype="q4_k_m")


@pytest.mark.slow
def test_presets_sort_by_date_with_unknown_dates_last() -> None:
    dates = [x.released for x in llamath.models(sort="date")]
    known = [x for x in dates if x is not None]
    assert known == sorted(known, reverse=True) and dates == known + [None] * (
        len(dates) - len(known)
    )


def test_nearly_all_presets_have_a_date_and_license() -> None:
    for key in ("released", "license"):
        unknown = [x.slug for x in PRESETS.values() if getattr(x, key) is None]
        assert len(unknown) <= len(PRESETS) // 20, (key, unknown)


def test_series_are_dated_in_their_order() -> None:
    for series in (
        (
            "llama-1-7b",
            "llama-2-7b",
            "llama-3-8b",
            "llama-3.1-8b",
            "llama-3.2-1b",
            "llama-3.3-70b",
            "llama-4-scout",
        ),
    ):
        dates = [PRESETS[x].released or "" for x in series]
        assert dates == sorted(dates) and all(dates)


def test_id_with_a_wrong_letter_is_refused_without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("asked a network"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    for wrong, right in {
        "Qwen/Qwen2.5-7B-Instrut": "Qwen/Qwen2.5-7B-Instruct",
        "meta-lama/Llama-3.1-8B": "meta-llama/Llama-3.1-8B",
        "mistralai/Mistrall-7B-v0.1": "mistralai/Mistral-7B-v0.1",
        "qwen/qwen3-8b-bqse": "Qwen/Qwen3-8B-Base",
        "poolside/Lagnua-XS.2": "poolside/Laguna-XS.2",
    }.items():
        with pytest.raises(llamath.LlamathError, match="one letter differs from") as found:
            llamath.load(wrong)
        assert right in str(found.value) and f"hf://{wrong}" in found.value.hint
    for other in (
        *("Qwen/Qwen2.5-9B", "Qwen/Qwen2.5-7B-Instruct", "meta-llama/Llama-3.1-8B-Chat"),
        *(
            "zai-org/GLM-4.5V",
            "bigscience/bloomz",
            "inclusionAI/Ring-flash-2.0",
            "google/gemma-2b-ft",
        ),
    ):
        assert catalog.misspelled_ids(other) == []


def test_unknown_id_without_network_says_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr("socket.create_connection", connect)
    monkeypatch.setattr("socket.getaddrinfo", connect)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with pytest.raises(
        llamath.LlamathError, match="not known here, and the Hub cannot be"
    ) as found:
        llamath.load("Qwen/Qwen2.5-9B")
    assert "did you mean Qwen/Qwen" in found.value.hint
    with pytest.raises(llamath.LlamathError, match="is refused, not guessed: of its config only"):
        llamath.load("inclusionAI/Ling-2.6-1T")


def test_a_plus_in_a_name_counts() -> None:
    assert catalog.find_preset("Command A+").slug == "command-a-plus"
    assert catalog.find_preset("Command R+").slug == "command-r-plus"
    assert catalog.find_preset("Command A").slug == "command-a"


@pytest.mark.slow
def test_unknown_keys_are_said_and_not_shown() -> None:
    sheet = llamath.facts("ibm-granite/granite-4.1-30b")
    assert sheet.positions == "RoPE, θ not known" and "rope_theta" in sheet.notes[-1]
    for name, released in {
        "nemotron 3 ultra 550b-a55b": False,
        "kimi-k2.6": False,
        "kimi-k2.5": True,
    }.items():
        sheet = llamath.facts(name)
        assert any(x.released for x in sheet.weights) == released, name
        assert any("quantization_config in the config of" in x for x in sheet.notes) != released
    note = "a LoRA adapter of rank 32 for Qwen/Qwen3.6-27B, counted without it"
    assert note in llamath.load("BTL-3 27B").notes


def test_preset_is_found_alone_as_among_all() -> None:
    known = catalog._entries()
    catalog._entries.cache_clear()
    for slug in known:
        assert catalog._entry(slug).decode() == known[slug]
    wrong = ("", "llama", "GPT2", 'gpt2": ', "\n", "\udc80", next(iter(known)) + " ")
    assert not any(map(catalog.has_preset, wrong)) and not catalog._entries.cache_info().currsize
