"""`Scheme`: the names and layouts of stored tensors, by canonical path of the weights.

A table maps modules to stored names; the name of the leaf (`weight`, `bias`) is appended unless the
table maps the leaf itself. Weights with the same stored name are concatenated in tree order;
without `{e}` in a stored name, experts are stacked along a new first axis. A stored name that
begins with `/` gets no prefix. Layers are numbered from `first_layer` on, and `{n}` is the number
after that of the last layer: `numbered` replaces it.

A layout is a list of words: `flip`: transposed, `[in, out]`. `heads`: concatenated by key/value
head (the rows of its queries, of its key, of its value), not by matrix. `rows`: concatenated row by
row. `split`: heads are a separate first axis. `rotary`: the rows of each head are interleaved pairs
instead of split halves. `shifted`: a norm's offset is added to its weights. `each`: concatenated by
query head (the rows of its query, of its gate). `quarters`: concatenated in four groups of heads
(the rows of their queries, of their values, of their keys). `unit`: an axis of length 1 after the
first. `lead`: an axis of length 1 before the first; the word may be repeated. `flat`: one axis.
`below`: the matrices of all experts below each other, not along an axis of their own. `decay`: −exp
of the weights. `tiled`: value heads are ordered by their index within a key head, then by key head.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from ...core.expr import Expr, product, total
from ...core.tree import Block, Leaf, Stack, Weight, fill_pattern, fold, walk, walk_field
from ...utils.errors import LlamathError
from ...utils.named_tuple import NamedTuple
from ...utils.record_type import Record


class StoredPart(NamedTuple):
    """A weight in a stored tensor: the pattern of its path, and the index of its expert, if any."""

    pattern: str
    indices: tuple[int, ...]
    weight: Weight


class StoredTensor(NamedTuple):
    """A tensor in a file: one weight, or several concatenated or stacked."""

    name: str
    shape: tuple[Expr, ...]
    parts: tuple[StoredPart, ...]
    layout: str = ""


class TiedNames(NamedTuple):
    """The stored names of a matrix that is tied and of the one whose values it shares, and their
    shape.
    """

    copy: str
    original: str
    shape: tuple[int, ...]


class Scheme(Record):
    """The names and layouts of the weights of a family in one kind of file."""

    name: str
    outside: Mapping[str, str]  # module or leaf pattern → stored name
    inside: Mapping[str, str]  # the same for weights in layers, without `layers.{l}.`
    layer: str  # prefix of the names in layers: `model.layers.{l}.`
    layouts: Mapping[str, str] = {}  # module or leaf pattern → layout
    fused: Mapping[str, str] = {}  # names that transformers 5 changes when it fuses experts
    prefix: str = ""  # prefix of all names, in a submodel
    first_layer: int = 0  # number of the first layer in stored names
    # paths in a layer that were concatenated, and stored in equal chunks (`torch.chunk`) under
    # their names
    chunked: tuple[str, ...] = ()
    # prefix of the names in MTP layers, numbered from 0, which do not store tied matrices again;
    # empty: `layer`
    mtp_layer: str = ""

    def with_changes(
        self, outside: Mapping[str, str] = {}, inside: Mapping[str, str] = {}, **changes: object
    ) -> Scheme:
        """Return a copy with changed entries; an empty name removes an entry."""
        tables = {"outside": {**self.outside, **outside}, "inside": {**self.inside, **inside}}
        return self.replace(**(tables | changes))

    def numbered(self, layers: int) -> Scheme:
        """Return the scheme of a model with so many layers: without `{n}`."""
        number = str(self.first_layer + layers)
        outside = {path: name.replace("{n}", number) for path, name in self.outside.items()}
        return self if outside == self.outside else self.replace(outside=outside)

    def in_layer(self, name: str, layer: int) -> str:
        """Return a stored name with the number of a layer, counted from 0."""
        return name.replace("{l}", str(layer + self.first_layer))

    def split_layer(self, name: str) -> tuple[int, str]:
        """Return the layer of a stored name, counted from 0, and the name with `{l}`; −1 and the
        name itself outside of the layers.
        """
        start, _, rest = (self.prefix + self.layer).partition("{l}")
        digits, found, own = name[len(start) :].partition(rest)
        if not (
            name.startswith(start)
            and found
            and digits.isascii()
            and digits.isdigit()
            and len(digits) < 10
        ):
            return -1, name
        layer = int(digits) - self.first_layer
        return (layer, f"{start}{{l}}{rest}{own}") if layer >= 0 else (-1, name)

    def stored_name(self, pattern: str) -> str:
        """Return the stored name of a path pattern; both contain `{l}` and `{e}`."""
        table, prefix, local = self.outside, self.prefix, pattern
        if pattern.startswith("layers.{l}."):
            table, prefix, local = self.inside, self.prefix + self.layer, pattern[11:]
        elif pattern.startswith("mtp.{l}."):
            table, prefix, local = (
                self.inside,
                self.prefix + (self.mtp_layer or self.layer),
                pattern[8:],
            )
        if stored := table.get(local):
            return _with_prefix(prefix, stored)
        module, _, leaf = local.rpartition(".")
        if stored := table.get(module):
            return f"{_with_prefix(prefix, stored)}.{leaf}"
        raise UnnamedWeight(f"{self.name} has no name for {pattern}")

    def name_of(self, leaf: Leaf) -> str:
        """Return the stored name of a weight."""
        return self.fill(self.stored_name(leaf.pattern), leaf)

    def fill(self, stored: str, leaf: Leaf) -> str:
        """Return the stored name of a weight's pattern with the numbers of the weight."""
        if self.first_layer and leaf.pattern.startswith("layers."):
            return fill_pattern(stored, (leaf.indices[0] + self.first_layer, *leaf.indices[1:]))
        return fill_pattern(stored, leaf.indices)

    def layout_of(self, pattern: str) -> str:
        """Return the layout of a weight."""
        local = pattern.removeprefix("layers.{l}.").removeprefix("mtp.{l}.")
        return self.layouts.get(local) or self.layouts.get(local.rpartition(".")[0], "")

    def tensors(self, block: Block) -> Iterator[StoredTensor]:
        """Yield all stored tensors in tree order; tied copies are left out."""
        for name, child in block.children:
            if not isinstance(child, Stack):
                yield from self._group(walk_field(block, name))
                continue
            by_block = {id(x): self.tensors_of_block(name, x) for x, _ in child.distinct()}
            for i, x in enumerate(child):
                number = str(i + self.first_layer)
                for name, shape, parts, layout in by_block[id(x)]:
                    yield StoredTensor(name.replace("{l}", number), shape, parts, layout)

    def flat_tensors(self, block: Block) -> tuple[list[str], list[StoredTensor]]:
        """Return the names of all stored tensors and, for each, its tensor; identical layers
        share tensors, whose names contain `{l}`.
        """
        names: list[str] = []
        tensors: list[StoredTensor] = []
        for field, child in block.children:
            if not isinstance(child, Stack):
                stored = self.tensors_of_field(block, field)
                names += [x.name for x in stored]
                tensors += stored
                continue
            inside = {id(x): self.tensors_of_block(field, x) for x, _ in child.distinct()}
            texts = {key: "\n".join(x.name for x in stored) for key, stored in inside.items()}
            for i, x in enumerate(child):
                names += self.in_layer(texts[id(x)], i).split("\n") if inside[id(x)] else ()
                tensors += inside[id(x)]
        return names, tensors

    @property
    def names_mtp(self) -> bool:
        """Whether there are names for layers for multi-token prediction."""
        return "join" in self.inside or bool(self.mtp_layer)

    def mtp_tensors(self, block: Block) -> Iterator[StoredTensor]:
        """Yield the tensors of the multi-token prediction layers."""
        for _, tensors in self.mtp_tensors_by_layer(block):
            yield from tensors

    def mtp_tensors_by_layer(self, block: Block) -> Iterator[tuple[int, list[StoredTensor]]]:
        """Yield the number and the tensors of each multi-token prediction layer; without names of
        their own they are numbered after the others, and tied matrices are stored again.
        """
        stack: Stack | None = getattr(block, "mtp", None)
        scheme = self.replace(layer=self.mtp_layer) if self.mtp_layer else self
        first = 0
        if stack and not self.mtp_layer:
            first = int(block.layers.n)  # type: ignore[attr-defined]
        for i, x in enumerate(stack or (), first):
            leaves = (
                x if self.mtp_layer else x._replace(weight=x.weight.replace(tied=""))
                for x in _inside("layers", x)
            )
            number = str(i if self.mtp_layer else i + self.first_layer)
            yield (
                i,
                [
                    stored._replace(name=stored.name.replace("{l}", number))
                    for stored in scheme._group(leaves)
                ],
            )

    def stored_mtp_layers(
        self, block: Block, names: Container[str]
    ) -> Iterator[list[StoredTensor]]:
        """Yield the tensors with these names of each multi-token prediction layer, up to the first
        layer that has none of them.

        A config may declare any number of layers.
        """
        for _, tensors in self.mtp_tensors_by_layer(block):
            found = [x for x in tensors if x.name in names]
            if not found:
                return
            yield found

    def tensors_of_field(self, block: Block, name: str) -> list[StoredTensor]:
        """Return the tensors of a field that is not a Stack."""
        return list(self._group(walk_field(block, name)))

    def tensors_of_block(self, name: str, block: Block) -> list[StoredTensor]:
        """Return the tensors of a block in the Stack of this name, with `{l}` in their names."""
        return list(self._group(_inside(name, block)))

    def _group(self, leaves: Iterable[Leaf]) -> Iterator[StoredTensor]:
        """Group leaves by stored name, with `{l}` in it."""
        groups: dict[str, list[StoredPart]] = {}
        known: dict[str, str] = {}
        for pattern, at, weight, _ in leaves:
            if not weight.tied:
                name = known.get(pattern) or known.setdefault(pattern, self.stored_name(pattern))
                if not pattern.startswith("layers.{l}."):
                    name, at = fill_pattern(name, at), ()
                name = name.replace("{e}", str(at[-1])) if at else name
                groups.setdefault(name, []).append(StoredPart(pattern, at, weight))
        stored = (self._stored(name, parts, known) for name, parts in groups.items())
        yield from _in_chunks(list(stored), self.chunked) if self.chunked else stored

    def _stored(self, name: str, parts: list[StoredPart], known: Mapping[str, str]) -> StoredTensor:
        first = parts[0]
        layout, stacked = (
            self.layout_of(first.pattern),
            bool(first.indices) and "{e}" not in known[first.pattern],
        )
        return StoredTensor(
            name=name, shape=_shape(parts, layout, stacked), parts=tuple(parts), layout=layout
        )


