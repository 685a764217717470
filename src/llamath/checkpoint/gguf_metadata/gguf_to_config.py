"""`from_gguf`: the metadata and tensors of a GGUF file → the configuration that they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...core.errors import UnknownModel, nearest, safe
from ..formats.manifest import Tensor
from .gguf_architectures import ARCHS, Arch, variant
from .gguf_header import INSTEAD, Header, Read, short
from .gguf_keys import FACTS

ARCHITECTURES = frozenset(x for x in ARCHS if " " not in x)
"""Every `general.architecture` that is known here."""

SILENT = frozenset(
    """tensor_data_layout n_deepstack_layers pooling_type context_length feed_forward_length attention.head_count_kv attention.key_length
    attention.value_length attention.value_length_swa rope.dimension_sections rope.dimension_count_swa rope.scaling.finetuned
    rope.scaling.original_context_length rope.scaling.attn_factor expert_feed_forward_length expert_shared_count expert_group_count
    expert_group_used_count expert_gating_func full_attention_interval use_parallel_residual""".split()
)
"""Keys that, where nobody reads them, change nothing, or say again what other keys or the tensors say."""


def from_gguf(
    metadata: Mapping[str, Any],
    tensors: Iterable[Tensor],
    source: str = "GGUF",
    notes: list[str] | None = None,
    read: Read | None = None,
) -> dict[str, Any]:
    """The configuration that this header stands for; remarks go to `notes`, and `read` gives the bytes of small tensors of factors."""
    h = Header(metadata, tensors, source, read)
    if (kind := metadata.get("general.type", "model")) != "model":
        raise UnknownModel(f"{source}: general.type is {safe(repr(kind), 60)}, which is no model", hint=INSTEAD)
    if (arch := ARCHS.get(variant(h))) is None or h.arch not in ARCHITECTURES:
        near = nearest(h.arch, ARCHITECTURES)
        known = f" (nearest known: {', '.join(near)})" if near else ""
        raise UnknownModel(f"{source}: architecture {safe(repr(h.arch), 60)} is not one whose weights are known here{known}", hint=INSTEAD)
    try:
        keys = _keys(arch, h)
    except (ArithmeticError, ValueError) as error:
        raise UnknownModel(f"{source}: its numbers make no {arch.model_type} model: {error}", hint=INSTEAD) from None
    if notes is not None:
        notes += _remarks(arch, h)
    return keys


def _keys(arch: Arch, h: Header) -> dict[str, Any]:
    found: dict[str, Any] = {"model_type": arch.model_type}
    for word in arch.keys.split():
        own, _, fact = word.rstrip("?").partition("=")
        value = FACTS[fact or own](h)
        if value is not None or word.endswith("?"):
            found[own] = value
    extra = arch.extra(h) if arch.extra else {}
    return found | {key: value for key, value in extra.items() if value is not None} | dict(arch.fixed)


def _remarks(arch: Arch, h: Header) -> list[str]:
    """What was taken for granted, and what was not read."""
    remarks = [f"not in GGUF: {arch.lost}"] if arch.lost else []
    if further := h.whole("nextn_predict_layers"):
        remarks.append(f"the last {further} of {h.layers + further} blocks predict further tokens: they are not counted")
    prefix = f"{h.arch}."
    unread = [key.removeprefix(prefix) for key in h.metadata if key.startswith(prefix)]
    if unread := [safe(key, 60) for key in unread if key not in h.read and key not in SILENT and not _idle(key, h)]:
        remarks.append(f"not read: {', '.join(unread)}")
    return [*dict.fromkeys(h.notes), *remarks]


def _idle(key: str, h: Header) -> bool:
    """Whether an unread key says what would be so without it."""
    get = h.metadata.get
    value, heads, width = get(f"{h.arch}.{key}"), get(f"{h.arch}.attention.head_count"), get(f"{h.arch}.embedding_length")
    if key == "rope.dimension_count":
        shared = width // heads if type(heads) is int and type(width) is int and heads else None
        return h.has(".ssm_in.weight") or bool(value == (get(f"{h.arch}.attention.key_length") or shared))
    if key == "rope.freq_base_swa":
        return bool(value == get(f"{h.arch}.rope.freq_base"))
    usual = {"attention.causal": True, "attention.layer_norm_epsilon": 1e-5, "expert_weights_scale": 1.0, "attention.sliding_window": 0}
    return key in usual and bool((short(value) if type(value) is float else value) == usual[key])
