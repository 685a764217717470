"""The tree of a model: `Weight` leaves, `Block` nodes, `Stack` for repetition, and the traversals
`walk` and `fold`.

Paths are canonical (`layers.3.attn.q.weight`); in a pattern, `{l}` stands for the layer and `{e}`
for the expert.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Literal, NoReturn, TypeVar, overload

from ..utils.errors import LlamathError
from ..utils.named_tuple import NamedTuple
from ..utils.record_type import Record
from .expr import Expr, as_number, floor_div, product

X = TypeVar("X")
Role = Literal["matmul", "lookup", "scale", "bias"]


TOWER_GROUPS = frozenset({"vision", "audio", "projector"})
"""Groups of whole parts of a multimodal model, with their norms."""


class Weight(Record):
    """A leaf: one matrix or vector with named dimensions, output first."""

    shape: tuple[Expr, ...]
    role: Role
    # path of the weight whose values this one shares, with `{e}` for the number of a block in a
    # stack inside a layer
    tied: str = ""
    buffer: bool = False  # stored in files, but not a parameter of the reference implementation
    # stored dtype, if published checkpoints have another one than for the other weights
    dtype: str = ""
    # rows that a token reads of a table beside the token embedding: only they count as active; 0:
    # all count
    rows_read: int = 0

    @property
    def size(self) -> Expr:
        """The number of elements, tied or not."""
        kept: Expr | None = vars(self).get("_size")
        if kept is None:
            kept = vars(self)["_size"] = product(self.shape)
        return kept

    @property
    def parameters(self) -> Expr:
        """The number of parameters that it adds to the model: 0 if it is tied."""
        return Expr.const(0) if self.tied else self.size

    @property
    def active_parameters(self) -> Expr:
        """Those of its parameters that count as active."""
        return (
            product((self.rows_read, *self.shape[1:]))
            if self.rows_read and not self.tied
            else self.parameters
        )


class Cut(NamedTuple):
    """How tensor parallelism shards the weights of a field: the axis (0 outputs, 1 inputs) and
    the unit that is never split.
    """

    axis: int
    # field of the block with the number of units, like `heads`; empty: single rows or columns
    parts: str = ""
    on_indivisible: Literal["", "copy", "pad"] = (
        # if the ranks do not divide them: not possible, ranks hold copies, or zeros are appended
        ""
    )


class Split(NamedTuple):
    """A `Cut` applied to one weight."""

    axis: int
    parts: int
    on_indivisible: Literal["", "copy", "pad"] = ""
    unit: str = ""  # name of the parts: a field of the block, or the letter of the axis


class Block(Record):
    """A node: its fields are Weights, Blocks, Stacks of Blocks, or plain values; field order is
    tensor order.
    """

    group: ClassVar[str] = ""  # group under which its weights are counted; the innermost group wins
    # groups of single fields, which override those inside (except norms)
    groups: ClassVar[dict[str, str]] = {}
    # fields that are stored with the model but excluded from traversals and counts
    excluded: ClassVar[frozenset[str]] = frozenset()
    # sharding of the weights of single fields; all others are replicated
    cuts: ClassVar[dict[str, Cut]] = {}
    # Stacks whose blocks expert parallelism distributes over ranks
    expert_parallel: ClassVar[frozenset[str]] = frozenset()
    # linear layers that transformers' class excepts from quantization
    unquantized: ClassVar[frozenset[str]] = frozenset()
    # of what mixes tokens: its name in one or two words; empty: that of the class
    short_name: ClassVar[str] = ""
    # sizes that the stored layouts of the weights inside depend on, by field of `LayoutParams`
    layout_sizes: ClassVar[dict[str, str]] = {}
    # transformers has a linear layer of its own in its place, which quantizers find
    is_linear_layer: ClassVar[bool] = False
    # its forward works unchanged on shards of its weights; each class says so for itself
    computes_on_shards: ClassVar[bool] = False
    # of a layer: text without images passes it unchanged
    reads_only_images: ClassVar[bool] = False
    # nothing in it gets a gradient from the loss of the model
    without_gradient: ClassVar[bool] = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the block: `forward(self, m, x)` is written in the operations of the `Machine`
        m, and states the computation once.
        """
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def __call__(self, machine: object, x: X, *rest: X) -> X:
        """Compute the block on a `Machine`."""
        y: X = self.forward(machine, x, *rest)
        return y

    @property
    def children(self) -> Sequence[tuple[str, Weight | Block | Stack]]:
        """The fields with weights, by name, without the excluded ones."""
        kept: tuple[tuple[str, Weight | Block | Stack], ...] | None = vars(self).get("_children")
        if kept is None:  # a Block never changes
            parts = ((x, getattr(self, x)) for x in self.fields if x not in self.excluded)
            # the type of a Stack, since Sequence's check of its subclasses is slow
            kept = tuple(
                [(n, x) for n, x in parts if isinstance(x, (Weight, Block)) or type(x) is Stack]
            )
            vars(self)["_children"] = kept
        return kept

    def child(self, name: str) -> Weight | Block | Stack:
        """The field with weights of this name."""
        found: Weight | Block | Stack = getattr(self, name)
        return found

    def split(self, name: str, weight: Weight) -> Split | None:
        """The sharding of a weight directly in this field; None: replicated on every rank."""
        cut = self.cuts.get(name)
        if cut is None or not -(n := len(weight.shape)) <= cut.axis < n:
            return None
        axis = cut.axis % n
        parts = getattr(self, cut.parts) if cut.parts else weight.shape[axis]
        return Split(axis, parts, cut.on_indivisible, cut.parts or weight.shape[axis].symbol)


