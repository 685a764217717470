"""`gguf_model_keys`: the metadata of a model's GGUF file, written from the tree: the reverse of
`checkpoint.gguf_metadata`.

Which keys an architecture has is the record in `ARCHITECTURES` by which its files are read; the
values are the tree's. What llama.cpp fixes for an architecture is not written, so a file could
describe another model than the source: `check_same_model` reads the metadata again and compares the
trees.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from ..analysis.storage.gguf_mixture import gguf_traits
from ..analysis.storage.weight_bytes import GGUFNaming
from ..checkpoint.formats.gguf import Array
from ..checkpoint.formats.manifest import Tensor
from ..checkpoint.gguf_metadata import ARCHITECTURES, config_from_gguf
from ..checkpoint.gguf_metadata.gguf_architectures import Architecture
from ..checkpoint.gguf_metadata.gguf_keys import ROPE_SCALING
from ..checkpoint.gguf_metadata.gguf_rope import rotary_factors
from ..core.attention_facts import AttentionWindow
from ..core.blocks import MLP, Attention, AttentionBase, MoE
from ..core.latent_attention import LatentAttention
from ..core.mixers import GatedDeltaNet, Mamba, Mamba2
from ..core.positions import (
    Alibi,
    DynamicRope,
    LinearRope,
    LogNScaling,
    LongRope,
    QwenDynamicRope,
    Rope,
    TemperatureTuning,
    YarnRope,
)
from ..core.tree import Block, Stack
from ..families.gemma4 import DenseAndMoE
from ..families.registry import find_family
from ..loading import load_family
from ..model import FamilyModel
from ..utils.errors import ConvertError, safe
from ..utils.record_type import Record

Keys = dict[str, Any]
B = TypeVar("B", bound=Block)
_UNLIMITED_CONTEXT = 1 << 20
"""The context length that llama.cpp's converter writes for models without a limit."""
_WITHOUT_WINDOW = frozenset(("llama", "mistral3", "starcoder2"))
"""Architectures for which llama.cpp computes full attention whatever the file says."""
_EXAONE4_LAYERS_WITH_WINDOWS = 64
_WINDOW_PATTERNS = frozenset(("exaone4", "olmo2", "gemma4"))
"""Architectures whose files list the layers with a window."""
_NOT_IN_FILES = frozenset(("context", "mtp"))
"""Fields of the tree that a GGUF file need not preserve."""


class GGUFKeys(Record):
    """The metadata of a model without the architecture's prefix, and the values of small tensors
    of rotary factors.
    """

    arch: str
    keys: Mapping[str, Any]
    tensors: Mapping[str, Sequence[float]]
    notes: tuple[str, ...] = ()

    def with_mtp_layers(self, layers: int) -> GGUFKeys:
        """Return the metadata with this number of further blocks for multi-token prediction."""
        if not layers:
            return self
        blocks = {"block_count": self.keys["block_count"] + layers}
        return self.replace(keys={**self.keys, **blocks, "nextn_predict_layers": layers})


def gguf_model_keys(model: FamilyModel) -> GGUFKeys:
    """Return the metadata of a model's GGUF file."""
    facts = _Facts(model)
    record, keys = facts.record, Keys()
    for word in record.keys.split():
        key, _, name = word.rstrip("?").partition("=")
        if write := _WRITERS.get(name or key):
            keys |= write(facts)
    keys |= (
        _EXTRA[record.name, record.model_type](facts)
        if (record.name, record.model_type) in _EXTRA
        else {}
    )
    return GGUFKeys(
        arch=record.name,
        keys={key: x for key, x in keys.items() if x is not None},
        tensors=facts.rotary_tensors,
        notes=tuple(facts.notes),
    )


