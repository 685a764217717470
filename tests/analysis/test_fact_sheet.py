"""The fact sheet: its patterns against published descriptions, and its numbers against the other reports."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import llamath
from llamath.analysis.size.fit.gpu_ranking import rank_gpus
from llamath.analysis.size.memory.cache_bytes import kv_cache_size
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.analysis.understand.fact_sheet import FactSheet, fact_sheet
from llamath.cli import cli


def facts_of(name: str) -> FactSheet:
    return fact_sheet(llamath.load(name))


PUBLISHED = {
    "llama-3-8b": ("", "", "GQA", "RoPE θ 500,000"),
    "llama-2-7b": ("", "", "MHA", "RoPE θ 10,000"),
    "falcon-7b": ("", "", "MQA", "RoPE θ 10,000"),
    "deepseek-v3": (
        "",
        "3 dense + 58 MoE",
        "MLA",
        "RoPE θ 10,000, YaRN scaling × 40 from 4,096 tokens",
    ),
    "qwen3-next-80b-a3b": (
        "3 DeltaNet : 1 attention",
        "",
        "DeltaNet, GQA",
        "RoPE θ 10,000,000, 64 of 256 dimensions",
    ),
    "gpt-oss-120b": (
        "1 local : 1 global",
        "",
        "GQA",
        "RoPE θ 150,000, YaRN scaling × 32 from 4,096 tokens",
    ),
    "jamba-v0.1": ("7 Mamba : 1 attention", "1 dense : 1 MoE", "Mamba, GQA", "NoPE"),
    "smollm3-3b": ("3 RoPE : 1 NoPE", "", "GQA", "RoPE θ 5,000,000 in 27 layers; NoPE in 9 layers"),
    "bloom-176b": ("", "", "MHA", "ALiBi"),
    "gpt2": ("", "", "MHA", "learned"),
    "mamba-2.8b": ("", "", "Mamba", "none: the order is in the recurrence"),
}
"""Preset → arrangement of mixers and of FFNs, kinds of attention, positions; from the models' papers and cards."""


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.slow
def test_pattern_attention_and_positions_are_the_published_ones(name: str) -> None:
    facts = facts_of(name)
    assert (
        facts.mixer_pattern.text,
        facts.ffn_pattern.text,
        facts.attention,
        facts.positions,
    ) == PUBLISHED[name]


def test_local_and_global_layers_have_positions_of_their_own() -> None:
    facts = facts_of("gemma-3-27b")
    assert facts.mixer_pattern.text == "5 local : 1 global"
    assert [(x.layers, x.window, x.heads, x.kv_heads, x.head_dim) for x in facts.mixers] == [
        (52, 1024, 32, 16, 128),
        (10, None, 32, 16, 128),
    ]
    assert (
        facts.positions
        == "RoPE θ 10,000 in 52 layers; RoPE θ 1,000,000, linear scaling × 8 in 10 layers"
    )


EXPERTS = {
    "deepseek-v2": (160, 6, 2, 1536, 3072),
    "deepseek-v3": (256, 8, 1, 2048, 2048),
    "mixtral-8x7b": (8, 2, None, 14336, None),
    "qwen2-57b-a14b": (64, 8, 1, 2560, 20480),
    "qwen3-next-80b-a3b": (512, 10, 1, 512, 512),
}
"""Preset → experts, chosen, shared, width of an expert, width of the shared ones together; from the published configs."""


@pytest.mark.parametrize("name", EXPERTS)
@pytest.mark.slow
def test_experts_are_the_published_ones(name: str) -> None:
    x = next(x for x in facts_of(name).ffns if x.experts is not None)
    assert (x.experts, x.active_experts, x.shared_experts, x.width, x.shared_width) == EXPERTS[name]


