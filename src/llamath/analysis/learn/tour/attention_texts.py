"""What the tour says of queries, keys and values, their positions and their cache."""

from __future__ import annotations

from ....core.expr import Expr, product, total
from ....utils.number_format import format_list, short_bytes
from ....utils.number_marks import text_if_equal
from ...graph.operations.projection_operations import ROLES
from ..lesson import written
from ..study import BF16_BYTES
from .stop_text import StopText, StopTexts, TourFacts

_NOUNS = {"q": "a query says", "k": "a key", "v": "a value"}


def _qkv(f: TourFacts) -> StopText:
    H, K, h = f.study.heads, f.study.kv_heads, f.study.head_dim
    names = [x for x in f.names("qkv", "linear") if x in _NOUNS]
    listed = " and ".join(names) if len(names) == 2 else ", ".join(names)
    heads = ""
    shared = ""
    if H is not None and K is not None and h is not None:
        heads = text_if_equal(
            H,
            K,
            f": H = {H:,} heads of h = {h:,} numbers each",
            f": H = {H:,} queries, K = {K:,} keys and values, of h = {h:,} numbers each",
        )
        each = H // K
        shared = text_if_equal(
            H,
            K,
            "",
            f"; H / K = {each:,} queries share a key and a value, which makes the KV cache "
            f"{each:,} times smaller",
        )
    roles = ", ".join(f"{_NOUNS[x]} {ROLES[x]}" for x in names)
    why = (
        f"of each token, {roles}"
        if roles
        else "it is multiplied with keys and values that are kept elsewhere"
    )
    return StopText(
        listed or "q",
        f"{_matrices(len(names))} {listed} from x{heads}.",
        f"{why[0].upper()}{why[1:]}{shared}.",
        ",  ".join(f"{x} = {f.formulas('qkv').linear(x, 'x')}" for x in names),
    )


def _matrices(n: int) -> str:
    return "A matrix makes" if n == 1 else f"{('', '', 'Two', 'Three')[min(n, 3)]} matrices make"


def _compress(f: TourFacts) -> StopText:
    latent = f.study.latent
    assert latent is not None
    rank, dim = map(Expr.const, (latent.kv_lora_rank, latent.rope_dim))
    kept, full = rank + dim, latent.heads * (latent.nope_dim + dim + latent.v_dim)
    down = f.names("compress", "linear")
    return StopText(
        "Latent vectors: compress",
        f"{format_list(down)} press x into short vectors; the one for keys and values has r = "
        f"{rank:,} numbers, and p = {dim:,} more for a key "
        "with positions.",
        f"Only these {kept:,} numbers are cached for a token, in place of the {full:,} of all "
        "keys and values.",
        "c = norm(W_kv_down x)",
    )


def _expand(f: TourFacts) -> StopText:
    latent = f.study.latent
    assert latent is not None
    names = f.names("expand", "linear")
    return StopText(
        "Latent vectors: expand",
        f"{format_list(names)} make the queries, keys and values of all H = {latent.heads:,} "
        "heads again.",
        "Each head has keys and values of its own, as in multi-head attention, though none of them "
        "is cached.",
        "k = W_k_up c,  v = W_v_up c",
    )


def _biases(f: TourFacts) -> StopText:
    names = list(
        dict.fromkeys(
            use.path.removesuffix(".bias").rpartition(".")[2]
            for x in f.placed["biases"]
            for use in x.step.weights
            if use.path.endswith(".bias")
        )
    )
    return StopText(
        "Biases",
        f"These matrices also add a learned number to each output: {format_list(names)}.",
        "With a bias an output can differ from zero where all inputs are zero.",
        "y = W x + b",
    )


def _qk_norm(f: TourFacts) -> StopText:
    names = format_list(f.names("qk_norm", "norm"))
    return StopText(
        "Norms of q and k",
        f"{names} normalize each query and key before they meet.",
        "A score is then a matter of direction: it cannot grow with the length of q and k, which "
        "keeps training stable.",
        "q ← norm(q),  k ← norm(k)",
    )


_BY_SPEED = (
    "those of pairs that turn slowly are divided by the factor, of fast pairs kept, and of those "
    "between partly divided"
)
_SCALED = {
    "linear": "all are divided by the factor",
    "dynamic NTK": "a longer text has a larger θ",
    "YaRN": _BY_SPEED,
    "Llama 3": _BY_SPEED,
    "LongRoPE": "that of each pair is divided by a number of its own",
    "proportional": "the exponent is over the whole head, and all are divided by the factor",
}
"""What each scaling does to the angles."""


def scaled_angles(scaling: str) -> str:
    """Return the sentence about a scaling of angles, by its name; empty if there is none."""
    if not scaling:
        return ""
    return f" For long texts the angles of the formula are scaled ({scaling}): {_SCALED[scaling]}."


