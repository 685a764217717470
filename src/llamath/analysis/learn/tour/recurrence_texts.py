"""What the tour says of recurrent layers and convolutions."""

from __future__ import annotations

from ....utils.number_format import format_list
from .stop_text import StopText, StopTexts, TourFacts


def _mixer_in(f: TourFacts) -> StopText:
    names = format_list(f.names("mixer_in", "linear"))
    n = f.layers_with("mixer_in")
    where = (
        f"{f.in_layers(n).capitalize()} a recurrence takes the place of attention"
        if n < f.layers
        else "A recurrence stands beside attention"
        if f.has("scores")
        else "There is no attention"
    )
    return StopText(
        "Inputs of the recurrence",
        f"{where}: matrices make its inputs from x, {names}."
        if f.has("scores")
        else f"{where}: matrices make the inputs of a recurrence from x, {names}.",
        "They decide for each token what is written, how fast the past fades, and what is read.",
        ",  ".join(f"{x} = W_{x} x" for x in f.names("mixer_in", "linear")[:6]),
    )


def _conv(f: TourFacts) -> StopText:
    first = f.first("conv", "conv")
    says = "a causal convolution" if first is None else first.step.description
    return StopText(
        "Convolution",
        f"The token and those just before it are mixed: {says}.",
        "A state is a summary of the past; the nearest tokens are read exactly."
        if f.has("state")
        else "Neighbors make words and phrases, and a few weights for each channel suffice.",
        "y_t = Σ w_i x_(t−i)",
    )


_RECURRENCES = {
    "gated_delta_rule": "S ← e^g S;  S ← S + k ⊗ β (v − Sᵀ k);  y = Sᵀ q",
    "linear_attention": "S ← e^(−s) S + k ⊗ v;  y = Sᵀ q",
    "ssm_scan": "S ← exp(−e^a dt) S + dt x ⊗ b;  y = S c",
    "selective_scan": "s ← exp(−e^a dt) s + dt x b;  y = s·c + skip x",
}


def _state(f: TourFacts) -> StopText:
    first = f.first("state", "state")
    node = None if first is None else first.step.node
    n = f.layers_with("state")
    says = "" if first is None else f": {first.step.description}"
    return StopText(
        "State",
        f"{f.in_layers(n).capitalize()} a state of fixed size takes the place of the cache{says}.",
        "The past fades and the token is written into what is left: memory and time for a token "
        "do not grow with the text.",
        _RECURRENCES.get(node.op.name if node else "", "S ← decay · S + new;  y = read(S)"),
    )


def _mixer_out(f: TourFacts) -> StopText:
    names = [x for x in f.names("mixer_out", "linear") if x not in ("out", "o")]
    gated = f"gated by {format_list(names)}, then " if names else ""
    return StopText(
        "Out of the recurrence",
        f"What was read from the state is {gated}brought back to d = "
        f"{f.study.width:,} numbers, and added to the stream.",
        "The stream is the same for all kinds of layers, so they can follow each other in any "
        "order.",
        "x ← x + W_out (y · act(W_z x))" if names else "x ← x + W_out y",
    )


RECURRENCE_TEXTS: StopTexts = {
    "mixer_in": _mixer_in,
    "conv": _conv,
    "state": _state,
    "mixer_out": _mixer_out,
}
