"""Expressions for one forward pass: keys in the attention window, query-key pairs, and cached elements.

A prefill has `T` tokens at once; a decode pass is the `T`-th token. Counts equal those of `AttentionWindow` and `cache_bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...analysis.inference.cache_bytes import CacheSpec
from ...core.expr import Expr
from ...core.forward_pass import AttentionWindow, ForwardPass
from .forms import Form, number, times_of

TOKENS, BATCH = 3, 2
"""The tokens of the passes that are traced for their letters; expressions hold for any others."""
PROMPT, NEXT = ForwardPass.prefill(TOKENS), ForwardPass.decode(TOKENS, absorbed=True)


def pairs(reach: AttentionWindow, prompt: bool) -> Form:
    """Return the number of query-key pairs that the mask admits."""
    if not prompt:
        return _one(reach)
    if reach.chunk is not None:
        return _chunks(str(int(reach.chunk)))
    near: Form = "T" if reach.size is None else ["min", "T", str(int(reach.size))]
    back: Form = ["floor", ["*", "T", ["+", "T", "1"]], "2"]
    if reach.size is not None:
        back = ["-", ["*", "T", near], ["floor", ["*", near, ["-", near, "1"]], "2"]]
    return back if reach.causal else ["-", ["*", "2", back], "T"]


def _one(reach: AttentionWindow) -> Form:
    """Return the number of pairs of the last token."""
    if reach.chunk is not None:
        chunk = str(int(reach.chunk))
        return ["-", "T", ["*", chunk, ["floor", ["-", "T", "1"], chunk]]]
    return "T" if reach.size is None else ["min", "T", str(int(reach.size))]


def _chunks(chunk: str) -> Form:
    whole: Form = ["floor", "T", chunk]
    rest: Form = ["-", "T", ["*", chunk, whole]]
    half: list[Form] = [["floor", ["*", x, ["+", x, "1"]], "2"] for x in (chunk, rest)]
    return ["+", ["*", whole, half[0]], half[1]]


def known(reach: AttentionWindow | None, at: ForwardPass) -> Mapping[str, Form]:
    """Return the definitions of a pass's letters."""
    prompt = at.tokens > 1
    found: dict[str, Form] = {"B": "B", "T": "T" if prompt else "1", "M": ["as", "M", "T"]}
    if reach is not None:
        span = reach.size if reach.chunk is None else reach.chunk
        if not prompt and span is not None:
            found["M"] = ["as", "M", ["min", "T", str(int(span))]]
        found[reach.pairs_symbol] = ["as", reach.pairs_symbol, pairs(reach, prompt)]
    return found


def kept(n: Expr, what: CacheSpec | None, at: ForwardPass) -> Form:
    """Return the elements that a step caches for all sequences as an expression."""
    if what is None or not what.rows or n.terms.keys() == {()}:
        return number(n, {"B": "B"})
    tokens = what.tokens(at.context)
    each = Expr.of({monomial: k // tokens for monomial, k in n.terms.items()})
    assert each * tokens == n, f"{n.symbol} is not for each of {tokens} tokens"
    return times_of(number(each, {"B": "B"}), "T" if what.window is None else ["min", "T", str(int(what.window))])
