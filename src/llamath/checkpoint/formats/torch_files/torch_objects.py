"""Records for the tensors and storages of a torch checkpoint, and inert versions of the few
functions that rebuild them.

Torch's `weights_only` reader (`torch/_weights_only_unpickler.py`, 2.13) allows these names and
more. Arguments are checked as torch's own functions would, so that a record is made only where
torch would make a tensor of the same dtype, shape and bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ....utils.errors import FormatError, safe
from ..dtypes import PLAIN

_MAX_SIZE = 1 << 63
"""Sizes, strides, offsets and counts must be less than this, as in torch."""
_DIMENSIONS = 64

_DTYPES_BY_STORAGE = {
    "Float": "F32", "Half": "F16", "BFloat16": "BF16", "Double": "F64", "Long": "I64", "Int": "I32",
    "Short": "I16",
    "Char": "I8", "Byte": "U8", "Bool": "BOOL", "ComplexFloat": "C64",
}  # fmt: skip
STORAGES = {f"torch.{kind}Storage": dtype for kind, dtype in _DTYPES_BY_STORAGE.items()} | {
    "torch.storage.UntypedStorage": ""
}
"""Storage classes → dtype of their elements; an untyped storage leaves it to the tensor."""
DTYPES = {
    "torch.float32": "F32", "torch.float16": "F16", "torch.bfloat16": "BF16",
    "torch.float64": "F64", "torch.int64": "I64",
    "torch.int32": "I32", "torch.int16": "I16", "torch.int8": "I8", "torch.uint8": "U8",
    "torch.bool": "BOOL",
    "torch.complex64": "C64", "torch.uint16": "U16", "torch.uint32": "U32", "torch.uint64": "U64",
    "torch.float8_e4m3fn": "F8_E4M3", "torch.float8_e5m2": "F8_E5M2",
    "torch.float8_e8m0fnu": "F8_E8M0",
    "torch.float8_e4m3fnuz": "F8_E4M3FNUZ", "torch.float8_e5m2fnuz": "F8_E5M2FNUZ",
}  # fmt: skip
"""Torch's dtypes → canonical names."""

_REFUSED = {
    "torch._utils._rebuild_sparse_tensor": (
        "sparse",
        "a sparse tensor",
        "save it with .to_dense()",
    ),
    "torch._utils._rebuild_qtensor": (
        "quantized",
        "a quantized tensor",
        "save it with .dequantize() or .int_repr()",
    ),
    "torch._utils._rebuild_nested_tensor": ("nested", "a nested tensor", "save its parts"),
    "torch._utils._rebuild_meta_tensor_no_storage": (
        "meta",
        "a tensor without bytes",
        "it was saved from the meta device",
    ),
    "torch._utils._rebuild_parameter_with_state": (
        "attributes",
        "a parameter with attributes",
        "save .detach() of it",
    ),
    "torch._tensor._rebuild_from_type_v2": (
        "attributes",
        "a tensor of another class or with attributes",
        "save a plain tensor",
    ),
    "torch._utils._rebuild_wrapper_subclass": (
        "subclass",
        "a tensor that wraps others",
        "save a plain tensor",
    ),
    "torch._utils._rebuild_device_tensor_from_numpy": (
        "subclass",
        "a device tensor stored as a numpy array",
        "save .cpu() of it",
    ),
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": (
        "subclass",
        "a tensor of an unsupported device",
        "save .cpu() of it",
    ),
}
_QUANTIZED = r"torch\.(?:Q\w{3,9}Storage|qu?int\w{1,4}|per_(?:tensor|channel)_\w{6,32})"
_UNNAMED = (
    r"torch\.(?:ComplexDoubleStorage|complex(?:32|128)|u?int[1-7]|bits[0-9x]{1,3}"
    r"|float4_e2m1fn_x2)"
)
_DEVICE = r"(?:cpu|cuda|mps|xpu|meta)(:(?:0|[1-9][0-9]?))?"

Charge = Callable[[int], None]
"""Charges work that a stream could repeat."""


class Global(NamedTuple):
    """An allowed global: its name, never the object."""

    name: str


class Storage(NamedTuple):
    """A storage: bytes elsewhere in the file."""

    key: str
    dtype: str  # empty: untyped
    elements: int  # bytes, if untyped
    bytes: int  # as declared


class TensorRecord(NamedTuple):
    """A tensor: a view of a storage; its elements span the storage's bytes `start` to `end`."""

    storage: Storage
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # None: contiguous
    start: int
    end: int


class _PlainValue(NamedTuple):
    """A plain value that is not needed: bytes, a set, a device, a layout."""

    kind: str


class OrderedDictRecord(dict[str | bytes, Any]):
    """An `OrderedDict`; the only record with attributes, which are dropped."""

    __slots__ = ()


class CounterRecord(dict[str | bytes, Any]):
    """A `Counter`."""

    __slots__ = ()


