"""`pair_models`: does a draft belong to a target for speculative decoding, what does it cost, and
how much faster can it be at most.

A draft is a model of its own, the layers for multi-token prediction of the target, or an EAGLE head
of the target's shape: EAGLE 1 and 2 (Li et al. 2024, arXiv:2401.15077) join a token's embedding and
the last hidden state to one decoder layer without its first norm; EAGLE 3 (arXiv:2503.01840) joins
three hidden states, reads twice the width in attention, and has a head for the most frequent
tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from ....checkpoint.formats.dtypes import DTYPES
from ....checkpoint.vocabulary import Vocabulary
from ....core.blocks import Attention, Decoder
from ....core.tree import fold
from ....engines import ENGINES, find_engine
from ....questions.layout import Layout
from ....render.report import Report
from ....render.tables import Cell, Column, Part, Table, Text
from ....utils.errors import LlamathError, safe
from ....utils.number_format import format_bytes, format_count
from ....utils.record_type import Record
from ..memory.cache_bytes import sum_cache_specs
from ..memory.gpu_shards import ShardedModel
from ..memory.inference_memory import MemoryCalculator
from .engine_layouts import broken_rules, rule_source

if TYPE_CHECKING:
    from ....model import FamilyModel

DraftKind = Literal["model", "eagle", "eagle3", "mtp"]
EAGLE3_ROWS = 32_000
"""The usual number of tokens that an EAGLE 3 head proposes (draft_vocab_size)."""
LENGTHS = (1, 2, 3, 4, 5, 8)
"""Numbers of draft tokens in the table."""
ACCEPTANCE = (1.0, 0.8, 0.6)
"""Probabilities that a draft token is accepted: the best case, and two assumptions."""


class VocabularyComparison(NamedTuple):
    """The ids that stand for other tokens in two vocabularies."""

    target_tokens: int
    draft_tokens: int
    differing: int
    differing_after_4: int
    first: int
    first_target: str
    first_draft: str
    added_differ: int  # of them, added or special tokens


class EngineVerdict(Record):
    """What one engine says to the pair."""

    engine: str
    accepts: bool
    says: str
    source: str
    workaround: str = ""


class SpeedUp(Record):
    """The bound on the speed-up with a number of draft tokens."""

    tokens: int
    acceptance: float
    tokens_per_pass: float  # expected, of the target
    speed_up: float


class PairReport(Report):
    """Whether a draft belongs to a target, and what it is worth."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "target=target.name",
            "draft",
            "kind",
            "accepted",
            "rows=embedding_rows",
            "vocabulary",
            "context",
            "weights",
            "parameters",
            "caches",
            "reads",
        ),
        *("verdicts", "speed_ups", "notes"),
    )

    target: FamilyModel
    draft: str
    kind: DraftKind
    embedding_rows: tuple[int, int]  # of the target's embedding, and of the draft's
    compared: VocabularyComparison | None
    context: int
    weights: tuple[int, int]  # bytes of target and draft
    parameters: int  # of the draft
    caches: tuple[int, int]  # bytes of one sequence of the context
    reads: tuple[int, int]  # bytes of weights and cache that a pass over one token reads
    verdicts: tuple[EngineVerdict, ...]
    speed_ups: tuple[SpeedUp, ...]
    notes: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether no engine refuses the pair."""
        return all(x.accepts for x in self.verdicts)

    @property
    def vocabulary(self) -> dict[str, Any] | None:
        """The differences of the vocabularies; None if one is not known."""
        return self.compared._asdict() if self.compared is not None else None

    @property
    def best(self) -> SpeedUp:
        """The largest bound in the table."""
        return max(self.speed_ups, key=lambda x: x.speed_up)

    @property
    def summary(self) -> str:
        """The verdict and the bound."""
        refused = [x.engine for x in self.verdicts if not x.accepts]
        verdict = f"refused by {', '.join(refused)}" if refused else "a pair"
        best = self.best
        speed = f"at most {best.speed_up:.2f} times as fast with {best.tokens} draft tokens"
        return (
            f"{self.target.name} with {self.draft}: {verdict}; "
            f"{format_bytes(self.weights[1])} more weights; {speed}"
        )

    @property
    def headline(self) -> str:
        """The verdict."""
        verdict = "a pair" if self.accepted else "not a pair for every engine"
        return f"{self.target.name} with {self.draft}: {verdict}"

    @property
    def entries(self) -> Sequence[SpeedUp]:
        """The bounds on the speed-up."""
        return self.speed_ups

    def __bool__(self) -> bool:
        return self.accepted

    def tables(self) -> Iterable[Part]:
        """The vocabularies, what engines say, the sizes, and the bound on the speed-up."""
        for i, text in enumerate(self._vocabulary()):
            yield Text(text, apart=not i)
        yield Table(
            title="engines",
            columns=_ENGINES,
            rows=tuple(_engine_cells(x) for x in self.verdicts),
        )
        sizes = (("weights", self.weights), ("KV cache", self.caches))
        yield Table(
            columns=_SIZES,
            rows=tuple((name, *x) for name, x in (*sizes, ("read for a token", self.reads))),
            legend=f"one sequence of {format_count(self.context, 'token')}; the draft has "
            f"{self.parameters:,} parameters",
        )
        yield Table(
            title="speed-up at most, from the bytes that are read",
            columns=_SPEED_UPS,
            rows=tuple(self._speed_ups()),
            legend="100% is the best case, the others are assumptions. A pass of the target over "
            "n draft tokens and one more reads its weights once (of experts, those that so many "
            f"tokens are expected to use); each draft token reads {format_bytes(self.reads[1])}. "
            "Launches, sampling and prefill take no time.",
        )

    def _vocabulary(self) -> Iterator[str]:
        target, draft = self.embedding_rows
        if self.kind != "model":
            yield f"the head proposes {draft:,} of the target's {target:,} tokens"
            return
        rows = f"rows of the embedding: {target:,} and {draft:,}"
        compared = self.compared
        if compared is None:
            yield rows
            return
        counts = (target - compared.target_tokens, draft - compared.draft_tokens)
        padded = "; ".join(f"{n:,} of them padded" for n in counts if n)
        tokens = f"tokens: {compared.target_tokens:,} and {compared.draft_tokens:,}"
        yield f"{rows}; {tokens}" + (f" ({padded})" if padded else "")
        if not compared.differing:
            yield "every id stands for the same token in both"
            return
        others = compared.added_differ
        added = f", {others:,} of them added or special" if others else ""
        yield (
            f"{format_count(compared.differing, 'id')} stand for different tokens{added}; the "
            f"first is {compared.first:,}: {safe(compared.first_target, 40)!r} and "
            f"{safe(compared.first_draft, 40)!r}"
        )

    def _speed_ups(self) -> Iterator[tuple[Any, ...]]:
        found = {(x.tokens, x.acceptance): x.speed_up for x in self.speed_ups}
        return ((k, *(found[k, rate] for rate in ACCEPTANCE)) for k in LENGTHS)


_ENGINES = (
    Column("", key="engine"),
    Column("accepts", shown=False),
    Column("", key="says", wrap=True),
    Column("source", below=True),
)
_SIZES = (Column("GiB", key="of"), Column("target", "GiB"), Column("draft", "GiB"))
_SPEED_UPS = (
    Column("draft tokens", "number"),
    *(Column(f"{rate:.0%} accepted", ".2") for rate in ACCEPTANCE),
)


def _engine_cells(x: EngineVerdict) -> tuple[Any, ...]:
    says = x.says or "no rule against it is known"
    shown = Cell(says, text=says if x.accepts else f"refuses: {says}")
    return x.engine, x.accepts, shown, rule_source(x.source, x.workaround)


class _Draft(NamedTuple):
    name: str
    kind: DraftKind
    rows: int
    parameters: int
    weights: int
    cache: int
    read: int


def compare_vocabularies(target: Vocabulary, draft: Vocabulary) -> VocabularyComparison:
    """Return the ids below the smaller size that stand for other tokens."""
    ids = sorted({*target.tokens, *draft.tokens})
    common = min(target.size, draft.size)
    differing = [i for i in ids if i < common and target.tokens.get(i) != draft.tokens.get(i)]
    first = differing[0] if differing else -1
    added = target.added | draft.added
    return VocabularyComparison(
        len(target.tokens),
        len(draft.tokens),
        len(differing),
        sum(i > 4 for i in differing),
        first,
        target.tokens.get(first, ""),
        draft.tokens.get(first, ""),
        sum(i in added for i in differing),
    )


def pair_models(
    target: MemoryCalculator,
    draft: MemoryCalculator | DraftKind,
    vocabularies: tuple[Vocabulary | None, Vocabulary | None] = (None, None),
    engines: Iterable[str] = ENGINES,
) -> PairReport:
    """Return whether a draft belongs to a target, its sizes, and the bound on the speed-up."""
    context = target.context
    shards = ShardedModel(target, Layout())
    target_cache = int(sum_cache_specs(target.cache_specs, context, 1, target.kv_dtype).bytes)
    found = (
        _other_model(draft, context)
        if isinstance(draft, MemoryCalculator)
        else _head(target, draft, context)
    )
    compared = None
    notes: list[str] = []
    if found.kind == "model":
        first, second = vocabularies
        if first is not None and second is not None:
            compared = compare_vocabularies(first, second)
        else:
            which = " and ".join(
                name for name, x in zip(("target", "draft"), vocabularies, strict=True) if x is None
            )
            notes.append(f"the tokens are not compared: no tokenizer of the {which} is known")
    facts = _facts(int(target.tree.vocab), found, compared)
    verdicts = tuple(_verdict(name, facts) for name in engines)
    reads = shards.weight_reads(1)[0] + target_cache, found.read
    speed_ups = tuple(
        _speed_up(shards, target_cache, found.read, k, rate) for rate in ACCEPTANCE for k in LENGTHS
    )
    return PairReport(
        target=target.model,
        draft=found.name,
        kind=found.kind,
        embedding_rows=(int(target.tree.vocab), found.rows),
        compared=compared,
        context=context,
        weights=(sum(int(x.bytes) for x in target.weights), found.weights),
        parameters=found.parameters,
        caches=(target_cache, found.cache),
        reads=reads,
        verdicts=verdicts,
        speed_ups=speed_ups,
        notes=(*notes, *target.notes),
    )


def _facts(rows: int, found: _Draft, compared: VocabularyComparison | None) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "target_rows": rows,
        "draft_rows": found.rows,
        "rows_apart": abs(rows - found.rows),
        "differing_tokens": compared.differing if compared else 0,
        "differing_tokens_after_4": compared.differing_after_4 if compared else 0,
        "first_difference": compared.first if compared else -1,
        "target_token": compared.first_target if compared else "",
        "draft_token": compared.first_draft if compared else "",
    }


def _verdict(name: str, facts: dict[str, Any]) -> EngineVerdict:
    """Return what an engine says: a refusal, else a warning, else nothing."""
    engine = find_engine(name)
    broken = [
        (rule, x) for rule in engine.rules if rule.of == "pair" for x in broken_rules(rule, facts)
    ]
    for level in ("refuses", "warns"):
        for rule, x in broken:
            if rule.level == level:
                return EngineVerdict(
                    engine=engine.label,
                    accepts=level == "warns",
                    says=x.says,
                    source=x.source,
                    workaround=x.workaround,
                )
    return EngineVerdict(engine=engine.label, accepts=True, says="", source="")


def _other_model(draft: MemoryCalculator, context: int) -> _Draft:
    cache = int(sum_cache_specs(draft.cache_specs, context, 1, draft.kv_dtype).bytes)
    weights = sum(int(x.bytes) for x in draft.weights)
    parameters = sum(int(x.weight.parameters) * int(x.copies) for x in fold(draft.tree))
    read = ShardedModel(draft, Layout()).weight_reads(1)[0] + cache
    return _Draft(
        draft.model.name, "model", int(draft.tree.vocab), parameters, weights, cache, read
    )


def _head(target: MemoryCalculator, kind: DraftKind, context: int) -> _Draft:
    """Return a head of the target: its own layers for multi-token prediction, or an EAGLE head
    of its shape.
    """
    rows, width = int(target.tree.vocab), int(target.tree.width)
    element = DTYPES[target.packer.compute_dtype].bytes
    shared_head = rows * width * element  # the target's head, read for every draft token
    if kind == "mtp":
        return _mtp_head(target, context, shared_head)
    attention, cache_row, mlp = _dense_layer(target.tree, kind)
    heads = EAGLE3_ROWS if kind == "eagle3" else 0
    joined = 3 * width * width if kind == "eagle3" else 2 * width * width
    norms = 4 * width if kind == "eagle3" else width
    parameters = joined + attention + mlp + norms + heads * width
    # the tables of token ids
    weights = parameters * element + (heads * 8 + rows if kind == "eagle3" else 0)
    cache = cache_row * context * element
    own_head = 0 if kind == "eagle3" else shared_head
    names: dict[DraftKind, str] = {"eagle": "an EAGLE head", "eagle3": "an EAGLE 3 head"}
    return _Draft(
        names[kind],
        kind,
        heads or rows,
        parameters,
        weights,
        cache,
        parameters * element + own_head + cache,
    )


def _dense_layer(tree: Decoder, kind: DraftKind) -> tuple[int, int, int]:
    """Return the parameters of attention, the elements that a token adds to the cache, and the
    parameters of the MLP of an EAGLE layer.
    """
    layer = next(
        (x for x, _ in tree.layers.distinct() if isinstance(getattr(x, "attn", None), Attention)),
        None,
    )
    attn = getattr(layer, "attn", None)
    if not isinstance(attn, Attention) or attn.k is None or attn.v is None:
        raise LlamathError(
            "the layers of the target have no keys and values of their own",
            hint="give the head's checkpoint as a model",
        )
    width, head = int(tree.width), int(attn.head_dim)
    sides = [int(attn.heads) * head, int(attn.kv_heads) * head]
    inputs = 2 * width if kind == "eagle3" else width
    return (
        inputs * (sides[0] + 2 * sides[1]) + sides[0] * width,
        2 * sides[1],
        3 * width * _mlp_width(tree),
    )


def _mlp_width(tree: Decoder) -> int:
    """Return the inputs of the widest dense projection back to the residual stream."""
    sizes = [
        int(x.weight.shape[1])
        for x in fold(tree)
        if x.pattern.endswith("mlp.down.weight") and not x.num_experts
    ]
    experts = [
        int(x.weight.shape[1]) * (int(x.active) // int(tree.layers.n) or 1)
        for x in fold(tree)
        if x.num_experts and ".down." in x.pattern
    ]
    if not sizes and not experts:
        raise LlamathError("the layers of the target have no MLP that an EAGLE layer could copy")
    return max(sizes or experts)


def _mtp_head(target: MemoryCalculator, context: int, shared_head: int) -> _Draft:
    from ...storage.quantized_tensors import mtp_bytes

    tree = target.tree
    size = (
        mtp_bytes(target.model, target.packer, with_copies=False) if tree.mtp is not None else None
    )
    if tree.mtp is None or size is None:
        raise LlamathError(
            f"{target.model.name} has no layers for multi-token prediction",
            hint="a DRAFT model, eagle or eagle3",
        )
    layers, active = int(tree.mtp.n), 0
    total = 0
    for block, n in tree.mtp.distinct():
        for x in fold(block):
            if not x.weight.tied:
                total += int(x.weight.parameters) * int(x.copies) * int(n)
                active += int(x.weight.active_parameters) * int(x.active) * int(n)
    rows = sum(int(y) for x in target.cache_specs for y in x.rows) // max(
        len(target.cache_specs), 1
    )
    cache = rows * context * layers * DTYPES[target.packer.compute_dtype].bytes
    read = (size * active // total + shared_head) // layers + cache // layers
    return _Draft(
        f"its {layers} layer{'s' if layers > 1 else ''} for multi-token prediction",
        "mtp",
        int(tree.vocab),
        total,
        size,
        cache,
        read,
    )


def _speed_up(
    shards: ShardedModel, cache: int, draft_read: int, tokens: int, acceptance: float
) -> SpeedUp:
    """Return the bound from bytes: a pass of the target over all draft tokens and one more, and
    a pass of the draft for each.
    """
    expected = sum(acceptance**i for i in range(tokens + 1))
    plain = shards.weight_reads(1)[0] + cache
    checked = shards.weight_reads(tokens + 1)[0] + cache
    return SpeedUp(
        tokens=tokens,
        acceptance=acceptance,
        tokens_per_pass=expected,
        speed_up=expected * plain / (checked + tokens * draft_read),
    )
