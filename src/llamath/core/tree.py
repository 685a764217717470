"""The tree: `Weight` leaves, `Block` branches, `Stack` for repetition, and `walk`, the only traversal.

A path is canonical and ours (`layers.3.attn.q.weight`); its pattern has `{l}` for the layer and `{e}` for the expert.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import ClassVar, Literal, NamedTuple, overload

from .expr import Dim, product
from .record_type import Record

Role = Literal["matmul", "lookup", "scale", "bias"]


class Weight(Record):
    """A leaf: one matrix or vector, by the meaning of its dimensions, output first."""

    shape: tuple[Dim, ...]
    role: Role
    tied: str = ""  # the path of the weight that this one shares its numbers with
    buffer: bool = False  # stored with the model, but not a parameter in the reference implementation

    @property
    def size(self) -> Dim:
        """How many numbers it has, tied or not."""
        return product(self.shape)

    @property
    def parameters(self) -> Dim:
        """How many numbers it adds to the model: none if they are another's."""
        return Dim.const(0) if self.tied else self.size


class Cut(NamedTuple):
    """How tensor parallelism cuts the weights of a field: along which axis (0 the outputs, 1 the inputs), between how many things."""

    axis: int
    parts: str = ""  # the block's fact that counts the things never cut through, like `heads`; empty: each row or column stands alone
    on_indivisible: Literal["", "copy", "pad"] = (
        ""  # where ranks do not divide them: nothing goes, or ranks hold copies, or zeros are added
    )


class Split(NamedTuple):
    """A `Cut` as it is for one weight."""

    axis: int
    parts: int
    on_indivisible: Literal["", "copy", "pad"] = ""
    unit: str = ""  # what the parts are: a fact's name, or the letter of the axis


class Block(Record):
    """A branch: its fields are Weights, Blocks, Stacks of Blocks, or plain facts; field order is tensor order."""

    group: ClassVar[str] = ""  # what its weights are counted under; the innermost group wins
    groups: ClassVar[dict[str, str]] = {}  # and what those of some fields are, whatever lies inside (norms stay norms)
    excluded: ClassVar[frozenset[str]] = frozenset()  # fields that come with the model but are not it: never walked, never counted
    cuts: ClassVar[dict[str, Cut]] = {}  # how tensor parallelism cuts a field's own weights; those of others are whole on every rank
    expert_parallel: ClassVar[frozenset[str]] = frozenset()  # the Stacks whose blocks expert parallelism deals out over ranks

    @property
    def children(self) -> Iterator[tuple[str, Weight | Block | Stack]]:
        """The fields that hold weights, by name, without those apart."""
        parts = ((name, getattr(self, name)) for name in self.fields if name not in self.excluded)
        return ((name, x) for name, x in parts if isinstance(x, (Weight, Block, Stack)))

    def split(self, name: str, weight: Weight) -> Split | None:
        """How a weight that lies in this field, and no deeper, is cut; None: whole on every rank."""
        cut, n = self.cuts.get(name), len(weight.shape)
        if cut is None or not -n <= cut.axis < n:
            return None
        axis = cut.axis % n
        parts = int(getattr(self, cut.parts) if cut.parts else weight.shape[axis])
        return Split(axis, parts, cut.on_indivisible, cut.parts or weight.shape[axis].symbol)


