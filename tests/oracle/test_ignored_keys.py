"""A family ignores no configuration key with which the model's class in transformers computes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llamath import load
from llamath.core.config import Config
from support.reference_data import tiny_configs

pytestmark = pytest.mark.transformers

_LATENT = "sizes of latent attention are its own keys"
_OF_CLASS = "derived by the class from other keys, or read by the family under another name"
_BRANCH = "read by the family where the layers that have it are listed"
REASONS = {
    "initial values, dropout and losses of training": """emb_pdrop resid_pdrop attn_pdrop layerdrop initializer_factor lambda_std_dev
        learnable_sink_init linear_a_log_max linear_a_log_min linear_dt_init_floor linear_dt_max linear_dt_min moe_loss_weight
        moe_jitter_eps router_jitter_noise input_jitter_noise output_router_logits router_aux_loss_coef rescale_prenorm_residual seed
        time_step_floor time_step_init_scheme time_step_max time_step_scale z_loss_coefficient altup_coef_clip
        w_init_variance_scale final_w_init_variance_scale""",
    "the choice, precision or chunks of a kernel": """use_mamba_kernels use_associative_scan use_mambapy mamba_chunk_size chunk_size
        block_size residual_in_fp32 num_logits_to_keep slow_but_exact reorder_and_upcast_attn attention_softmax_in_fp32
        scale_attention_softmax_in_fp32 enable_moe_fp32_combine""",
    "stored in an attribute that the class does not use": "attn_logit_softcapping use_conv_bias",
    "a pooling of hidden states, which a decoder does not do": "pooling",
    "a lower bound of a sum of probabilities, too small to be reached": "moe_norm_min",
}
OF_TYPE = {
    **dict.fromkeys(
        "axk1 axk2 deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa hy_v4 minicpm3 youtu".split(),
        _LATENT,
    ),
    **dict.fromkeys("bailing_hybrid kimi_linear longcat_flash".split(), _LATENT),
    **dict.fromkeys(
        "bamba falcon_h1 jamba mamba mamba2 falcon_mamba zamba zamba2 recurrent_gemma nemotron_h".split(),
        _OF_CLASS,
    ),
    **dict.fromkeys("gpt_neo jetmoe lfm2 ministral3 phi3 qwen4_exp_text".split(), _OF_CLASS),
    **dict.fromkeys(
        "falcon gemma4_text granitemoehybrid laguna modernbert-decoder smollm3 dbrx".split(),
        _BRANCH,
    ),
    **dict.fromkeys(
        "flint mellum qwen2_moe qwen3_moe qwen3_5_moe_text qwen3_next solar_open".split(), _BRANCH
    ),
}
KEYS_OF_TYPE = {
    _LATENT: """head_dim num_key_value_heads qk_head_dim kda_lower_bound linear_conv_kernel_dim linear_head_dim linear_num_heads""",
    _OF_CLASS: """attention_head_dim attention_hidden_size attention_layers block_ffn_dim_multiplier block_multiple_of conv1d_width
        eos_token_id expand hybrid_layer_ids intermediate_size layer_types layers_block_type mamba_expand max_position_embeddings
        moe_latent_size n_group n_routed_experts num_attention_heads original_max_position_embeddings output_gate_type time_step_min
        time_step_rank topk_group""",
    _BRANCH: """gating intermediate_size moe_intermediate_size moe_normalize_expert_weights num_experts num_experts_per_tok
        num_ln_in_parallel_attn rope_parameters sliding_window top_k_experts vocab_size_per_layer_input""",
}


def test_no_ignored_key_is_computed_with(monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    ignored: dict[str, set[str]] = {}
    ignore = Config.ignore

    def noted(config: Config, *keys: str) -> None:
        ignored.setdefault(model_type, set()).update(keys)
        ignore(config, *keys)

    monkeypatch.setattr(Config, "ignore", noted)
    for case in tiny_configs(computed=True):
        (config,) = case.values
        model_type = str(config["model_type"])
        load(config)
    harmless = {x for keys in REASONS.values() for x in keys.split()}
    used = []
    for name, keys in sorted(ignored.items()):
        module = transformers.CONFIG_MAPPING[name].__module__.split(".")[2]
        path = Path(transformers.__file__).parent / f"models/{module}/modeling_{module}.py"
        code = (
            path.read_text() if path.exists() else ""
        )  # some types share the class of another one
        known = harmless | set(KEYS_OF_TYPE.get(OF_TYPE.get(name, ""), "").split())
        used += [
            f"{name}: {key}"
            for key in sorted(keys - known)
            if re.search(rf"\bconfig(?:\.|, \"){key}\b", code)
        ]
    assert used == []
    assert len(ignored) > 100, "the families of transformers were looked at"


def test_unread_biases_are_refused() -> None:
    (config,) = next(x for x in tiny_configs() if x.id.startswith("qwen3-")).values
    for key in ("mlp_bias", "qkv_bias", "lm_head_bias"):
        with pytest.raises(Exception, match=rf"{key} asks for"):
            load({**config, key: True})
        assert load({**config, key: False})
