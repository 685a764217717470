"""The tables of the memory of inference: each part with its formula, the passes, the contexts, and
what fits within a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....core.extensions.encoder_decoder import EncoderDecoder
from ....render.tables import Column, Part, Table, Text
from ....utils.number_format import format_bytes, format_count
from ...storage.memory_line import letters_text, lines_table

if TYPE_CHECKING:
    from .inference_memory import MemoryLimit, MemoryReport

_PASSES = (Column("", key="of"), Column("bytes", "count"), Column("", key="note", drop=1))
_CONTEXTS = (
    Column("context", "count"),
    Column("weights", "GiB"),
    Column("cache", "GiB", "kv_cache"),
    Column("rest", "GiB"),
    Column("total GB", "GB", "total", drop=1),
    Column("total GiB", "GiB", "total"),
    Column("fits"),
)


def memory_tables(report: MemoryReport) -> Iterator[Part]:
    """Yield the lines at the longest context, the passes, all contexts, and the limits."""
    yield lines_table(report.lines, report.not_loaded)
    yield Text(letters_text(report.model, report.context, report.batch, report.letters), "dim")
    yield Table(columns=_PASSES, rows=tuple(_passes(report)))
    if len(report.contexts) > 1:
        rows = tuple(_contexts(report))
        legend = "weights, cache and rest in GiB"
        yield Table(columns=_CONTEXTS, rows=rows, legend=legend)
    if report.limit is not None:
        yield Text(_limit(report.limit, report), apart=True)


def _passes(report: MemoryReport) -> Iterator[tuple[Any, ...]]:
    """Yield the cache per token, and the activations of prefill and decode."""
    cache = report.cache
    later = (
        f"{cache.kv_per_later_token:,} once windows are full"
        if cache.kv_per_later_token != cache.kv_per_token
        else ""
    )
    yield "cache per token", cache.kv_per_token, later
    if cache.state:
        yield "state per sequence", cache.state // report.batch, "at any context"
    # an encoder reads whole prompts
    option = "" if isinstance(report.model.tree, EncoderDecoder) else " (--batch-tokens)"
    at_once = f"{format_count(report.chunk, 'token')} at once{option}"
    yield "activations, prefill", report.prefill, at_once
    yield "activations, decode", report.decode, "one token of each sequence"


def _contexts(report: MemoryReport) -> Iterator[tuple[Any, ...]]:
    for x in report.contexts:
        fits = None if report.limit is None else x.total <= report.limit.within
        rest = x.total - x.weights - x.kv_cache
        yield x.context, x.weights, x.kv_cache, rest, x.total, x.total, fits


def _limit(limit: MemoryLimit, report: MemoryReport) -> str:
    within, most, batch = format_bytes(limit.within), limit.max_context, limit.max_batch
    if most == 0:
        least = report.total - report.kv_cache - report.activations - report.logits
        return (
            f"not even one token fits in {within}: weights and overhead alone are "
            f"{format_bytes(least)}"
        )
    own = report.model.tree.context
    tokens = "any number of tokens" if most is None else f"up to {format_count(most, 'token')}"
    if own and (most is None or most > own):
        tokens += f" (the model's own context is {own:,})"
    sequences = (
        "any number of sequences" if batch is None else f"up to {format_count(batch, 'sequence')}"
    )
    return (
        f"{within} holds {format_count(report.batch, 'sequence')} of {tokens}, or {sequences} of "
        f"{report.context:,} tokens"
    )
