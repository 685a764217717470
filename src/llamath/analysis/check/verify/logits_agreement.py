"""Report of `llamath same --logits`: the differences between the logits of two checkpoints, the
first differing module, possible causes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ....core.tree import Block, Stack, Weight
from ....render.report import Report
from ....render.tables import Cell, Column, Part, Table, Text
from ....utils.errors import safe
from ....utils.number_format import short_count
from ....utils.record_type import Record
from .divergence import Divergence, divergence_parts


class ComparedCheckpoint(Record):
    """One of the two checkpoints."""

    name: str
    model: str
    family: str
    parameters: int
    format: str
    names: str  # naming scheme of its tensors
    dtype: str  # of most of its tensors
    notes: tuple[str, ...] = ()


class FirstDifference(Record):
    """The first module whose output differs."""

    module: str
    difference: float  # largest difference, relative to the largest value
    layer: int | None = None
    stored: tuple[str, str] = ("", "")  # names of the module's weight in the two files


class TreeDifference(Record):
    """A difference between the two configs that is not in the weights."""

    json_fields: ClassVar[tuple[str, ...]] = ("path", "a=a_text", "b=b_text", "layers")

    path: str
    a: object
    b: object
    layers: int = 1

    @property
    def a_text(self) -> str:
        """A's value as text."""
        return str(self.a)

    @property
    def b_text(self) -> str:
        """B's value as text."""
        return str(self.b)


class LogitsComparison(Report):
    """Comparison of two checkpoints on the same tokens."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "same",
            "identical",
            "tolerance",
            "dtype",
            "a",
            "b",
            "tokens",
            "text",
            "logits=logit_differences",
            "kl=kl_divergence",
        ),
        *("top1=top1_agreement", "losses", "divergence", "first", "layers", "facts", "hints"),
    )

    a: ComparedCheckpoint
    b: ComparedCheckpoint
    tokens: tuple[int, ...]
    text: str  # of the tokens; empty for token ids
    dtype: str
    tolerance: float
    largest_logit: float  # of A, absolute
    max_difference: float
    mean_difference: float
    kl_mean: float  # KL(A‖B) in nats, averaged over the tokens
    kl_max: float  # of the token where it is largest
    same_top1: int  # number of tokens with the same most likely next token
    losses: tuple[float, float] | None  # cross-entropy of the text under A and B, in nats per token
    layers: tuple[float, ...]  # relative difference of the hidden state after each layer
    first: FirstDifference | None
    divergence: Divergence | None = None  # None: there is only one token
    facts: tuple[TreeDifference, ...] = ()
    hints: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The verdict, on what and in which dtype."""
        verdict = (
            "identical"
            if self.identical
            else (
                f"{'same' if self.same else 'different'}, {self.relative:.2g} of the largest logit"
            )
        )
        return (
            f"{self.a.name} and {self.b.name}: {verdict}; {len(self.tokens):,} tokens in "
            f"{self.dtype}, tolerance {self.tolerance:g}"
        )

    @property
    def headline(self) -> str:
        """The verdict."""
        if self.identical:
            return "identical, bit by bit"
        if self.same:
            return f"the same within {self.tolerance:g} of the largest logit"
        return (
            f"different: logits differ by {self.relative:.2g} of the largest logit (tolerance "
            f"{self.tolerance:g})"
        )

    @property
    def setting(self) -> str:
        """Both sides, and the tokens."""
        text = self.text.replace("\n", " ")
        text = text if len(text) < 50 else f"{text[:46].rstrip()} …"
        what = f"tokens of “{text}”" if self.text else "token ids"
        tokens = f"{len(self.tokens):,} {what}, in {self.dtype}"
        return f"{_side(self.a, 'A')}\n{_side(self.b, 'B')}\n{tokens}"

    def __bool__(self) -> bool:
        return self.same

    def tables(self) -> Iterator[Part]:
        """The differences, their percentiles, the first differing module, the hidden states after
        each layer, and possible causes.
        """
        yield Table(columns=_MEASURES, rows=tuple(self._measures()))
        yield Table(columns=_TOP_1, rows=(("top-1 token", self.same_top1, len(self.tokens)),))
        if self.losses:
            losses = (Cell(x, text=f"{x:.3f}") for x in self.losses)
            yield Table(columns=_LOSSES, rows=(("loss, nats/token", *losses),))
        if self.divergence and not self.identical:
            yield from divergence_parts(self.divergence)
        if self.same:
            return
        if self.first:
            names = [x for x in dict.fromkeys(self.first.stored) if x]
            where = f" ({', '.join(names)})" if names else ""
            size = f"{self.first.difference:.2g} of its largest value"
            yield Text(f"first difference: {self.first.module}{where}, by {size}", apart=True)
        if self.layers:
            bars = ("█" * min(_BAR_WIDTH, round(_BAR_WIDTH * x)) for x in self.layers)
            rows = zip(range(len(self.layers)), self.layers, bars, strict=True)
            yield Table(columns=_LAYERS, rows=tuple(rows), most=_MAX_LAYERS)
        if self.facts:
            yield Table(
                title="config differences",
                columns=_FACTS,
                rows=tuple(map(_fact_cells, self.facts)),
                most=_MAX_FACTS,
            )
        for x in self.hints:
            yield Text(f"hint: {x}", apart=True)

    def _measures(self) -> Iterator[tuple[Any, ...]]:
        largest = f"largest logit {self.largest_logit:.3g}"
        yield "logit difference", self.mean_difference, self.max_difference, largest
        yield "KL(A‖B), nats", self.kl_mean, self.kl_max, ""

    @property
    def identical(self) -> bool:
        """Return whether all logits are equal bit by bit."""
        return self.max_difference == 0

    @property
    def relative(self) -> float:
        """Largest difference, relative to the largest logit."""
        return (
            self.max_difference / self.largest_logit
            if self.largest_logit
            else float(self.max_difference > 0)
        )

    @property
    def same(self) -> bool:
        """Return whether the relative difference is within the tolerance."""
        return self.relative <= self.tolerance

    @property
    def logit_differences(self) -> dict[str, Any]:
        """The differences of the logits, for JSON."""
        return {
            "max": self.max_difference,
            "mean": self.mean_difference,
            "relative": self.relative,
            "largest": self.largest_logit,
        }

    @property
    def kl_divergence(self) -> dict[str, Any]:
        """The KL divergence, for JSON."""
        return {"mean": self.kl_mean, "max": self.kl_max}

    @property
    def top1_agreement(self) -> dict[str, Any]:
        """The number of tokens with the same most likely next token, for JSON."""
        return {"same": self.same_top1, "of": len(self.tokens)}


