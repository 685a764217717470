"""The nearest presets of a model by architecture: how changes are counted, and who is whose kin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import llamath
from llamath.analysis.understand.diff.kinship import (
    KinshipReport,
    ancestor,
    first_uses,
    nearest_presets,
)
from llamath.analysis.understand.diff.traits import BLOCK, RULE, SIZE, model_traits, trait_changes
from llamath.catalog import read_preset, slugs
from llamath.cli import cli
from llamath.utils.errors import LlamathError


def nearest(source: str | dict[str, object]) -> KinshipReport:
    report = llamath.diff(source, nearest=True)
    assert isinstance(report, KinshipReport)
    return report


def test_intellect_3_is_glm_4_5_air() -> None:
    report = nearest("PrimeIntellect/INTELLECT-3")
    assert report.summary == "INTELLECT-3 is GLM-4.5 Air"
    first = report.relatives[0]
    assert (first.preset, first.distance, first.delta) == ("glm-4.5-air", (0, 0, 0), 0)


def test_glm_5_is_deepseek_v3_2_with_other_sizes() -> None:
    report = nearest("glm-5")
    first = report.relatives[0]
    assert first.preset == "deepseek-v3.2" and first.number_of(BLOCK) == 0
    sizes = {x.trait: (x.a, x.b) for x in first.changes if x.kind == SIZE}
    assert sizes["hidden size"] == ("7,168", "6,144") and sizes["layers"] == ("61", "78")
    assert sizes["heads"] == ("128", "64") and sizes["vocabulary"] == ("129,280", "154,880")
    rules = [x.text for x in first.changes if x.kind == RULE]
    assert "no scaling of RoPE" in rules and "no groups of experts" in rules
    total = llamath.load("glm-5").parameters.total
    assert first.delta == total - llamath.load("deepseek-v3.2").parameters.total
    assert sum(x.delta for x in first.causes) == first.delta


CHANGES = [
    ("llama-3-8b", {"num_key_value_heads": 32}, BLOCK, "attention GQA → MHA"),
    ("llama-3-8b", {"num_key_value_heads": 4}, SIZE, "KV heads 8 → 4"),
    ("llama-3-8b", {"tie_word_embeddings": True}, BLOCK, "tied head"),
    ("llama-3-8b", {"attention_bias": True}, BLOCK, "biases of attention"),
    ("llama-3-8b", {"hidden_act": "gelu"}, RULE, "activation silu → gelu"),
    ("llama-3-8b", {"rope_theta": 10_000.0}, SIZE, "θ of RoPE 500,000 → 10,000"),
    ("llama-3-8b", {"num_hidden_layers": 40}, SIZE, "layers 32 → 40"),
    (
        "llama-3-8b",
        {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        RULE,
        "scaling of RoPE linear",
    ),
    ("mixtral-8x7b", {"num_local_experts": 16}, SIZE, "experts 8 → 16"),
    ("mixtral-8x7b", {"num_experts_per_tok": 4}, SIZE, "active experts 2 → 4"),
    ("mistral-7b-v0.3", {"sliding_window": 4096}, RULE, "window 4,096"),
    ("deepseek-v3", {"n_shared_experts": 2}, SIZE, "shared experts 1 → 2"),
]


@pytest.mark.parametrize(("slug", "keys", "kind", "text"), CHANGES)
def test_one_changed_key_is_one_named_change(
    slug: str, keys: dict[str, object], kind: str, text: str
) -> None:
    before = model_traits(llamath.load(slug))
    changed = llamath.load(slug, changes=keys)
    changes = trait_changes(before, model_traits(changed))
    assert [(x.kind, x.text) for x in changes] == [(kind, text)]
    report = nearest_presets(changed)
    assert any(x.preset == slug and x.distance <= (1, 0, 0) for x in report.relatives) or (
        report.relatives[0].distance < (1, 0, 0)
    )


def test_names_and_file_forms_do_not_matter(tmp_path: Path) -> None:
    config = dict(read_preset("llama-3-8b").config)
    path = tmp_path / "my-own-model.json"
    path.write_text(json.dumps(config))
    report = nearest(str(path))
    assert report.relatives[0].preset == "llama-3-8b" and not report.relatives[0].changes
    assert report.compared == len(slugs())


def pairs_without_changes() -> Iterator[tuple[str, str]]:
    kinds: dict[object, list[str]] = {}
    traits = {x: model_traits(llamath.load(x)) for x in slugs()}
    for slug, x in traits.items():
        kinds.setdefault((x.structure.key, frozenset(x.sizes.items())), []).append(slug)
    for alike in kinds.values():
        yield from ((alike[0], x) for x in alike[1:])


def test_presets_without_a_change_have_the_same_weights() -> None:
    pairs = list(pairs_without_changes())
    assert ("deepseek-r1", "deepseek-v3") in pairs and len(pairs) > 10
    for a, b in pairs:
        first, second = llamath.load(a), llamath.load(b)
        assert trait_changes(model_traits(first), model_traits(second)) == ()
        assert not llamath.diff(a, b).weights, (a, b)


def test_ancestor_was_released_before_its_descendant() -> None:
    assert (found := ancestor("deepseek-r1")) is not None
    assert (found.preset, found.distance) == ("deepseek-v3", (0, 0, 0))
    for slug in ("llama-3-8b", "glm-5", "gemma-2-9b", "qwen3-8b"):
        found = ancestor(slug)
        assert found is not None and found.released is not None
        assert found.released <= (read_preset(slug).released or "")
    assert ancestor("falcon-rw-1b") is None  # its date is not known


def test_first_uses_are_the_earliest_with_a_date() -> None:
    first = {x.what: x for x in first_uses()}
    assert first["MLA"].preset == "deepseek-v2" or first["MLA"].released <= "2024-05"
    assert first["attention sinks"].preset in ("gpt-oss-20b", "mimo-v2-flash")
    assert all(x.released == read_preset(x.preset).released for x in first.values())
    undated = {x for x in slugs() if read_preset(x).released is None}
    assert undated and not undated & {x.preset for x in first.values()}


def test_command_prints_the_nearest_and_refuses_others(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["diff", "deepseek-r1", "--nearest", "--json"])
    answer = json.loads(done.stdout)
    assert answer["model"] == "DeepSeek R1" and answer["nearest"][0]["preset"] == "deepseek-v3"
    assert answer["summary"] == "DeepSeek R1 is DeepSeek V3" and len(answer["nearest"]) == 5
    done = CliRunner().invoke(cli, ["diff", "gpt2", "gpt2-xl", "--nearest"])
    assert done.exit_code == 2 and "one MODEL" in done.stderr
    done = CliRunner().invoke(
        cli, ["diff", "gpt2", "--nearest", "-o", str(tmp_path / "picture.svg")]
    )
    assert done.exit_code == 2 and not (tmp_path / "picture.svg").exists()


def test_two_models_have_no_nearest_presets() -> None:
    with pytest.raises(LlamathError, match="one known model, found two models"):
        llamath.diff("gpt2", "gpt2-xl", nearest=True)  # type: ignore[call-overload]
