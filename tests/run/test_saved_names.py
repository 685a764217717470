"""Checkpoints of Kimi Linear and OLMo Hybrid as transformers saves them: other names than the published ones, and convolutions in thirds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import llamath
from llamath.analysis.check.verify.verified_checkpoint import open_verified
from llamath.conversion.convert_checkpoint import ConvertOptions, convert_checkpoint
from llamath.conversion.edit.edit_source import open_edit_source
from llamath.native.native_session import load_native
from llamath.torch import open_model
from support.native_models import native_logits
from support.transformers_pair import logits, perturb_weights, relative_difference, save_published

pytestmark = pytest.mark.transformers

SIZES = {
    "vocab_size": 200, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 4, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
KIMI = {
    "moe_intermediate_size": 12, "num_experts": 4, "num_experts_per_token": 2, "first_k_dense_replace": 1, "kv_lora_rank": 8,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "linear_num_heads": 4, "linear_head_dim": 8,
}  # fmt: skip
HEADS = {"linear_num_key_heads": 4, "linear_num_value_heads": 4}
CONFIGS: dict[str, dict[str, Any]] = {
    "kimi_linear": KIMI,
    "olmo_hybrid, equal": HEADS | {"linear_key_head_dim": 8, "linear_value_head_dim": 8},
    "olmo_hybrid, wider values": HEADS | {"linear_key_head_dim": 6, "linear_value_head_dim": 12},
    "olmo_hybrid, thirds of 19 and 18": HEADS
    | {"linear_key_head_dim": 4, "linear_value_head_dim": 6},
}
IDS = torch.randint(3, 200, (2, 11), generator=torch.Generator().manual_seed(4))


@torch.no_grad()
def test_checkpoints_that_transformers_saves_are_read(tmp_path: Path) -> None:
    import transformers

    for label, sizes in CONFIGS.items():
        model_type = label.partition(",")[0]
        torch.manual_seed(0)
        config = transformers.AutoConfig.for_model(model_type, **SIZES | sizes)
        theirs = transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation="eager"
        ).eval()
        perturb_weights(theirs)
        expected = logits(theirs, IDS)
        saved, published, converted = (
            tmp_path / label / x for x in ("saved", "published", "converted")
        )
        theirs.save_pretrained(saved)
        save_published(theirs, published)
        convert_checkpoint(str(saved), str(converted), ConvertOptions(to="hf"))
        assert llamath.same(str(saved), str(published)).same, label
        for folder in (saved, published, converted):
            report = llamath.verify(str(folder))
            assert report.ok and report.verdict.matched == report.verdict.expected == len(
                report.manifest.tensors
            ), (label, report.findings)
            found = {"torch": open_model(str(folder), "float32").module(IDS)}
            native, _, _ = load_native(open_verified(str(folder)), "float32")
            found["native"] = torch.stack([native_logits(native, ids) for ids in IDS.tolist()])
            for engine, x in found.items():
                assert relative_difference(x, expected) < 1e-5, (label, folder.name, engine)
        again = transformers.AutoModelForCausalLM.from_pretrained(
            converted, attn_implementation="eager"
        )
        assert torch.equal(logits(again, IDS), expected), label


def test_chunks_of_several_weights_are_not_edited(tmp_path: Path) -> None:
    import transformers

    config = transformers.AutoConfig.for_model(
        "olmo_hybrid", **SIZES | CONFIGS["olmo_hybrid, wider values"]
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(llamath.ConvertError, match="in chunks of several"):
        open_edit_source(str(tmp_path))
