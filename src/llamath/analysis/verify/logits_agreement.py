"""Report of `llamath logits`: the differences between the logits of two checkpoints, the first
differing module, possible causes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ...core.tree import Block, Stack, Weight
from ...utils.record_type import Record
from ...utils.report import Report, html_table
from .divergence import Divergence


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

    def html_tables(self) -> Iterator[str]:
        """The differences, their percentiles, the hidden states after each layer, and the
        settings that differ.
        """
        yield html_table(("measure", "value"), list(self._measures()))
        if self.divergence is not None:
            kld = {x.percent: x.value for x in self.divergence.kld.percentiles}
            rows = [
                (x.percent, kld.get(x.percent), x.value)
                for x in self.divergence.delta_p.percentiles
            ]
            yield html_table(
                ("percentile", "KLD, nats", "Δp"), rows, caption="of the next token's probabilities"
            )
        if self.layers:
            yield html_table(
                ("layer", "relative difference"),
                list(enumerate(self.layers)),
                caption="of the hidden state after each layer",
            )
        if self.facts:
            yield html_table(
                ("setting", "A", "B", "layers"),
                [(x.path, x.a_text, x.b_text, x.layers) for x in self.facts],
            )

    def _measures(self) -> Iterator[tuple[str, object]]:
        yield from (
            ("largest logit of A", self.largest_logit),
            ("mean logit difference", self.mean_difference),
        )
        yield from (
            ("largest logit difference", self.max_difference),
            ("largest difference / largest logit", self.relative),
        )
        yield from (("mean KL(A‖B), nats", self.kl_mean), ("largest KL(A‖B), nats", self.kl_max))
        yield from (
            ("tokens", len(self.tokens)),
            ("tokens with the same top-1 token", self.same_top1),
        )
        if self.losses:
            yield from (
                ("loss of A, nats/token", self.losses[0]),
                ("loss of B, nats/token", self.losses[1]),
            )
        if self.divergence is not None:
            yield from (
                ("perplexity of A", self.divergence.perplexity_a.value),
                ("perplexity of B", self.divergence.perplexity_b.value),
            )
        if self.first is not None:
            yield f"first difference: {self.first.module}", self.first.difference

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