def renamed_scheme(scheme: Scheme, name: str, prefixes: Mapping[str, str]) -> Scheme:
    """Return the scheme under another name, with other beginnings of stored names: the first in
    the mapping that fits is replaced.
    """

    def rename(stored: str) -> str:
        old = next((x for x in prefixes if stored.startswith(x)), None)
        return stored if old is None else prefixes[old] + stored[len(old) :]

    return scheme.replace(
        name=name,
        layer=rename(scheme.layer),
        outside={path: rename(x) for path, x in scheme.outside.items()},
    )


class UnnamedWeight(LlamathError):
    """A scheme has no name for a weight."""


def _with_prefix(prefix: str, stored: str) -> str:
    return stored[1:] if stored.startswith("/") else prefix + stored


def _inside(name: str, block: Block) -> Iterator[Leaf]:
    prefix = f"{name}.{{l}}."
    return (
        Leaf(prefix + x.pattern.replace("{l}", "{e}"), x.indices, x.weight, x.group)
        for x in walk(block)
    )


def _shape(parts: list[StoredPart], layout: str, stacked: bool) -> tuple[Expr, ...]:
    """Return the shape of a stored tensor: concatenated, then split into heads, flipped, and
    stacked.
    """
    shapes = [part.weight.shape for part in parts if part.indices == parts[0].indices]
    shape = (total(x[0] for x in shapes), *shapes[0][1:]) if len(shapes) > 1 else shapes[0]
    heads: tuple[Expr, ...] = ()
    if "split" in layout:
        heads, shape = shape[0].factors[:1], (product(shape[0].factors[1:]), *shape[1:])
    if "flip" in layout:
        shape = tuple(reversed(shape))
    if "flat" in layout:
        shape = (product(shape),)
    if "unit" in layout:
        shape = (shape[0], Expr.const(1), *shape[1:])
    shape = (*heads, *(Expr.const(1),) * layout.split().count("lead"), *shape)
    if not stacked:
        return shape
    experts = Expr("E", len({part.indices for part in parts}))
    return (experts * shape[0], *shape[1:]) if "below" in layout else (experts, *shape)


