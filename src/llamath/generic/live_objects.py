"""Modules and state dicts as they are in memory: their tensors, without importing torch;
wrappers, adapters and ties are recognized.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ..checkpoint.formats.manifest import CheckpointFile, Manifest, Tensor
from ..checkpoint.naming.detect_scheme import detect_scheme
from ..checkpoint.naming.scheme import Scheme, fused_scheme
from ..checkpoint.naming.training_names import WRAPPERS, find_wrappers, without_wrappers
from ..checkpoint.open import packings_of
from ..core.blocks import Decoder
from ..families.classes import headless_scheme
from ..utils.errors import LlamathError, safe
from ..utils.number_format import format_count
from .module_tree import StateTensor
from .transformers_process import dtype_name

_BUFFERS = (
    "running_mean",
    "running_var",
    "num_batches_tracked",
    "position_ids",
    "token_type_ids",
    "inv_freq",
    "masked_bias",
)
"""Last parts of the names of buffers, where only a state dict is known."""
_ADAPTER_PARTS = (
    "lora_A",
    "lora_B",
    "lora_embedding_A",
    "lora_embedding_B",
    "lora_magnitude_vector",
    "ia3_l",
    "prompt_encoder",
)
"""Parts of the names of tensors that are always an adapter's."""
_EXTRA_STATE = "_extra_state"
_MAX_WRAPPERS = 16
_KINDS = {"Params4bit": "bitsandbytes' 4-bit", "Int8Params": "bitsandbytes' 8-bit"}
"""Classes of packed parameters."""


class LiveTensors(NamedTuple):
    """The tensors of a module or a state dict, under the names of the model itself."""

    tensors: tuple[StateTensor, ...]
    what: str  # `BertModel`, or `state dict`
    keys: Mapping[str, Any] | None = None  # its configuration
    name: str = ""
    notes: tuple[str, ...] = ()
    quantized: str = ""  # how its weights are packed; empty: they are not
    is_sharded: bool = False  # shapes are those of one rank's part

    @property
    def claim(self) -> str:
        """Whose tensors they are."""
        return f"as the given {self.what} has them"


def read_module(module: Any) -> LiveTensors:
    """Return the tensors of a module, and its configuration if it has one."""
    found, wrappers = _unwrap(module)
    own = type(found).__name__
    config = getattr(found, "config", None)
    to_dict = getattr(config, "to_dict", None)
    keys: dict[str, Any] | None = to_dict() if callable(to_dict) else None
    sharded = (
        any(type(x).__name__ == "FullyShardedDataParallel" for x in module.modules())
        if hasattr(module, "modules")
        else False
    )
    state = dict(found.named_parameters()) if sharded else found.state_dict(keep_vars=True)
    parameters = {id(x) for _, x in found.named_parameters()}
    wrappers += [WRAPPERS[x] for x in find_wrappers(state)]
    notes = [f"the module inside of {', '.join(wrappers)}"] if wrappers else []
    state, adapters = _without_adapters({without_wrappers(name): x for name, x in state.items()})
    outside = sum(_size(x) for _, x in module.named_parameters() if id(x) not in parameters)
    if extra := sum(map(_size, adapters)) + outside:
        notes.append(f"not counted: adapters with {format_count(extra, 'parameter')}")
    tensors, more, quantized = _read_tensors(
        state, parameters, (keys or {}).get("quantization_config")
    )
    name = getattr(config, "_name_or_path", "") if keys is not None else ""
    return LiveTensors(
        tensors=tensors,
        what=safe(own, 80),
        keys=None if keys is None else {**keys, "architectures": [own]},
        name=safe(str(name or own), 80),
        notes=(*notes, *more),
        quantized=quantized,
        is_sharded=sharded,
    )


def read_state_dict(state: Mapping[str, Any]) -> LiveTensors:
    """Return the tensors of a state dict; its buffers are those with the names of common ones."""
    notes: list[str] = []
    if wrappers := find_wrappers(state):
        notes.append(
            f"names without those of wrapper modules: {', '.join(WRAPPERS[x] for x in wrappers)}"
        )
    base, adapters = _without_adapters({without_wrappers(name): x for name, x in state.items()})
    if len(base) + len(adapters) != len(state):
        raise LlamathError(
            "without the names of wrapper modules, two tensors of the state dict have one name"
        )
    if adapters and not base:
        raise LlamathError(
            "the state dict has the weights of an adapter only", hint="load its base model"
        )
    if adapters:
        notes.append(
            f"not counted: adapters with {format_count(sum(map(_size, adapters)), 'parameter')}"
        )
    parameters = {id(x) for name, x in base.items() if name.rpartition(".")[2] not in _BUFFERS}
    tensors, more, quantized = _read_tensors(base, parameters, None)
    return LiveTensors(
        tensors=tensors,
        what="state dict",
        name="state dict",
        notes=(*notes, *more),
        quantized=quantized,
    )


def _unwrap(module: Any) -> tuple[Any, list[str]]:
    """Return the module inside of wrappers and of peft's models, and what put it there."""
    added: list[str] = []
    for _ in range(_MAX_WRAPPERS):
        children = dict(module.named_children()) if hasattr(module, "named_children") else {}
        if callable(getattr(module, "get_base_model", None)) and "base_model" in children:
            module = module.get_base_model()
            added.append("peft")
        elif len(children) == 1 and (name := next(iter(children))) in WRAPPERS:
            module = children[name]
            added.append(WRAPPERS[name])
        else:
            break
    return module, added


