"""What the tour says of scores, masks and softmax."""

from __future__ import annotations

from math import sqrt

from ....core.expr import Power, written_factor
from .stop_text import BOUNDED, StopText, StopTexts, TourFacts, written_cap


def _indexer(f: TourFacts) -> StopText:
    choice = next((x.step.description for x in f.placed["indexer"] if x.step.kind == "choice"), "")
    chosen = f": {choice}" if choice else ""
    return StopText(
        "Indexer",
        f"A small attention of its own scores all keys first, and chooses some{chosen}.",
        "Its scores are cheap, so the large attention no longer grows with the whole text.",
        "keys = top k of index scores",
    )


def _scores(f: TourFacts) -> StopText:
    first = f.first("scores", "scores")
    assert first is not None and first.step.node is not None
    node = first.step.node
    transform = node.attributes.get("transform")
    scale = getattr(transform, "scale", None)
    size = node.inputs[0].shape[-1]
    causal = node.attributes["window"].causal
    keys = "all keys up to its own" if causal else "all keys"
    root = f"√{size} = {written_factor(Power(sqrt(size), size, 0.5), 3)}"
    is_root = scale is None or abs(scale * sqrt(size) - 1) < 1e-6
    cap = getattr(transform, "softcap", None)
    capped = f" {written_cap('score', cap)}" if cap else ""
    bounded = f" {BOUNDED}" if cap else ""
    latent = f.study.latent if f.has("rope") else None
    parts, product = "", "q·k"
    if latent is not None and latent.rope_dim:
        parts = (
            f" q·k is the sum of two products: of n = {latent.nope_dim} numbers without a "
            f"position, and of the p = {latent.rope_dim} that RoPE has turned."
        )
        product = "(q_n·k_n + q_p·k_p)"
    scaled = f"{product} / √{size}" if is_root else f"{scale:.4g} · {product}"
    factor = "" if is_root else f"{scale:.4g}"
    scaling = getattr(f.attribute("rope", "rope", "rope"), "scaling", "")
    if scale is not None and not is_root and scaling == "YaRN":
        factor += f", 1 / √{size} times {scale * sqrt(size):.3g} for YaRN,"
    return StopText(
        f"Scores, and √{size}" if is_root else "Scores",
        f"Each query is multiplied with {keys}, head by head: a score for each pair.{parts}"
        f"{capped}",
        f"A sum of {size} products grows like {root}: divided by it the scores stay small, and "
        f"softmax does not pick one key alone.{bounded}"
        if is_root
        else f"The factor {factor} keeps the scores small, so that softmax does not pick one key "
        f"alone.{bounded}",
        f"score = {cap:g} · tanh({scaled} / {cap:g})" if cap else f"score = {scaled}",
    )


def _window(f: TourFacts) -> StopText:
    found = f.attribute("window", "window", "softmax")
    size, chunk = getattr(found, "size", None), getattr(found, "chunk", None)
    where = f.in_layers(f.layers_with("window"))
    if chunk is not None:
        return StopText(
            "Chunks",
            f"{where.capitalize()} a query sees the keys of its own chunk of {int(chunk):,} "
            "tokens only.",
            "These layers stop caching at a chunk; the others carry what is farther away.",
            f"⌊i / {int(chunk):,}⌋ = ⌊j / {int(chunk):,}⌋",
        )
    others = f.layers_with("window") < f.layers
    return StopText(
        "Window",
        f"{where.capitalize()} a query sees the last {size or 0:,} tokens only, its own included.",
        "Older keys are forgotten, so the cache of these layers stops growing"
        + (
            "; the others carry what is farther away."
            if others
            else "; what is farther away comes in steps, a window with each layer."
        ),
        f"0 ≤ i − j < {size or 0:,}",
    )


_SINKS = StopText(
    "Attention sinks",
    "Each head has one more score, a learned number without a key and a value.",
    "A head that finds nothing gives its attention to the sink, and adds little.",
    "softmax([scores, sink])",
)


def _softmax(f: TourFacts) -> StopText:
    first = f.first("softmax", "softmax")
    assert first is not None and first.step.node is not None
    causal = first.step.node.attributes["window"].causal
    outside = within = ""
    if f.has("window"):
        n = f.layers_with("window")
        outside = f", and {f.in_layers(n)} those outside its {f.reach}"
        within = f" and within the {f.reach}" if n == f.layers else f" (within the {f.reach})"
    return StopText(
        "Mask and softmax" if causal else "Softmax",
        (
            f"Keys after the query's own are masked{outside}; softmax makes the other scores "
            "shares that sum to 1."
            if causal
            else "Softmax makes the scores shares that sum to 1."
        ),
        (
            "A token must not see what it has to predict; and so all tokens of a text are computed "
            "at once, each as if it were the last."
            if causal
            else "Every token may read every other one: the model does not write, it reads."
        ),
        f"a_j = exp(score_j) / Σ exp(score_i),  i ≤ own position{within}"
        if causal
        else "a_j = exp(score_j) / Σ exp(score_i)",
    )


def _mix(f: TourFacts) -> StopText:
    alone = not f.has("conv") and not f.has("state")
    return StopText(
        "Weighted values",
        "The values are added, each times its share; the results of all heads lie side by side.",
        "This is the only place where a token receives something from others."
        if alone
        else "Here a token receives the values of others, unchanged, at any distance.",
        "y = Σ a_j v_j",
    )


SCORE_TEXTS: StopTexts = {
    "indexer": _indexer,
    "scores": _scores,
    "window": _window,
    "sinks": _SINKS,
    "softmax": _softmax,
    "mix": _mix,
}
