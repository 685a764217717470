"""Configurations: synonyms, defaults of the class, unsupported features, invalid values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import llamath
from llamath.core.config import Config

SMALL: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 16,
}  # fmt: skip
LATENT = {
    "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "num_key_value_heads": 16, "first_k_dense_replace": 3,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("slug", "key", "value"),
    [
        ("gpt2", "num_hidden_layers", 24),
        ("bloom-560m", "num_hidden_layers", 3),
        ("falcon-7b", "n_layer", 5),
        ("phi-2", "n_layer", 5),
        ("lfm2-1.2b", "intermediate_size", 256),
    ],
)
def test_changed_synonym_takes_precedence(slug: str, key: str, value: int) -> None:
    assert (
        llamath.load(slug, changes={key: value}).parameters.total
        != llamath.load(slug).parameters.total
    )


COMMAND_R = {
    "model_type": "cohere", "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40, "num_attention_heads": 64,
    "num_key_value_heads": 64, "vocab_size": 256000, "logit_scale": 0.0625, "max_position_embeddings": 8192, "model_max_length": 131072,
}  # fmt: skip
"""As published in c4ai-command-r-v01."""


def test_synonyms_that_disagree_are_named() -> None:
    model = llamath.load(COMMAND_R)
    assert model.parameters.total == 34_980_831_232 and model.tree.context == 8192
    wanted = "max_position_embeddings 8192 and model_max_length 131072 are for the same thing; the class of transformers reads "
    assert f"{wanted}max_position_embeddings" in model.notes
    assert llamath.load(COMMAND_R, changes={"model_max_length": 4096}).tree.context == 4096


@pytest.mark.parametrize(
    "more",
    [
        {"n_embed": 32},
        {"n_embd": 32, "n_embed": 64},
        {"rope_theta": 1e4, "rotary_emb_base": 1e5, "model_type": "gpt_neox"},
    ],
)
def test_contradictions_that_no_class_decides_are_errors(more: dict[str, Any]) -> None:
    keys = {
        "model_type": "gpt2",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 99,
    }
    with pytest.raises(llamath.ConfigError, match="contradicts"):
        llamath.load({**keys, "intermediate_size": 64, **more})


@pytest.mark.transformers
@pytest.mark.parametrize(
    ("model_type", "keys"),
    [
        ("gpt2", {"n_embd": 64, "hidden_size": 32}), ("gpt2", {"n_layer": 3, "num_hidden_layers": 5}), ("gptj", {"n_head": 2, "num_attention_heads": 4}),
        ("gpt_bigcode", {"n_positions": 64, "max_position_embeddings": 32}), ("bloom", {"n_layer": 3, "num_hidden_layers": 5}),
        ("mpt", {"d_model": 64, "hidden_size": 32}), ("mpt", {"n_layers": 3, "num_hidden_layers": 5}), ("qwen2", {"hidden_size": 64, "d_model": 32}),
        ("cohere", {"max_position_embeddings": 8192, "model_max_length": 131072}), ("opt", {"num_hidden_layers": 3, "n_layer": 5}),
    ],
)  # fmt: skip
def test_class_of_transformers_reads_the_same_synonym(
    model_type: str, keys: dict[str, int]
) -> None:
    from transformers import CONFIG_MAPPING

    canonical = {
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
    }
    (read,) = canonical & set(keys)
    assert (
        getattr(CONFIG_MAPPING[model_type].from_dict({"model_type": model_type, **keys}), read)
        == keys[read]
    )
    config = Config(keys)
    assert config["|".join(keys)] == config["|".join(reversed(keys))] == keys[
        read
    ] and config.disagreements == {read: tuple(set(keys) - {read})}


@pytest.mark.transformers
@pytest.mark.parametrize(
    ("model_type", "more"),
    [
        ("llama", {}), ("mistral", {}), ("mistral", {"attention_bias": True, "mlp_bias": True}), ("mixtral", {}), ("phimoe", {"num_local_experts": 4}),
        ("llama", {"num_key_value_heads": None}), *((x, LATENT | y) for x in ("deepseek_v2", "deepseek_v3") for y in ({}, {"q_lora_rank": None})), ("granitemoehybrid", {}), ("bamba", {}), ("mamba2", {"num_heads": 8, "head_dim": 16}),
        ("falcon_h1", {}), ("jamba", {}), ("granitemoeshared", {}), ("granitemoe_swa", {}), ("granite_swa", {}), ("bitnet", {"num_key_value_heads": 2}),
    ],
)  # fmt: skip
def test_absent_and_null_keys_follow_the_class(model_type: str, more: dict[str, Any]) -> None:
    import torch
    import transformers

    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(model_type, **SMALL, **more)
        )
    ours = llamath.load({"model_type": model_type, **SMALL, **more})
    assert ours.parameters.total == sum(x.numel() for x in model.parameters())


@pytest.mark.parametrize(
    "more",
    [
        {"add_cross_attention": True},
        {"is_encoder_decoder": True},
        {"pruned_heads": {"0": [1]}},
        {"num_local_experts": 8},
        {"n_routed_experts": 4},
        {"block_configs": [{}]},
    ],
    ids=lambda x: next(iter(x)),
)
def test_unsupported_features_are_errors(more: dict[str, Any]) -> None:
    with pytest.raises(llamath.ConfigError) as error:
        llamath.load({"model_type": "llama", **SMALL, **more})
    assert next(iter(more)) in str(error.value) and error.value.hint


@pytest.mark.parametrize(
    "model_type", ["bloom", "opt", "stablelm", "gpt_bigcode", "olmoe", "falcon"]
)
def test_unsupported_head_size_is_an_error(model_type: str) -> None:
    extra = {
        "num_key_value_heads": 16,
        "max_position_embeddings": 64,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "ffn_dim": 96,
        "n_positions": 64,
    }
    with pytest.raises(llamath.ConfigError, match="head_dim"):
        llamath.load({"model_type": model_type, **SMALL, **extra, "head_dim": 12})


BAMBA = {"model_type": "bamba", **SMALL}


@pytest.mark.parametrize("limit", [[0.0, float("inf")], [0.0, {"__float__": "Infinity"}], None])
def test_time_steps_without_a_limit_are_written_in_three_ways(limit: Any) -> None:
    assert llamath.load(BAMBA | {"time_step_limit": limit}).tree == llamath.load(BAMBA).tree


@pytest.mark.parametrize(
    "more",
    [
        *(
            {"time_step_limit": x}
            for x in (
                [0.1],
                [0.2, 0.1],
                [0.0, "Infinity"],
                [-1.0, 1.0],
                [0.0, {"__float__": "NaN"}],
            )
        ),
        {"mamba_d_head": 3},
        {"mamba_d_head": "large"},
        {"mamba_n_heads": 48},
        {"mamba_n_groups": 3},
        {"attn_layer_indices": ["0"]},
    ],
    ids=lambda x: next(iter(x)),
)
def test_invalid_sizes_of_mamba_are_errors(more: dict[str, Any]) -> None:
    with pytest.raises(llamath.ConfigError, match=next(iter(more))):
        llamath.load(BAMBA | more)


def test_outer_tie_word_embeddings_takes_precedence() -> None:
    text = {"model_type": "llama", **SMALL, "tie_word_embeddings": False}
    tied = llamath.load(
        {
            "model_type": "llava",
            "tie_word_embeddings": True,
            "text_config": text,
            "vision_config": {},
        }
    )
    assert tied.parameters.total == tied.parameters.tied_counted_twice - 99 * 64


def test_dotted_change_reaches_into_an_object() -> None:
    model = llamath.load("llama-3.1-8b", changes={"rope_scaling.factor": 4.0})
    assert model.config.data["rope_scaling"]["factor"] == 4.0
    assert llamath.load("llama-3.1-8b").config.data["rope_scaling"]["factor"] == 8.0


@pytest.mark.parametrize("slug", ["olmo-3-7b", "gpt-oss-20b", "qwen3.5-27b"])
def test_billion_layers_are_counted_quickly(slug: str) -> None:
    with pytest.raises(llamath.ConfigError) as error:
        llamath.load(slug, changes={"num_hidden_layers": 10**9})
    assert "layer_types=null" in error.value.hint
    assert (
        llamath.load(
            slug, changes={"num_hidden_layers": 10**9, "layer_types": None}
        ).parameters.total
        > 10**17
    )


@pytest.mark.parametrize("value", [[], [1], "x", {}, True])
@pytest.mark.parametrize(
    "key", ["factor", "short_factor", "rope_type", "original_max_position_embeddings"]
)
def test_invalid_rope_scaling_is_an_error(key: str, value: object) -> None:
    scaling = {
        "rope_type": "longrope" if "short" in key else "linear",
        "factor": 2.0,
        "short_factor": [1.0],
        "long_factor": [1.0],
    }
    try:
        llamath.load({"model_type": "llama", **SMALL, "rope_scaling": scaling | {key: value}})
    except llamath.LlamathError as error:
        assert str(error)


@pytest.mark.parametrize("key", ["sliding_window", "max_position_embeddings"])
@pytest.mark.parametrize("value", [[1], "x", -5, 0, 2.5, True])
def test_invalid_window_or_context_is_an_error(key: str, value: object) -> None:
    with pytest.raises(llamath.ConfigError, match=key):
        llamath.load({"model_type": "llama", **SMALL, key: value})


@pytest.mark.slow
def test_text_model_without_a_type_is_that_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    from llamath.families.multimodal_registry import WRAPPERS

    without_a_class = {"deepseek_ocr", "deepseek_vl_v2", "deepseek_v41", "kimi_k3"}
    for model_type, wrapper in WRAPPERS.import_all().items():
        has_section = wrapper.text_type and not (wrapper.flat or wrapper.inner)
        if (has_section or model_type.startswith("qwen2")) and model_type not in without_a_class:
            config = transformers.AutoConfig.for_model(model_type)
            assert config.text_config.model_type == wrapper.text_type
    text_config = {
        key: x for key, x in llamath.load("llama-2-7b").config.data.items() if key != "model_type"
    }
    model = llamath.load({"model_type": "llava", "text_config": text_config})
    assert (
        model.family.name == "llama"
        and "text_config has no model_type; in llava it is llama" in model.notes
    )
    with pytest.raises(
        llamath.LlamathError,
        match="model_type is missing in the configuration of the text model of new_vl",
    ):
        llamath.load({"model_type": "new_vl", "text_config": text_config})
    assert (
        llamath.load(
            {"model_type": "new_vl", "text_config": text_config}, changes={"model_type": "llama"}
        ).family.name
        == "llama"
    )


@pytest.mark.parametrize("outer", ["qwen2_vl", "qwen2_5_vl"])
def test_flat_multimodal_config_equals_nested(outer: str) -> None:
    text = {
        **SMALL,
        "num_key_value_heads": 2,
        "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]},
        "tie_word_embeddings": True,
    }
    vision = {"vision_config": {"depth": 1}, "architectures": ["Qwen2VLForConditionalGeneration"]}
    flat = llamath.load({"model_type": outer, **text, **vision})
    nested = llamath.load({"model_type": outer, "text_config": text, **vision})
    assert (
        flat.tree == nested.tree
        and flat.wrapper == outer
        and flat.family.name == nested.family.name
    )
    assert flat.is_multimodal and flat.parameters == nested.parameters


@pytest.mark.parametrize("value", [{}, {"a": 1}, [], ["llama"], 5, True])
@pytest.mark.parametrize("section", ["", "text_config", "wrapper"])
def test_model_type_other_than_a_string_is_refused(value: object, section: str) -> None:
    plain = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 99,
    }
    keys: dict[str, Any] = {
        "": plain | {"model_type": value},
        "text_config": {"model_type": "mistral3", "text_config": plain | {"model_type": value}},
        "wrapper": {"model_type": value, "text_config": plain},
    }[section]
    with pytest.raises(
        llamath.ConfigError, match=r"^the given keys: model_type should be a string, not "
    ):
        llamath.load(keys)


def test_words_and_numbers_that_are_not_known_are_refused() -> None:
    c = Config({"scoring": "softmax", "act": "relu", "step": 0, "flag": True, "empty": None})
    assert (
        c.one_of("scoring", "sigmoid", "softmax") == "softmax" and c.positive_int("empty", 3) == 3
    )
    c.require("act", "relu", "every model has it")
    c.require("absent", 5, "every model has it")
    reads: dict[str, Callable[[], object]] = {
        "act is the unknown 'relu'": lambda: c.one_of("act", "silu", "gelu"),
        "flag should be false, not true": lambda: c.require("flag", False, "every model has it"),
        "step should be a positive integer, not 0": lambda: c.positive_int("step", 4),
    }
    for message, read in reads.items():
        with pytest.raises(llamath.ConfigError, match=message):
            read()


MIMO = {
    **SMALL, "model_type": "mimo_v2_flash", "num_key_value_heads": 4, "head_dim": 8, "v_head_dim": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 16,
}  # fmt: skip


@pytest.mark.parametrize("flags", [[1, 0], [1, 0, 2], [1, 0, 1, 1], "101"])
def test_flags_of_layers_are_ones_and_zeros(flags: object) -> None:
    tree = llamath.load(
        {**MIMO, "hybrid_layer_pattern": [1, 0, 1], "moe_layer_freq": [0, 1, 1]}
    ).tree
    assert [bool(x.attn.window.size) for x in tree.layers] == [True, False, True]  # type: ignore[attr-defined]
    for key in ("hybrid_layer_pattern", "moe_layer_freq"):
        with pytest.raises(
            llamath.ConfigError, match=f"{key} should be a list with 1 or 0 for each of 3 layers"
        ):
            llamath.load({**MIMO, key: flags})


def test_settings_of_single_layers_agree_within_a_type() -> None:
    gemma = {
        **SMALL,
        "model_type": "gemma4_text",
        "num_attention_heads": 4,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
    }
    one, two = {"head_dim": 8}, {"head_dim": 16}
    tree = llamath.load({**gemma, "per_layer_config": {"1": one, "02": one}}).tree
    assert [int(x.attn.head_dim) for x in tree.layers] == [256, 8, 8]  # type: ignore[attr-defined]
    for other in (
        {"1": one},
        {"1": one, "2": two},
        {"0": one, "1": one, "2": one},
        {"1": one, "2": one, "x": one},
    ):
        with pytest.raises(
            llamath.ConfigError,
            match="per_layer_config should have the same settings for each layer of full_attention",
        ):
            llamath.load({**gemma, "per_layer_config": other})