def allowed_global(module: str, name: str) -> Global:
    """Return the record of an allowed global; raise for any other."""
    full = f"{'builtins' if module == '__builtin__' else module}.{name}"
    if full in CALLS or full in STORAGES or full in DTYPES:
        return Global(full)
    if full in _REFUSED:
        code, description, hint = _REFUSED[full]
        raise FormatError(
            code, f"it contains {description} ({full}), which is not supported", hint=hint
        )
    if re.fullmatch(_QUANTIZED, full):
        raise FormatError(
            "quantized",
            f"it contains quantized values ({safe(full)}), which are not supported",
            hint="save .int_repr() of them",
        )
    if re.fullmatch(_UNNAMED, full):
        raise FormatError("dtype", f"it contains elements of an unsupported dtype ({safe(full)})")
    hint = (
        "a checkpoint needs tensors, dictionaries and plain values only; do not load this "
        "file with weights_only=False"
    )
    raise FormatError(
        "global", f"it refers to {safe(full)}, which could run code and is refused", hint=hint
    )


def parse_storage_id(pid: Any, fields: int) -> Storage:
    """Return the storage of a persistent id, which has 5 fields in an archive and 6, the last
    for views, in a legacy file.
    """
    if (
        type(pid) is not tuple
        or len(pid) != fields
        or type(pid[0]) is not str
        or pid[0] != "storage"
    ):
        raise FormatError(
            "persistent", "expected the persistent id of a storage, found something else"
        )
    _, kind, key, location, elements, *view = pid
    if type(kind) is not Global or kind.name not in STORAGES or (view and not STORAGES[kind.name]):
        raise FormatError("storage", "a storage of an unknown kind")
    if (
        type(key) is not str
        or type(location) is not str
        or type(elements) is not int
        or not 0 <= elements < _MAX_SIZE
    ):
        raise FormatError(
            "storage", "expected a storage with a string key, a string location and an integer size"
        )
    if view and view[0] is not None:
        raise FormatError(
            "storage",
            f"storage {safe(key)} is a view of another",
            hint="only torch before 0.4 wrote such views: save it again with a later torch",
        )
    dtype = STORAGES[kind.name]
    return Storage(key, dtype, elements, elements * (PLAIN[dtype].bytes if dtype else 1))


def set_item(target: dict[str | bytes, Any], key: Any, value: Any) -> None:
    """Add an item; keys are strings or integers, without duplicates."""
    if type(key) is int:
        key = b"%d" % key
    elif type(key) is not str:
        raise FormatError(
            "key", f"expected a string or an integer as a key, found a {type(key).__name__}"
        )
    if key in target:
        raise FormatError(
            "duplicate_key",
            f"the key {safe(key if type(key) is str else key.decode())} occurs twice",
        )
    target[key] = value


def _ordered_dict(args: tuple[Any, ...], charge: Charge) -> OrderedDictRecord:
    record = OrderedDictRecord()
    if args:
        _require("OrderedDict", len(args) == 1 and type(args[0]) is list)
        charge(8 * len(args[0]))
        for pair in args[0]:
            _require("OrderedDict", type(pair) in (list, tuple) and len(pair) == 2)
            set_item(record, pair[0], pair[1])
    return record


def _counter(args: tuple[Any, ...], charge: Charge) -> CounterRecord:
    _require("Counter", not args or (len(args) == 1 and type(args[0]) in (dict, CounterRecord)))
    charge(8 * sum(map(len, args)))
    return CounterRecord(*args)


def _bytes(args: tuple[Any, ...], charge: Charge) -> _PlainValue:
    _require(
        "encode",
        len(args) == 2 and type(args[0]) is str and type(args[1]) is str and args[1] == "latin1",
    )
    charge(len(args[0]))
    _require("encode", args[0].isascii() or max(args[0]) < "\u0100")
    return _PlainValue("bytes")


def _bytearray(args: tuple[Any, ...], charge: Charge) -> _PlainValue:
    charge(len(args))
    _require(
        "bytearray",
        not args or (len(args) == 1 and type(args[0]) is _PlainValue and args[0].kind == "bytes"),
    )
    return _PlainValue("bytearray")


def _set(args: tuple[Any, ...], charge: Charge) -> _PlainValue:
    _require("set", len(args) == 1 and type(args[0]) is list)
    charge(len(args[0]))
    _require("set", all(type(item) in (str, int, float, bool, type(None)) for item in args[0]))
    return _PlainValue("set")


def _complex(args: tuple[Any, ...], _: Charge) -> _PlainValue:
    _require("complex", len(args) == 2 and type(args[0]) is type(args[1]) is float)
    return _PlainValue("complex")


def _size(args: tuple[Any, ...], charge: Charge) -> tuple[int, ...]:
    _require("Size", len(args) == 1 and type(args[0]) is tuple)
    charge(len(args[0]))
    _require("Size", all(type(size) is int and 0 <= size < _MAX_SIZE for size in args[0]))
    return tuple(args[0])


def _device(args: tuple[Any, ...], _: Charge) -> _PlainValue:
    _require("device", 0 < len(args) < 3 and type(args[0]) is str)
    match = re.fullmatch(_DEVICE, args[0])
    _require(
        "device",
        match
        and (len(args) == 1 or (not match[1] and type(args[1]) is int and 0 <= args[1] < 100)),
    )
    return _PlainValue("device")