class CountedOnly(LlamathError):
    """The forward pass of a block was asked for whose weights are counted, but not computed
    with.
    """


def counted_only(what: str) -> Callable[..., NoReturn]:
    """Return the `forward` of a block that is counted only: it refuses, by the name of the
    family and of its part.
    """

    def forward(*_inputs: object) -> NoReturn:
        hint = (
            "`count`, `names`, `ls`, `verify`, `diff`, `quants` and `convert` need no forward pass"
        )
        raise CountedOnly(
            f"llamath does not compute {what}: the weights of this model are counted only",
            hint=hint,
        )

    vars(forward)["counted_only"] = what
    return forward


class Arrangement(NamedTuple):
    """The blocks of a stack for any number of them: the first ones, some that are repeated in turn,
    and the last ones.
    """

    first: tuple[Block, ...]
    repeated: tuple[Block, ...]
    last: tuple[Block, ...]

    def number_of(self, block: Block, n: int) -> int:
        """Return how many of n blocks are this one."""
        ends = sum(x is block for x in (*self.first, *self.last))
        times, turn = n - len(self.first) - len(self.last), len(self.repeated)
        places = {i for i, x in enumerate(self.repeated) if x is block}
        # all but the others, where there are fewer of these
        is_most = 2 * len(places) > turn
        counted = {*range(turn)} - places if is_most else places
        found: int = sum(floor_div(times + (turn - 1 - i), turn) for i in sorted(counted))
        number: int = (times - found if is_most else found) + ends
        return number

    def map(self, of: Callable[[Block], X]) -> tuple[list[X], list[X], list[X]]:
        """Return what `of` makes of the first, the repeated and the last blocks."""
        return ([of(x) for x in self.first], [of(x) for x in self.repeated], [*map(of, self.last)])


