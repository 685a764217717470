"""From wrong shapes to their cause: one configuration key, a shard of a parallel run, a transposition; each named once.

A cause is believed when the tree built with it fits the file, not because a name looks familiar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ...checkpoint.naming.scheme import Scheme, StoredTensor
from ...core.blocks import Decoder
from ...core.errors import LlamathError, safe
from ...core.expr import Dim
from ...core.tree import fold

Shape = tuple[int, ...]


class Expectation(NamedTuple):
    """What a configuration promises, and how to ask what another value of one key would promise."""

    tree: Decoder
    schemes: Sequence[Scheme]
    config_keys: Mapping[str, str]  # letter of a dimension → configuration key
    rebuild: Callable[[Mapping[str, Any]], Decoder]
    dtype: str = ""  # of the weights, as safetensors name it; empty: not said
    tokenizer_tokens: int | None = None  # how many the tokenizer beside it has
    tokenizer_error: str = ""  # why that is not known, though there is one
    is_submodel: bool = False  # the text model of something larger, whose other tensors lie in the same files


class Diagnosis(NamedTuple):
    """One cause and the tensors that it explains."""

    code: str
    message: str
    hint: str
    tensors: tuple[str, ...]


class ShapeMismatch(NamedTuple):
    """Tensors of one kind that differ from the tree in one way."""

    kind: str
    found: Shape
    shape: tuple[Dim, ...]
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """What they are, and what they should be."""
        expected = f"({', '.join(x.symbol for x in self.shape)}) = ({', '.join(str(int(x)) for x in self.shape)})"
        return f"{list(self.found)}; the config says {expected}"


def diagnose(
    claim: Expectation, scheme: Scheme, expected: Mapping[str, StoredTensor], found: Mapping[str, Shape], wrong: Mapping[str, StoredTensor]
) -> list[Diagnosis]:
    """The causes of every shape that is not the tree's, those of the tensors in `wrong`, the ones that explain most first."""
    groups = list(_groups(wrong, found))
    causes: list[Diagnosis] = []
    changes: dict[str, int] = {}  # the keys already blamed, with the values that the file has
    while groups:
        best = _shards(claim.tree, groups, expected, found) or _key(claim, scheme, groups, found, changes)
        if best is None:
            break
        cause, explained = best
        causes.append(cause)
        groups = [x for x in groups if not set(x.names) <= explained]
    return causes + [_plainly(x) for x in groups]


def _groups(wrong: Mapping[str, StoredTensor], found: Mapping[str, Shape]) -> Iterator[ShapeMismatch]:
    made: dict[tuple[tuple[str, ...], Shape], list[str]] = {}
    for name, x in wrong.items():
        made.setdefault((tuple(part.pattern for part in x.parts), found[name]), []).append(name)
    for (_, shape), names in made.items():
        yield ShapeMismatch(kind=_word(names[0]), found=shape, shape=wrong[names[0]].shape, names=tuple(names))


def _word(name: str) -> str:
    """The last word of a name that says what it is: `k_proj`."""
    words = [x for x in name.split(".") if x not in ("weight", "bias") and not x.isdigit()]
    return words[-1] + (".bias" if name.endswith(".bias") else "") if words else name


def _shards(
    tree: Decoder, groups: Sequence[ShapeMismatch], expected: Mapping[str, StoredTensor], found: Mapping[str, Shape]
) -> tuple[Diagnosis, set[str]] | None:
    """All that is wrong is one of n parts along the axes that tensor parallelism cuts, and nothing it cuts is whole."""
    parts = {group: _part(group) for group in groups}
    counts = {n for n, _ in parts.values()}
    if len(counts) != 1 or 0 in counts:
        return None
    n = counts.pop()
    vocabulary, cut = _cut(tree, n)
    whole = {part.pattern for name, x in expected.items() if found.get(name) == x.shape for part in x.parts} & cut
    ends = {part.pattern for group in groups for part in expected[group.names[0]].parts}
    if whole and not (ends <= vocabulary and n & (n - 1) == 0):
        return None
    texts = []
    for group, (_, axis) in parts.items():
        rows = "rows" if axis == 0 else "columns"
        texts.append(f"{safe(group.kind)} has {group.found[axis]:,} {rows} = one of {n} shards of {int(group.shape[axis]):,}")
    hint = f"this is one rank of a tensor-parallel run over {n}: join the {n} parts, or load it with that many ranks"
    names = tuple(name for group in groups for name in group.names)
    return Diagnosis("shard", "; ".join(texts), hint, names), set(names)