class Stack(Sequence[Block]):
    """Blocks one after another, kept as runs (a pattern of blocks, how often), so that 10⁹ layers cost what one does."""

    def __init__(self, *runs: tuple[tuple[Block, ...], int], active: int | None = None, count_dim: int | None = None) -> None:
        self.count_dim = count_dim  # how many blocks there are, with the letter that says so
        self.runs = tuple((pattern, times) for pattern, times in runs if pattern and times)
        self.active = active  # how many of the blocks one token passes through; None: all of them

    @property
    def n(self) -> int:
        """How many blocks there are; a Dim where one letter says it."""
        if self.count_dim is not None:
            return self.count_dim
        counts = [times if len(pattern) == 1 else len(pattern) * int(times) for pattern, times in self.runs]
        return counts[0] if len(counts) == 1 else sum(map(int, counts))

    def distinct(self) -> list[tuple[Block, int]]:
        """Each distinct block object once, in order of first appearance, with how often it occurs."""
        found: dict[int, tuple[Block, int]] = {}
        for pattern, times in self.runs:
            for block in pattern:
                n = found[id(block)][1] if id(block) in found else 0
                found[id(block)] = (block, n + times if n else times)
        return list(found.values())

    def __len__(self) -> int:
        return int(self.n)

    def __iter__(self) -> Iterator[Block]:
        return (block for pattern, times in self.runs for _ in range(times) for block in pattern)

    @overload
    def __getitem__(self, index: int) -> Block: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Block, ...]: ...
    def __getitem__(self, index: int | slice) -> Block | tuple[Block, ...]:
        if isinstance(index, slice):
            return tuple(islice(self, *index.indices(int(self.n))))
        left = index + int(self.n) if index < 0 else index
        for pattern, times in self.runs:
            if 0 <= left < len(pattern) * times:
                return pattern[left % len(pattern)]
            left -= len(pattern) * times
        raise IndexError(index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stack) and (self.runs, self.active) == (other.runs, other.active)

    def __hash__(self) -> int:
        return hash((self.runs, self.active))

    def __repr__(self) -> str:
        return f"Stack({', '.join(map(repr, self.runs))})"


def repeat(block: Block, n: int, active: int | None = None) -> Stack:
    """The same block n times; a token passes through `active` of them."""
    return Stack(((block,), n), active=active)


def cycle(pattern: Sequence[Block], n: int) -> Stack:
    """A pattern of blocks, over and over, until there are n."""
    whole, rest = divmod(int(n), len(pattern))
    return Stack((tuple(pattern), whole), (tuple(pattern[:rest]), 1), count_dim=n) if len(pattern) > 1 else repeat(pattern[0], n)


def sequence(blocks: Iterable[Block], count_dim: int | None = None) -> Stack:
    """Blocks as listed; neighbours that are one object become a run. `count_dim` is their number as a Dim."""
    runs: list[tuple[tuple[Block, ...], int]] = []
    for block in blocks:
        if runs and runs[-1][0][0] is block:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append(((block,), 1))
    return Stack(*runs, count_dim=count_dim)


def iter_stacks(block: Block) -> Iterator[Stack]:
    """Every Stack inside a block, at any depth."""
    for _, child in block.children:
        if isinstance(child, Stack):
            yield child
            yield from (inner for x, _ in child.distinct() for inner in iter_stacks(x))
        elif isinstance(child, Block):
            yield from iter_stacks(child)


class FoldedBlock(NamedTuple):
    """A block that occurs `copies` times; a token passes through `active` of them."""

    pattern: str
    block: Block
    copies: int
    active: int


def fold_blocks(block: Block, depth: int = 0) -> Iterator[FoldedBlock]:
    """A block itself and every distinct one inside it, at any depth, with its number of copies: `fold`, but of what is not a leaf."""
    yield FoldedBlock("", block, 1, 1)
    for name, child in block.children:
        if isinstance(child, Block):
            yield from _grown(name, child, (1, 1), depth)
        elif isinstance(child, Stack):
            for x, n in child.distinct():
                yield from _grown(f"{name}.{LETTERS[depth]}", x, (n, n if child.active is None else child.active), depth + 1)


def _grown(name: str, block: Block, times: tuple[int, int], depth: int) -> Iterator[FoldedBlock]:
    for x in fold_blocks(block, depth):
        yield FoldedBlock(f"{name}.{x.pattern}" if x.pattern else name, x.block, times[0] * x.copies, times[1] * x.active)


