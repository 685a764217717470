"""Conversion of packed weights: copied where the target has the same type, dequantized otherwise; multimodal wrappers; MTP layers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

import llamath
from llamath.analysis.check.verify.check_checkpoint import verify_checkpoint
from llamath.analysis.storage.quantized_tensors import quantized_tensors
from llamath.checkpoint.formats.dtypes import DTYPES
from llamath.checkpoint.quantization.format_names import parse_weight_format
from llamath.cli import cli
from llamath.conversion.convert_checkpoint import (
    ConversionReport,
    ConvertOptions,
    convert_checkpoint,
)
from llamath.conversion.quantize_blocks import QUANTIZERS, quantize_blocks
from llamath.utils.errors import ConvertError, LlamathError
from support.gguf_files import load_tiny_configs
from support.packed_linears import PACKERS, QUANTIZATION_CONFIGS

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def write(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    save_file({name: x.contiguous() for name, x in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def random_tensors(config: dict[str, Any], seed: int = 0) -> dict[str, torch.Tensor]:
    model = llamath.load(config)
    generator = torch.Generator().manual_seed(seed)
    shapes = {x.name: tuple(map(int, x.shape)) for x in model.scheme("hf").tensors(model.tree)}
    return {
        name: (torch.randn(shape, generator=generator) / 10).bfloat16()
        for name, shape in shapes.items()
    }


def write_packed(folder: Path, method: str) -> dict[str, torch.Tensor]:
    """Write a Llama with packed projections, and return what its tensors stand for, in float32."""
    generator = torch.Generator().manual_seed(1)
    stored, expected = {}, {}
    for name, x in random_tensors(LLAMA).items():
        if "_proj" not in name:
            stored[name] = x
            expected[name] = x.float()
            continue
        parts, expected[name] = PACKERS[method](generator, *x.shape)
        stored |= {name.removesuffix("weight") + end: part for end, part in parts.items()}
    write(folder, LLAMA | {"quantization_config": QUANTIZATION_CONFIGS[method]}, stored)
    assert verify_checkpoint(str(folder)).ok
    return expected


def convert(source: Path, target: Path, kind: str, **options: Any) -> ConversionReport:
    return convert_checkpoint(str(source), str(target), ConvertOptions(to=kind, **options))


def load_gguf(path: Path) -> dict[str, np.ndarray]:
    return {x.name: x.data for x in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize("method", PACKERS)
def test_packed_weights_are_dequantized(method: str, tmp_path: Path) -> None:
    expected = write_packed(tmp_path / "q", method)
    report = convert(tmp_path / "q", tmp_path / "f32", "hf", dtype="f32")
    assert any(
        note.startswith("14 weights packed as ") and note.endswith("dequantized to F32")
        for note in report.notes
    )
    found = load_file(tmp_path / "f32" / "model.safetensors")
    assert found.keys() == expected.keys()
    assert [name for name, x in expected.items() if not torch.equal(found[name], x)] == []
    config = json.loads((tmp_path / "f32" / "config.json").read_text())
    assert "quantization_config" not in config and config["torch_dtype"] == "float32"
    convert(tmp_path / "q", tmp_path / "bf16", "hf", dtype="bf16")
    found = load_file(tmp_path / "bf16" / "model.safetensors")
    assert [
        name for name, x in expected.items() if not torch.equal(found[name], x.bfloat16())
    ] == []


@pytest.mark.parametrize("method", PACKERS)
def test_packed_weights_are_written_to_other_formats(method: str, tmp_path: Path) -> None:
    expected = write_packed(tmp_path / "q", method)
    convert(tmp_path / "q", tmp_path / "x.gguf", "gguf")
    convert(tmp_path / "q", tmp_path / "meta", "meta", dtype="f32")
    found = load_gguf(tmp_path / "x.gguf")["blk.1.ffn_down.weight"]
    wanted = expected["model.layers.1.mlp.down_proj.weight"]
    assert np.array_equal(
        found.view(np.uint16), wanted.bfloat16().view(torch.int16).numpy().view(np.uint16)
    )
    meta = torch.load(tmp_path / "meta" / "consolidated.00.pth", weights_only=True)
    assert torch.equal(meta["layers.1.feed_forward.w2.weight"], wanted)
    q8 = convert(tmp_path / "q", tmp_path / "q8.gguf", "gguf", dtype="q8_0")
    assert q8.dtype == "Q8_0"
    assert load_gguf(tmp_path / "q8.gguf")["blk.1.ffn_down.weight"].tobytes() == quantize_blocks(
        wanted.numpy().tobytes(), "Q8_0"
    )


@pytest.mark.parametrize("method", PACKERS)
def test_packed_weights_are_copied_between_hf_files(method: str, tmp_path: Path) -> None:
    write_packed(tmp_path / "q", method)
    report = convert(tmp_path / "q", tmp_path / "copy", "hf", max_shard_size=20_000)
    assert any(
        note.startswith("14 weights packed as ") and note.endswith("copied as stored")
        for note in report.notes
    )
    stored = load_file(tmp_path / "q" / "model.safetensors")
    files = sorted((tmp_path / "copy").glob("*.safetensors"))
    found = {name: x for file in files for name, x in load_file(file).items()}
    assert len(files) > 2 and found.keys() == stored.keys()
    assert all(
        x.dtype == found[name].dtype and bytes_of(x) == bytes_of(found[name])
        for name, x in stored.items()
    )
    config = json.loads((tmp_path / "copy" / "config.json").read_text())
    assert config == json.loads((tmp_path / "q" / "config.json").read_text())
    assert verify_checkpoint(str(tmp_path / "copy")).ok


def bytes_of(x: torch.Tensor) -> bytes:
    return (
        bytes(x.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()) if x.numel() else b""
    )


@pytest.mark.parametrize("kind", ["hf", "meta", "gguf"])
def test_packings_without_dequantization_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    tensors = {}
    for name, x in random_tensors(LLAMA).items():
        if "_proj" in name:
            stem, (out, into) = name.removesuffix("weight"), x.shape
            tensors |= {
                f"{stem}B": torch.zeros(into // 16, 2 * out, dtype=torch.int32),
                f"{stem}s": torch.zeros(into // 16, out).half(),
            }
        else:
            tensors[name] = x
    write(
        tmp_path / "marlin", LLAMA | {"quantization_config": QUANTIZATION_CONFIGS["gptq"]}, tensors
    )
    args = ["convert", str(tmp_path / "marlin"), str(tmp_path / "out"), "--names", kind]
    done = CliRunner().invoke(cli, args, standalone_mode=False)
    assert isinstance(done.exception, LlamathError) and "cannot be dequantized" in str(
        done.exception
    )
    assert not (tmp_path / "out").exists()


# ── GGUF block types ────────────────────────────────────────────────────────────────────────────────────────────────


WIDE = LLAMA | {"hidden_size": 256, "intermediate_size": 512, "vocab_size": 96}


@pytest.mark.parametrize("kind", ["q8_0", "q4_0", "q4_k", "q6_k"])
def test_matrices_are_quantized_to_block_types(kind: str, tmp_path: Path) -> None:
    tensors = random_tensors(WIDE)
    write(tmp_path / "a", WIDE, tensors)
    convert(tmp_path / "a", tmp_path / "x.gguf", "gguf", dtype=kind)
    convert(tmp_path / "a", tmp_path / "f32.gguf", "gguf", dtype="f32")
    plain, quantized = load_gguf(tmp_path / "f32.gguf"), gguf.GGUFReader(tmp_path / "x.gguf")
    for x in quantized.tensors:
        is_matrix = len(x.shape) > 1
        assert x.tensor_type.name == (kind.upper() if is_matrix else "F32")
        expected = plain[x.name].tobytes()
        assert x.data.tobytes() == (
            quantize_blocks(expected, kind.upper()) if is_matrix else expected
        )
    file_types = {
        "q8_0": "MOSTLY_Q8_0",
        "q4_0": "MOSTLY_Q4_0",
        "q4_k": "MOSTLY_Q4_K_S",
        "q6_k": "MOSTLY_Q6_K",
    }
    assert (
        gguf.LlamaFileType(quantized.fields["general.file_type"].contents()).name
        == file_types[kind]
    )


@pytest.mark.parametrize(("kind", "narrow"), [("q4_k", "Q5_0"), ("q6_k", "Q8_0")])
def test_rows_that_are_no_whole_blocks_get_another_type(
    kind: str, narrow: str, tmp_path: Path
) -> None:
    config = WIDE | {"intermediate_size": 96}
    write(tmp_path / "a", config, random_tensors(config))
    convert(tmp_path / "a", tmp_path / "x.gguf", "gguf", dtype=kind)
    types = {x.name: x.tensor_type.name for x in gguf.GGUFReader(tmp_path / "x.gguf").tensors}
    assert types["blk.0.ffn_down.weight"] == narrow and types["blk.0.ffn_up.weight"] == kind.upper()
    config = WIDE | {"hidden_size": 48, "intermediate_size": 40}
    write(tmp_path / "b", config, random_tensors(config))
    convert(tmp_path / "b", tmp_path / "y.gguf", "gguf", dtype=kind)
    assert {x.tensor_type.name for x in gguf.GGUFReader(tmp_path / "y.gguf").tensors} == {
        "F32",
        "F16",
    }


def test_mixture_gives_some_tensors_more_bits(tmp_path: Path) -> None:
    config = WIDE | {"num_hidden_layers": 8}
    write(tmp_path / "a", config, random_tensors(config))
    convert(tmp_path / "a", tmp_path / "x.gguf", "gguf", dtype="q4_k_m")
    reader = gguf.GGUFReader(tmp_path / "x.gguf")
    six = sorted(x.name for x in reader.tensors if x.tensor_type.name == "Q6_K")
    layers = (0, 3, 6, 7)  # the first eighth, every third between, and the last eighth
    assert six == sorted(
        ["output.weight", *(f"blk.{i}.{x}.weight" for i in layers for x in ("attn_v", "ffn_down"))]
    )
    assert {x.tensor_type.name for x in reader.tensors} == {"F32", "Q4_K", "Q6_K"}
    assert gguf.LlamaFileType(reader.fields["general.file_type"].contents()).name == "MOSTLY_Q4_K_M"


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K"])
def test_blocks_of_a_gguf_file_are_copied_or_dequantized(kind: str, tmp_path: Path) -> None:
    write(tmp_path / "a", WIDE, random_tensors(WIDE))
    convert(tmp_path / "a", tmp_path / "x.gguf", "gguf", dtype=kind)
    convert(tmp_path / "x.gguf", tmp_path / "copy.gguf", "gguf")
    assert {k: x.tobytes() for k, x in load_gguf(tmp_path / "x.gguf").items()} == {
        k: x.tobytes() for k, x in load_gguf(tmp_path / "copy.gguf").items()
    }
    again = convert(tmp_path / "x.gguf", tmp_path / "again.gguf", "gguf", dtype="q6_k")
    assert f"16 weights packed as {kind}: quantized again to Q6_K" in again.notes
    convert(tmp_path / "x.gguf", tmp_path / "f32.gguf", "gguf", dtype="f32")
    for x in gguf.GGUFReader(tmp_path / "x.gguf").tensors:
        assert np.array_equal(
            gguf.dequantize(x.data, x.tensor_type), load_gguf(tmp_path / "f32.gguf")[x.name]
        )
    convert(tmp_path / "x.gguf", tmp_path / "hf", "hf")
    found = load_file(tmp_path / "hf" / "model.safetensors")
    down = gguf.dequantize(
        load_gguf(tmp_path / "x.gguf")["blk.0.ffn_down.weight"], gguf.GGMLQuantizationType[kind]
    )
    assert torch.equal(
        found["model.layers.0.mlp.down_proj.weight"], torch.from_numpy(down.copy()).half()
    )


def test_tokenizer_of_a_gguf_file_is_copied(tmp_path: Path) -> None:
    write(tmp_path / "a", WIDE, random_tensors(WIDE))
    convert(tmp_path / "a", tmp_path / "x.gguf", "gguf")
    reader = gguf.GGUFReader(tmp_path / "x.gguf")
    writer = gguf.GGUFWriter(tmp_path / "y.gguf", "llama")
    for key, x in reader.fields.items():
        if key.startswith("llama."):
            writer.add_key_value(key, x.contents(), x.types[0])
    tokens, long_template = [b"t%d" % i for i in range(95)] + [b"\xff"], "{{ x }}" * 20_000
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.5] * 96)
    writer.add_bos_token_id(3)
    writer.add_add_bos_token(True)
    writer.add_chat_template(long_template)
    for x in reader.tensors:
        writer.add_tensor(x.name, x.data, raw_dtype=x.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    convert(tmp_path / "y.gguf", tmp_path / "z.gguf", "gguf", dtype="q8_0")
    fields = [gguf.GGUFReader(tmp_path / name).fields for name in ("y.gguf", "z.gguf")]
    names = [{key for key in x if key.startswith("tokenizer.")} for x in fields]
    assert names[0] == names[1] and len(names[0]) == 6
    for key in names[0]:
        assert [part.tobytes() for part in fields[0][key].parts] == [
            part.tobytes() for part in fields[1][key].parts
        ], key


def test_block_types_are_only_for_gguf(tmp_path: Path) -> None:
    write(tmp_path / "a", WIDE, random_tensors(WIDE))
    with pytest.raises(ConvertError, match="Q4_K is a type of GGUF files"):
        convert(tmp_path / "a", tmp_path / "b", "hf", dtype="q4_k")
    with pytest.raises(LlamathError, match="unknown dtype 'q4_x'"):
        convert(tmp_path / "a", tmp_path / "b", "gguf", dtype="q4_x")
    with pytest.raises(LlamathError, match="dtype q2_k is not supported"):
        convert(tmp_path / "a", tmp_path / "b", "gguf", dtype="q2_k")


def test_every_quantizer_can_be_named(tmp_path: Path) -> None:
    write(tmp_path / "a", WIDE, random_tensors(WIDE))
    for kind in QUANTIZERS:
        size = convert(
            tmp_path / "a", tmp_path / f"{kind}.gguf", "gguf", dtype=kind.lower(), dry_run=True
        ).bytes
        assert size == pytest.approx(
            llamath.load(WIDE).parameters.total * DTYPES[kind].bits / 8, rel=0.02
        )


# ── MXFP4, which Hugging Face and GGUF files have ───────────────────────────────────────────────────────────────────


GPT_OSS = {
    "model_type": "gpt_oss", "vocab_size": 64, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 3, "num_experts_per_tok": 2,
    "max_position_embeddings": 512, "torch_dtype": "bfloat16",
}  # fmt: skip


def test_mxfp4_blocks_are_copied_to_gguf(tmp_path: Path) -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    generator = torch.Generator().manual_seed(0)
    stored, expected = {}, {}
    for name, x in random_tensors(GPT_OSS).items():
        stored[name] = x
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, into, out = x.shape
            del stored[name]
            blocks = torch.randint(
                0, 256, (experts, out, into // 32, 16), generator=generator, dtype=torch.uint8
            )
            scales = torch.randint(
                110, 130, (experts, out, into // 32), generator=generator, dtype=torch.uint8
            )
            stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            expected[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    write(tmp_path / "a", GPT_OSS | {"quantization_config": {"quant_method": "mxfp4"}}, stored)
    convert(tmp_path / "a", tmp_path / "x.gguf", "gguf")
    tensors = {x.name: x for x in gguf.GGUFReader(tmp_path / "x.gguf").tensors}
    for part, rows in (("gate", slice(0, None, 2)), ("up", slice(1, None, 2))):
        x = tensors[f"blk.1.ffn_{part}_exps.weight"]
        assert x.tensor_type.name == "MXFP4"
        wanted = expected["model.layers.1.mlp.experts.gate_up_proj"].mT[:, rows]
        assert np.array_equal(gguf.dequantize(x.data, x.tensor_type), wanted.numpy())
    x = tensors["blk.0.ffn_down_exps.weight"]
    wanted = expected["model.layers.0.mlp.experts.down_proj"].mT
    assert np.array_equal(gguf.dequantize(x.data, x.tensor_type), wanted.numpy())
    convert(tmp_path / "a", tmp_path / "q8.gguf", "gguf", dtype="q8_0")
    types = {x.name: x.tensor_type.name for x in gguf.GGUFReader(tmp_path / "q8.gguf").tensors}
    sizes = {
        x.name: x.dtype
        for x in quantized_tensors(llamath.load(tmp_path / "a"), parse_weight_format("q8_0"))
    }
    assert types == sizes and types["blk.0.ffn_up_exps.weight"] == "MXFP4"
    convert(tmp_path / "a", tmp_path / "bf16", "hf", dtype="bf16")
    convert(tmp_path / "x.gguf", tmp_path / "again", "hf", dtype="bf16")
    found, again = (load_file(tmp_path / name / "model.safetensors") for name in ("bf16", "again"))
    for name, wanted in expected.items():
        assert torch.equal(found[name], wanted.bfloat16()) and torch.equal(
            again[name], wanted.bfloat16()
        )


# ── multimodal wrappers and layers for multi-token prediction ──────────────────────────────────────────────────────


def test_text_model_is_extracted_from_a_wrapper(tmp_path: Path) -> None:
    import transformers

    text = transformers.Gemma3TextConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=99,
    )
    vision = transformers.SiglipVisionConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=16,
        patch_size=8,
    )
    torch.manual_seed(0)
    whole = transformers.Gemma3ForConditionalGeneration(
        transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    ).eval()
    whole.save_pretrained(tmp_path / "whole")
    report = convert(tmp_path / "whole", tmp_path / "text", "hf")
    assert any(
        "left out: " in note and "vision_tower" in note and "multi_modal_projector" in note
        for note in report.notes
    )
    config = json.loads((tmp_path / "text" / "config.json").read_text())
    assert (
        config["model_type"] == "gemma3_text"
        and config["architectures"] == ["Gemma3ForCausalLM"]
        and "vision_config" not in config
    )
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "text", output_loading_info=True
    )
    assert not any(info.values())
    ids = torch.randint(3, 90, (2, 9))
    with torch.no_grad():
        assert torch.equal(model.eval()(ids).logits, whole(ids).logits)
    assert verify_checkpoint(str(tmp_path / "text")).ok


@pytest.mark.parametrize("wrapped", ["qwen2_5_vl", "qwen3_vl"])
def test_text_model_gets_a_type_that_stands_alone(wrapped: str, tmp_path: Path) -> None:
    text = {
        "model_type": f"{wrapped}_text", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": False,
        "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}, "rms_norm_eps": 1e-6,
    }  # fmt: skip
    config = {
        "model_type": wrapped,
        "text_config": text,
        "vision_config": {
            "depth": 1,
            "hidden_size": 8,
            "embed_dim": 8,
            "num_heads": 2,
            "intermediate_size": 12,
        },
    }
    tensors = random_tensors(config)
    write(tmp_path / "a", config, tensors)
    convert(tmp_path / "a", tmp_path / "b", "hf")
    keys = json.loads((tmp_path / "b" / "config.json").read_text())
    assert keys["model_type"] == {"qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3"}[wrapped]
    assert llamath.load(str(tmp_path / "b")).tree == llamath.load(config).text.tree
    assert verify_checkpoint(str(tmp_path / "b")).ok


VL = {
    "model_type": "qwen3_vl",
    "text_config": {
        "model_type": "qwen3_vl_text", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": False,
        "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}, "rms_norm_eps": 1e-6,
    },
    "vision_config": {"depth": 1, "hidden_size": 8, "num_heads": 2, "intermediate_size": 12},
}  # fmt: skip
MTP = load_tiny_configs()["glm4_moe-plain"] | {
    "max_position_embeddings": 64,
    "num_nextn_predict_layers": 1,
}


def mtp_tensors() -> dict[str, torch.Tensor]:
    model = llamath.load(MTP)
    shapes = {x.name: tuple(map(int, x.shape)) for x in model.scheme("hf").mtp_tensors(model.tree)}
    return {name: torch.full(shape, 0.25).bfloat16() for name, shape in shapes.items()}


def test_memory_counts_one_part_of_the_files(tmp_path: Path) -> None:
    tensors, further = random_tensors(MTP), mtp_tensors()
    write(tmp_path / "mtp", MTP, tensors | further)
    sizes = {x: llamath.memory(tmp_path / "mtp", part=x) for x in (None, "text", "main")}
    assert {x.weights for x in sizes.values()} == {sum(x.nbytes for x in tensors.values())}
    below = {x: [int(y.bytes) for y in size.not_loaded] for x, size in sizes.items()}
    mtp = sum(x.nbytes for x in further.values())
    assert below == {None: [mtp], "text": [mtp], "main": []}
    whole = random_tensors(VL)
    towers = {name: x for name, x in whole.items() if name.startswith("model.visual.")}
    write(tmp_path / "vl", VL, whole)
    assert towers and llamath.memory(tmp_path / "vl", part="text").weights == sum(
        x.nbytes for name, x in whole.items() if name not in towers
    )
    alone = llamath.fit(llamath.load(VL).text, on="mem=1GiB", dtype="bf16").total
    for dtype in ("", "bf16"):
        found = llamath.fit(tmp_path / "vl", on="mem=1GiB", part="text", dtype=dtype)
        assert found.total == alone
    rows = {x.name: x.bytes for x in llamath.quants(tmp_path / "vl", part="text").quants}
    assert rows["bf16"] == 2 * llamath.load(VL).text.parameters.total


def test_old_option_says_what_to_type() -> None:
    done = CliRunner().invoke(cli, ["convert", "a", "b", "--no-mtp"])
    assert done.exit_code == 2 and "is now `--part main`" in done.stderr


def gguf_py_name(name: str) -> str:
    """The name that gguf-py gives a published tensor of GLM-4.5, those of experts stacked."""
    name = re.sub(r"\.experts\.\d+\.", ".experts.", name)
    stem, _, ending = name.replace("correction_bias", "correction.bias").rpartition(".")
    found = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GLM4_MOE, 9).get_name(stem)
    assert found is not None, name
    return f"{found}.{ending}"


@pytest.mark.parametrize("left_out", [(), ("embed_tokens", "shared_head.head")])
def test_gguf_keeps_the_mtp_layers_of_glm(tmp_path: Path, left_out: tuple[str, ...]) -> None:
    tensors, further = random_tensors(MTP), mtp_tensors()
    further = {x: y for x, y in further.items() if not any(z in x for z in left_out)}
    write(tmp_path / "a", MTP, tensors | further)
    report = convert(tmp_path / "a", tmp_path / "model.gguf", "gguf")
    assert f"multi-token prediction layers: {len(further)} tensors kept" in report.notes
    file, layers = gguf.GGUFReader(tmp_path / "model.gguf"), MTP["num_hidden_layers"]
    assert {x.name for x in file.tensors} == {gguf_py_name(x) for x in tensors | further}
    last = {x.name: x for x in file.tensors if x.name.startswith(f"blk.{layers}.")}
    assert {gguf_py_name(x) for x in further} == last.keys()
    for name, x in further.items():
        stored = np.array(
            gguf.dequantize(last[gguf_py_name(name)].data, last[gguf_py_name(name)].tensor_type)
        )
        assert np.all(stored == x.float().numpy().flat[0]), name
    for key, value in {"block_count": layers + 1, "nextn_predict_layers": 1}.items():
        assert file.get_field(f"glm4moe.{key}").contents() == value
    read = llamath.load(str(tmp_path / "model.gguf"))
    assert read.tree.layers == llamath.load(MTP).tree.layers
    findings = verify_checkpoint(str(tmp_path / "model.gguf")).verdict.findings
    assert [x.code for x in findings] == ["further"]
    back = convert(tmp_path / "model.gguf", tmp_path / "back", "hf")
    assert f"multi-token prediction layers: {len(last)} tensors kept" in back.notes
    again = load_file(tmp_path / "back" / "model.safetensors")
    assert again.keys() == tensors.keys() | further.keys()
    assert all(torch.equal(again[name], x) for name, x in (tensors | further).items())
    convert(tmp_path / "a", tmp_path / "q8_0.gguf", "gguf", dtype="q8_0")
    quantized = gguf.GGUFReader(tmp_path / "q8_0.gguf").tensors
    if not left_out:
        size = sum(int(x.n_bytes) for x in quantized if x.name in last)
        for found in (llamath.memory(MTP, dtype="q8_0"), llamath.memory(tmp_path / "q8_0.gguf")):
            assert [int(x.bytes) for x in found.not_loaded] == [size]
            assert found.weights == sum(int(x.n_bytes) for x in quantized if x.name not in last)


def test_gguf_without_mtp_layers_says_why(tmp_path: Path) -> None:
    tensors, further = random_tensors(MTP), mtp_tensors()
    broken = {name: x for name, x in further.items() if "eh_proj" not in name}
    write(tmp_path / "a", MTP, tensors | broken)
    done = convert(tmp_path / "a", tmp_path / "a.gguf", "gguf")
    why = "some of their tensors are missing or have other shapes"
    assert f"multi-token prediction layers: {len(broken)} tensors left out: {why}" in done.notes
    v3 = load_tiny_configs()["deepseek_v3-yarn"] | {"max_position_embeddings": 64}
    model = llamath.load(v3)
    more = {
        x.name: torch.zeros(tuple(map(int, x.shape))).bfloat16()
        for x in model.scheme("hf").mtp_tensors(model.tree)
    }
    write(tmp_path / "b", v3, random_tensors(v3) | more)
    done = convert(tmp_path / "b", tmp_path / "b.gguf", "gguf")
    why = "their GGUF names are not known for the deepseek_v3 family"
    assert f"multi-token prediction layers: {len(more)} tensors left out: {why}" in done.notes
    names = {x.name for x in gguf.GGUFReader(tmp_path / "b.gguf").tensors}
    assert more and not any(x.startswith(f"blk.{v3['num_hidden_layers']}.") for x in names)


def test_layers_for_multi_token_prediction_are_kept_or_dropped(tmp_path: Path) -> None:
    tensors, further = random_tensors(MTP), mtp_tensors()
    assert further
    write(tmp_path / "a", MTP, tensors | further)
    kept = convert(tmp_path / "a", tmp_path / "kept", "hf")
    assert f"multi-token prediction layers: {len(further)} tensors kept" in kept.notes
    assert (
        load_file(tmp_path / "kept" / "model.safetensors").keys() == tensors.keys() | further.keys()
    )
    assert verify_checkpoint(str(tmp_path / "kept")).ok
    dropped = convert(tmp_path / "a", tmp_path / "dropped", "hf", edit=llamath.Edit(part="main"))
    assert f"multi-token prediction layers: {len(further)} tensors left out" in dropped.notes
    assert load_file(tmp_path / "dropped" / "model.safetensors").keys() == tensors.keys()
    assert (
        json.loads((tmp_path / "dropped" / "config.json").read_text())["num_nextn_predict_layers"]
        == 0
    )
    for part, kept_in_gguf in ((None, True), ("main", False)):
        done = convert(tmp_path / "a", tmp_path / "x.gguf", "gguf", edit=llamath.Edit(part=part))
        assert ("left out" in " ".join(done.notes)) is not kept_in_gguf
        blocks = [x.name for x in gguf.GGUFReader(tmp_path / "x.gguf").tensors if ".3." in x.name]
        assert bool(blocks) is kept_in_gguf
        (tmp_path / "x.gguf").unlink()
    cast = convert(tmp_path / "a", tmp_path / "f32", "hf", dtype="f32")
    assert {x.dtype for x in load_file(tmp_path / "f32" / "model.safetensors").values()} == {
        torch.float32
    } and cast.dtype == "F32"


def test_qwen_s_layers_for_prediction_are_kept_under_their_names(tmp_path: Path) -> None:
    config = load_tiny_configs()["qwen3_next-plain"]
    tensors = random_tensors(config)
    write(tmp_path / "a", config, tensors | {"mtp.fc.weight": torch.ones(4, 8).bfloat16()})
    convert(tmp_path / "a", tmp_path / "kept", "hf")
    assert "mtp.fc.weight" in load_file(tmp_path / "kept" / "model.safetensors")
    convert(tmp_path / "a", tmp_path / "dropped", "hf", edit=llamath.Edit(part="main"))
    assert load_file(tmp_path / "dropped" / "model.safetensors").keys() == tensors.keys()


def test_transformers_loads_fused_experts(tmp_path: Path) -> None:
    import transformers

    config = load_tiny_configs()["qwen3_moe-plain"]
    write(tmp_path / "a", config, random_tensors(config))
    convert(tmp_path / "a", tmp_path / "b", "hf", dtype="f32")
    convert(tmp_path / "a", tmp_path / "fused", "hf-fused", dtype="f32")
    models = [
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path / name, output_loading_info=True)
        for name in ("b", "fused")
    ]
    assert not any(any(info.values()) for _, info in models)
    states = [model.state_dict() for model, _ in models]
    assert states[0].keys() == states[1].keys() and all(
        torch.equal(x, states[1][name]) for name, x in states[0].items()
    )


def sparse_parts(
    x: torch.Tensor, kind: str, generator: torch.Generator
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The tensors of compressed-tensors' bitmasks for a pruned matrix, and its values."""
    if kind == "sparse-bitmask":
        kept = torch.rand(x.shape, generator=generator) < 0.3
    else:
        kept = (
            torch.zeros(x.numel() // 4, 4, dtype=torch.bool)
            .scatter_(1, x.abs().reshape(-1, 4).topk(2, 1).indices, True)
            .reshape(x.shape)
        )
    bits = torch.from_numpy(np.packbits(kept.numpy(), axis=1, bitorder="little"))
    parts = {"compressed": x[kept], "bitmask": bits, "shape": torch.tensor(x.shape)}
    if kind == "sparse-bitmask":
        return {**parts, "row_offsets": torch.cumsum(kept.sum(1), 0) - kept.sum(1)}, x * kept
    return {
        **parts,
        "compressed": x[kept].reshape(len(x), -1),
        "shape": parts["shape"].reshape(-1, 1),
    }, x * kept


@pytest.mark.parametrize("kind", ["sparse-bitmask", "sparse-24-bitmask"])
def test_sparse_weights_are_dequantized(kind: str, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    plain, packed = {}, {}
    for name, x in random_tensors(LLAMA).items():
        plain[name] = packed[name] = x
        if name.endswith("_proj.weight"):
            del packed[name]
            parts, plain[name] = sparse_parts(x, kind, generator)
            packed |= {name.removesuffix("weight") + end: y for end, y in parts.items()}
    sparsity = {"format": kind, "targets": ["Linear"], "ignore": ["lm_head"]}
    config = {
        **LLAMA,
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "dense",
            "sparsity_config": sparsity,
        },
    }
    source, dense = write(tmp_path / "a", config, packed), write(tmp_path / "b", LLAMA, plain)
    assert llamath.verify(source).ok and llamath.same(source, dense).verdict == "identical"
    report = convert_checkpoint(
        str(source), str(tmp_path / "c"), ConvertOptions(to="hf", dtype="bf16")
    )
    assert any("dequantized to BF16" in x for x in report.notes)
    assert "quantization_config" not in json.loads((tmp_path / "c" / "config.json").read_text())
    stored = load_file(tmp_path / "c" / "model.safetensors")
    assert stored.keys() == plain.keys() and all(
        torch.equal(stored[name], x) for name, x in plain.items()
    )