def _rope(f: TourFacts) -> StopText:
    rope = f.attribute("rope", "rope", "rope")
    first = f.first("rope", "rope")
    assert first is not None
    theta, dim = float(getattr(rope, "theta", 0)), getattr(rope, "dim", 0)
    size = first.step.shape[-1]
    part = "" if dim == size else f" Only {dim} of {size} channels turn."
    scaled = scaled_angles(getattr(rope, "scaling", ""))
    beside = "neighboring " if getattr(rope, "interleaved", False) else ""
    some = f.layers_with("rope")
    where = "" if some == f.layers else f" It happens {f.in_layers(some)}."
    return StopText(
        "RoPE",
        f"Each pair of {beside}channels of q and k is turned by an angle: the position times the "
        f"frequency of the pair.{part}{where}{scaled}",
        "The angle between a query and a key then depends on their distance alone, not on where "
        "the text begins.",
        f"angle of pair i = position · θ^(−2i/{dim}),  θ = {theta:,.10g}",
    )


_ALIBI = StopText(
    "ALiBi",
    "Each score is lowered by the distance of query and key, times a slope of the head.",
    "Near tokens count for more, and attention knows the order of tokens without a weight.",
    "score ← score − slope · distance",
)


def _no_positions(f: TourFacts) -> StopText:
    n = f.layers_with("no_positions")
    where = "In these layers" if n == f.layers else f"{f.in_layers(n).capitalize()}"
    other = (
        "; its recurrent layers know the order of tokens"
        if f.has("state")
        else "; the mask alone tells what came before"
    )
    return StopText(
        "Attention without positions",
        f"{where} q and k are not turned: a score does not know how far apart two tokens are.",
        f"What matters can be found at any distance, also beyond the texts of training{other}.",
        "score = q·k, at any distance",
    )


_ATTENTION_GATE = StopText(
    "Gate of attention",
    "What the heads have found is multiplied by a gate that x decides on.",
    "A head can stay silent for a token, whatever its shares, which must sum to 1.",
    "y ← y · sigmoid(W_gate x)",
)


def _attention_out(f: TourFacts) -> StopText:
    parallel = f.has("parallel")
    added = "" if parallel else ", and ⊕ adds them to the stream"
    return StopText(
        "W_o" if parallel else "W_o and ⊕",
        f"The output matrix mixes all heads to d = {f.study.width:,} numbers{added}.",
        "It is a matrix of one token's heads: the length of the text is not in its size."
        if parallel
        else "Adding keeps what was there: a layer writes a correction, and gradients reach the "
        "first layer undiminished.",
        f"{'' if parallel else 'x ← x + '}{f.formulas('attention_out').linear('o', 'y')}",
    )


def _cache(f: TourFacts) -> StopText:
    size = f.study.cache(1).value
    names = " and ".join(f.names("cache")).replace("latents", "latent vectors")
    each = f": {written(size)} bytes for each token in bf16" if int(size) else ""
    full = f.study.tree.context
    whole = ""
    if full and int(size):
        rows = ((x.layers, total(x.rows), x.tokens(full)) for x in f.study.caches if x.rows)
        kept = product((BF16_BYTES, total(map(product, rows))))
        has_states = any(x.state or x.conv_state for x in f.study.caches)
        states = ", without the states, which do not grow" if has_states else ""
        whole = (
            f" A text as long as the context, {full:,} tokens, keeps {short_bytes(kept)}{states}."
        )
    windows = [x for x in f.study.caches if x.rows and x.window is not None]
    dropped = ""
    if windows:
        sizes = {int(x.window) for x in windows if x.window is not None}
        size_text = f" of {windows[0].window:,}" if len(sizes) == 1 else ""
        where = f.in_layers(total(x.layers for x in windows)).capitalize()
        dropped = f" {where} those of tokens outside the {f.reach}{size_text} are dropped."
    return StopText(
        "KV cache",
        f"The {names} of {'' if windows else 'all '}tokens so far are kept{each}.{dropped}{whole}",
        "The next pass then computes one token only; but it reads every weight that it uses, which "
        "is why decoding is limited by memory bandwidth.",
        "cache ← [cache, new]",
    )


ATTENTION_TEXTS: StopTexts = {
    "qkv": _qkv,
    "compress": _compress,
    "expand": _expand,
    "biases": _biases,
    "qk_norm": _qk_norm,
    "rope": _rope,
    "alibi": _ALIBI,
    "no_positions": _no_positions,
    "attention_gate": _ATTENTION_GATE,
    "attention_out": _attention_out,
    "cache": _cache,
}