class Leaf(NamedTuple):
    """A weight with its place: `pattern` holds `{l}` and `{e}`, `at` their values."""

    pattern: str
    indices: tuple[int, ...]
    weight: Weight
    group: str

    @property
    def path(self) -> str:
        """The canonical path, `layers.3.attn.q.weight`."""
        return fill_pattern(self.pattern, self.indices)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Its dimensions, output first; each knows its letters."""
        return self.weight.shape

    @property
    def parameters(self) -> int:
        """What it adds to the total; 0 for a tied copy."""
        return int(self.weight.parameters)


LETTERS = ("{l}", "{e}")
Memo = dict[tuple[int, int], list[Leaf]]


def fill_pattern(pattern: str, at: tuple[int, ...]) -> str:
    """A pattern with its letters replaced by numbers."""
    for letter, i in zip(LETTERS, at, strict=False):
        pattern = pattern.replace(letter, str(i))
    return pattern


def walk(block: Block) -> Iterator[Leaf]:
    """Every leaf in tensor order, streamed; what lies inside an object that occurs often is worked out once."""
    memo: Memo = {}
    return (leaf for name, _ in block.children for leaf in walk_field(block, name, 0, memo))


def walk_field(block: Block, name: str, depth: int = 0, memo: Memo | None = None) -> Iterator[Leaf]:
    """The leaves under one field of a block."""
    memo = {} if memo is None else memo
    child: Weight | Block | Stack = getattr(block, name)
    group = (block.groups.get(name, ""), block.group)
    if isinstance(child, Weight):
        yield Leaf(name, (), child, group[0] or group[1])
    elif isinstance(child, Block):
        yield from _placed(name, child, group, depth, memo)
    else:
        prefix = f"{name}.{LETTERS[depth]}"
        inside = {id(x): _placed(prefix, x, group, depth + 1, memo) for x, _ in child.distinct()}
        for i, x in enumerate(child):
            for pattern, at, weight, own in inside[id(x)]:
                yield Leaf(pattern, (i, *at), weight, own)


def _placed(prefix: str, block: Block, group: tuple[str, str], depth: int, memo: Memo) -> list[Leaf]:
    if (key := (id(block), depth)) not in memo:
        memo[key] = [leaf for name, _ in block.children for leaf in walk_field(block, name, depth, memo)]
    return [Leaf(f"{prefix}.{x.pattern}", x.indices, x.weight, _grouped(x.group, group)) for x in memo[key]]


class Folded(NamedTuple):
    """A weight that occurs `copies` times; a token passes through `active` of them."""

    pattern: str
    weight: Weight
    group: str
    copies: int
    active: int
    split: Split | None = None  # how tensor parallelism cuts it
    num_experts: int = 0  # how many experts there are, if it is part of one


def fold(block: Block, depth: int = 0) -> list[Folded]:
    """Every distinct leaf once with its number of copies, in tree order: exact and instant at any depth."""
    return [x for name, _ in block.children for x in fold_field(block, name, depth)]


def fold_field(block: Block, name: str, depth: int = 0) -> list[Folded]:
    """The folded leaves under one field of a block."""
    child: Weight | Block | Stack = getattr(block, name)
    group = (block.groups.get(name, ""), block.group)
    if isinstance(child, Weight):
        return [Folded(name, child, group[0] or group[1], 1, 1, block.split(name, child))]
    if isinstance(child, Block):
        inner = fold(child, depth)
        if name in block.cuts:
            inner = [x._replace(split=block.split(name, x.weight)) if "." not in x.pattern else x for x in inner]
        return _renamed(name, inner, group, (1, 1))
    prefix = f"{name}.{LETTERS[depth]}"
    kinds = [(x, (n, n if child.active is None else child.active)) for x, n in child.distinct()]
    found = [y for x, times in kinds for y in _renamed(prefix, fold(x, depth + 1), group, times)]
    return [x._replace(num_experts=int(child.n)) for x in found] if name in block.expert_parallel else found


def _renamed(prefix: str, inner: list[Folded], group: tuple[str, str], times: tuple[int, int]) -> list[Folded]:
    return [
        Folded(
            f"{prefix}.{x.pattern}", x.weight, _grouped(x.group, group), times[0] * x.copies, times[1] * x.active, x.split, x.num_experts
        )
        for x in inner
    ]


def _grouped(own: str, group: tuple[str, str]) -> str:
    """What a leaf is counted under: its parent forces a group upon all but norms, and lends one to those without."""
    forced, lent = group
    return own if own == "norm" else forced or own or lent
