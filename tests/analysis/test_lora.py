"""LoRA adapters: published counts, peft's target names and ours, and errors about unknown targets."""

from __future__ import annotations

import json
import warnings
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llamath
from llamath.analysis.size.training.lora_adapters import (
    build_adapters,
    list_matrices,
    module_names,
    split_targets,
)
from llamath.core.tree import fold
from support.reference_data import TINY

SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def trainable_parameters(
    slug: str, rank: int, targets: list[str], saved: list[str] | None = None
) -> int:
    model = llamath.load(slug)
    return build_adapters(model.tree, rank, targets, module_names(model), saved or ()).parameters


@pytest.mark.parametrize(
    ("slug", "rank", "targets", "published"),
    [
        ("llama-2-7b", 8, ["q_proj", "v_proj"], 4_194_304),
        ("llama-2-7b", 16, SEVEN, 39_976_960),
        ("llama-3.1-8b", 16, [*SEVEN, "lm_head"], 44_060_672),
        ("gpt2", 8, ["c_attn"], 294_912),
        ("bloom-560m", 8, ["query_key_value"], 786_432),
    ],
)
def test_published_trainable_counts(
    slug: str, rank: int, targets: list[str], published: int
) -> None:
    assert trainable_parameters(slug, rank, targets) == published


def test_trainable_share_matches_peft() -> None:
    total = llamath.load("llama-2-7b").parameters.total
    assert (
        f"{100 * 4_194_304 / (total + trainable_parameters('llama-2-7b', 8, ['q', 'v'])):.4f}"
        == "0.0622"
    )


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (["q", "v"], ["q_proj", "v_proj"]),
        (["qv"], ["attn.q", "attn.v"]),
        (["attention"], ["self_attn.q_proj", "k_proj", "v_proj", "o"]),
        (["all"], SEVEN),
        (["all-linear"], SEVEN),
        (["attention", "mlp"], SEVEN),
        (["q", "q_proj", "qv"], ["q", "v"]),
    ],
)
def test_target_names_are_equivalent(a: list[str], b: list[str]) -> None:
    assert trainable_parameters("llama-3-8b", 4, a) == trainable_parameters("llama-3-8b", 4, b)


def test_fused_matrices_get_one_adapter() -> None:
    gpt2 = llamath.load("gpt2")
    d, L = 768, 12
    assert build_adapters(gpt2.tree, 1, ["attention"], module_names(gpt2)).parameters == L * (
        d + 3 * d + 2 * d
    )
    assert build_adapters(gpt2.tree, 1, ["q", "v"], module_names(gpt2)).parameters == L * 4 * d
    assert (
        build_adapters(gpt2.tree, 1, ["q", "c_attn", "v"], module_names(gpt2)).parameters
        == L * 4 * d
    )
    assert build_adapters(gpt2.tree, 1, ["attention"]).parameters == L * 8 * d


def test_experts_get_adapters_and_routers_do_not() -> None:
    d, F, h, K = 4096, 14336, 4096, 1024
    one = 32 * ((d + h) * 2 + (d + K) * 2 + 8 * 3 * (d + F))
    assert trainable_parameters("mixtral-8x7b", 1, ["all"]) == one
    assert trainable_parameters("mixtral-8x7b", 1, ["all", "router"]) == one + 32 * (d + 8)


def test_fully_trained_modules_are_added() -> None:
    V, d = 32000, 4096
    assert (
        trainable_parameters("llama-2-7b", 8, ["qv"], ["embed_tokens", "lm_head"])
        == 4_194_304 + 2 * V * d
    )
    assert trainable_parameters("llama-2-7b", 8, ["embed"]) == 8 * (V + d)


@pytest.mark.parametrize("target", ["q_prj", "nowhere", "", "proj", "layers"])
def test_unknown_target_is_an_error(target: str) -> None:
    with pytest.raises(llamath.LlamathError, match="unknown LoRA target") as error:
        trainable_parameters("llama-2-7b", 8, ["q", target])
    assert error.value.hint


def test_missing_target_or_rank_is_an_error() -> None:
    tree = llamath.load("llama-2-7b").tree
    for rank, targets in ((8, []), (0, ["q"])):
        with pytest.raises(llamath.LlamathError):
            build_adapters(tree, rank, targets)
    assert list(split_targets(["q_proj, v_proj", "lm_head,"])) == ["q_proj", "v_proj", "lm_head"]


