"""`value_findings`: what the statistics of stored values say: values that are not finite, rows
without information, copies, outliers.

An `error` is certain damage. A `warning` is unusual in a trained model and has innocent causes. An
`info` is a remark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from statistics import median, median_high, median_low
from typing import TYPE_CHECKING, NamedTuple

from ....checkpoint.formats.dtypes import PLAIN
from ....utils.errors import safe
from ....utils.number_format import format_count, format_list
from .verify_tensors import Finding, summarize_names

if TYPE_CHECKING:
    from ....checkpoint.quantization.packed_tensors import Packing
    from ....checkpoint.tensor_stats import TensorStats

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_MAX_NAMED = 8
"""The most tensors that have a finding of their own; the others are counted in one."""
_FAR = 10
"""A norm is far from others if it is more than this many times as large or as small as their
median."""
_DEAD = 1000
"""An expert is dead if its norm is this many times as small as the median of its layer."""
_NEIGHBORS, _MIN_NEIGHBORS = 2, 2
"""How many layers before and after a layer it is compared with, and the least number of them."""
_MIN_NARROW_SHARE = 20
"""Float32 matrices of 16-bit values are reported if they are at least this part of the bytes: 1
/ 20."""
_HEADS = ("lm_head.weight", "output.weight", "embed_out.weight")


class Place(NamedTuple):
    """A tensor's name with its numbers replaced, the first of them (the layer) and the second
    (the expert); −1 where there is none.
    """

    pattern: str
    layer: int
    expert: int

    @classmethod
    def of(cls, name: str) -> Place:
        """Return the place that a stored name has in any naming scheme: its numbers are those of
        the layer and of the expert.
        """
        numbers = [int(x) for x in _NUMBER.findall(name)[:2]]
        return cls(_NUMBER.sub("{}", name), *numbers, *([-1] * (2 - len(numbers))))


class _Unit(NamedTuple):
    """A tensor, or one expert of a stack of them."""

    stats: TensorStats
    place: Place
    number: int  # of the expert in the stack

    @property
    def name(self) -> str:
        """The name of the tensor, and the number of the expert in it."""
        name = safe(self.stats.tensor.name, 100)
        return f"{name}[{self.number}]" if self.stats.units > 1 else name


class ValueContext(NamedTuple):
    """What is known about the tensors besides their values."""

    packings: Mapping[str, Packing]
    roles: Mapping[str, str]  # of the weights that the model has
    is_tied: bool
    equal: Callable[[Sequence[tuple[TensorStats, int]]], Iterable[Sequence[int]]]
    """Compares the bytes of units, and returns the indices of those that are equal, by group."""

    def is_matrix(self, x: TensorStats) -> bool:
        """Whether a tensor is a weight matrix, or the packed values of one."""
        name = x.tensor.name
        if packing := self.packings.get(name):
            return packing.role == "values"
        return (
            len(x.tensor.shape) > 1
            and self.roles.get(name, "matmul") in ("matmul", "lookup")
            and x.rows > 1
        )

    def is_scale(self, x: TensorStats) -> bool:
        """Whether a tensor holds the scales of a packed matrix."""
        packing = self.packings.get(x.tensor.name)
        return packing is not None and packing.role == "scale" and len(x.tensor.shape) > 1

    def is_other(self, x: TensorStats) -> bool:
        """Whether a tensor is no weight of its own: a part of a packed matrix, or state of a
        training run.
        """
        return x.tensor.name in self.packings or self.roles.get(x.tensor.name) == "state"

    def has_vocabulary_rows(self, x: TensorStats) -> bool:
        """Whether the rows of a matrix belong to tokens or positions."""
        return self.roles.get(x.tensor.name) == "lookup" or x.tensor.name.endswith(_HEADS)


def value_findings(stats: Sequence[TensorStats], context: ValueContext) -> list[Finding]:
    """Return the findings about the values of all tensors, errors first."""
    dead = list(_dead_experts(stats, context))
    dead_units = {x for _, units in dead for x in units}
    findings = [
        *_not_finite(stats, context),
        *(x for x, _ in dead),
        *_equal_rows(stats, context, dead_units),
        *_duplicates(stats, context),
        *_far_norms(stats, context, dead_units),
        *_far_experts(stats, context, dead_units),
        *_vectors(stats, context),
        *_narrow(stats, context),
    ]
    return sorted(findings, key=lambda x: ("error", "warning", "info").index(x.severity))


def _not_finite(stats: Sequence[TensorStats], context: ValueContext) -> Iterator[Finding]:
    bad = [x for x in stats if x.nan or x.infinite]
    for x in bad[:_MAX_NAMED]:
        kinds = " and ".join(
            f"{n:,} {word}" for n, word in ((x.nan, "NaN"), (x.infinite, "infinite")) if n
        )
        rows = (
            format_list([_row(x, y.row) for y in x.bad_rows], 4)
            if x.rows > 1 and x.bad_rows and x.tensor.strides is None
            else ""
        )
        what = (
            "scales of blocks that are not finite"
            if x.tensor.dtype not in PLAIN
            else "values that are not finite"
        )
        if (packing := context.packings.get(x.tensor.name)) and packing.role == "scale":
            what = "scales that are not finite"
        yield Finding(
            code="not_finite",
            severity="error",
            message=f"{_describe(x)} has {what}: {kinds}" + (f", in {rows}" if rows else ""),
            hint="the file is damaged, or was written in a dtype of too small a range",
            tensors=(x.tensor.name,),
        )
    if rest := [x.tensor.name for x in bad[_MAX_NAMED:]]:
        message = (
            f"{format_count(len(rest), 'more tensor')} with values that are not finite: "
            f"{summarize_names(rest)}"
        )
        yield Finding(code="not_finite", severity="error", message=message, tensors=tuple(rest))


def _describe(x: TensorStats) -> str:
    """Return the name of a tensor, and its layer and expert."""
    place = Place.of(x.tensor.name)
    where = [
        f"{word} {n}" for word, n in (("layer", place.layer), ("expert", place.expert)) if n >= 0
    ]
    return safe(x.tensor.name, 100) + (f" ({', '.join(where)})" if where else "")


def _row(x: TensorStats, row: int) -> str:
    """Return the number of a row, in its expert if the tensor is a stack of them."""
    if x.units == 1:
        return f"row {row:,}"
    return f"row {row % x.rows_per_unit:,} of expert {row // x.rows_per_unit}"


def _equal_rows(
    stats: Sequence[TensorStats], context: ValueContext, dead: set[_Unit]
) -> Iterator[Finding]:
    """Yield the findings about matrices with rows that are all zero or constant."""
    dead_experts: dict[int, set[int]] = {}
    for unit in dead:
        dead_experts.setdefault(id(unit.stats), set()).add(unit.number)
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for x in stats:
        is_matrix = context.is_matrix(x)
        if not x.complete or x.tensor.strides is not None or not (is_matrix or context.is_scale(x)):
            continue
        without = dead_experts.get(id(x), set())
        zero = x.zero_rows - len(without) * x.rows_per_unit
        rows = [row for row in x.zero_examples if row // x.rows_per_unit not in without]
        severity = "info" if context.has_vocabulary_rows(x) else "warning"
        if x.is_zero and not without:
            found.setdefault(("zero", "warning"), []).append(
                (x.tensor.name, f"{_describe(x)} is all zero")
            )
        elif zero > 0:
            text = (
                f"{format_count(zero, 'row')} of {_describe(x)} "
                f"{'is' if zero == 1 else 'are'} all zero{_list_rows(x, rows, zero)}"
            )
            found.setdefault(("zero_rows", severity), []).append((x.tensor.name, text))
        if is_matrix and x.constant_rows:
            n = x.constant_rows
            text = (
                f"{format_count(n, 'row')} of {_describe(x)} {'is' if n == 1 else 'are'} "
                f"constant{_list_rows(x, x.constant_examples, n)}"
            )
            found.setdefault(("constant_rows", severity), []).append((x.tensor.name, text))
    hints = {
        "zero": "it was never trained or not written; an adapter's B matrix is zero before "
        "training",
        "zero_rows": "they were pruned, never trained, or not written",
        "constant_rows": "they were initialized and never trained, or overwritten",
    }
    for (code, severity), tensors in found.items():
        hint = "tokens that were never trained, or padding" if severity == "info" else hints[code]
        if code == "zero" and len(tensors) > 1:
            names = [name for name, _ in tensors]
            message = f"{len(names):,} matrices are all zero: {summarize_names(names)}"
            yield Finding(
                code=code, severity=severity, message=message, hint=hint, tensors=tuple(names)
            )
            continue
        for name, text in tensors[:_MAX_NAMED]:
            yield Finding(code=code, severity=severity, message=text, hint=hint, tensors=(name,))
        if rest := [name for name, _ in tensors[_MAX_NAMED:]]:
            message = (
                f"{format_count(len(rest), 'more matrix', 'more matrices')} like that: "
                f"{summarize_names(rest)}"
            )
            yield Finding(
                code=code, severity=severity, message=message, hint=hint, tensors=tuple(rest)
            )


def _list_rows(x: TensorStats, rows: Sequence[int], count: int) -> str:
    """Return the numbers of the first rows."""
    if not rows:
        return ""
    if x.units > 1:
        more = ", …" if count > min(4, len(rows)) else ""
        return f": {format_list([_row(x, row) for row in rows[:4]])}{more}"
    return f": {format_list([f'{row:,}' for row in rows])}{', …' if count > len(rows) else ''}"


def _experts(
    stats: Iterable[TensorStats], context: ValueContext
) -> dict[tuple[str, int], list[_Unit]]:
    """Return the matrices of the experts by pattern and layer."""
    groups: dict[tuple[str, int], list[_Unit]] = {}
    for x in stats:
        if not x.complete or not (context.is_matrix(x) or context.is_scale(x)):
            continue
        place = Place.of(x.tensor.name)
        if x.units > 1:
            groups[place.pattern, place.layer] = [
                _Unit(x, place._replace(expert=i), i) for i in range(x.units)
            ]
        elif place.expert >= 0 and "expert" in place.pattern:
            groups.setdefault((place.pattern, place.layer), []).append(_Unit(x, place, 0))
    return {
        key: units
        for key, units in groups.items()
        if len(units) > 1 and len({(x.stats.kind, x.stats.unit_bytes) for x in units}) == 1
    }


def _dead_experts(
    stats: Iterable[TensorStats], context: ValueContext
) -> Iterator[tuple[Finding, list[_Unit]]]:
    """Yield a finding for each layer with experts whose matrices are zero or nearly zero, and
    these matrices.
    """
    dead: dict[int, dict[int, list[_Unit]]] = {}
    for (_, layer), units in _experts(stats, context).items():
        norms = [x.stats.norm(x.number) for x in units]
        finite = [x for x in norms if isfinite(x)]
        middle = median(finite) if finite else 0.0
        for x, norm in zip(units, norms, strict=True):
            if x.stats.is_zero_unit(x.number) or (isfinite(norm) and norm * _DEAD < middle):
                dead.setdefault(layer, {}).setdefault(x.place.expert, []).append(x)
    for layer, experts in dead.items():
        units = [x for found in experts.values() for x in found]
        parts = sorted({x.place.pattern.removesuffix(".weight").rpartition(".")[2] for x in units})
        numbers, where = format_list(sorted(experts), 8), f" of layer {layer}" if layer >= 0 else ""
        subject = (
            f"expert {numbers}{where} is"
            if len(experts) == 1
            else (f"{len(experts):,} experts{where} ({numbers}) are")
        )
        finding = Finding(
            code="dead_expert",
            severity="warning",
            message=f"{subject} dead: {format_list(map(safe, parts))} "
            f"{'is' if len(parts) == 1 else 'are'} zero or nearly zero",
            hint="its outputs do not matter; it was pruned, never trained, or not written",
            tensors=tuple(dict.fromkeys(x.stats.tensor.name for x in units)),
        )
        yield finding, units


def _duplicates(stats: Sequence[TensorStats], context: ValueContext) -> Iterator[Finding]:
    """Yield the findings about matrices with the same bytes; equal fingerprints are confirmed by
    reading them again.
    """
    candidates: dict[tuple[object, ...], list[_Unit]] = {}
    for x in stats:
        if x.complete and context.is_matrix(x):
            place = Place.of(x.tensor.name)
            for i in range(x.units):
                if not x.is_constant_unit(i):
                    shape = x.tensor.shape if x.units == 1 else x.tensor.shape[1:]
                    candidates.setdefault((x.tensor.dtype, shape, x.fingerprints[i]), []).append(
                        _Unit(x, place, i)
                    )
    groups: dict[tuple[str, tuple[int, ...]], list[list[_Unit]]] = {}
    for units in candidates.values():
        for indices in (
            context.equal([(x.stats, x.number) for x in units]) if len(units) > 1 else ()
        ):
            same = [units[i] for i in indices]
            groups.setdefault(_relation(same), []).append(same)
    for (kind, numbers), found in groups.items():
        names = tuple(dict.fromkeys(x.stats.tensor.name for same in found for x in same))
        listed = " = ".join(x.name for x in found[0][:4]) + (" = …" if len(found[0]) > 4 else "")
        count = format_count(len(found), "matrix", "matrices")
        severity, hint = "warning", "was one written in place of the other?"
        if kind == "layers":
            message = f"layers {format_list(numbers, 8)} have {count} in common: {listed}"
            hint = (
                "was a layer copied, or written in place of another? (depth up-scaling copies "
                "layers on purpose)"
            )
        elif kind == "experts":
            message = (
                f"{count} of layer {numbers[0]} {'is' if len(found) == 1 else 'are'} the "
                f"same for several experts: {listed}"
            )
            hint = (
                "was an expert written in place of another? (sparse up-cycling copies experts "
                "on purpose)"
            )
        elif kind == "vocabulary":
            severity = "info"
            message = f"the output head equals the embedding: {listed}"
            hint = (
                ""
                if context.is_tied
                else ("the config does not tie them; with tie_word_embeddings one copy would do")
            )
        else:
            message = f"the same matrix is stored more than once: {listed}" + (
                f", and {len(found) - 1:,} more" if len(found) > 1 else ""
            )
        yield Finding(
            code="duplicate_values", severity=severity, message=message, hint=hint, tensors=names
        )


def _relation(same: Sequence[_Unit]) -> tuple[str, tuple[int, ...]]:
    """Return what equal matrices are to each other: the same matrix of several layers, of
    several experts, or of the vocabulary.
    """
    layers = tuple(sorted({x.place.layer for x in same}))
    if len({(x.place.pattern, x.place.expert, x.number) for x in same}) == 1 and len(layers) > 1:
        return "layers", layers
    if len({x.place.pattern for x in same}) == 1 and len(layers) == 1 and same[0].place.layer >= 0:
        return "experts", layers
    if layers == (-1,) and any(x.stats.tensor.name.endswith(_HEADS) for x in same):
        return "vocabulary", ()
    return "others", ()


def _far_norms(
    stats: Sequence[TensorStats], context: ValueContext, dead: set[_Unit]
) -> Iterator[Finding]:
    """Yield a finding for each kind of matrix whose norm in some layers is far from that in the
    layers around them.
    """
    squares: dict[tuple[str, str, tuple[int, ...]], dict[int, float]] = {}
    names: dict[tuple[str, int], list[str]] = {}
    dead_tensors = {id(x.stats) for x in dead}
    for x in stats:
        place = Place.of(x.tensor.name)
        if (
            place.layer < 0
            or not x.complete
            or not (context.is_matrix(x) or context.is_scale(x))
            or id(x) in dead_tensors
        ):
            continue
        if x.is_zero or not isfinite(norm := x.norm()) or not norm:
            continue
        by_layer = squares.setdefault((place.pattern, x.tensor.dtype, x.tensor.shape), {})
        # of the experts of a layer, the largest
        by_layer[place.layer] = max(by_layer.get(place.layer, 0.0), norm)
        names.setdefault((place.pattern, place.layer), []).append(x.tensor.name)
    for (pattern, _, _), by_layer in squares.items():
        layers = sorted(by_layer)
        far = []
        for i, layer in enumerate(layers):
            around = [
                by_layer[x]
                for x in (*layers[max(0, i - _NEIGHBORS) : i], *layers[i + 1 : i + 1 + _NEIGHBORS])
            ]
            if len(around) < _MIN_NEIGHBORS:
                continue
            norm = by_layer[layer]
            if norm > _FAR * median_high(around) or norm * _FAR < median_low(around):
                far.append((layer, norm, median(around)))
        for layer, norm, middle in far[:_MAX_NAMED]:
            name = names[pattern, layer][0]
            yield Finding(
                code="far_norm",
                severity="warning",
                message=f"{safe(name, 100)} (layer {layer}) has the norm {norm:.3g}; in the "
                f"layers around it, the median is {middle:.3g}",
                hint="was it scaled, initialized and never trained, or taken from another model?",
                tensors=(name,),
            )
        if len(far) > _MAX_NAMED:
            rest = tuple(names[pattern, layer][0] for layer, _, _ in far[_MAX_NAMED:])
            message = (
                f"{format_count(len(rest), 'more norm')} far from those around: "
                f"{summarize_names(rest)}"
            )
            yield Finding(code="far_norm", severity="warning", message=message, tensors=rest)


def _far_experts(
    stats: Sequence[TensorStats], context: ValueContext, dead: set[_Unit]
) -> Iterator[Finding]:
    """Yield a finding for each layer with experts whose norms are far from those of the other
    experts.
    """
    for (pattern, layer), units in _experts(stats, context).items():
        norms = {x: x.stats.norm(x.number) for x in units if x not in dead}
        finite = [x for x in norms.values() if isfinite(x) and x]
        if len(finite) < _MIN_NEIGHBORS + 1:
            continue
        middle = median(finite)
        far = [
            x
            for x, norm in norms.items()
            if isfinite(norm) and norm and (norm > _FAR * middle or norm * _FAR < middle)
        ]
        if far:
            shown = format_list([f"expert {x.place.expert} ({norms[x]:.3g})" for x in far], 4)
            part = safe(pattern.removesuffix(".weight").rpartition(".")[2], 60)
            yield Finding(
                code="far_norm",
                severity="warning",
                message=f"layer {layer}: the norm of {part} of {shown} is far from the median of "
                f"the experts, {middle:.3g}",
                hint="were these experts scaled, initialized and never trained, or taken from "
                "another model?",
                tensors=tuple(dict.fromkeys(x.stats.tensor.name for x in far)),
            )


def _vectors(stats: Sequence[TensorStats], context: ValueContext) -> Iterator[Finding]:
    """Yield a remark about vectors without information: biases of zero, norms of one."""
    vectors = [
        x
        for x in stats
        if x.complete and x.rows == 1 and x.tensor.elements > 1 and not context.is_other(x)
    ]
    vectors = [
        x for x in vectors if x.kind in ("F64", "F32", "F16", "BF16") and len(x.tensor.shape) == 1
    ]
    zero = [x.tensor.name for x in vectors if x.is_zero]
    constant = [x.tensor.name for x in vectors if x.is_constant and not x.is_zero]
    for code, names, what in (
        ("zero_vectors", zero, "all zero"),
        ("constant_vectors", constant, "constant"),
    ):
        if names:
            message = (
                f"{format_count(len(names), 'vector')} "
                f"{'is' if len(names) == 1 else 'are'} {what}: {summarize_names(names)}"
            )
            yield Finding(code=code, severity="info", message=message, tensors=tuple(names))


def _narrow(stats: Sequence[TensorStats], context: ValueContext) -> Iterator[Finding]:
    """Yield a remark about float32 matrices whose values all are 16-bit values."""
    total = sum(x.tensor.bytes for x in stats)
    for dtype, name in (("BF16", "bfloat16"), ("F16", "float16")):
        found = [
            x
            for x in stats
            if x.complete
            and dtype in x.narrower
            and (dtype == "BF16" or "BF16" not in x.narrower)
            and context.is_matrix(x)
            and not x.is_constant
        ]
        size = sum(x.tensor.bytes for x in found)
        if size and size * _MIN_NARROW_SHARE >= total:
            names = tuple(x.tensor.name for x in found)
            matrices = (
                f"{format_count(len(found), 'float32 matrix', 'float32 matrices')} "
                f"{'holds' if len(found) == 1 else 'hold'}"
            )
            message = f"{matrices} nothing but {name} values: {summarize_names(names)}"
            hint = f"stored as {name}, they would be the same in {size // 2:,} fewer bytes"
            yield Finding(
                code=f"{name}_in_float32",
                severity="info",
                message=message,
                hint=hint,
                tensors=names,
            )
