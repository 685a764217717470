"""What the tour says of the FFN, and of experts in its place."""

from __future__ import annotations

from ....core.expr import Expr
from .stop_formulas import written_router
from .stop_text import StopText, StopTexts, TourFacts
from .stream_texts import MANY_LAYERS


def _router(f: TourFacts) -> StopText:
    moe = f.study.moe
    first = f.first("router", "choice")
    experts = 0 if moe is None else Expr.const(moe.experts.n)
    says = "" if first is None else first.step.description
    logits = f.formulas("router").of("linear", "softcap") or "W_router x"
    is_plain = (
        first is not None and first.step.node is not None and first.step.node.op.name == "route"
    )
    return StopText(
        "Router",
        f"A matrix gives each of E = {experts:,} experts a logit, and the best are chosen: {says}.",
        "Only the chosen ones are computed: the model has many weights, and a token uses few of "
        "them.",
        written_router(moe, logits) if moe and is_plain else f"p = {logits},  keep the top k",
    )


def _experts(f: TourFacts) -> StopText:
    moe = f.study.moe
    k, n = (0, 0) if moe is None else map(Expr.const, (moe.top_k, moe.experts.n))
    return StopText(
        "Chosen experts",
        f"Each expert is an FFN of its own. A token passes k = {k:,} of {n:,}, and their results "
        "are added, each times its weight.",
        f"All experts are counted and kept in memory, but a token is computed by {k:,} of {n:,}.",
        f"y = Σ {'FFN_e(p_e · x)' if f.has_scaled_inputs else 'p_e · FFN_e(x)'},  "
        f"FFN(x) = {_ffn(f, 'experts')}",
    )


def _ffn(f: TourFacts, stop: str) -> str:
    """Return an FFN whose steps are all at one stop."""
    formulas = f.formulas(stop)
    return f"{formulas.linear('down', 'a')},  a = {formulas.read_by('down')}"


def _shared(f: TourFacts) -> StopText:
    gate = "shared_gate" in f.names("shared", "linear")
    gated = f"sigmoid({f.formulas('shared').linear('shared_gate', 'x')}) · " if gate else ""
    return StopText(
        "Shared experts",
        "Every token passes these, whatever the router says, and their result is added"
        f"{', times a gate of its own' if gate else ''}.",
        "What all tokens need has a place of its own, so that the chosen experts can differ.",
        f"y ← y + {gated}FFN(x),  FFN(x) = {_ffn(f, 'shared')}",
    )


def _gate_up(f: TourFacts) -> StopText:
    first = f.first("gate_up", "act")
    says = "" if first is None else first.step.description
    width = f.study.mlp_width
    to = "" if width is None else f" F = {width:,} numbers"
    formula = f"a = {f.formulas('gate_up').of('act', 'gated', 'clamped_gated', 'multiply')}"
    adapted = (
        " The matrices A are narrow ones of the layer's own, beside those that layers share."
        if " A_" in formula
        else ""
    )
    if "gate" in f.names("gate_up", "linear"):
        return StopText(
            "gate · up",
            f"The path forks: gate and up each make{to or ' numbers'}. The activation is applied "
            f"to gate, and the result is multiplied by up ({says}).{adapted}",
            "gate decides how much of up passes. The activation is the nonlinearity: without it, "
            "two matrices in a row would be one.",
            formula,
        )
    return StopText(
        "up · activation",
        f"up makes{to or ' numbers'}, and the activation is applied to each ({says}).",
        "The activation is the nonlinearity: without it, two matrices in a row would be one.",
        formula,
    )


def _down(f: TourFacts) -> StopText:
    width = f.study.width
    product = f.formulas("down").linear("down", "a")
    if f.has("next_layer"):
        return StopText(
            "down",
            f"down brings them back to d = {width:,} numbers.",
            "The stream has one width everywhere, so that every layer can add to it.",
            product,
        )
    return StopText(
        "down and ⊕, then the next layer",
        f"down brings them back to d = {width:,} numbers, ⊕ adds them to the stream, and the next "
        f"layer begins{f.times}.",
        MANY_LAYERS,
        f"x ← x + {product},  L = {f.layers:,} times",
    )


FFN_TEXTS: StopTexts = {
    "router": _router,
    "experts": _experts,
    "shared": _shared,
    "gate_up": _gate_up,
    "down": _down,
}
