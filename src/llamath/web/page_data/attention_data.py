"""The attention of each kind of layer: its heads, its mask, what a token leaves in the KV cache,
and the wavelengths of its positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import pi
from typing import Any, NamedTuple

from ...analysis.graph.node import Node
from ...analysis.graph.operations.attention_operations import attention, rope, update_cache
from ...analysis.graph.operations.pair_counts import (
    pairs_in_blocks,
    pairs_in_selected_windows,
    pairs_in_window,
)
from ...analysis.graph.recorder import Graph, Region, record
from ...analysis.size.memory.cache_bytes import CacheSpec, cache_specs
from ...analysis.size.memory.gpu_shards import TOKENS
from ...catalog import read_preset
from ...core.attention_facts import (
    ATTENTION_KINDS,
    AttentionWindow,
    attention_kind,
    written_attention_kind,
)
from ...core.expr import Expr, as_number, choose_if_less, floor_div, product, total
from ...core.latent_attention import LatentAttention
from ...core.parameter_count import layer_ranges
from ...core.positions import Alibi, Rope
from ...generation.rope_frequencies import rope_frequencies
from ...model import FamilyModel
from ...utils.number_format import format_ranges
from ...utils.number_marks import Repeated, either, text_if_equal
from .sizing.inference_data import SIZES

_LATENT_EXAMPLE = "deepseek-v3"
"""The preset whose latent stands for MLA beside models without it."""


class _Heads(NamedTuple):
    """The query heads of an attention, and what it caches for each token."""

    query: Expr
    key_size: Expr  # of a query and a key
    value_size: Expr
    cached: tuple[tuple[Expr, Expr], ...]  # (heads, size) of each cached row of its own
    latent: bool

    @property
    def key_heads(self) -> int:
        """The number of KV heads; 1 for a latent."""
        return self.cached[0][0] if self.cached else 0

    @property
    def written_kind(self) -> str:
        """The kind as a text that follows the numbers of heads."""
        return "MLA" if self.latent else written_attention_kind(self.query, self.key_heads)

    @property
    def kind(self) -> str:
        """MHA, GQA, MQA or MLA."""
        return "MLA" if self.latent else attention_kind(self.query, self.key_heads)


def build_attention(model: FamilyModel) -> dict[str, Any]:
    """Return the kinds of attention in order of their first layer, the alternatives to the most
    frequent one, and the rotary positions.
    """
    graph = record(model.tree)
    found: dict[str, tuple[dict[str, Any], int, set[int]]] = {}
    ropes: dict[Rope, int] = {}
    most, most_layers = None, 0
    for region in graph.layers:
        for node in (x for x in region.nodes if x.op is attention):
            heads, rope = _heads(region, node), _rope_of(region, node)
            kind = _attention(graph, region, node, heads) | {
                "rope": None if rope is None else ropes.setdefault(rope, len(ropes))
            }
            key = repr(sorted((name, repr(x)) for name, x in kind.items()))
            first, layers, ids = found.get(key, (kind, 0, set()))
            found[key] = (first, layers := layers + region.times, ids | {id(region.block)})
            if layers > most_layers and heads.cached:
                most, most_layers = heads, layers
    return {
        "kinds": [
            kind
            | {"layers": str(layers), "where": format_ranges(layer_ranges(model.tree.layers, ids))}
            for kind, layers, ids in found.values()
        ],
        "of": str(model.tree.layers.n),
        "alternatives": _alternatives(most) if most is not None else [],
        "ropes": [_wavelengths(x, int(model.tree.context or 0)) for x in ropes],
        "context": str(model.tree.context or ""),
    }


def _heads(region: Region, node: Node) -> _Heads:
    """Return the heads of an attention node."""
    own = [
        x
        for x in region.nodes
        if x.op is update_cache
        and x.path == node.path
        and x.attributes["window"] == node.attributes["window"]
    ]
    cached = tuple((x.shape[2], x.shape[3]) for x in own if len(x.shape) == 4)
    return _Heads(
        node.shape[2],
        node.inputs[0].shape[3],
        node.shape[3],
        cached,
        isinstance(_mixer(region.block, node.path), LatentAttention),
    )


def _mixer(block: Any, path: str) -> Any:
    """Return the block at the path of a node, without the stack of layers and its index."""
    for name in path.split(".")[2:]:
        block = getattr(block, name, block)
    return block


def _rope_of(region: Region, node: Node) -> Rope | None:
    """Return the rotary positions of a node's attention, if their wavelengths can be drawn."""
    ropes = (x.attributes["rope"] for x in region.nodes if x.op is rope and x.path == node.path)
    return next((x for x in ropes if not x.for_grids), None)