class Stack(Sequence[Block]):
    """A sequence of blocks, stored as runs (a pattern of blocks and a number of repetitions), so
    that 10⁹ layers cost as much as one.
    """

    def __init__(
        self,
        *runs: tuple[tuple[Block, ...], int],
        active: int | None = None,
        count_dim: int | None = None,
        first: int = 0,
        arrangement: Arrangement | None = None,
    ) -> None:
        # number of the first block, in a stack that goes on with the numbers of another
        self.first = first
        self.arrangement = arrangement  # where the blocks follow their number
        self.count_dim = count_dim  # number of blocks as a Expr, if one letter stands for it
        self.runs = tuple((pattern, times) for pattern, times in runs if pattern and times)
        self.active = active  # number of blocks that one token passes through; None: all of them
        self._distinct: list[tuple[Block, int]] | None = None

    @property
    def n(self) -> int:
        """The number of blocks; a Expr if one letter stands for it."""
        if self.count_dim is not None:
            return self.count_dim
        counts = [
            times if len(pattern) == 1 else len(pattern) * int(times)
            for pattern, times in self.runs
        ]
        return counts[0] if len(counts) == 1 else sum(map(int, counts))

    def distinct(self) -> list[tuple[Block, int]]:
        """Each distinct block once, in order of first appearance, with its number of
        occurrences.
        """
        if self._distinct is None:  # the blocks of a stack never change
            found: dict[int, tuple[Block, int]] = {}
            for pattern, times in self.runs:
                for block in pattern:
                    n = found[id(block)][1] if id(block) in found else 0
                    found[id(block)] = (block, n + times if n else times)
            if (order := self.arrangement) is not None:
                n = self.n if isinstance(self.n, Expr) and self.n.variables else as_number(self.n)
                # one that is in letters is the builder's own formula
                found |= {
                    key: (x, order.number_of(x, n))
                    for key, (x, times) in found.items()
                    if not (isinstance(times, Expr) and (times.symbols or times.variables))
                }
            self._distinct = list(found.values())
        return self._distinct

    def with_blocks(self, change: Callable[[Block], Block]) -> Stack:
        """Return the stack with each distinct block changed."""
        new = {id(x): change(x) for x, _ in self.distinct()}

        def changed(blocks: Iterable[Block]) -> tuple[Block, ...]:
            return tuple(new[id(x)] for x in blocks)

        order = self.arrangement
        return Stack(
            *((changed(pattern), times) for pattern, times in self.runs),
            active=self.active,
            count_dim=self.count_dim,
            first=self.first,
            arrangement=None if order is None else Arrangement(*map(changed, order)),
        )

    def uses(self) -> Iterator[tuple[Block, int, int]]:
        """Yield each distinct block with its number of occurrences, and how many of them a token
        passes through, the first ones.
        """
        left = self.active
        for x, n in self.distinct():
            active = n if left is None or n < left else left
            yield x, n, active
            left = None if left is None else left - active

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
        return isinstance(other, Stack) and (self.runs, self.active, self.first) == (
            other.runs,
            other.active,
            other.first,
        )

    def __hash__(self) -> int:
        return hash((self.runs, self.active))

    def __repr__(self) -> str:
        return f"Stack({', '.join(map(repr, self.runs))})"


def repeat(block: Block, n: int, active: int | None = None) -> Stack:
    """A stack of one block n times; a token passes through `active` of them."""
    return Stack(((block,), n), active=active)


def cycle(pattern: Sequence[Block], n: int) -> Stack:
    """A stack that repeats a pattern of blocks until there are n."""
    whole, rest = divmod(int(n), len(pattern))
    return (
        Stack((tuple(pattern), whole), (tuple(pattern[:rest]), 1), count_dim=n)
        if len(pattern) > 1
        else repeat(pattern[0], n)
    )


def sequence(blocks: Iterable[Block], count_dim: int | None = None) -> Stack:
    """A stack of the listed blocks, in which equal neighbors become a run; `count_dim` is their
    number as a Expr.
    """
    runs: list[tuple[tuple[Block, ...], int]] = []
    for block in blocks:
        if runs and runs[-1][0][0] is block:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append(((block,), 1))
    return Stack(*runs, count_dim=count_dim)


B = TypeVar("B", bound=Block)


def tie(block: B, path: str) -> B:
    """Return a block whose weights share the values of those of the block at this path, as where
    layers share one block.
    """
    changes: dict[str, Weight | Block | Stack] = {}
    for name, child in block.children:
        at = f"{path}.{name}"
        if isinstance(child, Weight):
            changes[name] = child.replace(tied=at)
        elif isinstance(child, Block):
            changes[name] = tie(child, at)
        else:
            changes[name] = child.with_blocks(partial(tie, path=f"{at}.{LETTERS[1]}"))
    return block.replace(**changes)


def iter_stacks(*blocks: Block) -> Iterator[Stack]:
    """Yield every Stack inside of blocks, at any depth; one that is in several places once."""
    todo: list[Block | Stack] = [*reversed(blocks)]
    seen: set[int] = set()
    while todo:
        x = todo.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, Stack):
            yield x
            inner: list[Block | Stack] = [y for y, _ in x.distinct()]
        else:
            inner = [y for _, y in x.children if not isinstance(y, Weight)]
        todo += reversed(inner)


