"""`diagnose`: the causes of wrong shapes: a config key, a shard of a tensor-parallel run, a
transposition.

A cause is accepted if the tree built with it fits the file, not because a name looks familiar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ....checkpoint.naming.scheme import Scheme, StoredTensor
from ....core.blocks import Attention, Decoder
from ....core.expr import Expr
from ....core.tree import Split, fold, fold_blocks
from ....utils.errors import ImpossibleModel, LlamathError, safe
from ....utils.file_diagnosis import Diagnosis
from ....utils.number_format import format_count

if TYPE_CHECKING:
    from ....checkpoint.naming.tied_copies import TiedCopy

Shape = tuple[int, ...]


class Expectation(NamedTuple):
    """The consequences of a config for a checkpoint's tensors, and how to rebuild the tree with
    other keys.
    """

    tree: Decoder
    schemes: Sequence[Scheme]
    config_keys: Mapping[str, str]  # letter of a dimension → config key
    rebuild: Callable[[Mapping[str, Any]], Decoder]
    dtype: str = ""  # of the weights, as in safetensors; empty: unknown
    tokenizer_tokens: int | None = None  # of the tokenizer next to the checkpoint
    tokenizer_error: Diagnosis | str = ""  # why they could not be counted
    # the text model of a multimodal model, whose other tensors are in the same files
    is_submodel: bool = False
    # the config declares multi-token prediction, whose layers the tree lacks
    has_other_mtp: bool = False
    # matrices that are stored although the config ties them to others
    tied_copies: Sequence[TiedCopy] = ()


class _Diagnosis(NamedTuple):
    """One cause and the tensors that it explains."""

    code: str
    message: str
    hint: str
    tensors: tuple[str, ...]


class _ShapeMismatch(NamedTuple):
    """Tensors of one kind with the same wrong shape."""

    kind: str
    found: Shape
    shape: tuple[Expr, ...]
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """The found shape and the expected one."""
        expected = (
            f"({', '.join(x.symbol for x in self.shape)}) = "
            f"({', '.join(str(int(x)) for x in self.shape)})"
        )
        return f"{list(self.found)}; the config says {expected}"


def diagnose(
    expectation: Expectation,
    scheme: Scheme,
    expected: Mapping[str, StoredTensor],
    shapes: Mapping[str, Shape],
    wrong: Mapping[str, StoredTensor],
) -> list[_Diagnosis]:
    """Return the causes of the wrong shapes of the tensors in `wrong`; those that explain most
    tensors come first.
    """
    groups = list(_groups(wrong, shapes))
    causes: list[_Diagnosis] = []
    # keys that are already found wrong, with the values that the file has
    changes: dict[str, int] = {}
    while groups:
        best = _rank_shard(expectation.tree, groups, expected, shapes) or _wrong_key(
            expectation, scheme, groups, shapes, changes
        )
        if best is None:
            break
        cause, explained = best
        causes.append(cause)
        groups = [x for x in groups if not set(x.names) <= explained]
    return causes + [_unexplained(x) for x in groups]


def _groups(
    wrong: Mapping[str, StoredTensor], shapes: Mapping[str, Shape]
) -> Iterator[_ShapeMismatch]:
    names_by_shape: dict[tuple[tuple[str, ...], Shape], list[str]] = {}
    for name, x in wrong.items():
        names_by_shape.setdefault(
            (tuple(part.pattern for part in x.parts), shapes[name]), []
        ).append(name)
    for (_, shape), names in names_by_shape.items():
        yield _ShapeMismatch(
            kind=_short_name(names[0]), found=shape, shape=wrong[names[0]].shape, names=tuple(names)
        )


def _short_name(name: str) -> str:
    """Return the last part of a name that identifies the weight: `k_proj`."""
    words = [x for x in name.split(".") if x not in ("weight", "bias") and not x.isdigit()]
    return words[-1] + (".bias" if name.endswith(".bias") else "") if words else name


def _rank_shard(
    tree: Decoder,
    groups: Sequence[_ShapeMismatch],
    expected: Mapping[str, StoredTensor],
    shapes: Mapping[str, Shape],
) -> tuple[_Diagnosis, set[str]] | None:
    """Return the diagnosis of one rank's shard: all wrong tensors are an nth along the axes that
    tensor parallelism splits.
    """
    parts = {group: _nth_part(group) for group in groups}
    counts = {n for n, _ in parts.values()}
    if len(counts) != 1 or 0 in counts:
        return None
    n = counts.pop()
    vocabulary, split_patterns = _split_matrices(tree, n)
    splits = {x.pattern: x.split for x in fold(tree)}
    for group, (_, axis) in parts.items():
        for part in (stored := expected[group.names[0]]).parts:
            if (
                part.pattern not in vocabulary
                and _split_axis(stored, splits.get(part.pattern)) != axis
            ):
                return None  # tensor parallelism leaves norms and the residual width whole
    unsplit = {
        part.pattern
        for name, x in expected.items()
        if shapes.get(name) == x.shape
        for part in x.parts
    } & split_patterns
    end_patterns = {part.pattern for group in groups for part in expected[group.names[0]].parts}
    if unsplit and not (end_patterns <= vocabulary and n & (n - 1) == 0):
        return None
    descriptions = []
    for group, (_, axis) in parts.items():
        rows = "rows" if axis == 0 else "columns"
        descriptions.append(
            f"{safe(group.kind)} has {group.found[axis]:,} {rows} = one of {n} "
            f"shards of {int(group.shape[axis]):,}"
        )
    hint = (
        f"this is one rank of a tensor-parallel run over {n} ranks: merge the {n} shards, or "
        f"load it with {n} ranks"
    )
    names = tuple(name for group in groups for name in group.names)
    return _Diagnosis("shard", "; ".join(descriptions), hint, names), set(names)


def _split_matrices(tree: Decoder, n: int) -> tuple[set[str], set[str]]:
    """Return the vocabulary's matrices, which some runs do not split, and the others that tensor
    parallelism splits over n ranks.
    """
    ends = {x.pattern for x in fold(tree) if x.group in ("embedding", "head")}
    return ends, {
        x.pattern
        for x in fold(tree)
        if x.split and len(x.weight.shape) > 1 and not x.split.parts % n
    } - ends


def _split_axis(stored: StoredTensor, split: Split | None) -> int | None:
    """Return the axis of a stored tensor along which tensor parallelism splits it; None if every
    rank holds it whole.
    """
    if split is None:
        return None
    axis = (
        len(stored.parts[0].weight.shape) - 1 - split.axis
        if "flip" in stored.layout.split()
        else split.axis
    )
    is_stacked = len({x.indices for x in stored.parts}) > 1 and "below" not in stored.layout.split()
    return axis + is_stacked


def _nth_part(group: _ShapeMismatch) -> tuple[int, int]:
    """Return (n, axis) if the found shape is an nth of the expected one along a single axis,
    else (0, 0).
    """
    axes = [i for i, (a, b) in enumerate(zip(group.found, group.shape, strict=False)) if a != b]
    if len(group.found) != len(group.shape) or len(axes) != 1 or not group.found[axes[0]]:
        return 0, 0
    n, rest = divmod(int(group.shape[axes[0]]), group.found[axes[0]])
    return (n, axes[0]) if n > 1 and not rest else (0, 0)


def _wrong_key(
    expectation: Expectation,
    scheme: Scheme,
    groups: Sequence[_ShapeMismatch],
    shapes: Mapping[str, Shape],
    changes: dict[str, int],
) -> tuple[_Diagnosis, set[str]] | None:
    """Return the diagnosis of the config key whose other value corrects most tensors and breaks
    none.
    """
    wrong = {name for group in groups for name in group.names}
    best: tuple[int, str, int, set[str]] | None = None
    for key, value in dict.fromkeys(_candidates(expectation.config_keys, groups)):
        try:
            new_shapes = {
                name: x.shape
                for name, x in zip(
                    *scheme.flat_tensors(_rebuild(expectation, {**changes, key: value})),
                    strict=True,
                )
            }
        except LlamathError:
            continue
        remaining = {
            name
            for name, shape in shapes.items()
            if name in new_shapes and new_shapes[name] != shape
        }
        explained = wrong - remaining
        if explained and not remaining - wrong and (best is None or len(explained) > best[0]):
            best = (len(explained), key, value, explained)
    if best is None:
        return None
    _, key, value, explained = best
    corrected = [group for group in groups if set(group.names) <= explained]
    if not corrected:
        return None
    changes[key] = value
    where = _join(dict.fromkeys(safe(x.kind) for x in corrected))
    is_or_are = "is" if len(explained) == 1 else "are"
    message = (
        f"{where}{_layers(expectation.tree, corrected)} {is_or_are} {corrected[0].text} → "
        f"{key} should be {value}"
    )
    names = tuple(name for group in corrected for name in group.names)
    return _Diagnosis(
        "shape",
        message,
        "either the config or the file belongs to another model; "
        f"{key}={value} describes this file",
        names,
    ), set(names)


def _rebuild(expectation: Expectation, changes: Mapping[str, int]) -> Decoder:
    """Return the tree with these keys; heads keep their size where one that follows from another
    width is impossible.
    """
    try:
        return expectation.rebuild(changes)
    except ImpossibleModel:
        blocks = (x.block for x in fold_blocks(expectation.tree))
        sizes = {int(x.head_dim) for x in blocks if isinstance(x, Attention)}
        if len(sizes) != 1 or "head_dim" in changes:
            raise
        return expectation.rebuild({**changes, "head_dim": sizes.pop()})


def _join(kinds: Iterable[str]) -> str:
    *first, last = kinds
    return f"{', '.join(first)} and {last}" if first else last


def _candidates(
    letters: Mapping[str, str], groups: Sequence[_ShapeMismatch]
) -> Iterator[tuple[str, int]]:
    """Yield every (key, value) that would correct one wrong dimension."""
    for group in groups:
        for is_, should in zip(group.found, group.shape, strict=False):
            if is_ != should:
                for letter in should.atoms:
                    if letter in letters and (value := _solve(should, letter, is_)):
                        yield letters[letter], value


def _solve(dim: Expr, letter: str, value: int) -> int:
    """Return the letter's value for which the dimension has this value, if it is linear in the
    letter; else 0.
    """
    with_it, without = 0, 0
    for monomial, k in dim.terms.items():
        powers = sum(atom.symbol == letter for atom in monomial)
        size = k * prod(int(atom.value) for atom in monomial if atom.symbol != letter)
        if powers > 1:
            return 0
        with_it, without = (with_it + size, without) if powers else (with_it, without + size)
    result, rest = divmod(value - without, with_it) if with_it else (0, 1)
    return result if result > 0 and not rest else 0


def _layers(tree: Decoder, groups: Sequence[_ShapeMismatch]) -> str:
    n = max(len(x.names) for x in groups)
    return (
        f" of all {n} layers"
        if n > 1 and n == tree.own_layers
        else f" of {n} layers"
        if n > 1
        else ""
    )


def _unexplained(group: _ShapeMismatch) -> _Diagnosis:
    """Return a diagnosis of shapes that no cause explains."""
    transposed = (
        "; it is stored transposed"
        if group.found == tuple(reversed(group.shape)) and group.found != group.shape
        else ""
    )
    many = (
        f" and {format_count(len(group.names) - 1, 'other tensor')}" if len(group.names) > 1 else ""
    )
    return _Diagnosis(
        "shape",
        f"{safe(group.names[0])}{many} {'are' if many else 'is'} {group.text}{transposed}",
        "",
        group.names,
    )
