"""`config_from_gguf`: the metadata and tensor shapes of a GGUF file → the configuration of its
model, and `metadata_of`, the reverse.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..checkpoint.formats.manifest import Tensor
from ..checkpoint.formats.source import LocalFile
from ..checkpoint.gguf_metadata.gguf_facts import GGUFFacts
from ..checkpoint.gguf_metadata.gguf_header import (
    GGUFHeader,
    ReadTensor,
    count_hint,
    shortest_float32,
)
from ..checkpoint.gguf_metadata.gguf_keys import KEY_MAPPINGS
from ..checkpoint.gguf_metadata.gguf_rope import (
    ROTARY_TENSORS,
    read_rope_scaling,
    rope_scaling_keys,
)
from ..checkpoint.open import FoundConfig
from ..utils.errors import UnknownModel, nearest, safe
from .gguf_record import GGUFMetadata
from .registry import gguf_architectures, gguf_records

_REDUNDANT = frozenset(
    """tensor_data_layout n_deepstack_layers pooling_type context_length feed_forward_length
    attention.head_count_kv attention.key_length attention.value_length attention.value_length_swa
    rope.dimension_sections rope.dimension_count_swa rope.scaling.finetuned
    rope.scaling.original_context_length rope.scaling.attn_factor expert_feed_forward_length
    expert_shared_count expert_group_count expert_group_used_count expert_gating_func
    full_attention_interval use_parallel_residual""".split()
)
"""Keys that change nothing where no family reads them, or that repeat other keys or the shapes
of tensors."""
_SCALING = "rope_scaling"
_ROTARY_DIM = "rope.dimension_count"
"""The channels of a head that rotate. Families that read no such number rotate all of them."""


def config_from_gguf(
    metadata: Mapping[str, Any],
    tensors: Iterable[Tensor],
    source: str = "GGUF",
    notes: list[str] | None = None,
    read_tensor: ReadTensor | None = None,
) -> dict[str, Any]:
    """Return the configuration of the model that a GGUF header describes.

    Assumptions and keys that were not read are appended to `notes`; `read_tensor` reads the small
    tensors of rotary factors.
    """
    h = GGUFHeader(metadata, tensors, source, read_tensor)
    if (kind := metadata.get("general.type", "model")) != "model":
        raise UnknownModel(
            f"{source}: expected a GGUF file with a model, found general.type "
            f"{safe(repr(kind), 60)}",
            hint=count_hint(),
        )
    records = gguf_records(h.arch)
    if not records:
        near = nearest(h.arch, gguf_architectures())
        known = f" (nearest known: {', '.join(near)})" if near else ""
        raise UnknownModel(
            f"{source}: unknown architecture {safe(repr(h.arch), 60)}{known}", hint=count_hint()
        )
    arch = next(x for x in records if x.applies is None or x.applies(h))
    try:
        keys = _config_keys(arch, h)
    except (ArithmeticError, ValueError) as error:
        raise UnknownModel(
            f"{source}: its metadata describe no valid {arch.model_type} model: {error}",
            hint=count_hint(),
        ) from None
    found = _notes(arch, h)
    if notes is not None:
        notes += found
    return keys


def metadata_of(record: GGUFMetadata, facts: GGUFFacts) -> dict[str, Any]:
    """Return the metadata of a model, without the architecture's prefix; None where the model has
    no value.
    """
    keys: dict[str, Any] = {}
    for _, name, _ in _words(record):
        is_scaling = name == _SCALING
        keys |= rope_scaling_keys(facts) if is_scaling else KEY_MAPPINGS[name].metadata_of(facts)
    return keys | (record.write(facts) if record.write else {})


def with_gguf_keys(found: FoundConfig) -> FoundConfig:
    """Return a configuration with its keys, if it is the metadata of a GGUF file; small tensors of
    rotary factors in local files are read, too.
    """
    manifest = found.manifest
    if found.keys is not None or manifest is None:
        return found
    paths = [x.name for x in manifest.files]

    def read(tensor: Tensor) -> bytes:
        with LocalFile(paths[tensor.file]) as file:
            return file.read(tensor.start, tensor.bytes)

    factors = [x for x in manifest.tensors if x.name in ROTARY_TENSORS]
    is_readable = all(map(os.path.isfile, paths)) and all(
        x.end <= manifest.files[x.file].size for x in factors
    )
    notes: list[str] = []
    keys = config_from_gguf(
        manifest.metadata, manifest.tensors, found.source, notes, read if is_readable else None
    )
    return found.replace(keys=keys, notes=(*found.notes, *notes))


def _words(record: GGUFMetadata) -> Iterator[tuple[str, str, bool]]:
    """Yield the config keys of a record, each with its row of the table, and whether a missing
    value is null.
    """
    for word in record.keys.split():
        key, _, name = word.rstrip("?").partition("=")
        yield key, name or key, word.endswith("?")


def _config_keys(arch: GGUFMetadata, h: GGUFHeader) -> dict[str, Any]:
    keys: dict[str, Any] = {"model_type": arch.model_type}
    for key, name, keeps_null in _words(arch):
        value = read_rope_scaling(h) if name == _SCALING else KEY_MAPPINGS[name].read_from(h)
        if value is not None or keeps_null:
            keys[key] = value
    extra = arch.read(h) if arch.read else {}
    return (
        keys
        | {key: value for key, value in extra.items() if value is not None}
        | dict(arch.constants)
    )


def _notes(arch: GGUFMetadata, h: GGUFHeader) -> list[str]:
    """Return notes about assumptions and unread keys."""
    notes = [f"not in GGUF: {arch.unstated}"] if arch.unstated else []
    if mtp := h.integer("nextn_predict_layers"):
        notes.append(
            f"the last {mtp} of {h.layers + mtp} blocks are multi-token prediction "
            "layers and are not counted"
        )
    prefix = f"{h.arch}."
    keys = [key.removeprefix(prefix) for key in h.metadata if key.startswith(prefix)]
    unread = [
        key
        for key in keys
        if key not in h.read and key not in _REDUNDANT and not _is_default(key, h)
    ]
    if _ROTARY_DIM in unread and (size := _head_size(h)) is not None:
        found = safe(repr(h.metadata[prefix + _ROTARY_DIM]), 60)
        expected = (
            f"expected {size}: whole heads rotate, and llama.cpp refuses another number "
            "or computes another model"
        )
        raise UnknownModel(
            f"{h.source}: {safe(prefix, 40)}{_ROTARY_DIM} is {found}, {expected}", hint=count_hint()
        )
    if unread:
        notes.append(f"not read: {', '.join(safe(key, 60) for key in unread)}")
    return [*dict.fromkeys(h.notes), *notes]


def _head_size(h: GGUFHeader) -> int | None:
    """Return the stated size of a head, or the width divided by the number of heads; None if
    they say none.
    """
    stated, heads, width = (
        h.metadata.get(f"{h.arch}.{x}")
        for x in ("attention.key_length", "attention.head_count", "embedding_length")
    )
    if not stated and type(heads) is int and type(width) is int and heads and not width % heads:
        return width // heads
    return stated if type(stated) is int else None


def _is_default(key: str, h: GGUFHeader) -> bool:
    """Whether an unread key has the value that it would have if it were absent."""
    get = h.metadata.get
    value = get(f"{h.arch}.{key}")
    if key == _ROTARY_DIM:
        return h.has_tensor(".ssm_in.weight") or bool(value == _head_size(h))
    if key == "rope.freq_base_swa":
        return bool(value == get(f"{h.arch}.rope.freq_base"))
    defaults = {
        "attention.head_count": 0,
        "attention.causal": True,
        "attention.layer_norm_epsilon": 1e-5,
        "expert_weights_scale": 1.0,
        "attention.sliding_window": 0,
    }
    return key in defaults and bool(
        (shortest_float32(value) if type(value) is float else value) == defaults[key]
    )
