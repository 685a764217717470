"""The fact sheet of the page: rows of short texts, each number with its derivation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from ...analysis.size.memory.cache_bytes import kv_format
from ...analysis.understand.fact_sheet import FactSheet, FFNFacts, MixerFacts
from ...analysis.understand.model_origin import license_name, month_of
from ...core.attention_facts import written_attention_kind
from ...core.expr import Expr, floor_div
from ...utils.errors import safe
from ...utils.number_format import format_count, format_flops, short_bytes, short_tokens
from ...utils.number_marks import text_if_equal

_KIND_NAMES = {"moe": "MoE", "vision": "reads images", "audio": "hears sound"}
_MAX_SHAPES = 3
"""Attention or FFNs of more shapes than this are summarized."""
_MAX_FORMULA_CHARS = 20_000
_PAIRS = (
    "query-key pairs of one decoded token: its query meets each key that it may read, its own "
    "included"
)


def facts_data(facts: FactSheet) -> dict[str, Any]:
    """Return the data of the fact sheet."""
    return {
        "origin": [
            safe(x)
            for x in (facts.organization, month_of(facts.released), license_name(facts.license))
            if x
        ],
        "kinds": [_KIND_NAMES.get(x, x) for x in facts.kinds],
        "description": facts.description,
        "rows": list(_rows(facts)),
        "weights": [
            {
                "dtype": x.dtype,
                "name": format_name(x.dtype),
                "bytes": str(x.bytes),
                "released": x.released,
            }
            for x in facts.weights
        ],
    }


def format_name(dtype: str) -> str:
    """Return the name of a weight format as people write it: Q4_K_M, bf16, AWQ, MXFP4."""
    is_acronym = dtype.startswith(("q", "iq", "awq", "gptq", "mxfp", "nvfp"))
    return dtype.upper() if is_acronym else dtype


def _rows(facts: FactSheet) -> Iterator[dict[str, Any]]:
    """Yield the rows: a name, a value, a note, and either the letters that the value has in
    formulas or the lines of its derivation.
    """
    tree = facts.model.tree
    yield _row(
        "Layers",
        f"{facts.layers:,}",
        "; ".join(facts.patterns) or ("all alike" if facts.layers > 1 else ""),
        letters=tree.layers.n,
    )
    yield _row("Hidden size", f"{facts.width:,}", "", letters=tree.width)
    yield from _mixer_rows(facts)
    first, several, others = facts.positions.partition("; ")
    value, _, note = (first, "", f"and {others}") if several else first.partition(", ")
    yield _row("Positions", value, note)
    if len(facts.ffns) <= _MAX_SHAPES:
        yield from (_ffn_row(x, len(facts.ffns) > 1) for x in facts.ffns)
    else:
        widths = [x.width for x in facts.ffns]
        yield _row(
            "FFN size",
            f"{min(widths):,} – {max(widths):,}",
            f"{facts.ffns[0].kind}, in {len(widths)} sizes",
        )
    yield _row(
        "Context length",
        f"{facts.context:,}"
        if facts.context is not None
        else "not limited"
        if facts.states_context
        else "not known",
        "" if facts.context is None else "tokens",
    )
    yield _row(
        "Vocabulary",
        f"{facts.vocabulary:,}",
        "tied head" if facts.tied_head else "untied head",
        letters=tree.vocab,
    )
    if facts.kv_per_token is not None:
        yield from _pass_rows(facts)


def _mixer_rows(facts: FactSheet) -> Iterator[dict[str, Any]]:
    """Yield a row for the mixers of each kind and number of heads, one for their windows, and
    one for the size of a head.
    """
    shapes = dict.fromkeys(
        (x.kind, x.heads, x.kv_heads, x.latent_dim, x.selected) for x in facts.mixers
    )
    if len(shapes) <= _MAX_SHAPES:
        for shape in shapes:
            same = [
                x
                for x in facts.mixers
                if (x.kind, x.heads, x.kv_heads, x.latent_dim, x.selected) == shape
            ]
            where = (
                f" in {format_count(sum(x.layers for x in same), 'layer')}"
                if len(shapes) > 1
                else ""
            )
            yield _row(
                "Cross-attention"
                if same[0].kind == "cross-attention"
                else "Attention"
                if same[0].is_attention
                else "Mixer",
                f"{_written_kind(same[0])}{where}",
                _mixer_note(same[0]),
                letters=same[0].heads,
                shared=same[0].kv_heads,
                of=_heads_per_kv_head(same[0]),
            )
    else:
        heads = [x.heads for x in facts.mixers if x.heads is not None]
        yield _row(
            "Attention", facts.attention, f"{min(heads):,} – {max(heads):,} query heads, by layer"
        )
    windows = dict.fromkeys((x.window, x.chunked) for x in facts.mixers if x.is_attention)
    for window, chunked in (x for x in windows if x[0] is not None):
        layers = sum(x.layers for x in facts.mixers if (x.window, x.chunked) == (window, chunked))
        yield _row(
            "Chunks" if chunked else "Window",
            f"{window:,} tokens",
            f"in {format_count(layers, 'layer')}",
        )
    sizes = dict.fromkeys(x.head_dim for x in facts.mixers if x.head_dim and x.is_attention)
    if sizes:
        value = " and ".join(f"{x:,}" for x in sizes) if len(sizes) <= _MAX_SHAPES else "several"
        yield _row("Head dim", value, "", letters=next(iter(sizes)))


def _pass_rows(facts: FactSheet) -> Iterator[dict[str, Any]]:
    full, later = facts.kv_full_context, facts.kv_per_later_token
    context = "" if facts.context is None else short_tokens(facts.context)
    notes = [] if full is None else [f"{short_bytes(full)} at {context}"]
    if later != facts.kv_per_token and later is not None:
        notes.insert(0, f"{short_bytes(later)} once windows are full")
    if facts.state_bytes:
        notes.append(f"{short_bytes(facts.state_bytes)} of recurrent states")
    note = " · ".join(["per token", *notes])
    lines = [
        _formula(x, "bytes", short_bytes)
        for x in (facts.kv_per_token, full, facts.state_bytes or None)
        if x is not None
    ]
    says = _factors_of_cache(lines[0][0], facts.kv_dtype)
    yield _row("KV cache", short_bytes(facts.kv_per_token or 0), note, of=lines, says=says)
    first, at_full = facts.flops_first_token, facts.flops_full_context
    if first is not None:
        later_note = "" if at_full is None else f" · {format_flops(at_full)} at {context}"
        both = [first, *([] if at_full is None else [at_full])]
        of = [_formula(x, "FLOPs", format_flops) for x in both]
        says = _PAIRS if re.search(r"\bA[wc]?\b", of[0][0]) else ""
        yield _row("Decode", format_flops(first), f"per token{later_note}", of=of, says=says)


def _factors_of_cache(symbol: str, dtype: str) -> str:
    """Return what the numbers of the formula of a token's cache are: the two of `2·L·K·h·2`."""
    size = kv_format(dtype)
    if size.block != 1:
        return ""
    last = f"the last {size.bytes}" if symbol.endswith(f"·{size.bytes}") else f"{size.bytes}"
    first = "the first 2: keys and values; " if symbol.startswith("2·") else ""
    return f"{first}{last}: bytes of an element in {dtype}"


