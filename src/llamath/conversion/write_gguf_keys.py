"""GGUF's metadata, as a view of the tree: the keys that llama.cpp reads for its `llama` and `qwen2` architectures.

Types are those of the gguf package's writer (0.19): counts are UINT32, reals FLOAT32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..checkpoint.formats.gguf_values import FLOAT32, STRING, UINT32, Kind
from ..core.blocks import MLP, Attention, Decoder, Layer, MoE
from ..core.errors import ConvertError
from ..core.positions import DynamicRope, LinearRope, Llama3Rope, Rope, YarnRope
from ..model import Model

FILE_TYPES = {"F32": 0, "F16": 1, "BF16": 32}
QUANTIZATION_VERSION = 2


class Key(NamedTuple):
    """A key with its value; `array` says that the value is a list of that kind."""

    name: str
    kind: Kind
    value: Any
    array: bool = False


def model_metadata(model: Model, dtype: str, notes: list[str]) -> Iterator[Key]:
    """What the file says of the model; what it cannot say is noted, or refused where it would be another model."""
    arch, tree, layer = model.family.gguf_arch, model.tree, model.tree.layers[0]
    yield Key("general.architecture", STRING, arch)
    yield Key("general.type", STRING, "model")
    yield Key("general.name", STRING, model.name)
    yield Key("general.file_type", UINT32, FILE_TYPES[dtype])
    yield Key("general.quantization_version", UINT32, QUANTIZATION_VERSION)
    if not isinstance(layer, Layer) or not isinstance(layer.attn, Attention) or layer.attn_norm is None:
        raise ConvertError(f"{model.name} has layers that GGUF's {arch} has not")
    attention, mlp = layer.attn, layer.mlp
    if tree.context is None:
        raise ConvertError("GGUF wants to know for how many positions the model was trained", hint="--set max_position_embeddings=…")
    counts = {
        "block_count": tree.layers.n,
        "context_length": tree.context,
        "embedding_length": tree.width,
        "feed_forward_length": _width(mlp),
        "attention.head_count": attention.heads,
        "attention.head_count_kv": attention.kv_heads,
        "vocab_size": tree.vocab,
    }
    if "head_dim" in model.config or attention.head_dim * attention.heads != tree.width:
        counts |= {"attention.key_length": attention.head_dim, "attention.value_length": attention.head_dim}
    if isinstance(mlp, MoE):
        counts |= {"expert_count": mlp.experts.n, "expert_used_count": mlp.top_k}
    for name, value in counts.items():
        yield Key(f"{arch}.{name}", UINT32, int(value))
    yield Key(f"{arch}.attention.layer_norm_rms_epsilon", FLOAT32, layer.attn_norm.eps)
    yield from _positions(arch, attention.rope, attention.head_dim, notes)
    if (near := min_sliding_window(tree)) is not None:
        notes.append(f"llama.cpp's {arch} has no sliding window: it is the same model for up to {near:,} tokens")


def min_sliding_window(tree: Decoder) -> int | None:
    """The shortest sliding window of any layer."""
    windows = [x.attn.window.size for x, _ in tree.layers.distinct() if isinstance(x, Layer) and isinstance(x.attn, Attention)]
    return min((x for x in windows if x is not None), default=None)


def _width(mlp: object) -> int:
    """The feed-forward width, of one expert if there are several."""
    inner = mlp.experts[0] if isinstance(mlp, MoE) else mlp
    if not isinstance(inner, MLP) or inner.gate is None or inner.activation not in ("silu", "swish"):
        raise ConvertError("GGUF's file would be read as having SwiGLU layers, which these are not")
    return int(inner.up.weight.shape[0])


def _positions(arch: str, rope: Rope | None, size: int, notes: list[str]) -> Iterator[Key]:
    if rope is None:
        raise ConvertError(f"llama.cpp's {arch} turns every query by its position, and this model does not")
    yield Key(f"{arch}.rope.dimension_count", UINT32, int(size))
    yield Key(f"{arch}.rope.freq_base", FLOAT32, rope.theta)
    if isinstance(rope, LinearRope):
        yield Key(f"{arch}.rope.scaling.type", STRING, "linear")
        yield Key(f"{arch}.rope.scaling.factor", FLOAT32, rope.factor)
    elif isinstance(rope, YarnRope):
        yield from _yarn(arch, rope)
    elif isinstance(rope, DynamicRope):
        notes.append(f"GGUF cannot say the dynamic scaling of positions: it is the same model for up to {rope.original_context:,} tokens")
    elif type(rope) not in (Rope, Llama3Rope):
        raise ConvertError(f"GGUF cannot say this model's positions ({type(rope).__name__})")


def _yarn(arch: str, rope: YarnRope) -> Iterator[Key]:
    if rope.mscale is not None or rope.mscale_all_dim is not None or not rope.truncate:
        raise ConvertError("GGUF's llama cannot say mscale, mscale_all_dim or truncate of a YaRN scaling")
    yield Key(f"{arch}.rope.scaling.type", STRING, "yarn")
    yield Key(f"{arch}.rope.scaling.factor", FLOAT32, rope.factor)
    yield Key(f"{arch}.rope.scaling.original_context_length", UINT32, int(rope.original_context))
    yield Key(f"{arch}.rope.scaling.yarn_beta_fast", FLOAT32, rope.beta_fast)
    yield Key(f"{arch}.rope.scaling.yarn_beta_slow", FLOAT32, rope.beta_slow)
    if rope.attention_factor is not None:
        yield Key(f"{arch}.rope.scaling.yarn_attn_factor", FLOAT32, rope.attention_factor)
