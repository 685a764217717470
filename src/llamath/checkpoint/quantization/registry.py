"""The producers of quantizations: `find_packings` recognizes their tensors in headers,
`named_format` their formats by name, and `recipes.read_recipe` their configs.

A row of the table has the words by which a producer is found, so that only the modules are
imported that a config, a header or a name asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ...utils.record_type import Record
from ..formats.dtypes import GGML, PLAIN
from ..formats.manifest import Tensor
from .packed_tensors import Detection, PackedWeight, Packing, Shape

if TYPE_CHECKING:
    from .recipes import Recipe
    from .shared.half_steps import Steps
    from .shared.packed_cut import Cuts, CutWeight
    from .shared.stored_matrix import Arrays, Rows, StoredMatrix
    from .weight_format import WeightFormat

Keys = Mapping[str, Any]
_Detect = Callable[[Detection, Tensor], None]


class PackedLayout(Record):
    """How the values of one kind of packing are read."""

    open: Callable[[StoredMatrix], Rows]
    steps: Steps | None = None  # the distances of its codes, where they are the nearest ones
    # reads the shape that is in a tensor; what is in that one's name, and what it is called
    stored_shape: Callable[[PackedWeight, Arrays], Shape] | None = None
    shape_in: str = ".shape"
    shape_words: str = "shape"
    # the parts of its tensors on one rank; None: it has no known axes of outputs and of inputs
    cut: Callable[[CutWeight], Cuts] | None = None
    by_rows: bool = False  # rows are packed one by one


class Producer(Record):
    """One producer of quantizations, or a number format that several store."""

    read: Callable[[Keys, str], Recipe] | None = None  # a config, with the dtype of other weights
    # what its tensors are recognized as: the beginnings of kinds of packing
    recognized: tuple[str, ...] = ()
    detect: _Detect | None = None  # records the values of a weight
    layouts: Mapping[str, PackedLayout] = {}  # kinds of packing
    why_not: Callable[[PackedWeight, Keys], str] | None = None  # a weight is not dequantized
    named: Callable[[str], WeightFormat | None] | None = None  # a format by the name users write


class _Row(NamedTuple):
    """The words that identify a producer, separated by spaces."""

    module: str
    methods: str = ""  # quant_method in configs
    kinds: str = ""  # of packings
    dtypes: str = ""  # of the tensors in which it looks for values
    ends: str = ""  # of names; a file with its weights has one of them
    names: str = ""  # the beginnings of the names of its formats
    spellings: str = ""  # of its methods in some configs


_EIGHT_BITS = " ".join(("I8", *(x for x in PLAIN if x.startswith("F8_"))))
_BNB, _COMPRESSED = "bnb-int8 bnb-nf4 bnb-fp4", "compressed-int sparse-24 sparse-bitmask"
_MODELOPT = "modelopt_fp4 modelopt_fp8 modelopt_mixed nvfp4"
_ROWS = (
    _Row("producers.bitsandbytes", "bitsandbytes", _BNB, "I8 U8", "SCB absmax", "bnb", "bnb"),
    _Row("producers.bitnet", "bitnet", "bitnet", "U8 F4", "_scale"),
    _Row("producers.gptq", "gptq", "gptq", "I16 I32 I64 I8", "qweight B", "gptq", "gptqmodel"),
    _Row("producers.awq", "awq", "awq", "I16 I32", "qweight", "awq"),
    _Row(
        "producers.compressed_tensors",
        "compressed-tensors",
        _COMPRESSED,
        "U8 I16 I32 I64",
        "weight_packed bitmask",
        spellings="compressed_tensors",
    ),
    _Row("producers.mlx", "mlx", "mlx", "U32", "scales", "mlx"),
    _Row("shared.fp4", "", "mxfp4 nvfp4", "U8 F4", "_scale scales", "mxfp4 nvfp4"),
    _Row("producers.eetq", "eetq", "eetq", "I8", "_scales"),
    _Row("producers.hqq", "hqq", "hqq", "U8 I32", "W_q"),
    _Row("producers.torchao", "torchao", "torchao", "I8 F8_E4M3", "_weight_qdata"),
    _Row("producers.modelopt", "modelopt", "int4-awq", "U8", "weight_scale", spellings=_MODELOPT),
    _Row("producers.quark", "quark", "mxfp6 quark-int4", "U8 I32", "weight_scale weight_scale_2"),
    _Row(
        "shared.scaled_bytes",
        "",
        "fp8 int8",
        _EIGHT_BITS,
        "scale scale_inv scale_weight qscale_weight",
        "fp8",
    ),
    _Row("producers.aqlm", "aqlm", "aqlm", "I8 I16", "codes"),
    _Row("producers.auto_round", "auto-round", spellings="auto_round intel/auto-round"),
    _Row("producers.fp8", "fp8 mxfp8 fbgemm_fp8"),
    _Row("producers.mxfp4", "mxfp4"),
)
"""All producers; where several look at tensors of one dtype, the first that recognizes the tensor
wins."""


def _by_word(field: int) -> dict[str, str]:
    return {word: row.module for row in _ROWS for word in row[field].split()}


_BY_METHOD, _BY_KIND, _BY_NAME, _BY_SPELLING = map(_by_word, (1, 2, 5, 6))
METHODS = tuple(sorted(_BY_METHOD))
"""Values of quant_method that are known."""


@cache
def _load(module: str | None) -> Producer | None:
    if module is None:
        return None
    found: Producer = import_module(f".{module}", __package__).PRODUCER
    return found


def producer_of_method(method: str) -> Producer | None:
    """Return the producer of a quant_method; None if it is not known."""
    return _load(_BY_METHOD.get(method) or _BY_SPELLING.get(method))


def producer_of_kind(kind: str) -> Producer | None:
    """Return the producer of a kind of packing; None if its values are not read here."""
    return _load(_BY_KIND.get(_without_bits(kind)))


def layout_of(kind: str) -> PackedLayout | None:
    """Return how the values of a kind of packing are read; None if they are not."""
    owner = producer_of_kind(kind)
    return owner.layouts[_without_bits(kind)] if owner is not None else None


def _without_bits(kind: str) -> str:
    return kind.rstrip("12345678") if kind.startswith("compressed-int") else kind


def named_format(word: str) -> WeightFormat | None:
    """Return the format that a producer has by this name, in lower case; None if none has."""
    owner = _load(_BY_NAME.get(word.partition("-")[0]))
    return owner.named(word) if owner is not None and owner.named is not None else None


def find_packings(tensors: Sequence[Tensor], config: Keys | None = None) -> dict[str, Packing]:
    """Return the packing of each tensor that is part of a quantized weight, by name; `config` is
    the `quantization_config`.
    """
    detectors = _detectors(tensors)
    if not detectors:
        return {}
    detection = Detection(tensors, config or {})
    for x in tensors:
        for detect in detectors.get(x.dtype, ()):
            if x.name in detection.packings:
                break
            detect(detection, x)
    if detection.packings and detection.has_cache_scales:
        _record_cache_scales(detection)
    return detection.packings


def _detectors(tensors: Sequence[Tensor]) -> dict[str, list[_Detect]]:
    """Return by dtype the functions that look at tensors, of producers whose names there are."""
    dtypes = {x.dtype for x in tensors}
    parts = tuple({x.name.rpartition(".")[2] for x in tensors})
    found: dict[str, list[_Detect]] = {x: [_detect_blocks] for x in dtypes & _BLOCK_TYPES}
    for row in _ROWS:
        own, ends = dtypes.intersection(row.dtypes.split()), tuple(row.ends.split())
        if own and any(x.endswith(ends) for x in parts):
            producer = _load(row.module)
            for dtype in own:
                if producer is not None and producer.detect is not None:
                    found.setdefault(dtype, []).append(producer.detect)
    return found


_BLOCK_TYPES = frozenset(x.name for x in GGML.values() if x.block > 1)


def _detect_blocks(d: Detection, x: Tensor) -> None:
    """Record a tensor of ggml's block types, which contain their scales; some files store one more
    scale next to them.
    """
    base = x.name.removesuffix("weight")
    roles = {
        y.name: "scale"
        for end in ("scale", "input_scale")
        if (y := d.get(base + end)) is not None and len(y.shape) < 2
    }
    d.record(x, Packing.of_values("ggml", x.name, x.shape), roles)


def _record_cache_scales(d: Detection) -> None:
    """Record the scales of a KV cache in attention blocks next to packed weights."""
    for name, x in d.tensors.items():
        if name.endswith((".k_scale", ".v_scale")) and x.elements == 1 and name not in d.packings:
            d.packings[name] = Packing("fp8-cache", name.rpartition(".")[0], "scale")