class FoldedBlock(NamedTuple):
    """A block that occurs `copies` times; a token passes through `active` of them."""

    pattern: str
    block: Block
    copies: int
    active: int


def fold_blocks(block: Block, depth: int = 0) -> Sequence[FoldedBlock]:
    """Return a block and every distinct block inside it, at any depth, with its number of copies.

    Blocks never change, so each keeps those inside it.
    """
    kept: dict[int, tuple[FoldedBlock, ...]] = vars(block).setdefault("_folded_blocks", {})
    if depth not in kept:
        kept[depth] = (FoldedBlock("", block, 1, 1), *_blocks_inside(block, depth))
    return kept[depth]


def _blocks_inside(block: Block, depth: int) -> Iterator[FoldedBlock]:
    for name, child in block.children:
        if isinstance(child, Block):
            yield from _fold_inside(name, child, (1, 1), depth)
        elif type(child) is Stack:
            for x, n, active in child.uses():
                yield from _fold_inside(f"{name}.{LETTERS[depth]}", x, (n, active), depth + 1)


def _fold_inside(
    name: str, block: Block, times: tuple[int, int], depth: int
) -> Iterator[FoldedBlock]:
    for x in fold_blocks(block, depth):
        yield FoldedBlock(
            f"{name}.{x.pattern}" if x.pattern else name,
            x.block,
            times[0] * x.copies,
            times[1] * x.active,
        )


class Leaf(NamedTuple):
    """A weight with its place: `pattern` has `{l}` and `{e}`, `indices` are their values."""

    pattern: str
    indices: tuple[int, ...]
    weight: Weight
    group: str

    @property
    def path(self) -> str:
        """The canonical path, `layers.3.attn.q.weight`."""
        return fill_pattern(self.pattern, self.indices)

    @property
    def tied_path(self) -> str:
        """The canonical path of the weight whose values it shares; empty if it has its own."""
        return fill_tied(self.weight.tied, self.indices)

    @property
    def shape(self) -> tuple[Expr, ...]:
        """Its dimensions, output first."""
        return self.weight.shape

    @property
    def parameters(self) -> int:
        """The number of parameters that it adds to the total; 0 if it is tied."""
        return int(self.weight.parameters)


LETTERS = ("{l}", "{e}")
_Memo = dict[tuple[int, int], list[Leaf]]


def fill_pattern(pattern: str, at: tuple[int, ...]) -> str:
    """Replace the letters of a pattern by numbers."""
    for letter, i in zip(LETTERS, at, strict=False):
        pattern = pattern.replace(letter, str(i))
    return pattern


LOOPED = "{l%"
"""What a path has instead of `{l}` where the layers run several times: `{l%22}` is the number of
the layer in the first pass, of 22."""


def fill_tied(path: str, at: tuple[int, ...]) -> str:
    """Replace the letters of the path of a weight whose values are shared."""
    before, looped, after = path.partition(LOOPED)
    if looped:
        layers, _, after = after.partition("}")
        path = f"{before}{at[0] % int(layers)}{after}"
    return fill_pattern(path, at)


def runs_again(block: Block) -> bool:
    """Whether a layer is one of an earlier pass, which runs again: it has no weights of its own."""
    tied = [x.weight.tied for x in fold(block, 1)]
    return all(tied) and any(LOOPED in x for x in tied)


def walk(block: Block) -> Iterator[Leaf]:
    """Yield every leaf in tensor order; blocks that occur often are expanded once."""
    memo: _Memo = {}
    return (leaf for name, _ in block.children for leaf in walk_field(block, name, 0, memo))


def weight_at(block: Block, path: str) -> Weight | None:
    """Return the weight of a path without walking the others; None if there is none."""
    found: Any = block
    for part in path.split("."):
        if isinstance(found, Stack):
            at = int(part) - found.first if part.isdecimal() else -1
            found = found[at] if 0 <= at < int(found.n) else None
        else:
            known = isinstance(found, Block) and part in dict(found.children)
            found = found.child(part) if known else None
    return found if isinstance(found, Weight) else None