def _attention(graph: Graph, region: Region, node: Node, heads: _Heads) -> dict[str, Any]:
    window: AttentionWindow = node.attributes["window"]
    mixer, transform = _mixer(region.block, node.path), node.attributes["transform"]
    specs = [x for x in cache_specs(graph, layers={id(region.block): 1}) if x.rows]
    top_k, blocks, windows = (
        node.attributes["top_k"],
        node.attributes.get("blocks"),
        node.attributes.get("windows"),
    )
    # as many keys as in a window of that size
    seen = window if top_k is None else AttentionWindow(size=top_k)
    pairs = (
        pairs_in_blocks(blocks, TOKENS) if blocks else pairs_in_window(seen, TOKENS, Expr.const(0))
    )
    pairs, chosen = (
        pairs_in_selected_windows(windows, TOKENS, Expr.const(0)) if windows else pairs,
        blocks or windows,
    )
    positions = "learned" if graph.tree.positions is not None else "none"
    if any(x.op is rope and x.path == node.path for x in region.nodes):
        positions = "RoPE"
    return {
        "kind": heads.written_kind,
        "heads": str(heads.query),
        "kvHeads": str(heads.key_heads),
        "keySize": str(heads.key_size),
        "valueSize": str(heads.value_size),
        "rows": [
            {"heads": str(n), "size": str(size), "of": _product_lines((n, size))}
            for n, size in heads.cached
        ],
        "cached": total(_token_bytes(x) for x in specs).to_expression_json()
        if specs and heads.cached
        else None,
        "window": None if window.size is None else str(window.size),
        "chunk": None if window.chunk is None else str(window.chunk),
        "causal": window.causal,
        "selected": str(top_k)
        if top_k is not None
        else str(chosen[0] * chosen[1])
        if chosen
        else None,
        "sinks": getattr(mixer, "sinks", None) is not None,
        "softcap": transform.softcap,
        "positions": "ALiBi" if isinstance(transform.alibi, Alibi) else positions,
        "pairs": Expr.const(pairs).to_expression_json(),
    }


def _token_bytes(spec: CacheSpec) -> Expr:
    """Return the bytes that a token adds to the cache of one layer, on average where several
    tokens share a row.
    """
    grown = spec.replace(layers=1).growing_bytes(spec.every, 1, SIZES.cache)
    return floor_div(grown, spec.every) if spec.every > 1 else grown


def _alternatives(own: _Heads) -> Any:
    """Return MHA, GQA, MQA and MLA with the query heads of this model, its own kind exactly as it
    is: which one that is follows its heads.
    """
    if own.latent:
        return Repeated(list(_kinds_beside(own, "MLA")))
    heads, key_heads = as_number(own.query), as_number(own.key_heads)
    mha, gqa, mqa = (Repeated(list(_kinds_beside(own, x))) for x in ("MHA", "GQA", "MQA"))
    return either(
        choose_if_less(key_heads, heads, 0, 1),
        mha,
        either(choose_if_less(1, key_heads, 0, 1), mqa, gqa),
    )


def _kinds_beside(own: _Heads, own_kind: str) -> Iterator[Any]:
    heads, sizes = own.query, (own.key_size, own.value_size)
    for kind in ATTENTION_KINDS:
        note, times = "", 1
        if kind == own_kind:
            rows = own.cached
        elif kind == "MLA":
            example = read_preset(_LATENT_EXAMPLE).config
            rows = (
                (Expr.const(1), Expr.const(example["kv_lora_rank"] + example["qk_rope_head_dim"])),
            )
            note = "with the latent of DeepSeek V3"
        else:
            shared = {"MHA": as_number(heads), "GQA": _grouped(as_number(heads)), "MQA": 1}[kind]
            times = choose_if_less(0, shared, 1, 0)
            rows = tuple((heads if kind == "MHA" else Expr.const(shared), size) for size in sizes)
            note = f"with {shared:,} {text_if_equal(shared, 1, 'KV head', 'KV heads')}"
        spec = CacheSpec(kind=kind, rows=tuple(product(x) for x in rows))
        card = {
            "kind": kind,
            "heads": str(heads),
            "kvHeads": str(rows[0][0]),
            "own": kind == own_kind,
            "note": note,
            "cached": _token_bytes(spec).to_expression_json(),
            "elements": [
                " + ".join(each) for each in zip(*(_product_lines(x) for x in rows), strict=True)
            ],
        }
        yield card, times


def _grouped(heads: int) -> int:
    """Return the number of KV heads of an example of GQA: 8 as in most models, or fewer; 0 if
    there is none between 1 and `heads`.
    """
    found = 0
    for n in (2, 4, 8):
        found = choose_if_less(0, heads % n, found, choose_if_less(n, heads, n, found))
    return found


def _product_lines(x: Sequence[Expr]) -> list[str]:
    form = product(x)
    return [form.symbol, form.numbers]


def _wavelengths(rope: Rope, context: int) -> dict[str, Any]:
    """Return the wavelength of each rotary pair in tokens, as trained without scaling and as
    used at the model's context.
    """
    original = getattr(rope, "original_context", None)
    base = rope_frequencies(rope.without_scaling()).angles
    used = rope_frequencies(rope, context)
    return {
        "scaling": rope.scaling or "none",
        "theta": f"{rope.theta:,.10g}",
        "dim": str(rope.dim),
        "factor": getattr(rope, "factor", None),
        "original": None if original is None else str(original),
        "attentionFactor": round(used.factor, 6),
        "base": [_wavelength(x) for x in base],
        "used": [_wavelength(x) for x in used.angles],
    }


def _wavelength(angle: float) -> float | None:
    """Return the tokens of a whole turn to six digits; None for a pair that does not turn."""
    return float(f"{2 * pi / angle:.6g}") if angle else None
