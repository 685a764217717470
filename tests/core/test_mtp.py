"""Multi-token prediction layers: excluded from the total, and exact in comparison with published files."""

from __future__ import annotations

from collections import Counter
from math import prod
from pathlib import Path

import pytest

import llamath
from llamath.analysis.check.verify.check_checkpoint import verify_checkpoint
from llamath.analysis.understand.count.stored_names import stored_names
from support.sparse_checkpoints import header_of, write_config, write_safetensors

TINY = {
    "model_type": "deepseek_v3", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2,
    "vocab_size": 50, "first_k_dense_replace": 1, "kv_lora_rank": 6, "q_lora_rank": 10, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
    "v_head_dim": 7, "moe_intermediate_size": 5, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1,
    "topk_group": 1, "num_nextn_predict_layers": 1, "torch_dtype": "bfloat16",
}  # fmt: skip


def stored(model: llamath.Model) -> int:
    """The number of elements in published files: the model, and its MTP layers with the tied matrices stored again."""
    return model.parameters.total + sum(
        int(part.weight.size) for x in model.family.hf.mtp_tensors(model.tree) for part in x.parts
    )


@pytest.mark.parametrize(
    ("slug", "published"),
    [
        *(("glm-4.5", 358_337_791_296), ("glm-4.5-air", 110_468_824_832)),
        *(
            ("qwen3.5-4b", 4_659_865_088),
            ("qwen3.5-9b", 9_653_104_368),
            ("qwen3.5-27b", 27_781_427_952),
        ),
        *(
            ("qwen3.5-35b-a3b", 35_951_822_704),
            ("qwen3.5-122b-a10b", 125_086_497_008),
            ("qwen3.5-397b-a17b", 403_397_928_944),
        ),
    ],
)
def test_total_with_mtp_layers_equals_published_file_size(slug: str, published: int) -> None:
    """Totals of zai-org's and Qwen's repositories as reported by the Hub; those of Qwen3.5 with the tower."""
    assert stored(llamath.load(slug)) == published