def _without_adapters(state: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Return the tensors of the base model under its own names, and those that adapters add.

    peft keeps a layer that it adapts as `base_layer`, or as `original_module`, of a layer of its
    own, with the adapter beside it.
    """
    marks, own = ("base_layer", "original_module"), frozenset(_ADAPTER_PARTS)
    adapted = {
        tuple(parts[: parts.index(x)])
        for name in state
        for x in marks
        if x in (parts := name.split("."))
    }
    base: dict[str, Any] = {}
    adapters: list[Any] = []
    for name, x in state.items():
        parts = name.split(".")
        inside = next((i for i in range(len(parts)) if tuple(parts[:i]) in adapted), None)
        if not own.isdisjoint(parts) or (
            inside is not None and not any(mark in parts[inside:] for mark in marks)
        ):
            adapters.append(x)
        else:
            base[".".join(part for part in parts if part not in (*marks, "token_adapter"))] = x
    return base, adapters


def _read_tensors(
    state: Mapping[str, Any], parameters: set[int], section: Any
) -> tuple[tuple[StateTensor, ...], list[str], str]:
    """Return the entries of a state dict, with those of equal storage tied; notes; and how
    weights are packed.
    """
    first: dict[Any, str] = {}
    tensors: list[StateTensor] = []
    kinds: dict[str, None] = {}
    other = [name for name, x in state.items() if not _is_tensor(x)]
    if packed := [name for name in other if not name.endswith(_EXTRA_STATE)]:
        kind = type(state[packed[0]]).__name__
        raise LlamathError(
            f"expected tensors, found {safe(packed[0], 100)!r} of type {safe(kind, 60)}",
            hint="a quantized module of torch keeps packed parameters; load the module before it "
            "was quantized",
        )
    for name, x in state.items():
        if name in other:
            continue
        if "_flat_param" in name:
            raise LlamathError(
                f"{safe(name, 100)} holds several weights in one: their shapes are lost",
                hint="load the module before FullyShardedDataParallel wraps it, or give it "
                "use_orig_params=True",
            )
        kind = type(x).__name__
        if kind in _KINDS or type(x).__module__.startswith("torchao"):
            kinds[_KINDS.get(kind, f"torchao's {kind}")] = None
        is_buffer = id(x) not in parameters
        tied = first.setdefault(_values_key(x), name)
        tensors.append(
            StateTensor(
                name,
                dtype_name(str(x.dtype)),
                tuple(map(int, x.shape)),
                is_buffer,
                "" if tied == name else tied,
            )
        )
    quantized = ", ".join(kinds) or _packing(tensors, section)
    notes = (
        [f"not counted: {format_count(len(other), 'extra state', 'extra states')}"] if other else []
    )
    return tuple(tensors), notes, quantized


def _packing(tensors: Sequence[StateTensor], section: Any) -> str:
    """Return the names of the packings of tensors whose dtypes and names are those of packed
    weights.
    """
    manifest = manifest_of(tensors)
    found = dict.fromkeys(
        x.kind
        for x in packings_of(manifest, section if isinstance(section, Mapping) else None).values()
        if x.kind
    )
    return ", ".join(found)


def manifest_of(tensors: Iterable[StateTensor]) -> Manifest:
    """Return tensors as a header without bytes declares them."""
    listed = tuple(Tensor(x.name, x.dtype, x.shape, 0, 0, 0) for x in tensors)
    return Manifest(format="safetensors", files=(CheckpointFile("state dict", 0),), tensors=listed)


def _is_tensor(x: object) -> bool:
    return all(hasattr(x, name) for name in ("shape", "dtype")) and not isinstance(x, type)


def _size(x: Any) -> int:
    return prod(map(int, x.shape)) if _is_tensor(x) else 0


def _values_key(x: Any) -> Any:
    """Return what tells where the values of a tensor are; tensors without elements share none."""
    shape = tuple(map(int, x.shape))
    if not prod(shape):
        return id(x)
    try:
        return x.untyped_storage()._cdata, int(x.storage_offset()), prod(shape)
    except Exception:  # not torch's, or one of its subclasses that has no storage of its own
        return id(x)


def compare_with_tree(live: LiveTensors, hf: Scheme, tree: Decoder) -> Iterator[str]:
    """Yield notes on how the tensors of a module differ from the tree that its configuration
    describes.
    """
    if live.quantized:
        yield (
            f"the weights are quantized ({safe(live.quantized, 100)}): counted as the values "
            "that they stand for"
        )
        return
    if live.is_sharded:
        yield (
            "FullyShardedDataParallel holds one rank's part of each tensor: shapes are not "
            "compared with the config"
        )
        return
    shapes = {x.name: x.shape for x in live.tensors if not x.tied}
    tied = {x.name for x in live.tensors if x.tied}
    schemes: list[Scheme] = [
        x for x in (hf, fused_scheme(hf), headless_scheme(hf)) if x is not None
    ]
    best = detect_scheme(tree, schemes, shapes)
    expected = {
        name: tuple(map(int, x.shape)) for name, x in zip(best.names, best.tensors, strict=True)
    }
    buffers = {x.name for x in live.tensors if x.is_buffer}
    differing = [
        ("is not in the module", [x for x in expected if x not in shapes and x not in tied]),
        ("is tied in the module", [x for x in expected if x in tied]),
        (
            "is not in the config's model",
            [x for x in shapes if x not in expected and x not in buffers],
        ),
        ("has another shape", [x for x in expected if x in shapes and shapes[x] != expected[x]]),
    ]
    total = sum(prod(x.shape) for x in live.tensors if not x.tied and not x.is_buffer)
    for what, names in differing:
        if names:
            more = f" (and {len(names) - 1:,} more)" if len(names) > 1 else ""
            shape = (
                f": {list(shapes[names[0]])}, expected {list(expected[names[0]])}"
                if what == "has another shape"
                else ""
            )
            yield (
                f"{safe(names[0], 120)}{more} {what}{shape}; the module has "
                f"{format_count(total, 'parameter')}"
            )
