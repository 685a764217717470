"""Writes GGUF files (version 3, little-endian; ggml/docs/gguf.md) for llama.cpp's architectures `llama` and `qwen2`."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from ..checkpoint.formats.dtypes import GGML
from ..checkpoint.formats.gguf import ARRAY, BOOL, KINDS, STRING, UINT32, Kind
from ..checkpoint.gguf_metadata import MetadataValue, write_metadata, write_rope_scaling
from ..core.blocks import MLP, Attention, Decoder, Layer, MoE
from ..core.errors import ConvertError
from ..core.positions import DynamicRope, LinearRope, Llama3Rope, Rope, YarnRope
from ..model import Model
from .output_files import ConcatFile
from .tensor_plan import OutputTensor

_VERSION, _ALIGNMENT, _MAX_NAME_BYTES, _MAX_DIMENSIONS = 3, 32, 63, 4
_TYPE_NUMBERS = {dtype.name: number for number, dtype in GGML.items()}
_FILE_TYPES = {"F32": 0, "F16": 1, "BF16": 32}
_QUANTIZATION_VERSION = 2


def gguf_file(name: str, metadata: Sequence[MetadataValue], tensors: Sequence[OutputTensor]) -> ConcatFile:
    """Return a GGUF file: header, metadata, tensor infos, then the tensors at multiples of 32 bytes."""
    head = [b"GGUF" + struct.pack("<IQQ", _VERSION, len(tensors), len(metadata)), *map(_metadata_entry, metadata)]
    at = 0
    for x in tensors:
        head.append(_tensor_info(x, at))
        at += x.size + -x.size % _ALIGNMENT
    start = b"".join(head)
    parts: list[bytes | OutputTensor] = [start + bytes(-len(start) % _ALIGNMENT)]
    for x in tensors:
        parts += [x, bytes(-x.size % _ALIGNMENT)]
    return ConcatFile(name, parts)


def model_metadata(model: Model, dtype: str, notes: list[str]) -> Iterator[MetadataValue]:
    """Yield the metadata of a model; settings that GGUF cannot express are noted, or refused if the file would be a different model."""
    arch, tree = model.family.gguf_arch, model.tree
    yield MetadataValue("general.architecture", STRING, arch)
    yield MetadataValue("general.type", STRING, "model")
    yield MetadataValue("general.name", STRING, model.name)
    yield MetadataValue("general.file_type", UINT32, _FILE_TYPES[dtype])
    yield MetadataValue("general.quantization_version", UINT32, _QUANTIZATION_VERSION)
    config, rope = _config_values(model)
    yield from write_metadata(arch, config)
    scaling = _rope_scaling(rope, notes)
    if scaling:
        yield from write_rope_scaling(arch, scaling)
    if (window := min_sliding_window(tree)) is not None:
        notes.append(f"llama.cpp's {arch} has no sliding window: up to {window:,} tokens the model is the same")


def min_sliding_window(tree: Decoder) -> int | None:
    """Return the shortest sliding window of any layer."""
    windows = [x.attn.window.size for x, _ in tree.layers.distinct() if isinstance(x, Layer) and isinstance(x.attn, Attention)]
    return min((x for x in windows if x is not None), default=None)


def _config_values(model: Model) -> tuple[dict[str, Any], Rope]:
    """Return the values of the metadata by config key, in the order in which they are written, and the rotary positions."""
    arch, tree, layer = model.family.gguf_arch, model.tree, model.tree.layers[0]
    if not isinstance(layer, Layer) or not isinstance(layer.attn, Attention) or layer.attn_norm is None:
        raise ConvertError(f"{model.name} has layers that GGUF's {arch} architecture does not have")
    attention, mlp, rope = layer.attn, layer.mlp, layer.attn.rope
    if tree.context is None:
        raise ConvertError("GGUF needs the model's context length", hint="set max_position_embeddings=…")
    if not isinstance(rope, Rope):
        raise ConvertError(f"llama.cpp's {arch} has rotary positions, and this model does not")
    if type(rope) not in (Rope, LinearRope, YarnRope, DynamicRope, Llama3Rope):
        raise ConvertError(f"GGUF cannot express this model's positions ({type(rope).__name__})")
    head_dim = int(attention.head_dim)
    values: dict[str, Any] = {
        "num_hidden_layers": int(tree.layers.n),
        "max_position_embeddings": int(tree.context),
        "hidden_size": int(tree.width),
        "intermediate_size": _intermediate_size(mlp),
        "num_attention_heads": int(attention.heads),
        "num_key_value_heads": int(attention.kv_heads),
        "vocab_size": int(tree.vocab),
    }
    if "head_dim" in model.config or head_dim * attention.heads != tree.width:
        values["head_dim"] = head_dim
    if isinstance(mlp, MoE):
        values |= {"num_experts": int(mlp.experts.n), "num_experts_per_tok": int(mlp.top_k)}
    return values | {"rms_norm_eps": layer.attn_norm.eps, "rotary_dim": head_dim, "rope_theta": rope.theta}, rope


def _intermediate_size(mlp: object) -> int:
    """Return the feed-forward width, of one expert in a mixture."""
    inner = mlp.experts[0] if isinstance(mlp, MoE) else mlp
    if not isinstance(inner, MLP) or inner.gate is None or inner.activation not in ("silu", "swish"):
        raise ConvertError("GGUF cannot express this model's feed-forward layers: llama.cpp would compute SwiGLU")
    return int(inner.up.weight.shape[0])


def _rope_scaling(rope: Rope, notes: list[str]) -> dict[str, Any] | None:
    """Return the `rope_scaling` that is written as metadata; Llama 3.1's is written as the tensor `rope_freqs.weight`."""
    if isinstance(rope, LinearRope):
        return {"rope_type": "linear", "factor": rope.factor}
    if isinstance(rope, DynamicRope):
        notes.append(f"GGUF cannot express dynamic RoPE scaling: up to {rope.original_context:,} tokens the model is the same")
    if not isinstance(rope, YarnRope):
        return None
    if rope.mscale is not None or rope.mscale_all_dim is not None or not rope.truncate:
        raise ConvertError("GGUF's llama architecture cannot express mscale, mscale_all_dim or truncate of YaRN scaling")
    return {
        "rope_type": "yarn",
        "factor": rope.factor,
        "original_max_position_embeddings": int(rope.original_context),
        "beta_fast": rope.beta_fast,
        "beta_slow": rope.beta_slow,
        "attention_factor": rope.attention_factor,
    }


