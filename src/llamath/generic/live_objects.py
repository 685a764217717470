"""Modules and state dicts as they are in memory: their tensors, without importing torch;
wrappers, adapters, packed weights and ties are recognized.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

from ..checkpoint.formats.dtypes import DTYPES
from ..checkpoint.formats.manifest import CheckpointFile, Manifest, Tensor
from ..checkpoint.naming.detect_scheme import detect_scheme
from ..checkpoint.naming.scheme import fused_scheme
from ..checkpoint.naming.training_names import WRAPPERS, find_wrappers, without_wrappers
from ..checkpoint.open import packings_of
from ..checkpoint.quantization.packed_tensors import Packing
from ..core.blocks import Decoder
from ..families.model_class import headless_scheme
from ..families.registry import Family
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
_Shape = tuple[int, ...]
_KINDS = {"Params4bit": "bitsandbytes' 4-bit", "Int8Params": "bitsandbytes' 8-bit"}
"""Classes of packed parameters."""


class LiveTensors(NamedTuple):
    """The tensors of a module or a state dict, under the names of the model itself."""

    tensors: tuple[StateTensor, ...]
    what: str  # `BertModel`, or `state dict`
    keys: Mapping[str, Any] | None = None  # its configuration
    name: str = ""
    notes: tuple[str, ...] = ()
    adapters: int = 0  # parameters of adapters
    quantized: str = ""  # how its weights are packed; empty: they are not
    is_known: bool = True  # how many values packed weights stand for
    is_sharded: bool = False  # shapes are those of one rank's part

    @property
    def parameters(self) -> int:
        """The number of parameters, those that packed weights stand for included."""
        return sum(prod(x.shape) for x in self.tensors if not x.is_buffer and not x.tied)

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
    named = dict(found.named_parameters())
    state = named if sharded else dict(found.state_dict(keep_vars=True))
    held = {id(x) for x in state.values()}
    # a class may leave some of its parameters out of its state dict
    state |= {name: x for name, x in named.items() if name not in state and id(x) not in held}
    wrappers += [WRAPPERS[x] for x in find_wrappers(state)]
    name = getattr(config, "_name_or_path", "") if keys is not None else ""
    live = _read_tensors(
        state,
        what=safe(own, 80),
        parameters={id(x) for x in named.values()},
        section=(keys or {}).get("quantization_config"),
        notes=[f"the module inside of {', '.join(wrappers)}"] if wrappers else [],
    )
    return live._replace(
        keys=None if keys is None else {**keys, "architectures": [own]},
        name=safe(str(name or own), 80),
        is_sharded=sharded,
    )


def read_state_dict(state: Mapping[str, Any]) -> LiveTensors:
    """Return the tensors of a state dict; its buffers are those with the names of common ones."""
    wrappers = ", ".join(WRAPPERS[x] for x in find_wrappers(state))
    return _read_tensors(
        state,
        what="state dict",
        parameters={id(x) for name, x in state.items() if name.rpartition(".")[2] not in _BUFFERS},
        notes=[f"names without those of wrapper modules: {wrappers}"] if wrappers else [],
    )


def _unwrap(module: Any) -> tuple[Any, list[str]]:
    """Return the module inside of wrappers, and what put it there."""
    added: list[str] = []
    for _ in range(_MAX_WRAPPERS):
        children = dict(module.named_children()) if hasattr(module, "named_children") else {}
        if len(children) != 1 or (name := next(iter(children))) not in WRAPPERS:
            break
        module = children[name]
        added.append(WRAPPERS[name])
    return module, added


def _names_of_adapters(names: Iterable[str]) -> Iterator[str]:
    """Yield the names of tensors that adapters add.

    peft keeps a layer that it adapts as `base_layer`, or as `original_module`, of a layer of its
    own, with the adapter beside it.
    """
    marks, own = ("base_layer", "original_module"), frozenset(_ADAPTER_PARTS)
    split = {name: name.split(".") for name in names}
    adapted = {
        tuple(parts[: parts.index(x)]) for parts in split.values() for x in marks if x in parts
    }
    for name, parts in split.items():
        inside = next((i for i in range(len(parts)) if tuple(parts[:i]) in adapted), None)
        if not own.isdisjoint(parts) or (
            inside is not None and not any(mark in parts[inside:] for mark in marks)
        ):
            yield name


def _read_tensors(
    given: Mapping[str, Any],
    *,
    what: str,
    parameters: set[int],
    section: Any = None,
    notes: Iterable[str] = (),
) -> LiveTensors:
    """Return the entries of a state dict without the names of wrappers, with those of equal storage
    tied; `parameters` are the ids of those that are no buffers.
    """
    state = {without_wrappers(name): x for name, x in given.items()}
    if len(state) != len(given):
        raise LlamathError(
            "without the names of wrapper modules, two tensors of the state dict have one name"
        )
    first: dict[Any, str] = {}
    tensors: list[StateTensor] = []
    kinds: dict[str, None] = {}
    packed: dict[str, _Shape] = {}
    other = [name for name, x in state.items() if not _is_tensor(x)]
    if strange := [name for name in other if not name.endswith(_EXTRA_STATE)]:
        kind = type(state[strange[0]]).__name__
        raise LlamathError(
            f"expected tensors, found {safe(strange[0], 100)!r} of type {safe(kind, 60)}",
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
            packed[name] = _shape_of_values(x)
        is_buffer = id(x) not in parameters
        tied = first.setdefault(_values_key(x), name)
        tensors.append(
            StateTensor(
                name,
                dtype_name(str(x.dtype)),
                tuple(map(int, x.shape)),
                is_buffer,
                "" if tied == name else tied,
                _num_bytes(x) if name in packed else 0,
            )
        )
    packings = packings_of(manifest_of(tensors), section if isinstance(section, Mapping) else None)
    kinds |= {} if kinds else dict.fromkeys(x.kind for x in packings.values() if x.kind)
    added = frozenset(_names_of_adapters(state))
    tensors = _unpacked(tensors, packed, packings)
    adapters = sum(prod(x.shape) for x in tensors if x.name in added and not x.is_buffer)
    notes = [*notes]
    if other:
        notes.append(f"not counted: {format_count(len(other), 'extra state', 'extra states')}")
    if adapters:
        notes.append(f"{format_count(adapters, 'parameter')} of adapters are counted")
    return LiveTensors(
        tensors=tuple(tensors),
        what=what,
        name=what,
        notes=tuple(notes),
        adapters=adapters,
        quantized=", ".join(kinds),
        is_known=all(x.known for x in packings.values()),
    )


def _unpacked(
    tensors: Iterable[StateTensor], packed: Mapping[str, _Shape], packings: Mapping[str, Packing]
) -> list[StateTensor]:
    """Return the tensors with packed weights in the shapes of their values, and in the bytes of
    all that is stored for them.
    """
    weights: dict[str, StateTensor] = {}
    others: dict[str, int] = {}
    for x in tensors:
        packing = packings.get(x.name)
        if x.name in packed:
            weights[x.name] = x._replace(shape=packed[x.name])
        elif packing is None:
            weights[x.name] = x
        elif packing.role != "values":
            size = DTYPES[x.dtype].size(prod(x.shape))
            others[packing.weight] = others.get(packing.weight, 0) + size
        else:
            weights[packing.weight] = StateTensor(
                packing.weight,
                x.dtype,
                packing.shape or (packing.elements,),
                packed_bytes=DTYPES[x.dtype].size(prod(x.shape)),
            )
    return [
        x._replace(packed_bytes=x.packed_bytes + others.get(x.name, 0)) if x.packed_bytes else x
        for x in weights.values()
    ]


def _shape_of_values(x: Any) -> _Shape:
    """Return the shape of the values of a packed parameter: bitsandbytes packs two values of 4 bits
    in a byte.
    """
    if shape := getattr(getattr(x, "quant_state", None), "shape", None):
        return tuple(map(int, shape))
    shape = tuple(map(int, x.shape))
    in_bytes = type(x).__name__ == "Params4bit" and str(x.dtype) == "torch.uint8"
    return (2 * prod(shape),) if in_bytes else shape


def _num_bytes(x: Any) -> int:
    """Return the bytes of a tensor; torchao's consist of others."""
    parts, _ = x.__tensor_flatten__() if hasattr(x, "__tensor_flatten__") else ((), None)
    if parts:
        return sum(_num_bytes(getattr(x, part)) for part in parts)
    return int(DTYPES[dtype_name(str(x.dtype))].size(prod(map(int, x.shape))))


