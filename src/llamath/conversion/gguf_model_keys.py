"""`gguf_model_keys`: the metadata of a model's GGUF file, written from the tree.

Which keys an architecture has is the record of the family by which its files are read; the values
are the tree's. What llama.cpp fixes for an architecture is not written, so a file could describe
another model than the source: `check_same_model` reads the metadata again and compares the trees.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..checkpoint.formats.gguf import Array
from ..checkpoint.formats.manifest import Tensor
from ..checkpoint.gguf_metadata.gguf_facts import GGUFFacts
from ..checkpoint.gguf_metadata.gguf_rope import rotary_factors
from ..core.attention_facts import AttentionWindow
from ..core.positions import DynamicRope, LogNScaling, QwenDynamicRope, Rope
from ..core.tree import Stack
from ..families.gguf_config import config_from_gguf, metadata_of
from ..loading import load_family
from ..model import FamilyModel
from ..utils.errors import ConvertError, safe
from ..utils.record_type import Record

Keys = dict[str, Any]
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
    facts = _facts(model)
    record = next(
        (x for x in model.family.gguf_metadata if x.is_written is None or x.is_written(facts)), None
    )
    if record is None:
        raise ConvertError(
            f"the metadata of GGUF files of the {model.family.name} family are not known here",
            hint="convert to hf",
        )
    facts.arch, facts.words = record.arch, record.keys
    return GGUFKeys(
        arch=record.arch,
        keys={key: x for key, x in metadata_of(record, facts).items() if x is not None},
        tensors=rotary_factors(facts.rope),
        notes=tuple(facts.notes),
    )


def _facts(model: FamilyModel) -> GGUFFacts:
    return GGUFFacts(model.tree, model.config, model.name)


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
    ours, theirs = ([x for x in _facts(model).attentions if x is not None] for model in models)
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
