"""The text of Florence-2 computed: FLOPs, cache and logits, compared with transformers; trace and memory; tokens of images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.analysis.graph.flop_count import forward_flops
from llamath.analysis.graph.image_pass import image_tokens, parse_images
from llamath.analysis.graph.recorder import record, record_prefill
from llamath.analysis.size.memory.cache_bytes import cache_specs, sum_cache_specs
from llamath.core.expr import Expr
from llamath.core.extensions.encoder_decoder import EncoderDecoder

TEXT = {
    "model_type": "bart", "d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 20, "decoder_ffn_dim": 28,
    "encoder_attention_heads": 4, "decoder_attention_heads": 3, "max_position_embeddings": 32, "vocab_size": 70,
}  # fmt: skip
VISION = {
    "model_type": "florence_vision", "depths": [1, 2], "embed_dim": [8, 12], "num_heads": [2, 3], "num_groups": [2, 3], "mlp_ratio": 3.0,
    "patch_size": [7, 3], "patch_stride": [8, 4], "patch_padding": [3, 1], "patch_prenorm": [False, True], "window_size": 10,
    "projection_dim": 24, "max_temporal_embeddings": 6, "max_position_embeddings": 24,
}  # fmt: skip
BASE = {
    "model_type": "bart", "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
    "encoder_attention_heads": 12, "decoder_attention_heads": 12, "vocab_size": 51289,
}  # fmt: skip
WIDE = {
    "embed_dim": [256, 512, 1024, 2048],
    "num_heads": [8, 16, 32, 64],
    "num_groups": [8, 16, 32, 64],
}
CONFIGS: dict[str, dict[str, Any]] = {
    "small": {"text_config": TEXT, "vision_config": VISION},
    "untied": {
        "text_config": TEXT
        | {"tie_word_embeddings": False, "scale_embedding": True, "activation_function": "relu"},
        "vision_config": VISION | {"patch_prenorm": [True, False], "qkv_bias": False},
        "tie_word_embeddings": False,
    },
    "base": {"text_config": BASE, "vision_config": {"projection_dim": 768}},
    "large": {"text_config": {"model_type": "bart", "vocab_size": 51289}, "vision_config": WIDE},
}
PROMPT, ANSWER, BATCH = 13, 5, 2


def reference(label: str, device: str) -> Any:
    import torch
    import transformers

    config = transformers.AutoConfig.for_model("florence2", **CONFIGS[label])
    with torch.device(device):
        return transformers.AutoModelForImageTextToText.from_config(
            config, attn_implementation="eager"
        ).eval()


def computable(label: str) -> Any:
    return llamath.load({"model_type": "florence2", **CONFIGS[label]}).computed


def count(call: Any) -> tuple[int, Any]:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        result = call()
    return counter.get_total_flops(), result


@pytest.mark.transformers
@pytest.mark.parametrize(
    "label",
    [pytest.param(x, marks=[pytest.mark.release] * (x == "large")) for x in CONFIGS],
)
def test_flops_and_cache_equal_those_of_transformers(label: str) -> None:
    import torch
    from transformers.modeling_outputs import BaseModelOutput

    theirs, tree = reference(label, "meta"), computable(label).tree
    pixels = torch.empty(BATCH, 3, 768, 768, device="meta")
    _, features = count(lambda: theirs.model.get_image_features(pixels).pooler_output)
    assert image_tokens(tree, parse_images(f"{BATCH}x640")) == BATCH * features.shape[1]
    embedded = torch.empty(BATCH, PROMPT, int(tree.width), device="meta")
    ids = torch.zeros(BATCH, ANSWER, dtype=torch.long, device="meta")
    sizes = {"batch": Expr.const(BATCH), "past_tokens": Expr.const(0)}
    for tokens in (1, ANSWER):
        flops, found = count(
            lambda: theirs(
                inputs_embeds=embedded,
                decoder_input_ids=ids[:, :tokens],  # noqa: B023
                use_cache=True,
            )
        )
        graph = record(
            tree.text, new_tokens=Expr.const(tokens), encoder=(Expr.const(PROMPT), False), **sizes
        )
        assert int(forward_flops(graph, masked=False).total) == flops
    prefill = record_prefill(tree.text, batch=Expr.const(BATCH), tokens=PROMPT)
    assert (
        int(forward_flops(prefill).total)
        == count(lambda: theirs(inputs_embeds=embedded, decoder_input_ids=ids[:, :1]))[0]
    )
    own, kept = cache_specs(record(tree.text))
    cached = [
        int(sum_cache_specs((x,), n, BATCH, "fp32").bytes)
        for x, n in ((own, ANSWER), (kept, PROMPT))
    ]
    parts = (
        found.past_key_values.self_attention_cache,
        found.past_key_values.cross_attention_cache,
    )
    assert cached == [sum(x.keys.nbytes + x.values.nbytes for x in part.layers) for part in parts]
    states = BaseModelOutput(last_hidden_state=found.encoder_last_hidden_state)
    again = {
        "past_key_values": found.past_key_values,
        "encoder_outputs": states,
        "inputs_embeds": embedded,
    }
    flops, _ = count(lambda: theirs(decoder_input_ids=ids[:, :1], use_cache=True, **again))
    decode = record(
        tree.text,
        batch=Expr.const(BATCH),
        past_tokens=ANSWER,
        decode=True,
        encoder=(Expr.const(PROMPT), True),
    )
    assert int(forward_flops(decode).total) == flops


@pytest.mark.parametrize("label", CONFIGS)
def test_total_of_the_tree_is_the_counted_one(label: str) -> None:
    counted = llamath.load({"model_type": "florence2", **CONFIGS[label]})
    found = counted.computed.parameters
    assert (found.total - found.buffers, found.buffers) == (
        counted.parameters.total,
        counted.parameters.extras["buffers"],
    )


def their_name(path: str) -> str:
    """Return the name in transformers of a weight of the tree."""
    halves = {"spatial": "spatial_block.", "channel": "channel_block."}
    attention = {"spatial": "window_attn.", "channel": "channel_attn."}
    parts = path.split(".")
    if parts[0] == "vision":
        stage = parts.count("later")
        kept = [x for x in parts[1:] if x != "later"]
        if kept[0] == "patches":
            inner = "norm" if "norm" in kept[1] else "conv"
            return f"model.vision_tower.convs.{stage}.{inner}.{kept[-1]}"
        _, block, half, *rest = kept
        inside = (
            ".".join(rest)
            .replace("attn.", attention[half])
            .replace("mlp.up", "ffn.fc1")
            .replace("mlp.down", "ffn.fc2")
        )
        return f"model.vision_tower.blocks.{stage}.{block}.{halves[half]}{inside}"
    if parts[0] == "projector":
        names = {
            "rows": "image_position_embed.row_embeddings.weight",
            "columns": "image_position_embed.column_embeddings.weight",
        }
        names |= {
            "frames": "visual_temporal_embed.pos_idx_to_embed",
            "linear.weight": "image_projection.weight",
        }
        inside = ".".join(parts[1:])
        return "model.multi_modal_projector." + names.get(
            inside, inside.replace("norm.", "image_proj_norm.")
        )
    if parts[0] == "head":
        return "lm_head.weight"
    if parts[0] == "unread":
        return "model.language_model.encoder.embed_tokens.weight"
    if parts[:2] == ["encoder", "embed"]:
        return "model.language_model.shared.weight"
    side, rest = ("encoder", parts[1:]) if parts[0] == "encoder" else ("decoder", parts)
    inside = ".".join(rest)
    words = {
        "embed.": "embed_tokens.",
        "positions.": "embed_positions.",
        "embed_norm.": "layernorm_embedding.",
    }
    if (first := rest[0] + ".") in words:
        return f"model.language_model.{side}.{words[first]}{rest[-1]}"
    for x in "qkv":
        inside = inside.replace(f"cross_attn.{x}.", f"encoder_attn.{x}_proj.").replace(
            f".attn.{x}.", f".self_attn.{x}_proj."
        )
    for old, new in (
        ("cross_attn.o.", "encoder_attn.out_proj."),
        (".attn.o.", ".self_attn.out_proj."),
        ("mlp.up", "fc1"),
        ("mlp.down", "fc2"),
    ):
        inside = inside.replace(old, new)
    norms = (
        ("attn_norm", "self_attn_layer_norm"),
        ("cross_norm", "encoder_attn_layer_norm"),
        ("mlp_norm", "final_layer_norm"),
    )
    for old, new in norms:
        inside = inside.replace(old, new)
    return f"model.language_model.{side}.{inside}"


@pytest.mark.transformers
@pytest.mark.parametrize("label", ["small", "untied"])
def test_logits_equal_those_of_transformers(label: str) -> None:
    import torch

    from llamath.torch.module import build

    torch.manual_seed(5)
    theirs, tree = reference(label, "cpu"), computable(label).tree
    with torch.no_grad():
        for x in theirs.parameters():
            x.normal_(0, 0.3)
    state = theirs.state_dict()
    ours = build(tree.text)
    with torch.no_grad():
        for path, x in ours.state_dict(keep_vars=True).items():
            x.copy_(state[their_name(path)])
    ids = torch.randint(4, 70, (BATCH, PROMPT))
    answer = torch.randint(4, 70, (BATCH, ANSWER))
    cache = ours.new_cache(ANSWER)
    with torch.no_grad():
        embedded = theirs.get_input_embeddings()(ids)
        logits = theirs(inputs_embeds=embedded, decoder_input_ids=answer).logits
        found = []
        for a, b in ((0, 2), (2, 3), (3, ANSWER)):
            machine = ours.machine(answer[:, a:b], cache)
            machine.encoder_ids = ids if a == 0 else None
            found.append(ours.compute(machine, answer[:, a:b]))
            cache.length = b
    torch.testing.assert_close(torch.cat(found, 1), logits, atol=1e-4, rtol=1e-4)


def test_report_adds_prompt_and_decoder() -> None:
    keys = {"model_type": "florence2", **CONFIGS["base"]}
    report = llamath.flops(keys, context=1000, batch=2)
    data = json.loads(json.dumps(report.to_json()))
    with pytest.raises(llamath.LlamathError, match=r"counted, not computed .*577 tokens"):
        llamath.flops(keys, context=1000, images="768")
    rows = data["products"]
    assert (
        sum(x["forward"] for x in rows) == data["forward"]
        and sum(x["decode"] for x in rows) == data["decode"]
    )
    assert {x["section"] for x in rows} == {"layers", "head", "encoder.layers"}
    assert not any(
        x["decode"]
        for x in rows
        if x["section"] == "encoder.layers" or x["product"] in ("cross_attn.k", "cross_attn.v")
    )
    assert any("T in the encoder and as many in the decoder" in x for x in data["notes"])
    read = data["intensity"]["decode"]["total"]["weights"]
    encoder_and_keys = 6 * (4 * 768**2 + 4 * 768 + 2 * 768 * 3072 + 3072 + 768) + 6 * 2 * (
        768**2 + 768
    )
    whole = data["intensity"]["prefill"]["total"]["weights"]
    assert 0 < whole - read <= 2 * encoder_and_keys


def test_memory_has_both_caches_and_whole_prompts() -> None:
    keys = {"model_type": "florence2", **CONFIGS["base"]}
    report: Any = llamath.memory(keys, context=1024, batch=3, dtype="bf16")
    caches = {x.what: x.bytes for x in report.lines if x.what.startswith("cache")}
    each = 2 * 6 * 768 * 1024 * 3 * 2
    assert caches == {"cache, keys and values": each, "cache, keys and values of the encoder": each}
    assert report.chunk == 3 * 1024 and report.prefill > report.decode
    with pytest.raises(llamath.LlamathError, match="packs some matrices"):
        llamath.memory(keys, dtype="bnb-nf4")
    with pytest.raises(llamath.LlamathError, match="an encoder reads whole prompts"):
        llamath.memory(keys, batch_tokens=512)
    with pytest.raises(llamath.LlamathError, match="as an encoder-decoder model"):
        llamath.training_memory(keys)


def test_trace_shows_encoder_then_decoder() -> None:
    from llamath.torch.debug.trace_run import trace

    model = computable("base")
    report = trace(model, [0] * 584)
    assert [x.name for x in report.first.walk.stages] == [
        "encoder",
        "encoder layers",
        "embedding",
        "layers",
        "head",
    ]
    inputs = {x for stage in report.first.walk.stages for step in stage.steps for x in step.inputs}
    assert "encoder_states" in inputs and "embeddings" not in inputs
    assert (
        not report.first.mismatches
        and report.following is not None
        and not report.following.mismatches
    )
    prefill = forward_flops(record_prefill(model.tree.text, tokens=584))
    assert report.first.walk.flops == int(prefill.total)
    assert report.cache.elements == 2 * 6 * 768 * (584 + 2) == report.following.walk.cached


@pytest.mark.parametrize(
    "changes", [{"patch_stride": [1, 4, 2]}, {"image_feature_source": ["last_frame"]}]
)
def test_tokens_of_unknown_towers_are_refused(changes: dict[str, Any]) -> None:
    model = llamath.load(
        {"model_type": "florence2", "text_config": TEXT, "vision_config": VISION | changes}
    )
    assert model.parameters.total and llamath.flops(model, context=10)
    with pytest.raises(
        llamath.LlamathError,
        match="patch_stride or image_feature_source is not that of published models",
    ):
        llamath.flops(model, context=10, images="768")


def test_heads_divide_the_width() -> None:
    keys = {
        "model_type": "florence2",
        "text_config": TEXT | {"decoder_attention_heads": 5},
        "vision_config": VISION,
    }
    with pytest.raises(llamath.ConfigError, match="decoder_attention_heads should divide d_model"):
        llamath.flops(keys)


def test_text_type_has_the_encoder() -> None:
    assert isinstance(computable("small").tree.text, EncoderDecoder)


@pytest.mark.transformers
def test_memory_of_files_counts_what_they_store(tmp_path: Path) -> None:
    reference("small", "cpu").save_pretrained(tmp_path)
    report: Any = llamath.memory(tmp_path)
    model = computable("small")
    assert report.weights == 4 * model.parameters.total
    assert len(report.notes) == 1 and not report.checkpoint_notes
    (tmp_path / "config.json").write_text(
        json.dumps(
            json.loads((tmp_path / "config.json").read_text()) | {"tie_word_embeddings": False}
        )
    )
    assert any("lm_head.weight" in x for x in llamath.memory(tmp_path).checkpoint_notes)  # type: ignore[union-attr]