def _layout(args: tuple[Any, ...], _: Charge) -> _PlainValue:
    _require("_get_layout", len(args) == 1 and type(args[0]) is str and args[0] == "torch.strided")
    return _PlainValue("layout")


def _tensor(args: tuple[Any, ...], _: Charge) -> TensorRecord:
    _require("_rebuild_tensor", len(args) == 4)
    return _tensor_record(args, None)


def _tensor_v2(args: tuple[Any, ...], _: Charge) -> TensorRecord:
    _require("_rebuild_tensor_v2", 6 <= len(args) <= 7)
    tensor = _tensor_record(args[:4], None)
    _check_gradient(tensor, args[4], args[5])
    _check_not_conjugate(args[6:])
    return tensor


def _tensor_v3(args: tuple[Any, ...], _: Charge) -> TensorRecord:
    _require(
        "_rebuild_tensor_v3",
        7 <= len(args) <= 8 and type(args[6]) is Global and args[6].name in DTYPES,
    )
    tensor = _tensor_record(args[:4], DTYPES[args[6].name])
    _check_gradient(tensor, args[4], args[5])
    _require("_rebuild_tensor_v3", not args[4] and not tensor.storage.dtype)
    _check_not_conjugate(args[7:])
    return tensor


def _parameter(args: tuple[Any, ...], _: Charge) -> TensorRecord:
    _require("_rebuild_parameter", len(args) == 3 and type(args[0]) is TensorRecord)
    tensor: TensorRecord = args[0]
    _check_gradient(tensor, args[1], args[2])
    return tensor


def _check_gradient(tensor: TensorRecord, requires_grad: Any, hooks: Any) -> None:
    _require(
        "requires_grad",
        type(requires_grad) is bool
        and (not requires_grad or (tensor.dtype[0] in "FBC" and tensor.dtype != "BOOL")),
    )
    if hooks is not None and not (type(hooks) is OrderedDictRecord and not hooks):
        raise FormatError("hooks", "expected a tensor without hooks, found hooks or another value")


def _check_not_conjugate(metadata: tuple[Any, ...]) -> None:
    if metadata and metadata[0] is not None and not (type(metadata[0]) is dict and not metadata[0]):
        hint = "save .resolve_conj().resolve_neg() of it"
        raise FormatError(
            "conjugate",
            "a tensor is a conjugate or negative view, so its bytes are not its values",
            hint=hint,
        )


def _tensor_record(args: tuple[Any, ...], dtype: str | None) -> TensorRecord:
    """Return the record of a tensor, whose elements must be inside its storage."""
    storage, offset, shape, strides = args
    if type(storage) is not Storage or type(shape) is not tuple or type(strides) is not tuple:
        raise FormatError(
            "tensor",
            "expected a storage, an offset and two tuples to rebuild a "
            "tensor, found something else",
        )
    if len(shape) != len(strides) or len(shape) > _DIMENSIONS:
        raise FormatError(
            "tensor",
            f"a tensor has {len(shape)} sizes and {len(strides)} "
            f"strides; at most {_DIMENSIONS} are read",
        )
    dense, last, elements = True, 0, 1
    for size, stride in zip((1, *shape)[::-1], (offset, *strides)[::-1], strict=True):
        if (
            type(size) is not int
            or type(stride) is not int
            or not (0 <= size < _MAX_SIZE and 0 <= stride < _MAX_SIZE)
        ):
            raise FormatError(
                "tensor", "an offset, a size or a stride is not a number from 0 to 2**63 - 1"
            )
        dense = dense and (size == 1 or stride == elements)
        last += (size - 1) * stride
        elements *= size or 1
    if elements >= _MAX_SIZE:
        raise FormatError("tensor", "a tensor has 2**63 elements or more")
    dtype = dtype or storage.dtype or "U8"
    width, empty = PLAIN[dtype].bytes, 0 in shape
    start, end = offset * width, (offset + last + 1) * width
    if empty:
        start = end = min(start, storage.bytes)
    elif end > storage.bytes:
        raise FormatError(
            "bounds",
            f"a tensor needs {end:,} bytes of storage "
            f"{safe(storage.key)}, which has {storage.bytes:,}",
        )
    return TensorRecord(storage, dtype, shape, None if dense or empty else strides, start, end)


def _require(function: str, is_valid: object) -> None:
    if not is_valid:
        raise FormatError("argument", f"{function} has arguments that torch does not write")


CALLS: dict[str, Callable[[tuple[Any, ...], Charge], Any]] = {
    "collections.OrderedDict": _ordered_dict,
    "collections.Counter": _counter,
    "_codecs.encode": _bytes,
    "builtins.bytearray": _bytearray,
    "builtins.set": _set,
    "builtins.complex": _complex,
    "torch.Size": _size,
    "torch.device": _device,
    "torch.serialization._get_layout": _layout,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor_v2,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _parameter,
}
"""The functions that `REDUCE` may apply, by name."""
