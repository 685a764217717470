"""What the tour says of the token, the residual stream with its norms, and the head."""

from __future__ import annotations

from ....core.expr import Expr, written_factor
from ....utils.number_format import format_list
from .stop_formulas import StopFormulas, written_scale
from .stop_places import OTHER
from .stop_text import BOUNDED, StopText, StopTexts, TourFacts, written_cap


def _token(f: TourFacts) -> StopText:
    last = Expr.const(f.study.tree.vocab) - 1
    return StopText(
        "Token",
        f"The text is cut into tokens, and each token has a number, from 0 to V − 1 = {last:,}.",
        "A model computes with numbers; a vocabulary of pieces of words keeps the list of numbers "
        "short.",
        "0 ≤ id < V",
    )


def _embedding(f: TourFacts) -> StopText:
    then = [
        x.step.description
        for x in f.placed["embedding"]
        if x.step.kind not in ("lookup", "view") and x.step.name != "embed.scale"
    ]
    after = f" Then: {format_list(dict.fromkeys(then))}." if then else ""
    node = next((x.step.node for x in f.placed["embedding"] if x.step.name == "embed.scale"), None)
    scaled, why = "", ""
    if node is not None:
        factor, number = written_scale(node), written_factor(node.attributes["factor"])
        scaled = f" They are multiplied by {factor}{f' = {number}' if factor == '√d' else ''}."
        why = (
            " Times √d they are as large as the numbers that a norm returns, and as those that "
            "the layers add."
            if factor == "√d"
            else f" The factor {factor} makes them as large as what the layers add."
        )
    return StopText(
        "Embedding row",
        f"The token picks its row of the embedding, d = {f.study.width:,} numbers: the "
        f"beginning of the residual stream.{scaled}{after}",
        "The rows are learned, so that tokens that are used alike begin with similar numbers."
        f"{why}",
        f"x = {f.formulas('embedding').of('lookup', 'scale') or 'E[id]'}",
    )


def _positions(f: TourFacts) -> StopText:
    stored = any(x.step.weights for x in f.placed["positions"])
    what = (
        "A learned row for the token's position is added to it, so that no text is longer than the "
        "table."
        if stored
        else "Sines and cosines of the token's position are added to it; they are computed, not "
        "stored."
    )
    return StopText(
        "Position",
        what,
        "Attention adds up what it reads in any order: without a position, a text would be a bag "
        "of tokens.",
        "x ← x + P[position]" if stored else "x ← x + (sin, cos)(position · frequency)",
    )


def _per_layer(f: TourFacts) -> StopText:
    return StopText(
        "Per-layer embeddings",
        f"A second, narrow embedding holds a vector of the token for each of the {f.layers:,} "
        "layers, which multiplies the stream there through a gate.",
        "Its rows are looked up, not multiplied: they make the model larger, but not slower.",
        "x ← x + norm(W_out (act(W_gate x) · e))",
    )


_ENCODER = StopText(
    "Encoder",
    "An encoder reads the whole input first, each token with those after it, and leaves a "
    "vector for each.",
    "The decoder looks at these vectors while it writes, so that it always sees all of the input.",
    "states = encoder(input)",
)


def _norm(f: TourFacts) -> StopText:
    return _norm_text(
        f,
        "norm",
        "Every branch adds to the stream: without the norm its length would grow with depth, and "
        "later layers would read ever larger numbers.",
        "",
    )


def _norm_text(f: TourFacts, stop: str, why: str, before: str) -> StopText:
    first = f.first(stop, "norm")
    node = None if first is None else first.step.node
    paths = [y.path for x in f.placed[stop] for y in x.step.weights]
    is_rms = node is not None and node.op.name == "rms_norm"
    title = "RMSNorm" if is_rms else "LayerNorm"
    offset = "" if node is None or not node.attributes.get("offset") else "1 + "
    how = (
        "is divided by its root mean square"
        if is_rms
        else "loses its mean and is divided by its standard deviation"
    )
    weight = f", and each channel is multiplied by {offset}a learned weight" if paths else ""
    has_bias = any(x.endswith(".bias") for x in paths)
    moved = " and moved by a bias" if has_bias else ""
    formula = "x / √(mean(x²) + ε)" if is_rms else "(x − mean(x)) / √(var(x) + ε)"
    factor = ("(1 + w)" if offset else "w") if paths else ""
    return StopText(
        f"{title} of the branch" if before else title,
        f"{before or 'Before each branch, x'} {how}{weight}{moved}.",
        why,
        f"{formula}{f' · {factor}' if factor else ''}{' + b' if has_bias else ''}",
    )


