"""The operations of the native engine with their named fields.

This is the one description of a program's operations: `tools/native_header.py` writes the C++
structures of `native/operation_fields.h` from these classes, in the same order, and `Op.pack`
writes what they read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Annotated, ClassVar, NamedTuple, NewType, Self
from zlib import crc32

from ..utils.record_type import Record

INTERFACE = 4
"""Raised when a function or another structure of the library changes."""


class View(NamedTuple):
    """A part of each row of a buffer."""

    buffer: int = -1  # −1: none
    offset: int = 0
    stride: int = 0  # floats of a row of the buffer
    heads: int = 1
    head_stride: int = 0
    dim: int = 0

    @property
    def size(self) -> int:
        """The number of floats of a row."""
        return self.heads * self.dim

    @property
    def has_joined_heads(self) -> bool:
        """Whether the heads of a row follow each other without gaps."""
        return self.heads == 1 or self.head_stride == self.dim

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the buffer."""
        return self.has_joined_heads and self.offset == 0 and self.stride == self.size


WeightNumber = NewType("WeightNumber", int)
CacheNumber = NewType("CacheNumber", int)
StateNumber = NewType("StateNumber", int)
RopeNumber = NewType("RopeNumber", int)
Input = Annotated[View, "read"]
Output = Annotated[View, "written"]


class Product(NamedTuple):
    """One of several matrix products with the same input."""

    weight: WeightNumber
    bias: WeightNumber | None
    out: View


Products = tuple[Product, ...]
MAX_PRODUCTS = 8
"""Matrix products in one operation."""

_VIEW_FORMAT = f"{len(View._fields)}q"
FORMATS = {
    "Output": _VIEW_FORMAT,
    "Input": _VIEW_FORMAT,
    "Input | None": _VIEW_FORMAT,
    "Products": "2q",  # the number of the first, and how many there are
    **dict.fromkeys(("WeightNumber", "WeightNumber | None"), "q"),
    **dict.fromkeys(("CacheNumber", "StateNumber", "RopeNumber", "int", "bool"), "q"),
    "float": "d",
}
"""How a field of each type is packed; None is the view of no buffer, or −1."""

OPERATIONS: list[type[Op]] = []
"""All operations; the code of each is its index."""


class Op(Record):
    """One operation. Its fields are views, numbers of weights, caches, states and rotary
    embeddings, and constants.
    """

    name: ClassVar[str]
    code: ClassVar[int]
    types: ClassVar[dict[str, str]] = {}  # of the fields that are packed
    read: ClassVar[tuple[str, ...]] = ()  # the fields with views that it reads
    written: ClassVar[tuple[str, ...]] = ()

    path: str  # of the block that it is part of

    def __init_subclass__(cls, abstract: bool = False) -> None:
        super().__init_subclass__()
        own = cls.__dict__.get("__annotations__", {})
        cls.types = cls.types | {x: own[x] for x in cls.fields if x in own}
        cls.read = tuple(x for x, kind in cls.types.items() if kind.startswith("Input"))
        cls.written = tuple(x for x, kind in cls.types.items() if kind == "Output")
        if not abstract:
            cls.name, cls.code = cls.__name__, len(OPERATIONS)
            OPERATIONS.append(cls)

    @property
    def inputs(self) -> tuple[View, ...]:
        """The views that it reads."""
        return tuple([x for name in self.read if (x := getattr(self, name)) is not None])

    @property
    def outs(self) -> tuple[View, ...]:
        """The views that it writes."""
        named = tuple([getattr(self, name) for name in self.written])
        return (*named, *[x.out for x in self.all_products]) if self.all_products else named

    @property
    def all_products(self) -> Products:
        """Its matrix products; none of most operations."""
        return ()

    def with_views(self, change: Callable[[View], View]) -> Self:
        """Return the operation with other views: those that it reads are changed first."""
        changed: dict[str, View | Products] = {}
        for name in (*self.read, *self.written):
            if (view := getattr(self, name)) is not None:
                changed[name] = change(view)
        if self.all_products:
            changed["products"] = tuple(x._replace(out=change(x.out)) for x in self.all_products)
        return type(self)(**(vars(self) | changed))

    def pack(self, first_product: int) -> bytes:
        """Return the operation as `OpSpec` of the library has it."""
        return _FORMATS[self.code].pack(self.code, *self._numbers(first_product))

    def _numbers(self, first_product: int) -> Iterator[int | float]:
        for name, kind in self.types.items():
            value = getattr(self, name)
            if kind == "Products":
                yield from (first_product, len(value))
            elif FORMATS[kind] == _VIEW_FORMAT:
                yield from View() if value is None else value
            else:
                yield -1 if value is None else value


class Computed(Op, abstract=True):
    """An operation with one result."""

    out: Output


class _OfOne(Computed, abstract=True):
    x: Input


class Lookup(Computed):
    """Rows of a table by the tokens, or by their positions."""

    table: WeightNumber
    by_position: bool
    offset: int  # of the first row


class Linear(Op):
    """Matrix products with the same input."""

    x: Input
    products: Products

    @property
    def all_products(self) -> Products:
        return self.products


class ExpertLinear(Op):
    """Matrix products by the chosen experts, whose weights have consecutive numbers."""

    x: Input
    chosen: Input
    products: Products
    top_k: int
    rows_per_x: int  # chosen experts that read the same row
    num_experts: int

    @property
    def all_products(self) -> Products:
        return self.products


class PerHead(_OfOne):
    """One matrix for each head."""

    matrix: WeightNumber
    size: int  # of a head: rows of its matrix
    transposed: bool


class _Norm(_OfOne, abstract=True):
    weight: WeightNumber | None
    weight_rows: int
    eps: float
    offset: float