def walk_field(
    block: Block, name: str, depth: int = 0, memo: _Memo | None = None
) -> Iterator[Leaf]:
    """Yield the leaves under one field of a block."""
    memo = {} if memo is None else memo
    child = block.child(name)
    group = (block.groups.get(name, ""), block.group)
    if isinstance(child, Weight):
        yield Leaf(name, (), child, group[0] or group[1])
    elif isinstance(child, Block):
        yield from _leaves_at(name, child, group, depth, memo)
    else:
        prefix = f"{name}.{LETTERS[depth]}"
        inside = {id(x): _leaves_at(prefix, x, group, depth + 1, memo) for x, _ in child.distinct()}
        for i, x in enumerate(child, child.first):
            for pattern, at, weight, own in inside[id(x)]:
                yield Leaf(pattern, (i, *at), weight, own)


def _leaves_at(
    prefix: str, block: Block, group: tuple[str, str], depth: int, memo: _Memo
) -> list[Leaf]:
    if (key := (id(block), depth)) not in memo:
        memo[key] = [
            leaf for name, _ in block.children for leaf in walk_field(block, name, depth, memo)
        ]
    return [
        Leaf(f"{prefix}.{x.pattern}", x.indices, x.weight, _resolve_group(x.group, group))
        for x in memo[key]
    ]


class Folded(NamedTuple):
    """A weight that occurs `copies` times; a token passes through `active` of them."""

    pattern: str
    weight: Weight
    group: str
    copies: int
    active: int
    split: Split | None = None  # sharding under tensor parallelism
    num_experts: int = 0  # number of experts, if it is part of an expert


def fold(block: Block, depth: int = 0) -> Sequence[Folded]:
    """Return every distinct leaf once with its number of copies, in tree order; the cost does not
    depend on the number of layers.

    Blocks never change, so each keeps its leaves.
    """
    kept: dict[int, tuple[Folded, ...]] = vars(block).setdefault("_folded", {})
    if depth not in kept:
        kept[depth] = tuple(
            [x for name, _ in block.children for x in fold_field(block, name, depth)]
        )
    return kept[depth]


def fold_field(block: Block, name: str, depth: int = 0) -> Sequence[Folded]:
    """Return the folded leaves under one field of a block, which keeps them."""
    kept: dict[tuple[str, int], Sequence[Folded]] = vars(block).setdefault("_folded_fields", {})
    if (name, depth) not in kept:
        kept[name, depth] = _fold_field(block, name, depth)
    return kept[name, depth]


def _fold_field(block: Block, name: str, depth: int) -> Sequence[Folded]:
    child = block.child(name)
    group = (block.groups.get(name, ""), block.group)
    if isinstance(child, Weight):
        return [Folded(name, child, group[0] or group[1], 1, 1, block.split(name, child))]
    if isinstance(child, Block):
        inner = fold(child, depth)
        if name in block.cuts:
            inner = [
                Folded(*x[:5], block.split(name, x.weight), x.num_experts)
                if "." not in x.pattern
                else x
                for x in inner
            ]
        return _with_prefix(name, inner, group, (1, 1))
    prefix = f"{name}.{LETTERS[depth]}"
    found = [
        y
        for x, n, active in child.uses()
        for y in _with_prefix(prefix, fold(x, depth + 1), group, (n, active))
    ]
    return (
        [x._replace(num_experts=int(child.n)) for x in found]
        if name in block.expert_parallel
        else found
    )


def _with_prefix(
    prefix: str, inner: Sequence[Folded], group: tuple[str, str], times: tuple[int, int]
) -> list[Folded]:
    n, n_active = times
    groups = {own: _resolve_group(own, group) for own in {x.group for x in inner}}
    return [
        Folded(f"{prefix}.{path}", weight, groups[own], n * k, n_active * active, split, experts)
        for path, weight, own, k, active, split, experts in inner
    ]


def _resolve_group(own: str, group: tuple[str, str]) -> str:
    """The group of a leaf: that of its parent's field overrides all but norms, in towers those
    too; the parent's own is the fallback.
    """
    of_field, of_block = group
    return own if own == "norm" and of_field not in TOWER_GROUPS else of_field or own or of_block
