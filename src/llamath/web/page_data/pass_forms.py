"""What changes from pass to pass as forms: the keys in reach, the pairs of a query and a key, the numbers that are remembered.

A prompt is `T` tokens at once; one token more is the `T`-th. Counts are those of `passes.Reach` and `views.cache`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...analysis.inference.cache_bytes import CacheSpec
from ...core.expr import Dim
from ...core.forward_pass import AttentionWindow, ForwardPass
from .forms import Form, number, times_of

TOKENS, BATCH = 3, 2
"""Of the passes that are walked for their letters; forms hold for any other."""
PROMPT, NEXT = ForwardPass.prefill(TOKENS), ForwardPass.decode(TOKENS, absorbed=True)


def pairs(reach: AttentionWindow, prompt: bool) -> Form:
    """How many pairs of a query and a key the mask lets through."""
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
    """Those of the last token alone."""
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
    """What the letters of a pass stand for."""
    prompt = at.tokens > 1
    found: dict[str, Form] = {"B": "B", "T": "T" if prompt else "1", "M": ["as", "M", "T"]}
    if reach is not None:
        span = reach.size if reach.chunk is None else reach.chunk
        if not prompt and span is not None:
            found["M"] = ["as", "M", ["min", "T", str(int(span))]]
        found[reach.pairs_symbol] = ["as", reach.pairs_symbol, pairs(reach, prompt)]
    return found


def kept(n: Dim, what: CacheSpec | None, at: ForwardPass) -> Form:
    """The numbers that a step remembers of all sequences, from those of a pass in which so many tokens count."""
    if what is None or not what.rows or n.terms.keys() == {()}:
        return number(n, {"B": "B"})
    tokens = what.tokens(at.context)
    each = Dim.of({monomial: k // tokens for monomial, k in n.terms.items()})
    assert each * tokens == n, f"{n.symbol} is not for each of {tokens} tokens"
    return times_of(number(each, {"B": "B"}), "T" if what.window is None else ["min", "T", str(int(what.window))])