@pytest.mark.parametrize(
    "slug",
    [
        "llama-3-8b",
        "gpt2",
        "phi-3-mini",
        "deepseek-v2-lite",
        "gpt-oss-20b",
        "opt-350m",
        "qwen3-next-80b-a3b",
    ],
)
def test_stored_matrices_have_the_same_size(slug: str) -> None:
    model = llamath.load(slug)
    ours, theirs = list_matrices(model.tree), list_matrices(model.tree, model.family.hf)
    assert sum(x.elements * x.copies for x in ours) == sum(x.elements * x.copies for x in theirs)
    assert {path for x in ours for path in x.paths} == {path for x in theirs for path in x.paths}


MIXTURES = {
    path.stem: next(x for x in configs.values() if "expert" in json.dumps(x))
    for path in sorted(TINY.glob("*.json"))
    if "expert" in json.dumps(configs := json.loads(path.read_text()))
}
"""A tiny configuration of each family of mixtures of experts."""


def peft_parameters(config: dict[str, Any], **options: Any) -> int | None:
    """What peft trains in transformers' model; None if it refuses to."""
    torch, peft = pytest.importorskip("torch"), pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(**config)
        )
        try:
            adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, **options))
        except ValueError:
            return None
    return sum(x.numel() for x in adapted.parameters() if x.requires_grad)


def test_targets_of_mixtures_are_those_of_peft() -> None:
    refused, compared = set(), 0
    for name, config in MIXTURES.items():
        model = llamath.load(config)
        for targets, option in ((["all-linear"], "all-linear"), (SEVEN, SEVEN)):
            try:
                ours = build_adapters(model.tree, 4, targets, module_names(model)).parameters
            except llamath.LlamathError:
                assert targets is SEVEN  # peft ignores names that no module has
                continue
            theirs = peft_parameters(config, target_modules=option)
            compared += 1
            if theirs is None:
                refused.add(name)
            else:
                assert ours == theirs, (name, targets)
    assert refused == {"nemotron_h"}  # peft adapts no projection of Mamba's outputs
    assert compared > len(MIXTURES)


def test_names_of_experts_are_those_of_peft() -> None:
    config = json.loads((TINY / "qwen3_moe.json").read_text())["plain"]
    model = llamath.load(config)

    def ours(*targets: str) -> int:
        return build_adapters(model.tree, 4, targets, module_names(model)).parameters

    for old in (["gate"], ["down_proj", "q_proj"], ["gate_proj", "up_proj"]):
        assert ours(*old) == peft_parameters(config, target_modules=old)
    for new in (["gate_up_proj"], ["mlp.experts.down_proj"]):
        assert ours(*new) == peft_parameters(config, target_modules=[], target_parameters=new)
    assert peft_parameters(config, target_modules=["up_proj"]) is None
    with pytest.raises(llamath.LlamathError, match="up_proj alone is none of peft's") as error:
        ours("up_proj")
    assert "give gate_proj, too, or gate_up_proj" in str(error.value.hint)


def test_types_whose_targets_peft_renames_are_those_of_transformers() -> None:
    from llamath.families.registry import FAMILIES, find_family

    mapping = pytest.importorskip("transformers.conversion_mapping")._MODEL_TO_CONVERSION_PATTERN
    theirs = {x for x, kind in mapping.items() if kind in ("mixtral", "qwen2_moe")} | {"mixtral"}
    for kind in theirs:
        # others are whole multimodal models, or none that llamath knows
        with suppress(llamath.LlamathError):
            assert kind in find_family(kind).renames_experts, kind
    assert {x for family in FAMILIES.values() for x in family.renames_experts} <= theirs


@given(st.integers(1, 512), st.integers(1, 512))
@pytest.mark.slow
def test_adapters_grow_with_their_rank(a: int, b: int) -> None:
    assert trainable_parameters("stories15m", a, ["all"]) + trainable_parameters(
        "stories15m", b, ["all"]
    ) == trainable_parameters("stories15m", a + b, ["all"])


@pytest.mark.parametrize("family", ["kimi_linear", "olmo_hybrid", "qwen3_next", "lfm2", "bamba"])
def test_convolutions_get_no_adapter(family: str) -> None:
    model = llamath.load(next(iter(json.loads((TINY / f"{family}.json").read_text()).values())))
    patterns = {x.pattern for x in fold(model.tree)}
    assert any("conv" in x for x in patterns)
    assert not any(
        ".conv" in path or "_conv" in path
        for x in list_matrices(model.tree, model.family.hf)
        for path in x.paths
    )
