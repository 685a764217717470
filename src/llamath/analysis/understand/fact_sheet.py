"""`fact_sheet`: what a model is, on one page: origin, sizes, layers, attention, FFN, positions,
weights, KV cache, FLOPs and hardware.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from ...checkpoint.quantization.weight_format import states_weight_format
from ...core.attention_facts import ATTENTION_KINDS, attention_kind
from ...core.blocks import (
    MLP,
    Attention,
    AttentionBase,
    ClampedMLP,
    Decoder,
    LimitedMLP,
    MoE,
    SinusoidalEmbedding,
)
from ...core.config import ACTIVATIONS
from ...core.expr import Expr, as_number, total
from ...core.latent_attention import IndexedAttention, LatentAttention
from ...core.multimodal import parts_of
from ...core.positions import Rope
from ...core.tree import Block, Stack, fold_blocks, runs_again
from ...hardware import devices
from ...model import FamilyModel
from ...render.report import Report
from ...render.tables import Cell, Column, Part, Table
from ...utils.errors import LlamathError, UnknownQuantization
from ...utils.number_format import format_bytes, format_count, format_flops, short_count
from ...utils.number_marks import text_if_equal
from ...utils.record_type import Record
from ..size.fit.format_support import is_supported
from ..size.fit.gpu_ranking import RankedGPU, smallest_gpus
from ..size.memory.inference_memory import MemoryCalculator, MemoryRequest, declared_dtype
from .layer_pattern import (
    WITHOUT_FFN,
    LayerPattern,
    ffn_pattern,
    ffns_of,
    mixer_name,
    mixer_pattern,
    mixers_of,
)
from .preset_list import model_kinds

_FOUR_BITS = ("q4_k_m", "awq")
"""The formats of 4 bits; the first in which a family can be stored applies."""
_FULL_NAMES = ATTENTION_KINDS | {"sparse MLA": "sparse multi-head latent attention"}
_ATTENTION = frozenset({*_FULL_NAMES, "attention", "compressed attention", "cross-attention"})


class MixerFacts(Record):
    """The attention or the recurrent mixers of one shape, and their number of layers."""

    kind: str  # MHA, GQA, MQA, MLA, DeltaNet, Mamba-2, …
    layers: int
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None  # of a query: of MLA, both parts together
    latent_dim: int | None = None  # of what MLA caches for a token, without the rotary key
    window: int | None = None  # tokens of a sliding window or a chunk
    chunked: bool = False
    selected: int | None = None  # keys that a query attends to at most, chosen by an indexer
    positions: str = ""  # RoPE with its base and scaling, ALiBi; empty for recurrent mixers

    @property
    def is_attention(self) -> bool:
        """Whether queries attend to keys; else it is a recurrence or a convolution."""
        return self.kind in _ATTENTION

    @property
    def name(self) -> str:
        """The kind in full."""
        if self.heads is None or self.kv_heads is None or self.kind not in ATTENTION_KINDS:
            return _FULL_NAMES.get(self.kind, self.kind)
        shared = text_if_equal(self.kv_heads, 1, ATTENTION_KINDS["MQA"], ATTENTION_KINDS["GQA"])
        return text_if_equal(self.heads, self.kv_heads, ATTENTION_KINDS["MHA"], shared)


class FFNFacts(Record):
    """The FFNs of one shape, and their number of layers."""

    kind: str  # SwiGLU, GeGLU, GELU, …
    layers: int
    width: int  # of the FFN, or of one expert
    experts: int | None = None  # None: a dense FFN
    active_experts: int | None = None
    shared_experts: int | None = None
    shared_width: int | None = None  # of all shared experts together
    zero_experts: int = 0  # further choices of the router, which return their input


class WeightSize(Record):
    """The bytes of the weights in one format."""

    dtype: str
    bytes: int
    released: bool = False  # whether the config states this format


class RunsOn(Record):
    """The smallest hardware that runs the model in a format of its weights: the fewest devices,
    then the smallest.
    """

    dtype: str
    context: int
    gpu: RankedGPU | None  # None: not even 8 of any device in one node


class FactSheet(Report):
    """What a model is: every figure is derived from its tree, its recorded graph, or the
    catalog.
    """

    model: FamilyModel
    description: str
    organization: str | None  # origin, date and license are known for presets alone
    released: str | None
    license: str | None
    kinds: tuple[str, ...]  # dense or moe; hybrid, recurrent, bidirectional; vision, audio
    layers: int
    mixer_pattern: LayerPattern
    ffn_pattern: LayerPattern
    width: int
    vocabulary: int
    tied_head: bool
    context: int | None
    mixers: tuple[MixerFacts, ...]
    ffns: tuple[FFNFacts, ...]
    positions: str
    weights: tuple[WeightSize, ...]
    kv_dtype: str
    kv_per_token: int | None  # bytes; None: the forward pass is not known
    kv_per_later_token: int | None  # once all windows are full
    kv_full_context: int | None
    state_bytes: int | None  # of recurrences and convolutions, a sequence; in the full context too
    flops_first_token: int | None  # of decoding a token without earlier ones
    flops_full_context: int | None  # of decoding the last token of the context
    runs_on: tuple[RunsOn, ...]
    notes: tuple[str, ...] = ()

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=model.name",
            "family=model.family.name",
            "source=model.source",
            "description",
            "organization",
            "released",
            "license",
        ),
        *(
            "kinds",
            "total",
            "active",
            "active_without_embeddings=model.parameters.active_without_embeddings",
            "active_blocks=model.parameters.active_blocks",
            "without_embeddings",
            "parts",
            "layers",
            "mixer_pattern=mixer_pattern.text",
        ),
        *(
            "ffn_pattern=ffn_pattern.text",
            "width",
            "vocabulary",
            "tied_head",
            "context",
            "mixers",
            "ffns",
            "positions",
            "weights",
        ),
        *(
            "kv_dtype",
            "kv_per_token",
            "kv_per_later_token",
            "kv_full_context",
            "state_bytes",
            "flops_first_token",
            "flops_full_context",
            "runs_on",
        ),
        "notes",
    )

    @property
    def states_context(self) -> bool:
        """Whether the model's own configuration is known to state its context, or to have no
        limit.
        """
        return self.model.preset is None or "context" not in self.model.preset.unknown

    @property
    def total(self) -> int:
        """The number of parameters."""
        return self.model.parameters.total

    @property
    def active(self) -> int:
        """The parameters that one token of text uses."""
        return self.model.parameters.active

    @property
    def without_embeddings(self) -> int:
        """The parameters without token and position tables."""
        return self.model.parameters.without_embeddings

    @property
    def parts(self) -> Mapping[str, int]:
        """The parameters of the parts of a multimodal model."""
        return self.model.parameters.parts

    @property
    def patterns(self) -> tuple[str, ...]:
        """The arrangements of mixers and FFNs in words, without one that repeats the other;
        empty if all layers are alike.
        """
        return written_patterns(self.mixer_pattern, self.ffn_pattern)

    @property
    def attention(self) -> str:
        """The kinds of attention and recurrent mixers, the most frequent first."""
        kinds: dict[str, int] = {}
        for x in self.mixers:
            kinds[x.kind] = kinds.get(x.kind, 0) + x.layers
        return ", ".join(sorted(kinds, key=lambda x: -kinds[x])) or "none"

    @property
    def summary(self) -> str:
        """Name, size and description."""
        active = (
            f", {short_count(self.active)} active"
            if self.model.parameters.has_sparse_layers
            else ""
        )
        return (
            f"{self.model.name}, {short_count(self.total)} parameters{active}. {self.description}"
        )

    @property
    def headline(self) -> str:
        """Name and description."""
        return f"{self.model.name}: {self.description}"

    def tables(self) -> Iterable[Part]:
        """A row for each fact; a name that repeats is shown once."""
        rows, last = [], ""
        for name, value in fact_rows(self):
            rows.append((Cell(name, text="") if name == last else name, value))
            last = name
        yield Table(columns=_COLUMNS, rows=tuple(rows))


_COLUMNS = (Column("", key="fact"), Column("", key="value", wrap=True))


def fact_rows(facts: FactSheet) -> Iterator[tuple[str, Any]]:
    """Yield each fact as a name and a value."""
    yield from ((name, value) for name, value in _origin_rows(facts) if value)
    p = facts.model.parameters
    yield "parameters", Cell(p.total, "count")
    if p.has_sparse_layers:
        yield "active", Cell(p.active, "count")
        yield "active without embeddings", Cell(p.active_without_embeddings, "count")
        yield "active without both", Cell(p.active_blocks, "count")
    yield "without embeddings", Cell(p.without_embeddings, "count")
    yield from ((f"{name} part", Cell(n, "count")) for name, n in facts.parts.items())
    pattern = facts.patterns
    yield (
        "layers",
        "; ".join((f"{facts.layers:,}", *pattern)) if pattern else f"{facts.layers:,}, all alike",
    )
    yield "hidden size", Cell(facts.width, "count")
    yield from (("attention", describe_mixer(x)) for x in facts.mixers)
    yield "positions", facts.positions
    yield from (("FFN", describe_ffn(x)) for x in facts.ffns)
    unstated = "unlimited or not stated" if facts.states_context else "not known"
    yield "context", unstated if facts.context is None else f"{facts.context:,} tokens"
    yield (
        "vocabulary",
        (f"{facts.vocabulary:,}, head {'tied to the embedding' if facts.tied_head else 'untied'}"),
    )
    for size in facts.weights:
        yield (
            f"weights in {size.dtype}",
            format_bytes(size.bytes) + (", as released" if size.released else ""),
        )
    if facts.kv_per_token is not None:
        later = facts.kv_per_later_token
        windows = "" if later in (None, facts.kv_per_token) else f"; {later:,} beyond the windows"
        yield "KV cache per token", f"{facts.kv_per_token:,} bytes in {facts.kv_dtype}{windows}"
    if facts.kv_full_context is not None:
        yield "KV cache at full context", format_bytes(facts.kv_full_context)
    if facts.state_bytes:
        yield "recurrent states", f"{format_bytes(facts.state_bytes)} for a sequence"
    if facts.flops_first_token is not None:
        full = (
            ""
            if facts.flops_full_context is None
            else (f"; {format_flops(facts.flops_full_context)} at full context")
        )
        yield "decode", format_flops(facts.flops_first_token) + f" per token{full}"
    yield from ((f"runs on, in {x.dtype}", describe_hardware(x)) for x in facts.runs_on)


def _origin_rows(facts: FactSheet) -> Iterator[tuple[str, str | None]]:
    yield "organization", facts.organization
    yield "released", facts.released
    yield "license", facts.license


def describe_mixer(x: MixerFacts) -> str:
    """Return the attention of one shape in words: `GQA, 32 query heads, 8 KV heads of 128`."""
    parts = [x.kind]
    if x.heads is not None:
        kv = (
            ""
            if x.kv_heads is None or x.kv_heads == x.heads
            else (f", {format_count(x.kv_heads, 'KV head')}")
        )
        parts.append(
            f"{format_count(x.heads, 'query head' if kv else 'head')}{kv}"
            + (f" of {x.head_dim:,}" if x.head_dim else "")
        )
    if x.latent_dim is not None:
        parts.append(f"latent vectors of {x.latent_dim:,}")
    if x.window is not None:
        parts.append(f"{'chunks' if x.chunked else 'sliding window'} of {x.window:,} tokens")
    if x.selected is not None:
        parts.append(f"at most {x.selected:,} keys for each query")
    return f"{', '.join(parts)}; {format_count(x.layers, 'layer')}"


def describe_ffn(x: FFNFacts) -> str:
    """Return the FFNs of one shape in words: `SwiGLU, 8 of 256 experts of 2,048 and 1 shared; 58
    layers`.
    """
    if x.experts is None:
        return f"{x.kind}, {x.width:,} wide; {format_count(x.layers, 'layer')}"
    shared = f" and {x.shared_experts:,} shared" if x.shared_experts else ""
    zero = f" or {format_count(x.zero_experts, 'zero expert')}" if x.zero_experts else ""
    return (
        f"{x.kind}, {x.active_experts:,} of {x.experts:,} experts of "
        f"{x.width:,}{zero}{shared}; {format_count(x.layers, 'layer')}"
    )


def describe_hardware(x: RunsOn) -> str:
    """Return the smallest hardware in words: `1 × RTX 4090`."""
    if x.gpu is None:
        return f"more than 8 of any GPU here, {x.context:,} tokens"
    return f"{x.gpu.count} × {x.gpu.device.title}, {x.context:,} tokens"


def fact_sheet(model: FamilyModel) -> FactSheet:
    """Return the fact sheet of a model with a decoder; what the catalog does not know is None,
    and what cannot be computed is in a note.
    """
    tree = model.tree
    preset, notes = model.preset, []
    try:
        declared = declared_dtype(model)
    except UnknownQuantization as error:
        declared = ""
        notes.append(f"the format of the released weights is unknown: {error}")
    weights = tuple(_weight_sizes(model, declared))
    calculator = MemoryCalculator(model, MemoryRequest(dtype="bf16"))
    try:
        numbers = _pass_numbers(calculator)
        runs_on = tuple(
            _runs_on(model, x) for x in dict.fromkeys((declared or "bf16", weights[-1].dtype))
        )
    except LlamathError as error:
        numbers, runs_on = dict.fromkeys(_PASS_NUMBERS), ()
        notes.append(f"KV cache, FLOPs and hardware are unknown: {error}")
    layers = tree.layers
    mixers, ffns = tuple(_mixer_facts(tree)), tuple(_ffn_facts(layers))
    if preset is not None and "rope_theta" in preset.unknown_keys:
        unknown = "RoPE, θ not known"
        mixers = tuple(x.replace(positions=x.positions and unknown) for x in mixers)
    patterns = (mixer_pattern(layers), ffn_pattern(layers))
    kinds = tuple(_kinds(tree))
    return FactSheet(
        model=model,
        description=_describe(tree, kinds, mixers, ffns, patterns),
        organization=None if preset is None else preset.organization,
        released=None if preset is None else preset.released,
        license=None if preset is None else preset.license,
        kinds=kinds,
        layers=as_number(layers.n),
        mixer_pattern=patterns[0],
        ffn_pattern=patterns[1],
        width=as_number(tree.width),
        vocabulary=as_number(tree.vocab),
        tied_head=tree.head is not None and bool(tree.head.weight.tied),
        context=None if tree.context is None else as_number(tree.context),
        mixers=mixers,
        ffns=ffns,
        positions=_positions(tree, mixers),
        weights=weights,
        kv_dtype=calculator.kv_dtype,
        **numbers,
        runs_on=runs_on,
        notes=(*model.notes, *notes),
    )


_PASS_NUMBERS = (
    "kv_per_token",
    "kv_per_later_token",
    "kv_full_context",
    "state_bytes",
    "flops_first_token",
    "flops_full_context",
)


def _pass_numbers(calculator: MemoryCalculator) -> dict[str, Any]:
    """Return the KV cache and the FLOPs of decode."""
    context = calculator.tree.context
    cache = calculator.at(as_number(context or calculator.context), 1).cache
    decode = calculator.decode_flops
    full = None if context is None else as_number(context)
    return {
        "kv_per_token": cache.kv_per_token,
        "kv_per_later_token": cache.kv_per_later_token,
        "kv_full_context": None if full is None else cache.bytes,
        "state_bytes": cache.state,
        "flops_first_token": decode.at(B=1, P=0),
        "flops_full_context": None
        if full is None
        else decode.at(B=1, P=Expr.variable("P", full - 1)),
    }


def _kinds(tree: Decoder) -> Iterator[str]:
    yield from (x for x in model_kinds(tree) if x != "vision")
    text = parts_of(tree)["text"]
    if any(
        isinstance(x.block, AttentionBase) and not x.block.window.causal for x in fold_blocks(text)
    ):
        yield "bidirectional"
    yield from (name for name in parts_of(tree) if name != "text")


def _weight_sizes(model: FamilyModel, declared: str) -> Iterator[WeightSize]:
    """Yield the weights in bf16, fp8 and 4 bits, and as released; a format in which the model
    cannot be stored is left out.
    """
    released = declared if states_weight_format(model.config.data) else ""
    four_bits = next((x for x in _FOUR_BITS if _weight_bytes(model, x) is not None), "")
    for dtype in dict.fromkeys((released, "bf16", "fp8", four_bits)):
        if dtype and (size := _weight_bytes(model, dtype)) is not None:
            yield WeightSize(dtype=dtype, bytes=size, released=dtype == released)


def _weight_bytes(model: FamilyModel, dtype: str) -> int | None:
    try:
        return (
            as_number(
                total(x.bytes for x in MemoryCalculator(model, MemoryRequest(dtype=dtype)).weights)
            )
            or None
        )
    except LlamathError:
        return None


def _runs_on(model: FamilyModel, dtype: str) -> RunsOn:
    calculator = MemoryCalculator(model, MemoryRequest(dtype=dtype))
    smallest = smallest_gpus(calculator, [x for x in devices() if is_supported(x, dtype)])
    return RunsOn(dtype=dtype, context=calculator.context, gpu=smallest)


def _mixer_facts(tree: Decoder) -> Iterator[MixerFacts]:
    """Yield the mixers of each shape, in order of first appearance, with their number of layers."""
    found: dict[MixerFacts, int] = {}
    for layer, n in tree.layers.distinct():
        for facts in dict.fromkeys(_facts_of_mixer(x) for x in mixers_of(layer)):
            found[facts] = found.get(facts, 0) + as_number(n)
    return (x.replace(layers=n) for x, n in found.items())


def _facts_of_mixer(x: Block) -> MixerFacts:
    kind = mixer_name(x)
    heads, kv_heads, head_dim = (
        getattr(x, name, None) for name in ("heads", "kv_heads", "head_dim")
    )
    if isinstance(x, LatentAttention):
        latent = MixerFacts(
            kind=kind, layers=0, heads=heads, head_dim=x.nope_dim + x.rope_dim, **_window_facts(x)
        )
        return latent.replace(
            latent_dim=x.kv_lora_rank, selected=x.top_k if isinstance(x, IndexedAttention) else None
        )
    if isinstance(x, Attention):
        return MixerFacts(
            kind=attention_kind(x.heads, x.kv_heads),
            layers=0,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            **_window_facts(x),
        )
    extra = _window_facts(x) if isinstance(x, AttentionBase) else {}
    return MixerFacts(
        kind=kind, layers=0, heads=heads, kv_heads=kv_heads, head_dim=head_dim, **extra
    )


def _window_facts(x: AttentionBase) -> dict[str, Any]:
    window = x.window
    return {
        "window": window.max_lookback,
        "chunked": window.chunk is not None,
        "positions": _attention_positions(x),
    }


def _attention_positions(x: AttentionBase) -> str:
    if x.score_transform.alibi is not None:
        return "ALiBi"
    if x.has_relative_positions:
        return "relative positions"
    return (
        rope_words(x.rope, getattr(x, "rope_dim", None) or getattr(x, "head_dim", None))
        if x.rope is not None
        else ""
    )


def rope_words(rope: Rope, head_dim: int | None) -> str:
    """Return rotary positions in words: `RoPE θ 500,000, Llama 3 scaling × 8 from 8,192 tokens`."""
    words = [f"RoPE θ {rope.theta:,.10g}"]
    if head_dim is not None and int(rope.dim) < int(head_dim):
        words.append(f"{int(rope.dim):,} of {int(head_dim):,} dimensions")
    if rope.scaling:
        factor, original = getattr(rope, "factor", None), getattr(rope, "original_context", None)
        if factor != 1:
            by = "" if factor is None else f" × {factor:,.4g}"
            words.append(
                f"{rope.scaling} scaling{by}"
                + (f" from {int(original):,} tokens" if original else "")
            )
    return ", ".join(words)


def _positions(tree: Decoder, mixers: tuple[MixerFacts, ...]) -> str:
    """Return the positions of the whole model; layers of attention without any are NoPE."""
    tables = (
        ["learned"]
        if tree.positions is not None
        else ["sinusoidal"]
        if isinstance(tree.embed, SinusoidalEmbedding)
        else []
    )
    attention = [x for x in mixers if x.is_attention and x.kind != "cross-attention"]
    found = dict.fromkeys(x.positions for x in attention)
    rest = "NoPE" if not tables else ""
    words = [*tables, *filter(None, (x or rest for x in found))]
    if len(found) > 1:
        layers = {x: sum(y.layers for y in attention if y.positions == x) for x in found}
        words = [*tables, *(f"{x or 'NoPE'} in {format_count(layers[x], 'layer')}" for x in found)]
    return "; ".join(words) or "none: the order is in the recurrence"


def _ffn_facts(layers: Stack) -> Iterator[FFNFacts]:
    found: dict[FFNFacts, int] = {}
    for layer, n in layers.distinct():
        for facts in dict.fromkeys(_facts_of_ffn(x) for x in ffns_of(layer)):
            found[facts] = found.get(facts, 0) + as_number(n)
    return (x.replace(layers=n) for x, n in found.items())


def _facts_of_ffn(x: Block) -> FFNFacts:
    if not isinstance(x, MoE):
        assert isinstance(x, MLP)
        return FFNFacts(kind=activation_name(x), layers=0, width=x.up.weight.shape[0])
    expert = x.experts[0]
    assert isinstance(expert, MLP)
    width = expert.up.weight.shape[0]
    count = shared_width = None
    if x.shared_count is not None:
        count, shared_width = x.shared_count, x.shared_count * int(width)
    elif x.shared is not None:
        wide = x.shared.up.weight.shape[0]
        # one wide matrix holds several shared experts where its width is a multiple of an expert's
        # in the tree
        of_experts = set(width.atoms) <= set(wide.atoms) and int(wide) % int(width) == 0
        count = as_number(Expr.const(wide).exact_div(width)) if of_experts else 1
        shared_width = wide
    return FFNFacts(
        kind=activation_name(expert),
        layers=0,
        width=width,
        experts=x.experts.n,
        active_experts=x.top_k,
        shared_experts=count,
        shared_width=shared_width,
        zero_experts=int(x.zero_experts),
    )


def activation_name(x: MLP) -> str:
    """Return the name of an FFN by its activation: as SwiGLU, clamped SwiGLU or GELU."""
    if (known := ACTIVATIONS.get(x.activation)) is None:
        return x.activation
    if x.gate is None:
        return known.plain
    return f"clamped {known.gated}" if isinstance(x, ClampedMLP | LimitedMLP) else known.gated


def _describe(
    tree: Decoder,
    kinds: tuple[str, ...],
    mixers: tuple[MixerFacts, ...],
    ffns: tuple[FFNFacts, ...],
    patterns: tuple[LayerPattern, LayerPattern],
) -> str:
    """Return one sentence, `A dense decoder-only transformer: 32 identical layers of
    grouped-query attention and SwiGLU`, with a period.
    """
    # "dense" is said of transformers: a recurrent model need not have an FFN
    size = "mixture-of-experts " if "moe" in kinds else "" if "recurrent" in kinds else "dense "
    what = (
        "recurrent model"
        if "recurrent" in kinds
        else "hybrid model"
        if "hybrid" in kinds
        else "decoder-only transformer"
    )
    senses = [
        {"vision": "images", "audio": "sound"}.get(x, x) for x in kinds if x in ("vision", "audio")
    ]
    reads = f" that reads {' and '.join(senses)}" if senses else ""
    if "bidirectional" in kinds:
        what = what.replace("decoder-only", "bidirectional")
    layers = tree.own_layers
    again = int(tree.layers.n) // max(1, layers)
    written = ", ".join(written_patterns(*patterns))
    kinds_of_layers = [x for x, _ in tree.layers.distinct() if not runs_again(x)]
    alike = "identical " if layers > 1 and len(kinds_of_layers) == 1 else ""
    noun = f"{layers:,} {alike}{text_if_equal(layers, 1, 'layer', 'layers')}" + (
        f" ({written})" if written else ""
    )
    noun += f", which run {again:,} times," if again > 1 else ""
    made_of = _join_words(dict.fromkeys((*(x.name for x in mixers), *_dense_ffns(ffns))))
    return f"A {size}{what}{reads}: {noun} of {made_of}{_describe_experts(ffns)}."


def written_patterns(mixers: LayerPattern, ffns: LayerPattern) -> tuple[str, ...]:
    """Return the patterns in words; none if all layers are alike."""
    # the kinds of mixers name the layers with an FFN alone
    repeats = any(x.kind == WITHOUT_FFN for x in ffns.runs)
    return tuple(x.text for x in (mixers, ffns) if x.text and not (x is ffns and repeats))


def _dense_ffns(ffns: tuple[FFNFacts, ...]) -> Iterable[str]:
    return () if any(x.experts is not None for x in ffns) else dict.fromkeys(x.kind for x in ffns)


def _describe_experts(ffns: tuple[FFNFacts, ...]) -> str:
    experts = next((x for x in ffns if x.experts is not None), None)
    if experts is None:
        return ""
    shared = (
        f" and {format_count(experts.shared_experts, 'shared expert')}"
        if experts.shared_experts
        else ""
    )
    zero = (
        f" or {format_count(experts.zero_experts, 'zero expert')}" if experts.zero_experts else ""
    )
    return f"; a token uses {experts.active_experts:,} of {experts.experts:,} experts{zero}{shared}"


def _join_words(words: Iterable[str]) -> str:
    *first, last = [x for x in words if x]
    return f"{', '.join(first)} and {last}" if first else last