_BAR_WIDTH = 24
_MAX_LAYERS, _MAX_FACTS = 64, 12
_MEASURES = (
    Column("", key="of"),
    Column("mean", "3 digits"),
    Column("largest", "3 digits"),
    Column("", key="note"),
)
_TOP_1 = (Column("", key="of"), Column("same", "count"), Column("tokens", "count"))
_LOSSES = (Column("", key="of"), Column("A", "3 digits"), Column("B", "3 digits"))
_LAYERS = (
    Column("after layer", "number", "layer"),
    Column("difference", "2 digits"),
    Column("", key=""),
)
_FACTS = (Column("", key="setting"), Column("A"), Column("B"), Column("layers", key="layers"))


def _fact_cells(x: TreeDifference) -> tuple[Any, ...]:
    layers = Cell(x.layers, text=str(x.layers) if x.layers > 1 else "")
    return x.path, safe(str(x.a), 40), safe(str(x.b), 40), layers


def _side(x: ComparedCheckpoint, letter: str) -> str:
    return (
        f"{letter}  {x.name}: {x.family}, {short_count(x.parameters)}, {x.format}, {x.names} "
        f"names, {x.dtype}"
    )


def tree_differences(a: Block, b: Block) -> tuple[TreeDifference, ...]:
    """Return the differences between two trees apart from stored weights, each once with its
    number of layers.
    """
    differences: dict[tuple[str, str, str], TreeDifference] = {}
    for path, x, y in _differences(a, b, "", {}):
        key = (path, repr(x), repr(y))
        differences[key] = (
            differences[key].replace(layers=differences[key].layers + 1)
            if key in differences
            else TreeDifference(path=path, a=x, b=y)
        )
    return tuple(differences.values())


_IGNORED_FIELDS = frozenset(("context",))
"""Fields that do not affect logits."""
_Seen = dict[tuple[int, int], list[tuple[str, object, object]]]


def _differences(
    a: Record, b: Record, prefix: str, seen: _Seen
) -> Iterator[tuple[str, object, object]]:
    if type(a) is not type(b):
        yield prefix.rstrip(".") or "model", type(a).__name__, type(b).__name__
        return
    for name in a.fields:
        if name in _IGNORED_FIELDS:
            continue
        x, y = getattr(a, name), getattr(b, name)
        if isinstance(x, Stack) and isinstance(y, Stack):
            yield from _stack_differences(x, y, f"{prefix}{name}.", seen)
        elif isinstance(x, Weight) or isinstance(y, Weight):
            if (x is None) != (y is None):
                yield prefix + name, _display_value(x), _display_value(y)
        elif isinstance(x, Record) and isinstance(y, Record):
            yield from _differences(x, y, f"{prefix}{name}.", seen)
        elif x != y:
            yield prefix + name, _display_value(x), _display_value(y)


def _display_value(x: object) -> object:
    """A value, or the type name of a block or stack."""
    return type(x).__name__ if isinstance(x, (Record, Stack)) else x


def _stack_differences(
    a: Stack, b: Stack, prefix: str, seen: _Seen
) -> Iterator[tuple[str, object, object]]:
    if len(a) != len(b):
        yield prefix.rstrip("."), len(a), len(b)
    for x, y in zip(a, b, strict=False):
        if (id(x), id(y)) not in seen:
            seen[id(x), id(y)] = list(_differences(x, y, prefix, seen))
        yield from seen[id(x), id(y)]