def _post_norm(f: TourFacts) -> StopText:
    return _norm_text(
        f,
        "post_norm",
        "No branch can be so loud that nothing else is heard in the stream.",
        "What a branch returns",
    )


_PARALLEL = StopText(
    "Two branches at once",
    "Attention and the FFN read the same x, and both results are added together.",
    "The FFN does not wait for attention: both can be computed at the same time.",
    "x ← x + attention(norm(x)) + FFN(norm(x))",
)


MANY_LAYERS = (
    "In one layer a token reads the others once; in the next, others read what it has gathered."
)


def _next_layer(f: TourFacts) -> StopText:
    return StopText(
        "⊕, and the next layer",
        f"The result is added to the stream, and the next layer begins{f.times}.",
        MANY_LAYERS,
        f"x ← x + branch(x),  L = {f.layers:,} times",
    )


def _more(f: TourFacts) -> StopText:
    steps = {x.step.name: x.step.description for x in f.placed[OTHER] if x.step.weights}
    listed = [f"{name} ({says})" for name, says in list(steps.items())[:8]]
    rest = f", and {len(steps) - 8} more" if len(steps) > 8 else ""
    return StopText(
        "What else is in a layer",
        f"Few models have these steps: {', '.join(listed)}{rest}.",
        "They count like all others; `llamath trace` shows where each stands.",
        "",
    )


def _logits(f: TourFacts) -> StopText:
    tree = f.study.tree
    if tree.head is None:
        return StopText(
            "Result",
            f"What leaves the last layer is the result, d = {f.study.width:,} numbers for each "
            "token.",
            "The model has no head: others use its numbers.",
            "y = norm(x)" if tree.norm is not None else "y = x",
        )
    normed = "After a last norm the head" if tree.norm is not None else "The head"
    tied = " Its matrix is the embedding again: it adds 0." if tree.head.weight.tied else ""
    cap, factor = f.study.tree.softcap, f.attribute("logits", "factor", "multiply")
    scaled = (
        f" It is multiplied by {written_factor(factor, 4)}." if isinstance(factor, float) else ""
    )
    capped = f" {written_cap('logit', cap)}" if cap else ""
    steps = f.placed["logits"]
    own = [x for x in steps if "." not in x.step.name or x.step.name.startswith("head.")]
    formula = StopFormulas(own, {"norm": "norm(x)"}).of("linear", "scale", "softcap")
    return StopText(
        "Logits",
        f"{normed} gives each of the V = {Expr.const(tree.vocab):,} tokens of the vocabulary a "
        f"logit.{scaled}{capped}{tied}",
        "A logit is the product of x with the token's row: the more x points its way, the likelier "
        f"it comes next.{f' {BOUNDED}' if cap else ''}",
        f"logits = {formula}",
    )


_NEXT_TOKEN = StopText(
    "Next token",
    "Softmax makes the logits probabilities; one token is drawn (temperature, top-p) and "
    "appended to the text.",
    "The model gives probabilities, not a text: how a token is drawn is a setting, without "
    "weights.",
    "p = softmax(logits / temperature)",
)


def _apart(f: TourFacts) -> StopText:
    return StopText(
        "What text does not pass",
        f"The model also has {format_list(f.apart)}, which tokens of text do not pass.",
        "They are in its file and in its count.",
        "",
    )


STREAM_TEXTS: StopTexts = {
    "token": _token,
    "embedding": _embedding,
    "positions": _positions,
    "per_layer": _per_layer,
    "encoder": _ENCODER,
    "norm": _norm,
    "post_norm": _post_norm,
    "parallel": _PARALLEL,
    "next_layer": _next_layer,
    OTHER: _more,
    "logits": _logits,
    "next_token": _NEXT_TOKEN,
    "apart": _apart,
}