class RMSNorm(_Norm):
    """x / √(mean(x²) + eps) · (offset + weight)."""


class LayerNorm(_Norm):
    """(x − mean) / √(var + eps) · (offset + weight) + bias."""

    bias: WeightNumber | None


class L2Norm(_OfOne):
    """x / √(Σ x² + eps)."""

    eps: float


class Act(_OfOne):
    """An activation function."""

    function: int


class Gated(Computed):
    """function(gate) · up."""

    gate: Input
    up: Input
    function: int


class ClampedGated(Computed):
    """(clamp(up, ±limit) + 1) · g · sigmoid(alpha · g) with g = min(gate, limit)."""

    gate: Input
    up: Input
    limit: float
    alpha: float


class Add(_OfOne):
    """x + y."""

    y: Input


class Multiply(_OfOne):
    """x · y, where y may have one number for each head."""

    y: Input


class Scale(_OfOne):
    """x · factor + amount."""

    factor: float
    amount: float


class ScaleByWeight(_OfOne):
    """x · a weight with one number, one for each head, or one for each channel."""

    weight: WeightNumber


class ScaleByPosition(_OfOne):
    """x · a factor by position: 1 of the logarithm, 2 of its floor, 3 of a ratio of logarithms."""

    kind: int
    scale: float
    floor: float
    offset: float


class Softcap(_OfOne):
    """cap · tanh(x / cap)."""

    cap: float


class Clamp(_OfOne):
    """x within ±limit."""

    limit: float


class Softplus(_OfOne):
    """softplus(x + bias) within low … high."""

    bias: WeightNumber
    low: float
    high: float


class Decay(_OfOne):
    """−exp(a_log) · x."""

    a_log: WeightNumber


class BoundedDecay(_OfOne):
    """bound · sigmoid(exp(a_log) · (x + bias))."""

    a_log: WeightNumber
    bias: WeightNumber
    bound: float


class Copy(_OfOne):
    """x at another place."""


class LastToken(_OfOne):
    """The rows of the last tokens."""


class Rope(_OfOne):
    """A rotary embedding."""

    rope: RopeNumber
    interleaved: bool


class Store(Op):
    """The cache gets the vectors of new tokens."""

    x: Input
    cache: CacheNumber


class Attention(Computed):
    """Attention to cached keys and values, each a part of the vectors of a cache."""

    q: Input
    key_cache: CacheNumber
    first_key: int
    key_dim: int
    value_cache: CacheNumber
    first_value: int
    value_dim: int
    window: int  # 0: none
    chunk: int  # 0: none
    sinks: WeightNumber | None
    scale: float
    softcap: float  # 0: none
    has_alibi: bool
    alibi_bias: float
    alibi_scale: float


class CausalConv(_OfOne):
    """A causal convolution over the tokens of each channel."""

    weight: WeightNumber
    bias: WeightNumber | None
    state: StateNumber
    taps: int


class DeltaRule(Computed):
    """The gated delta rule."""

    q: Input
    k: Input
    v: Input
    g: Input
    beta: Input
    state: StateNumber
    decay_by_row: bool


class SSMScan(_OfOne):
    """Mamba-2's recurrence."""

    b: Input
    c: Input
    dt: Input
    a_log: WeightNumber
    state: StateNumber


class SelectiveScan(_OfOne):
    """Mamba's recurrence."""

    b: Input
    c: Input
    dt: Input
    a_log: WeightNumber
    skip: WeightNumber
    state: StateNumber


class Route(Op):
    """The chosen experts of each token, and their weights."""

    chosen: Output
    weights: Output
    logits: Input
    correction: WeightNumber | None
    top_k: int
    scoring: int
    choice_by_logits: bool
    normalize: bool
    groups: int  # 0: none
    kept_groups: int
    best_of_group: int
    scaling: float
    other: float  # the rank of the experts of all other groups


class RouteByToken(Op):
    """Experts by the token, from a table."""

    chosen: Output
    weights: Output
    logits: Input
    table: WeightNumber
    table_rows: int
    top_k: int
    scoring: int
    scaling: float


class Dispatch(_OfOne):
    """The rows of the chosen experts, by their weights."""

    weights: Input
    top_k: int


class Combine(Computed):
    """The sum of the results of the chosen experts, by their weights."""

    y: Input
    weights: Input
    chosen: Input
    x: Input | None  # what experts without weights return
    top_k: int
    num_experts: int
    has_equal_weights: bool


class ScaleByExpert(Computed):
    """The weights of the chosen experts, each by a factor of the expert."""

    weights: Input
    chosen: Input
    scale: WeightNumber
    num_experts: int


class AddSinusoids(_OfOne):
    """x + the sines and cosines of the position."""

    offset: int
    steps: int


class MixStreams(_OfOne):
    """Sums of streams by their weights."""

    weights: Input


class Sinkhorn(_OfOne):
    """A matrix with rows and columns divided by their sums."""

    iterations: int
    eps: float


class NormalizeSum(_OfOne):
    """x / Σ x."""


class LayerEnd(Op):
    """The hidden states after a layer, for those who ask for them."""

    x: Input
    layer: int


_FIELDS = ["".join(FORMATS[x] for x in op.types.values()) for op in OPERATIONS]
OP_SIZE = 8 + max(Struct(x).size for x in _FIELDS)
"""Bytes of an operation."""
_FORMATS = [Struct(f"q{x}{OP_SIZE - 8 - Struct(x).size}x") for x in _FIELDS]
VERSION = (
    crc32(repr((INTERFACE, View._fields, *((x.name, x.types) for x in OPERATIONS))).encode()) >> 1
)
"""The number of this description, which the library must have, too."""