@pytest.mark.slow
def test_deepseek_v32_equals_its_files_exactly() -> None:
    """deepseek-ai/DeepSeek-V3.2-Exp: the Hub counts 685,396,921,376 numbers, an MTP layer and the scales of FP8 blocks among them."""
    config = dict(llamath.load("deepseek-v3").config.data) | {
        "model_type": "deepseek_v32",
        "architectures": ["DeepseekV32ForCausalLM"],
    }
    model = llamath.load(config | {"index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048})
    assert model.parameters.total - model.parameters.buffers == 671_026_404_352 + 61 * 13_959_424
    tensors = [*model.family.hf.tensors(model.tree), *model.family.hf.mtp_tensors(model.tree)]
    in_bf16 = (
        "embed_tokens",
        "lm_head",
        "shared_head",
        "eh_proj",
        "mlp.gate.",
        "norm",
        "weights_proj",
    )
    quantized = [
        x.shape for x in tensors if len(x.shape) == 2 and not any(y in x.name for y in in_bf16)
    ]
    scales = sum(-(-int(rows) // 128) * -(-int(columns) // 128) for rows, columns in quantized)
    assert stored(model) + scales == 685_396_921_376


@pytest.mark.slow
def test_deepseek_v3_equals_its_files_exactly() -> None:
    """deepseek-ai/DeepSeek-V3 as counted by type on its Hub page (BF16, F8_E4M3, F32), and 91,991 tensors; 671B, 11.5B unique, 685B."""
    model = llamath.load("deepseek-v3")
    hf, V, d = model.family.hf, 129280, 7168
    counts: Counter[str] = Counter()
    tensors = 0
    for x in (*hf.tensors(model.tree), *hf.mtp_tensors(model.tree)):
        size, role, word = prod(map(int, x.shape)), x.parts[0].weight.role, x.name.split(".")[-2]
        eight = role == "matmul" and word not in ("gate", "lm_head", "head", "eh_proj")
        kind = "F8" if eight else "F32" if x.parts[0].weight.buffer else "BF16"
        counts[kind] += size
        if eight:
            counts["F32"] += prod(-(-int(n) // 128) for n in x.shape)
        tensors += 1 + eight
    assert (
        counts == {"BF16": 3_918_786_560, "F8": 680_571_043_840, "F32": 41_555_600}
        and tensors == 91_991
    )
    assert model.parameters.total == 671_026_419_200 and model.parameters.extras == {
        "mtp": 11_610_068_224
    }
    assert stored(model) - model.parameters.total == 11_610_068_224 + 2 * V * d


@pytest.mark.slow
def test_glm_4_6_files_leave_the_copies_out() -> None:
    """zai-org/GLM-4.6: its index has 44,689 tensors with 713,571,797,632 bytes."""
    model = llamath.load("glm-4.6")
    assert len(llamath.stored_names(model, names="hf").tensors) == 44_689
    air = llamath.stored_names("glm-4.5-air", names="hf").tensors
    assert {x.name.split(".", 3)[3] for x in air if x.mtp and "d.weight" in x.name} >= {
        "shared_head.head.weight"
    }
    assert [int(x.bytes) for x in llamath.memory(model).not_loaded] == [7_976_139_584]
    assert 2 * model.parameters.total + 7_976_139_584 == 713_571_797_632


def test_qwen_names_its_mtp_layer_outside_of_the_text_model() -> None:
    model = llamath.load("qwen3.5-4b")
    names = [x.name for x in model.family.hf.mtp_tensors(model.tree)]
    assert {
        "mtp.fc.weight",
        "mtp.norm.weight",
        "mtp.pre_fc_norm_hidden.weight",
        "mtp.layers.0.self_attn.q_proj.weight",
    } <= set(names)
    assert len(names) == 15 and all(x.startswith("mtp.") for x in names)
    report = stored_names(model, "hf")
    listed = [x.name for x in report.tensors]
    assert listed[-15:] == names and listed[0] == "model.language_model.embed_tokens.weight"
    assert report.notes == ("the last 15 tensors are for multi-token prediction",)
    assert [int(x.bytes) for x in llamath.memory(model).not_loaded] == [2 * 120_599_552]


def test_endless_mtp_layers_are_refused() -> None:
    model = llamath.load({**TINY, "num_nextn_predict_layers": 10**9})
    with pytest.raises(llamath.LlamathError, match="too many to list"):
        llamath.stored_names(model, names="hf")


def test_mtp_layers_are_excluded_from_every_report() -> None:
    with_them, without = llamath.load(TINY), llamath.load({**TINY, "num_nextn_predict_layers": 0})
    assert with_them.parameters.replace(extras={}) == without.parameters.replace(extras={})
    assert [x.path for x in with_them.weights] == [x.path for x in without.weights]
    assert not list(without.family.hf.mtp_tensors(without.tree)) and without.tree.mtp is None
    with pytest.raises(llamath.ConfigError, match="num_nextn_predict_layers"):
        llamath.load({**TINY, "num_nextn_predict_layers": -1})


def test_checkpoint_with_mtp_layers_is_verified(tmp_path: Path) -> None:
    model = llamath.load(TINY)
    further = {
        x.name: ("BF16", tuple(map(int, x.shape))) for x in model.family.hf.mtp_tensors(model.tree)
    }
    assert (
        "model.layers.3.shared_head.head.weight" in further
        and "model.layers.3.eh_proj.weight" in further
    )
    write_config(tmp_path, model)
    write_safetensors(tmp_path / "model.safetensors", header_of(model) | further)
    verdict = verify_checkpoint(str(tmp_path)).verdict
    assert verdict.ok and [x.code for x in verdict.findings] == ["further"]
    wrong = further | {"model.layers.3.eh_proj.weight": ("BF16", (24, 24))}
    write_safetensors(tmp_path / "model.safetensors", header_of(model) | wrong)
    assert not verify_checkpoint(str(tmp_path)).verdict.ok


def test_memory_of_files_leaves_mtp_layers_out_of_the_total(tmp_path: Path) -> None:
    model = llamath.load(TINY)
    further = {
        x.name: ("BF16", tuple(map(int, x.shape))) for x in model.family.hf.mtp_tensors(model.tree)
    }
    write_config(tmp_path, model)
    write_safetensors(tmp_path / "model.safetensors", header_of(model) | further)
    of_files, of_config = llamath.memory(tmp_path), llamath.memory(model)
    size = sum(2 * prod(shape) for _, shape in further.values())
    assert [int(x.bytes) for x in of_files.not_loaded] == [size]
    assert [int(x.bytes) for x in of_config.not_loaded] == [size]
    assert of_files.total == of_config.total == sum(int(x.bytes) for x in of_files.lines)
    main = llamath.memory(tmp_path, part="main")
    assert main.total == of_files.total and not main.not_loaded
    rows = [x.what for x in of_files.not_loaded]
    assert rows == ["MTP, not loaded"] and rows[0] in str(of_files)
    write_safetensors(tmp_path / "model.safetensors", header_of(model))
    assert not llamath.memory(tmp_path).not_loaded