def _tensor_info(x: OutputTensor, at: int) -> bytes:
    """Return the info of one tensor; its dimensions are written innermost first."""
    if len(x.name.encode()) > _MAX_NAME_BYTES or len(x.shape) > _MAX_DIMENSIONS:
        raise ConvertError(f"{x.name}: GGUF allows names of {_MAX_NAME_BYTES} bytes and tensors of {_MAX_DIMENSIONS} dimensions")
    shape = struct.pack(f"<I{len(x.shape)}QIQ", len(x.shape), *x.shape[::-1], _TYPE_NUMBERS[x.dtype], at)
    return struct.pack("<Q", len(x.name)) + x.name.encode() + shape


def _metadata_entry(x: MetadataValue) -> bytes:
    name = struct.pack("<Q", len(x.name)) + x.name.encode()
    if not x.array:
        return name + struct.pack("<I", KINDS.index(x.kind)) + _pack_values(x.kind, [x.value])
    return name + struct.pack("<IIQ", KINDS.index(ARRAY), KINDS.index(x.kind), len(x.value)) + _pack_values(x.kind, x.value)


def _pack_values(kind: Kind, values: Sequence[object]) -> bytes:
    if kind is STRING:
        texts = [x if isinstance(x, bytes) else str(x).encode() for x in values]
        return b"".join(struct.pack("<Q", len(x)) + x for x in texts)
    return struct.pack(f"<{len(values)}{'?' if kind is BOOL else kind.code}", *values)