@pytest.mark.parametrize(
    "name",
    [
        "llama-3-8b",
        "deepseek-v3",
        "gemma-3-27b",
        "qwen3-next-80b-a3b",
        "llama-4-scout",
        "qwen2-vl-7b",
        "gpt2",
    ],
)
@pytest.mark.slow
def test_numbers_are_those_of_the_other_reports(name: str) -> None:
    model = llamath.load(name)
    facts, context = fact_sheet(model), model.tree.context
    assert context is not None
    memory = llamath.memory(model, dtype="bf16", context=int(context))
    assert (facts.kv_per_token, facts.kv_per_later_token) == (
        memory.cache.kv_per_token,
        memory.cache.kv_per_later_token,
    )
    assert facts.kv_full_context == memory.kv_cache
    assert facts.state_bytes == kv_cache_size(model.tree, 0).bytes
    assert facts.flops_first_token == llamath.flops(model, context=1).decode.total
    assert facts.flops_full_context == llamath.flops(model, context=int(context)).decode.total
    for size in facts.weights:
        assert (
            size.bytes == llamath.memory(model, dtype="" if size.released else size.dtype).weights
        ), size.dtype
    ranking = rank_gpus(MemoryCalculator(model, MemoryRequest()))
    chosen = facts.runs_on[0].gpu  # found without the ranking
    assert chosen in ranking.gpus
    assert chosen is not None
    assert chosen == ranking.smallest
    alike = [x for x in ranking.gpus if bool(x.device.common) == bool(chosen.device.common)]
    assert not [x for x in alike if (x.count, x.nominal) < (chosen.count, chosen.nominal)]
    count = llamath.count(model)
    assert (facts.total, facts.active) == (count.total, count.parameters.active)


def test_origin_is_known_for_presets_alone() -> None:
    preset = facts_of("llama-3-8b")
    assert (preset.organization, preset.released, preset.license) == (
        "Meta",
        "2024-04-18",
        "llama3",
    )
    config = {**llamath.load("llama-3-8b").config.data}
    own = fact_sheet(llamath.load(config))
    assert (own.organization, own.released, own.license) == (None, None, None)
    assert own.description == preset.description


def test_released_format_is_claimed_only_where_the_config_states_it() -> None:
    config = {**llamath.load("llama-3-8b").config.data}
    assert [x.dtype for x in fact_sheet(llamath.load(config)).weights if x.released] == ["bf16"]
    del config["torch_dtype"]
    assert [x.dtype for x in fact_sheet(llamath.load(config)).weights if x.released] == []


def test_unknown_quantization_is_noted_and_sizes_of_other_formats_remain() -> None:
    config = {
        **llamath.load("llama-3-8b").config.data,
        "quantization_config": {"quant_method": "unheard_of"},
    }
    facts = fact_sheet(llamath.load(config))
    assert any("released weights is unknown" in x for x in facts.notes)
    assert [x.dtype for x in facts.weights] == ["bf16", "fp8", "q4_k_m"]


def test_billion_layers_cost_what_few_do() -> None:
    config = {**llamath.load("gemma-3-27b").config.data, "num_hidden_layers": 10**9}
    facts = fact_sheet(llamath.load(config))
    assert facts.layers == 10**9


@pytest.mark.slow
def test_command_prints_the_facts() -> None:
    runner = CliRunner()
    text = runner.invoke(cli, ["facts", "deepseek-v3"])
    assert text.exit_code == 0 and text.stdout.startswith("DeepSeek V3: A mixture-of-experts")
    assert "3 dense + 58 MoE" in text.stdout and "671,026,419,200" in text.stdout
    answer = json.loads(runner.invoke(cli, ["facts", "deepseek-v3", "--json"]).stdout)
    assert answer == llamath.facts("deepseek-v3").to_json()
    assert answer["active"] == 37552297472 and answer["runs_on"][0]["gpu"]["count"] > 1
    assert (
        runner.invoke(cli, ["facts", "deepseek-v3", "--brief"]).stdout.strip()
        == llamath.facts("deepseek-v3").summary
    )
    assert runner.invoke(cli, ["facts", "no-such-model"]).exit_code == 2