def manifest_of(tensors: Iterable[StateTensor]) -> Manifest:
    """Return tensors as a header without bytes declares them."""
    listed = tuple(Tensor(x.name, x.dtype, x.shape, 0, 0, 0) for x in tensors)
    return Manifest(format="safetensors", files=(CheckpointFile("state dict", 0),), tensors=listed)


def _is_tensor(x: object) -> bool:
    return all(hasattr(x, name) for name in ("shape", "dtype")) and not isinstance(x, type)


def _values_key(x: Any) -> Any:
    """Return what tells where the values of a tensor are; tensors without elements share none."""
    shape = tuple(map(int, x.shape))
    if not prod(shape):
        return id(x)
    try:
        return x.untyped_storage()._cdata, int(x.storage_offset()), prod(shape)
    except Exception:  # not torch's, or one of its subclasses that has no storage of its own
        return id(x)


def differences(live: LiveTensors, family: Family, tree: Decoder) -> list[str]:
    """Return how the tensors of a module differ from those of a family's tree, under any of the
    names that its models have: a sentence for each kind of difference.
    """
    shapes = {x.name: x.shape for x in live.tensors if not x.tied}
    tied = {x.name for x in live.tensors if x.tied}
    names = (family.hf, headless_scheme(family.hf), *family.hf_forms)
    forms = [form for x in names if x is not None for form in (x, fused_scheme(x))]
    best = detect_scheme(tree, [x for x in forms if x is not None], shapes)
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
    return [_difference(what, x, shapes, expected) for what, x in differing if x]


def _difference(
    what: str, names: list[str], shapes: Mapping[str, _Shape], expected: Mapping[str, _Shape]
) -> str:
    first = names[0]
    more = f" (and {len(names) - 1:,} more)" if len(names) > 1 else ""
    found = f": {list(shapes[first])}, expected {list(expected[first])}" if "shape" in what else ""
    return f"{safe(first, 120)}{more} {what}{found}"