def _row(
    name: str,
    value: str,
    note: str,
    *,
    letters: int | None = None,
    shared: int | None = None,
    of: list[list[str]] | None = None,
    says: str = "",
) -> dict[str, Any]:
    of_both = (x.atoms for x in (letters, shared) if isinstance(x, Expr))
    found = list(dict.fromkeys(y for atoms in of_both for y in atoms))
    lines = list(of or [])
    if isinstance(letters, Expr) and len(letters.atoms) > 1:
        lines.append(
            list(
                dict.fromkeys(
                    (safe(letters.symbol, _MAX_FORMULA_CHARS), letters.numbers, f"{letters:,}")
                )
            )
        )
    return {
        "name": name,
        "value": safe(value),
        "note": safe(note, 300),
        "letters": found,
        "of": lines,
        "says": says,
    }


def _formula(n: int | None, unit: str, format_short: Callable[[int], str]) -> list[str]:
    """Return an integer in letters, in numbers, with its unit, and rounded."""
    written = n if isinstance(n, Expr) else Expr.const(int(n or 0))
    lines = dict.fromkeys(
        (written.symbol, written.numbers, f"{written:,} {unit}", format_short(written))
    )
    return [safe(x, _MAX_FORMULA_CHARS) for x in lines]


def _written_kind(x: MixerFacts) -> str:
    """Return the kind as a text that follows the numbers of heads."""
    follows = x.kind in ("MHA", "GQA", "MQA") and x.heads is not None and x.kv_heads is not None
    return written_attention_kind(x.heads or 0, x.kv_heads or 0) if follows else x.kind


def _mixer_note(x: MixerFacts) -> str:
    parts = []
    if x.heads is not None:
        alone = format_count(x.heads, "head")
        both = f"{x.heads:,} query, {format_count(x.kv_heads or 0, 'KV head')}"
        shared = x.heads if x.kv_heads is None else x.kv_heads
        parts.append(text_if_equal(x.heads, shared, alone, both))
    if x.latent_dim is not None:
        parts.append(f"latent {x.latent_dim:,}")
    if x.selected is not None:
        parts.append(f"{x.selected:,} keys for each query")
    return " · ".join(parts)


def _heads_per_kv_head(x: MixerFacts) -> list[list[str]]:
    """Return the quotient of GQA in letters, in numbers, and in words."""
    H, K = x.heads, x.kv_heads
    if not (isinstance(H, Expr) and isinstance(K, Expr)) or H.symbol == K.symbol:
        return []
    shared = format_count(floor_div(H, K), "query head")
    return [[f"{H.symbol} / {K.symbol}", f"{H.numbers} / {K.numbers}", f"{shared} per KV head"]]


def _ffn_row(x: FFNFacts, is_one_of_several: bool) -> dict[str, Any]:
    where = f", {format_count(x.layers, 'layer')}" if is_one_of_several else ""
    if x.experts is None:
        return _row("FFN size", f"{x.width:,}", f"{x.kind}{where}", letters=x.width)
    shared = f" + {x.shared_experts:,} shared" if x.shared_experts else ""
    return _row(
        "Experts",
        f"{x.active_experts:,} of {x.experts:,}{shared}",
        f"{x.kind} {x.width:,}{where}",
        letters=x.experts,
    )


def short_title(title: str) -> str:
    """Return the title of a device without the name of its series."""
    return title.removeprefix("GeForce ").removeprefix("Instinct ").removeprefix("Radeon ")