def _in_chunks(tensors: Sequence[StoredTensor], chunked: Sequence[str]) -> list[StoredTensor]:
    """Return the tensors of a layer, those of the paths in `chunked` with the rows that
    `torch.chunk` gives each of them.
    """
    rows = [int(x.shape[0]) for x in tensors if is_chunked(x, chunked)]
    if not rows:
        return list(tensors)
    most, left = -(-sum(rows) // len(rows)), sum(rows)
    result = []
    for x in tensors:
        if is_chunked(x, chunked):
            x = x._replace(shape=(Expr.const(min(most, left)), *x.shape[1:]))
            left -= int(x.shape[0])
        result.append(x)
    return result


def is_chunked(x: StoredTensor, chunked: Sequence[str]) -> bool:
    """Whether a stored tensor is a chunk of several weights."""
    return x.parts[0].pattern.removeprefix("layers.{l}.") in chunked


def canonical_scheme(block: Block) -> Scheme:
    """Return the scheme whose names are the canonical paths."""
    patterns = dict.fromkeys(x.pattern for x in fold(block))
    inside = {
        x.removeprefix("layers.{l}."): x.removeprefix("layers.{l}.")
        for x in patterns
        if x.startswith("layers.{l}.")
    }
    return Scheme(
        name="llamath",
        layer="layers.{l}.",
        outside={x: x for x in patterns if not x.startswith("layers.")},
        inside=inside,
    )


def fused_scheme(scheme: Scheme) -> Scheme | None:
    """Return the scheme with all experts of a layer in two tensors, as transformers 5 has them
    in memory; None without experts.
    """
    inside = {
        path: name.replace("block_sparse_moe.", "mlp.").replace("ffn.", "mlp.")
        for path, name in scheme.inside.items()
    }
    joined: dict[str, str] = {}
    for path in [x for x in inside if x.endswith("experts.{e}.gate")]:
        where, (before, expert, _) = path.removesuffix("gate"), inside[path].partition(".{e}.")
        if not expert or f"{path}.weight" in inside:
            continue
        joined |= {f"{where}{x}.weight": f"{before}.gate_up_proj" for x in ("gate", "up")}
        joined[f"{where}down.weight"] = f"{before}.down_proj"
    return (
        scheme.replace(inside={**inside, **joined, **scheme.fused}, name="hf-fused")
        if joined
        else None
    )


def interleaved_order(size: int) -> list[int]:
    """Return the row order that turns a head of split halves into interleaved pairs: 0, h/2, 1,
    h/2 + 1 and so on.
    """
    return [i + j * (size // 2) for i in range(size // 2) for j in (0, 1)]


def half_split_order(size: int) -> list[int]:
    """Return the row order that turns a head of interleaved pairs into split halves: the even
    rows, then the odd ones.
    """
    return [2 * i + j for j in (0, 1) for i in range(size // 2)]