def check_same_model(
    model: FamilyModel, written: GGUFKeys, shapes: Mapping[str, tuple[int, ...]]
) -> list[str]:
    """Raise if the metadata describe another model, as llama.cpp would run it; return notes
    about what differs in long texts only.
    """
    values = {name: struct.pack(f"<{len(x)}f", *x) for name, x in written.tensors.items()}
    tensors = [
        Tensor(name, "F32", shape, 0, 0, 4) for name, shape in shapes.items() if name not in values
    ]
    tensors += [Tensor(name, "F32", (len(x) // 4,), 0, 0, len(x)) for name, x in values.items()]
    metadata: Keys = {f"{written.arch}.{key}": _as_read(x) for key, x in written.keys.items()}
    metadata |= {"general.architecture": written.arch, "general.type": "model"}
    subject = f"llama.cpp's {written.arch} architecture"
    try:
        again = load_family(
            config_from_gguf(metadata, tensors, subject, read_tensor=lambda x: values[x.name])
        )
    except ValueError as error:
        raise ConvertError(f"{subject} cannot express this model: {error}") from None
    lost = sorted(set(_differences(model.tree, again.tree, "")) - _NOT_IN_FILES)
    notes = {name: _note_on_long_texts(name, (model, again), subject) for name in lost}
    if named := ", ".join(name for name, note in notes.items() if not note):
        raise ConvertError(
            f"{safe(model.name)}: {subject} cannot express this model; it would compute another "
            f"{named}",
            hint="the file would be a different model, so it is not written",
        )
    return list(dict.fromkeys(notes.values()))


def _as_read(x: Any) -> Any:
    """Return a value as the GGUF reader gives it."""
    if isinstance(x, float):
        return struct.unpack("<f", struct.pack("<f", x))[0]
    return Array("values", len(x), 0, 0, "<", tuple(x)) if isinstance(x, (list, tuple)) else x


def _note_on_long_texts(field: str, models: Sequence[FamilyModel], subject: str) -> str:
    """Return a note about a difference that shows in long texts only; empty for others."""
    ours, theirs = ([x for x in _Facts(model).attentions if x is not None] for model in models)
    if not ours or not theirs:
        return ""
    attentions = ours + theirs
    if field == "window" and len({x.window.causal for x in attentions}) == 1:
        limit = min((x.window.max_lookback for x in attentions if x.window.max_lookback), default=0)
        has = (
            "no sliding window"
            if all(x.window.max_lookback is None for x in theirs)
            else "other sliding windows"
        )
        return f"{subject} has {has}: up to {limit:,} tokens the model is the same" if limit else ""
    if field == "rope" and isinstance(rope := ours[0].rope, (DynamicRope, QwenDynamicRope)):
        return (
            f"GGUF cannot express dynamic RoPE scaling: up to {rope.original_context:,} "
            "tokens the model is the same"
        )
    if isinstance(scaling := ours[0].score_transform.temperature, LogNScaling) and field in (
        "temperature",
        "original_context",
    ):
        return (
            f"GGUF cannot express use_logn_attn: up to {scaling.original_context:,} tokens "
            "the model is the same"
        )
    return ""


def _differences(a: Any, b: Any, name: str) -> Iterator[str]:
    """Yield the names of the innermost fields in which two trees differ; windows and positions
    are named as a whole.
    """
    if a == b:
        return
    if isinstance(a, (AttentionWindow, Rope)) or isinstance(b, (AttentionWindow, Rope)):
        if not (
            isinstance(a, Rope) and isinstance(b, Rope) and type(a) is type(b) and _is_near(a, b)
        ):
            yield name
    elif type(a) is type(b) and isinstance(a, Record):
        for field in a.fields:
            yield from _differences(getattr(a, field), getattr(b, field), field)
    elif isinstance(a, Stack) and isinstance(b, Stack) and len(a) == len(b):
        for x, y in {(id(x), id(y)): (x, y) for x, y in zip(a, b, strict=True)}.values():
            yield from _differences(x, y, name)
    elif not (type(a) is type(b) is float and abs(a - b) <= 1e-6 * abs(a)):
        yield name


def _is_near(a: Record, b: Record) -> bool:
    """Whether two ropes are equal but for rounding to single precision."""

    def near(x: Any, y: Any) -> bool:
        if isinstance(x, tuple) and isinstance(y, tuple):
            return len(x) == len(y) and all(map(near, x, y))
        return x == y or (type(x) is type(y) is float and abs(x - y) <= 1e-6 * abs(x))

    return all(near(getattr(a, x), getattr(b, x)) for x in a.fields)


class _Facts:
    """What the keys are made of."""

    def __init__(self, model: FamilyModel) -> None:
        self.model, self.tree, self.config = model, model.tree, model.config
        self.notes: list[str] = []
        self.layers: list[Any] = list(model.tree.layers)
        self.traits = gguf_traits(
            model.main.tree, GGUFNaming(model.scheme("gguf"), model.family.gguf_arch)
        )

    @cached_property
    def record(self) -> Architecture:
        """The record by which the file will be read."""
        family, arch = self.model.family, self.model.family.gguf_arch
        has_experts = any(isinstance(x, MoE) for x in self.mlps)
        if family.module == "nemotron_h" and not has_experts:
            arch = "nemotron_h"
        records = ARCHITECTURES.get(arch, ())
        own = [x for x in records if find_family(x.model_type).module == family.module]
        if not own:  # one family's files may have the names of another's: Phi's first ones
            own = [
                x
                for x in records
                if (y := find_family(x.model_type)).name == family.name and y.gguf == family.gguf
            ]
        if arch == "llama":
            own = [x for x in records if (x.model_type == "mixtral") == has_experts]
        if not own:
            raise ConvertError(
                f"the metadata of GGUF files of the {family.name} family are not known here",
                hint="convert to hf",
            )
        return own[0]

    @cached_property
    def attentions(self) -> list[AttentionBase | None]:
        """The attention of each layer; None where it has another mixer."""
        return [x.attn if isinstance(x.attn, AttentionBase) else None for x in self.layers]

    @cached_property
    def mlps(self) -> list[Any]:
        """The feed-forward block of each layer."""
        return [x.mlp.moe if isinstance(x.mlp, DenseAndMoE) else x.mlp for x in self.layers]

    @cached_property
    def first_attention(self) -> AttentionBase | None:
        """The first attention without a window, or the first of all; None if there is none."""
        found = [x for x in self.attentions if x is not None]
        return next(
            (x for x in found if x.window.max_lookback is None), found[0] if found else None
        )

    @cached_property
    def first(self) -> Any:
        """The same attention; the architecture has one."""
        if self.first_attention is None:
            raise self.other_layers()
        return self.first_attention

    @cached_property
    def latent(self) -> LatentAttention:
        """The first attention, which is latent in this architecture."""
        if not isinstance(self.first, LatentAttention):
            raise self.other_layers()
        return self.first

    def other_layers(self) -> ConvertError:
        """Return the error for a block of another kind than the architecture's."""
        return ConvertError(
            f"{safe(self.model.name)}: llama.cpp's {self.record.name} architecture has other kinds "
            "of layers than this model",
            hint="convert to hf",
        )

    @cached_property
    def sliding(self) -> Any:
        """The first attention with a window."""
        return next(
            (x for x in self.attentions if x is not None and x.window.size is not None), None
        )

    @cached_property
    def rope(self) -> Rope | None:
        """The rotary positions of the layers with full attention, or of others if these have
        none.
        """
        attentions = (self.first_attention, *self.attentions)
        ropes = [x.rope for x in attentions if x is not None and x.rope is not None]
        return ropes[0] if ropes else None

    @cached_property
    def sliding_rope(self) -> Rope | None:
        """The rotary positions of the layers with a window."""
        return self.sliding.rope if self.sliding is not None else None

    @cached_property
    def moe(self) -> Any:
        """The first mixture of experts."""
        return next((x for x in self.mlps if isinstance(x, MoE)), None)

    def mixer(self, kind: type[B]) -> B:
        """The first mixer of a kind, which the architecture has."""
        for x in self.layers:
            if isinstance(x.attn, kind):
                return x.attn
        raise self.other_layers()

    @cached_property
    def eps(self) -> float:
        """The epsilon of the norms."""
        layer = self.layers[0]
        names = ("attn_norm", "mlp_norm", "attn_out_norm", "attn_branch_norm")
        for norm in (*(getattr(layer, x, None) for x in names), self.tree.norm):
            if norm is not None:
                return float(norm.eps)
        raise self.other_layers()

    @cached_property
    def rotary_tensors(self) -> dict[str, Sequence[float]]:
        """The values of small tensors of rotary factors by name."""
        return rotary_factors(self.rope)

    def resolved(self, *names: str) -> Any:
        """Return the value of the first of these config keys that is present, or its default."""
        found = [self.config.data[x] for x in names if self.config.data.get(x) is not None]
        return next(
            iter(
                found
                or [self.config.defaults_used[x] for x in names if x in self.config.defaults_used]
            ),
            None,
        )


def _uniform(values: Iterable[Any]) -> Any:
    """Return the value that all have, or the list."""
    found = list(values)
    return found[0] if len(set(found)) == 1 else found


def _mlp_width(mlp: object) -> int:
    """Return the feed-forward width; llama.cpp computes the activation of the architecture."""
    return int(mlp.up.weight.shape[0]) if isinstance(mlp, MLP) else 0


def _expert_width(f: _Facts) -> int | None:
    return _mlp_width(f.moe.experts[0]) if f.moe is not None else None


def _feed_forward_length(f: _Facts) -> Any:
    """Return the width of the layers without experts; of the experts, if all layers have them
    and no key has their width.
    """
    if f.record.name == "qwen":
        return 2 * _mlp_width(f.mlps[0])
    dense = [_mlp_width(x.mlp.dense if isinstance(x.mlp, DenseAndMoE) else x.mlp) for x in f.layers]
    if f.record.name.startswith("nemotron_h"):
        return [
            x or (_mlp_width(y.experts[0]) if isinstance(y, MoE) else 0)
            for x, y in zip(dense, f.mlps, strict=True)
        ]
    if any(dense):
        return _uniform(x for x in dense if x) if len(set(dense) - {0}) == 1 else dense
    stated = f.resolved("intermediate_size_mlp", "intermediate_size")
    has_own_key = "moe_intermediate_size" in f.record.keys
    return stated if has_own_key and type(stated) is int else _expert_width(f)


def _heads_kv(f: _Facts) -> Any:
    if isinstance(f.first_attention, LatentAttention):
        return 1
    if any(isinstance(x.attn, GatedDeltaNet) for x in f.layers):
        return int(f.first.kv_heads)
    return _uniform(0 if not isinstance(x, Attention) else int(x.kv_heads) for x in f.attentions)


def _head_dim(f: _Facts) -> Keys:
    size = int(f.first.head_dim)
    if (
        "head_dim" not in f.config.data
        and size * int(f.first.heads) == int(f.tree.width)
        and f.record.name != "cohere2"
    ):
        return {}
    return {"attention.key_length": size, "attention.value_length": size}


def _rotary_dim(f: _Facts) -> Keys:
    return {"rope.dimension_count": int(f.rope.dim)} if f.rope is not None else {}


def _rope_scaling(f: _Facts) -> Keys:
    """Return the scaling of positions that metadata express; those of Llama 3.1 and LongRoPE are
    tensors.
    """
    rope = f.rope
    if isinstance(rope, LongRope):
        factor, default = rope.attention_factor, rope.default_angle_factor
        return {
            "rope.scaling.original_context_length": rope.original_context,
            "rope.scaling.attn_factor": default if factor is None else factor,
        }
    if not isinstance(rope, LinearRope | YarnRope):
        return {}
    if isinstance(rope, YarnRope) and rope.attention_factor is not None:
        f.notes.append(
            f"llama.cpp multiplies attention_factor ({rope.attention_factor:g}) by 1 "
            "+ 0.1·ln(factor)"
        )
    fields = {key: field for field, key in rope.positive.items()}
    return {"rope.scaling.type": rope.scaling.lower()} | {
        x.gguf[0]: getattr(rope, fields[x.config]) for x in ROPE_SCALING if x.config in fields
    }


def _sliding_layers(f: _Facts) -> Keys:
    """Return the list of layers with a window, where the architecture has one and its own order
    is another.
    """
    has_window = [x is not None and x.window.size is not None for x in f.attentions]
    return (
        {"attention.sliding_window_pattern": has_window}
        if any(has_window) and f.record.name in _WINDOW_PATTERNS
        else {}
    )


def _expert_groups(f: _Facts) -> Keys:
    groups = f.moe.expert_groups if f.moe is not None else None
    if groups is None:
        n = f.resolved("n_group")
        return {"expert_group_count": 1, "expert_group_used_count": 1} if n == 1 else {}
    return {"expert_group_count": int(groups[0]), "expert_group_used_count": int(groups[1])}


def _shared_count(f: _Facts) -> Keys:
    if f.moe is None:
        return {}
    shared, width = f.moe.shared, _expert_width(f) or 1
    return {"expert_shared_count": _mlp_width(shared) // width if shared is not None else 0}


def _window(f: _Facts) -> Keys:
    sizes = {x.window.size for x in f.attentions if x is not None and x.window.size is not None}
    if not sizes or f.record.name in _WITHOUT_WINDOW:
        return {}
    stated = f.resolved("sliding_window")  # with attention to both sides, the tree has another size
    return {
        "attention.sliding_window": int(min(sizes))
        if f.first.window.causal or type(stated) is not int
        else stated
    }


def _leading_dense(f: _Facts) -> Keys:
    return {
        "leading_dense_block_count": next(
            (i for i, x in enumerate(f.mlps) if isinstance(x, MoE)), len(f.mlps)
        )
    }


def _key(name: str, value: Callable[[_Facts], Any]) -> Callable[[_Facts], Keys]:
    return lambda f: {name: value(f)}


def _of_moe(name: str, value: Callable[[Any], Any]) -> Callable[[_Facts], Keys]:
    return lambda f: {name: value(f.moe)} if f.moe is not None else {}


_WRITERS: Mapping[str, Callable[[_Facts], Keys]] = {
    "num_hidden_layers": _key("block_count", lambda f: len(f.layers)),
    "max_position_embeddings": _key(
        "context_length", lambda f: None if f.tree.context is None else int(f.tree.context)
    ),
    "hidden_size": _key("embedding_length", lambda f: int(f.tree.width)),
    "intermediate_size": _key("feed_forward_length", _feed_forward_length),
    "vocab_size": _key("vocab_size", lambda f: int(f.tree.vocab)),
    "num_attention_heads": _key("attention.head_count", lambda f: int(f.first.heads)),
    "num_key_value_heads": _key("attention.head_count_kv", _heads_kv),
    "head_dim": _head_dim,
    "sliding_window": _window,
    "sliding_layer_types": _sliding_layers,
    "bidirectional": lambda f: {} if f.first.window.causal else {"attention.causal": False},
    "attn_logit_softcapping": _key(
        "attn_logit_softcapping", lambda f: f.first.score_transform.softcap
    ),
    "clip_qkv": lambda f: (
        {"attention.clamp_kqv": x.limit}
        if (x := f.first.qk_preprocess.clip) and f.record.name == "olmo"
        else {}
    ),
    "q_lora_rank": _key(
        "attention.q_lora_rank", lambda f: f.latent.q_down and int(f.latent.q_down.weight.shape[0])
    ),
    "kv_lora_rank": _key("attention.kv_lora_rank", lambda f: int(f.latent.kv_lora_rank)),
    "qk_nope_head_dim": lambda f: {
        "attention.head_count_kv": 1,
        "attention.key_length": int(f.latent.kv_lora_rank) + int(f.latent.rope_dim),
        "attention.value_length": int(f.latent.kv_lora_rank),
        "attention.key_length_mla": int(f.latent.nope_dim) + int(f.latent.rope_dim),
        "attention.value_length_mla": int(f.latent.v_dim),
    },
    "qk_rope_head_dim": _key("rope.dimension_count", lambda f: int(f.latent.rope_dim)),
    "rotary_dim": _rotary_dim,
    "partial_rotary_factor": _rotary_dim,
    "rope_theta": lambda f: {
        **({"rope.freq_base": f.rope.theta} if f.rope is not None else {}),
        **_rotary_dim(f),
    },
    "rope_scaling": _rope_scaling,
    "rope_local_base_freq": _key(
        "rope.freq_base_swa", lambda f: f.sliding_rope and f.sliding_rope.theta
    ),
    "no_mlp_norm": lambda f: {"use_parallel_residual": bool(f.layers[0].parallel)},
    "use_parallel_residual": lambda f: {"use_parallel_residual": bool(f.layers[0].parallel)},
    "num_experts": _of_moe("expert_count", lambda x: len(x.experts)),
    "num_experts_per_tok": _of_moe("expert_used_count", lambda x: int(x.top_k)),
    "moe_intermediate_size": _key("expert_feed_forward_length", _expert_width),
    "shared_expert_intermediate_size": _of_moe(
        "expert_shared_feed_forward_length", lambda x: x.shared and _mlp_width(x.shared)
    ),
    "n_shared_experts": _shared_count,
    "moe_latent_size": _of_moe(
        "moe_latent_size",
        lambda x: int(x.latent_down.weight.shape[0]) if hasattr(x, "latent_down") else None,
    ),
    "first_k_dense_replace": _leading_dense,
    "interleave_moe_layer_step": _key(
        "interleave_moe_layer_step", lambda f: f.resolved("interleave_moe_layer_step")
    ),
    "n_group": _expert_groups,
    "scoring_func": _of_moe("expert_gating_func", lambda x: 2 if x.scoring == "sigmoid" else 1),
    "norm_topk_prob": _of_moe("expert_weights_norm", lambda x: bool(x.norm_topk_prob)),
    "routed_scaling_factor": _of_moe(
        "expert_weights_scale", lambda x: float(x.routed_scaling_factor)
    ),
    "linear_conv_kernel_dim": lambda f: _delta_keys(f),
    "conv_L_cache": _key("shortconv.l_cache", lambda f: f.resolved("conv_L_cache")),
    "rms_norm_eps": _key("attention.layer_norm_rms_epsilon", lambda f: f.eps),
    "layer_norm_eps": _key("attention.layer_norm_epsilon", lambda f: f.eps),
    "attention_multiplier": _key("attention.scale", lambda f: f.first.score_transform.scale),
    "embedding_multiplier": _key("embedding_scale", lambda f: float(f.tree.embed.scale)),
    "residual_multiplier": _key("residual_scale", lambda f: float(f.layers[0].residual_multiplier)),
    "logit_scale": _key(
        "logit_scale",
        lambda f: (
            1 / f.tree.logit_scale
            if f.record.name.startswith("granite")
            else float(f.tree.logit_scale)
        ),
    ),
    "final_logit_softcapping": _key("final_logit_softcapping", lambda f: f.tree.softcap),
}
"""Names in `gguf_keys.KEY_MAPPINGS` → the metadata that express them; names without metadata are
visible in the tensors."""


def _delta_keys(f: _Facts) -> Keys:
    """Return the sizes of the gated delta net, and the interval of layers with full attention,
    which llama.cpp requires.
    """
    mixer = f.mixer(GatedDeltaNet)
    assert mixer.conv is not None
    full = [i for i, x in enumerate(f.attentions) if x is not None]
    interval = full[0] + 1 if full else len(f.layers) + 1
    if full != list(range(interval - 1, len(f.layers), interval)):
        raise ConvertError(
            f"llama.cpp's {f.record.name} has full attention in every n-th layer, "
            f"and this model in others ({full[:8]})"
        )
    return {
        "ssm.conv_kernel": int(mixer.conv.weight.shape[-1]),
        "ssm.state_size": int(mixer.key_dim),
        "ssm.group_count": int(mixer.key_heads),
        "ssm.time_step_rank": int(mixer.value_heads),
        "ssm.inner_size": int(mixer.value_heads) * int(mixer.value_dim),
        "full_attention_interval": interval,
        **_rotary_dim(f),
    }


def _mla_keys(f: _Facts) -> Keys:
    """Return the positions of latent attention: YaRN's multipliers are stored as one number."""
    groups = f.moe.expert_groups if f.moe is not None else None
    if groups is not None and groups.top_scores == 1:
        f.notes.append(
            "llama.cpp chooses groups of experts by their two best scores, and this "
            "model by the best one"
        )
    rope = f.rope
    keys: Keys = {"rope.freq_base": rope.theta if rope else None} | _rope_scaling(f)
    if isinstance(rope, YarnRope):
        keys["rope.scaling.yarn_log_multiplier"] = (
            None if rope.mscale_all_dim is None else 0.1 * rope.mscale_all_dim
        )
    return keys


def _ministral_keys(f: _Facts) -> Keys:
    rope = f.rope
    keys: Keys = (
        {"rope.freq_base": rope.theta if rope else None} | _rope_scaling(f) | _rotary_dim(f)
    )
    temperature = f.first.score_transform.temperature
    if isinstance(rope, YarnRope):
        keys["rope.scaling.yarn_log_multiplier"] = rope.mscale_all_dim or 0.0
    return keys | {
        "attention.temperature_scale": temperature.scale
        if isinstance(temperature, TemperatureTuning)
        else 0.0
    }


def _gpt_oss_keys(f: _Facts) -> Keys:
    rope = {"rope.freq_base": f.rope.theta if f.rope else None}
    return rope | _rope_scaling(f) | {"expert_feed_forward_length": _expert_width(f)}


def _olmo3_keys(f: _Facts) -> Keys:
    """Refuse another base in the layers with a window, which llama.cpp ignores."""
    if f.rope is not None and f.sliding_rope is not None and f.rope.theta != f.sliding_rope.theta:
        raise ConvertError(
            f"{safe(f.model.name)}: llama.cpp's olmo2 architecture has one rope_theta for all "
            "layers, and this model has "
            f"{f.rope.theta:g} and {f.sliding_rope.theta:g}",
            hint="the file would be a different model, so it is not written",
        )
    base = {"rope.freq_base": f.rope.theta if f.rope else None} | _rope_scaling(f)
    return base | {"rope.freq_base_swa": f.sliding_rope.theta if f.sliding_rope else None}


def _llama4_keys(f: _Facts) -> Keys:
    return {"expert_feed_forward_length": _expert_width(f), **_rotary_dim(f)}


def _gemma4_keys(f: _Facts) -> Keys:
    """Return the keys of two kinds of layers with different heads."""
    full, sliding = f.first, f.sliding or f.first
    borrowed = sum(x is not None and x.kv_layer is not None for x in f.attentions)
    kv: list[int] = [int(x.kv_heads) for x in f.attentions if isinstance(x, Attention)]
    per_layer = f.tree.per_layer
    keys: Keys = {
        "attention.head_count": int(full.heads),
        "attention.head_count_kv": _uniform(kv),
        "feed_forward_length": _feed_forward_length(f),
        "rope.freq_base": f.rope.theta if f.rope else None,
        "rope.freq_base_swa": sliding.rope.theta if sliding.rope else None,
        "attention.key_length": int(full.head_dim),
        "attention.value_length": int(full.head_dim),
        "attention.key_length_swa": int(sliding.head_dim),
        "attention.value_length_swa": int(sliding.head_dim),
        "rope.dimension_count": int(full.head_dim),
        "rope.dimension_count_swa": int(sliding.head_dim),
        "attention.sliding_window": f.resolved("sliding_window"),
        "attention.shared_kv_layers": borrowed,
        "embedding_length_per_layer_input": int(per_layer.size) if per_layer else 0,
        "attention.sliding_window_pattern": [
            x is not None and (x.window.size is not None) for x in f.attentions
        ],
    }
    if not full.window.causal:
        keys["attention.causal"] = False
    if f.moe is not None:
        keys |= {
            "expert_count": len(f.moe.experts),
            "expert_used_count": int(f.moe.top_k),
            "expert_feed_forward_length": _expert_width(f),
        }
    return keys


def _nemotron_keys(f: _Facts) -> Keys:
    mixer = f.mixer(Mamba2)
    size = int(f.first.head_dim)
    return {
        "feed_forward_length": _feed_forward_length(f),
        "attention.layer_norm_epsilon": f.eps,
        "attention.layer_norm_rms_epsilon": f.eps,
        "attention.key_length": size,
        "attention.value_length": size,
        "rope.dimension_count": size,
        "rope.scaling.finetuned": False,
        "ssm.conv_kernel": int(mixer.conv.weight.shape[-1]),
        "ssm.state_size": int(mixer.state_size),
        "ssm.group_count": int(mixer.state_groups),
        "ssm.inner_size": int(mixer.heads) * int(mixer.head_dim),
        "ssm.time_step_rank": int(mixer.heads),
        **({"expert_shared_count": 1} if f.moe is not None else {}),
    }


def _mamba_keys(f: _Facts) -> Keys:
    mixer = f.mixer(Mamba)
    return {
        "context_length": _UNLIMITED_CONTEXT,
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "attention.layer_norm_rms_epsilon": f.eps,
        "ssm.conv_kernel": int(mixer.conv.weight.shape[-1]),
        "ssm.inner_size": int(mixer.x.weight.shape[0]),
        "ssm.state_size": int(mixer.b.weight.shape[0]),
        "ssm.time_step_rank": int(mixer.dt_down.weight.shape[0]),
        "ssm.dt_b_c_rms": mixer.dt_norm is not None,
    }


def _exaone4_keys(f: _Facts) -> Keys:
    """Refuse windows where llama.cpp has none: it recognizes the 32B by its number of layers."""
    if f.sliding is not None and len(f.layers) != _EXAONE4_LAYERS_WITH_WINDOWS:
        raise ConvertError(
            f"{safe(f.model.name)}: llama.cpp's exaone4 architecture has windows only in models "
            f"of {_EXAONE4_LAYERS_WITH_WINDOWS} layers, "
            f"and this one has {len(f.layers)} layers",
            hint="the file would be a different model, so it is not written",
        )
    return {}


def _minicpm_keys(f: _Facts) -> Keys:
    experts = (
        {"expert_count": len(f.moe.experts), "expert_used_count": int(f.moe.top_k)}
        if f.moe is not None
        else {}
    )
    logits = {"logit_scale": 1 / f.tree.logit_scale if f.tree.logit_scale else None}
    return {"residual_scale": float(f.layers[0].residual_multiplier), **logits, **experts}


def _bloom_keys(f: _Facts) -> Keys:
    context = f.resolved("seq_length")
    return {
        "context_length": context if type(context) is int else int(f.tree.width),
        "feed_forward_length": _feed_forward_length(f),
        "attention.head_count_kv": int(f.first.heads),
    }


def _fused_keys(f: _Facts) -> Keys:
    return {"attention.head_count_kv": int(f.first.kv_heads)}


def _falcon_keys(f: _Facts) -> Keys:
    return {**_fused_keys(f), "tensor_data_layout": "jploski"}


def _mpt_keys(f: _Facts) -> Keys:
    scores, clip = f.first.score_transform, f.first.qk_preprocess.clip
    return {
        **_fused_keys(f),
        "feed_forward_length": _feed_forward_length(f),
        "attention.max_alibi_bias": float(scores.alibi.max_bias)
        if isinstance(scores.alibi, Alibi)
        else 0.0,
        "attention.clamp_kqv": clip.limit if clip else None,
    }


def _windowed_phi_keys(f: _Facts) -> Keys:
    """Phi-3: llama.cpp assumes a window where none is written."""
    rope = f.rope
    original = (
        rope.original_context
        if isinstance(rope, LongRope)
        else f.resolved("original_max_position_embeddings") or f.tree.context
    )
    return {
        "attention.sliding_window": 0,
        **_window(f),
        "rope.scaling.original_context_length": original,
    }


def _sections(*default: int) -> Callable[[_Facts], Keys]:
    """Return the numbers of rotary pairs for time, height and width, which are the same position
    in a text.
    """

    def keys(f: _Facts) -> Keys:
        scaling = f.config.rope().data
        sections = scaling.get("mrope_section") or default
        return {"rope.dimension_sections": [*sections, 0, 0, 0, 0][:4], **_rotary_dim(f)}

    return keys


_EXTRA: Mapping[tuple[str, str], Callable[[_Facts], Keys]] = {
    ("minicpm", "minicpm"): _minicpm_keys,
    ("mistral3", "ministral3"): _ministral_keys,
    ("mistral4", "mistral4"): _mla_keys,
    ("deepseek2", "deepseek_v3"): _mla_keys,
    ("deepseek2", "deepseek_v2"): _mla_keys,
    ("gpt-oss", "gpt_oss"): _gpt_oss_keys,
    ("olmo2", "olmo3"): _olmo3_keys,
    ("olmo", "olmo"): lambda f: {"attention.layer_norm_epsilon": f.eps},
    ("llama4", "llama4_text"): _llama4_keys,
    ("gemma4", "gemma4_text"): _gemma4_keys,
    ("nemotron_h", "nemotron_h"): _nemotron_keys,
    ("nemotron_h_moe", "nemotron_h"): _nemotron_keys,
    ("mamba", "mamba"): _mamba_keys,
    ("mamba", "falcon_mamba"): _mamba_keys,
    ("starcoder", "gpt_bigcode"): _fused_keys,
    ("falcon", "falcon"): _falcon_keys,
    ("mpt", "mpt"): _mpt_keys,
    ("bloom", "bloom"): _bloom_keys,
    ("qwen", "qwen"): lambda f: {
        **_fused_keys(f),
        "attention.layer_norm_epsilon": f.eps,
        **_rotary_dim(f),
    },
    ("phi3", "phi3"): _windowed_phi_keys,
    ("phimoe", "phimoe"): _windowed_phi_keys,
    ("qwen2vl", "qwen2_vl_text"): _sections(16, 24, 24),
    ("qwen3vl", "qwen3_vl_text"): lambda f: {**_sections(24, 20, 20)(f), "n_deepstack_layers": 0},
    ("qwen35", "qwen3_5_text"): _sections(11, 11, 10),
    ("qwen35moe", "qwen3_5_moe_text"): _sections(11, 11, 10),
    ("glm4moe", "glm4_moe"): lambda f: {"expert_gating_func": 2, **_rotary_dim(f)},
    ("minimax-m2", "minimax_m2"): lambda f: {
        "expert_feed_forward_length": _expert_width(f),
        "expert_gating_func": 2,
    },
    ("exaone4", "exaone4"): _exaone4_keys,
    ("command-r", "cohere"): lambda f: (
        {"rope.scaling.type": "none"} if not _rope_scaling(f) else {}
    ),
    ("cohere2", "cohere2"): lambda f: {"rope.scaling.type": "none"} if not _rope_scaling(f) else {},
}
"""(architecture, model type) → keys that its record reads in its own way."""