def _cut(tree: Decoder, n: int) -> tuple[set[str], set[str]]:
    """The matrices of the vocabulary, which some runs leave whole, and all others that tensor parallelism over n ranks cuts."""
    ends = {x.pattern for x in fold(tree) if x.group in ("embedding", "head")}
    return ends, {x.pattern for x in fold(tree) if x.split and len(x.weight.shape) > 1 and not x.split.parts % n} - ends


def _part(group: ShapeMismatch) -> tuple[int, int]:
    """(n, axis) where the found shape is an nth of the expected one along a single axis; (0, 0) where it is not."""
    axes = [i for i, (a, b) in enumerate(zip(group.found, group.shape, strict=False)) if a != b]
    if len(group.found) != len(group.shape) or len(axes) != 1 or not group.found[axes[0]]:
        return 0, 0
    n, rest = divmod(int(group.shape[axes[0]]), group.found[axes[0]])
    return (n, axes[0]) if n > 1 and not rest else (0, 0)


def _key(
    claim: Expectation, scheme: Scheme, groups: Sequence[ShapeMismatch], found: Mapping[str, Shape], changes: dict[str, int]
) -> tuple[Diagnosis, set[str]] | None:
    """The one configuration key whose other value makes most of what is wrong right, and nothing else wrong."""
    wrong = {name for group in groups for name in group.names}
    best: tuple[int, str, int, set[str]] | None = None
    for key, value in dict.fromkeys(_candidates(claim.config_keys, groups)):
        try:
            shapes = {name: x.shape for name, x in zip(*scheme.flat_tensors(claim.rebuild({**changes, key: value})), strict=True)}
        except LlamathError:
            continue
        still = {name for name, shape in found.items() if name in shapes and shapes[name] != shape}
        explained = wrong - still
        if explained and not still - wrong and (best is None or len(explained) > best[0]):
            best = (len(explained), key, value, explained)
    if best is None:
        return None
    _, key, value, explained = best
    mine = [group for group in groups if set(group.names) <= explained]
    if not mine:
        return None
    changes[key] = value
    where = " and ".join(dict.fromkeys(safe(x.kind) for x in mine))
    message = f"{where}{_layers(claim.tree, mine)} {'is' if len(explained) == 1 else 'are'} {mine[0].text} → {key} should be {value}"
    names = tuple(name for group in mine for name in group.names)
    return Diagnosis(
        "shape", message, f"either the config or the file is another model's; --set {key}={value} describes this file", names
    ), set(names)


def _candidates(letters: Mapping[str, str], groups: Sequence[ShapeMismatch]) -> Iterator[tuple[str, int]]:
    """Every (key, value) that would make one wrong dimension right."""
    for group in groups:
        for is_, should in zip(group.found, group.shape, strict=False):
            if is_ != should:
                for letter in should.atoms:
                    if letter in letters and (value := _solved(should, letter, is_)):
                        yield letters[letter], value


def _solved(dim: Dim, letter: str, value: int) -> int:
    """What the letter must be for the dimension to have this value, if it is linear in it; else 0."""
    with_it, without = 0, 0
    for monomial, k in dim.terms.items():
        powers = sum(symbol == letter for symbol, _ in monomial)
        size = k * prod(n for symbol, n in monomial if symbol != letter)
        if powers > 1:
            return 0
        with_it, without = (with_it + size, without) if powers else (with_it, without + size)
    result, rest = divmod(value - without, with_it) if with_it else (0, 1)
    return result if result > 0 and not rest else 0


def _layers(tree: Decoder, groups: Sequence[ShapeMismatch]) -> str:
    n = max(len(x.names) for x in groups)
    return f" of all {n} layers" if n > 1 and n == int(tree.layers.n) else f" of {n} layers" if n > 1 else ""


def _plainly(group: ShapeMismatch) -> Diagnosis:
    """What no cause explains, said as it is."""
    turned = "; it is stored transposed" if group.found == tuple(reversed(group.shape)) and group.found != group.shape else ""
    many = f" ({len(group.names)} tensors)" if len(group.names) > 1 else ""
    return Diagnosis("shape", f"{safe(group.names[0])}{many} is {group.text}{turned}", "", group.names)
