"""What each stop of the tour says: a title, what happens, why it is there, and the formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from typing import NamedTuple

from ....core.blocks import MoE
from ....core.expr import Expr
from ....core.latent_attention import LatentAttention
from ....utils.number_format import format_list
from ...graph.operations.projection_operations import ROLES
from ..lesson import written
from ..study import ModelStudy
from .stop_formulas import StopFormulas, written_router, written_scale
from .stop_places import OTHER, Placed


class StopText(NamedTuple):
    """The words of a stop."""

    title: str
    what: str
    why: str
    formula: str


class TourFacts(NamedTuple):
    """What the words of stops are made of."""

    study: ModelStudy
    placed: Mapping[str, Sequence[Placed]]  # by stop
    layers: Expr
    apart: Sequence[str] = ()  # parts of the model that a text does not pass

    def has(self, stop: str) -> bool:
        """Whether the model has a stop."""
        return bool(self.placed.get(stop))

    def layers_with(self, stop: str, chosen: Callable[[Placed], bool] | None = None) -> int:
        """Return the number of layers that have steps of a stop, or the chosen ones."""
        stages = {
            id(x.stage): x.stage.times
            for x in self.placed.get(stop, ())
            if x.stage.name == "layers" and (chosen is None or chosen(x))
        }
        return sum(stages.values())

    def in_layers(self, n: int) -> str:
        """Return `in each layer`, or in how many."""
        every = int(self.layers)
        return "in each layer" if n == every else f"in {n:,} of {every:,} layers"

    def names(self, stop: str, kind: str = "") -> list[str]:
        """Return the short names of the steps of a stop, each once."""
        found = (x.step for x in self.placed.get(stop, ()))
        return list(dict.fromkeys(x.name.rpartition(".")[2] for x in found if kind in ("", x.kind)))

    def first(self, stop: str, kind: str = "") -> Placed | None:
        """Return the first step of a stop."""
        return next(
            (x for x in self.placed.get(stop, ()) if kind in ("", x.step.kind)),
            None,
        )

    def attribute(self, stop: str, name: str, kind: str = "") -> object:
        """Return an attribute of the operation of the first step of a stop."""
        found = self.first(stop, kind)
        node = None if found is None else found.step.node
        return None if node is None else node.attributes.get(name)

    @property
    def has_scaled_inputs(self) -> bool:
        """Whether experts read x times their weights (Llama 4)."""
        moe = self.study.moe
        return moe is not None and moe.routing == "input"

    def formulas(self, stop: str, inputs: Mapping[str, str] | None = None) -> StopFormulas:
        """Return what writes the formulas of a stop."""
        return StopFormulas(self.placed.get(stop, ()), inputs)


def _token(f: TourFacts) -> StopText:
    last = int(f.study.tree.vocab) - 1
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
        factor, number = written_scale(node), f"{float(node.attributes['factor']):.6g}"
        scaled = f" They are multiplied by {factor}{f' = {number}' if factor == '√d' else ''}."
        why = (
            " Times √d they are as large as the numbers that a norm returns, and as those that "
            "the layers add."
            if factor == "√d"
            else f" The factor {factor} makes them as large as what the layers add."
        )
    return StopText(
        "Embedding row",
        f"The token picks its row of the embedding, d = {int(f.study.width):,} numbers: the "
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
        f"A second, narrow embedding holds a vector of the token for each of the {int(f.layers):,} "
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


_NOUNS = {"q": "a query says", "k": "a key", "v": "a value"}


def _qkv(f: TourFacts) -> StopText:
    H, K, h = f.study.heads, f.study.kv_heads, f.study.head_dim
    names = [x for x in f.names("qkv", "linear") if x in _NOUNS]
    listed = " and ".join(names) if len(names) == 2 else ", ".join(names)
    heads = ""
    shared = ""
    if H is not None and K is not None and h is not None:
        heads = (
            f": H = {int(H)} heads of h = {int(h)} numbers each"
            if H == K
            else f": H = {int(H)} queries, K = {int(K)} keys and values, of h = {int(h)} numbers "
            "each"
        )
        if H != K:
            shared = (
                f"; H / K = {int(H) // int(K)} queries share a key and a value, which makes the "
                f"KV cache {int(H) // int(K)} times smaller"
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


def _latent(f: TourFacts) -> LatentAttention | None:
    return f.study.latent


def _compress(f: TourFacts) -> StopText:
    latent = _latent(f)
    assert latent is not None
    kept = int(latent.kv_lora_rank) + int(latent.rope_dim)
    full = int(latent.heads) * (int(latent.nope_dim) + int(latent.rope_dim) + int(latent.v_dim))
    down = f.names("compress", "linear")
    return StopText(
        "Latent vectors: compress",
        f"{format_list(down)} press x into short vectors; the one for keys and values has r = "
        f"{int(latent.kv_lora_rank):,} numbers, and p = {int(latent.rope_dim):,} more for a key "
        "with positions.",
        f"Only these {kept:,} numbers are cached for a token, in place of the {full:,} of all "
        "keys and values.",
        "c = norm(W_kv_down x)",
    )


def _expand(f: TourFacts) -> StopText:
    latent = _latent(f)
    assert latent is not None
    names = f.names("expand", "linear")
    return StopText(
        "Latent vectors: expand",
        f"{format_list(names)} make the queries, keys and values of all H = {int(latent.heads)} "
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


def _rope(f: TourFacts) -> StopText:
    rope = f.attribute("rope", "rope", "rope")
    first = f.first("rope", "rope")
    assert first is not None
    theta, dim = float(getattr(rope, "theta", 0)), int(getattr(rope, "dim", 0))
    size = int(first.step.shape[-1])
    part = "" if dim == size else f" Only {dim} of {size} channels turn."
    kind = getattr(rope, "scaling", "")
    scaled = f" The angles are scaled for long texts ({kind})." if kind else ""
    some = f.layers_with("rope")
    where = "" if some == int(f.layers) else f" It happens {f.in_layers(some)}."
    return StopText(
        "RoPE",
        "Each pair of channels of q and k is turned by an angle: the position times the frequency "
        f"of the pair.{part}{scaled}{where}",
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
    where = "In these layers" if n == int(f.layers) else f"{f.in_layers(n).capitalize()}"
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
    size = int(node.inputs[0].shape[-1])
    causal = node.attributes["window"].causal
    keys = "all keys up to its own" if causal else "all keys"
    root = f"√{size} = {sqrt(size):.3g}"
    is_root = scale is None or abs(scale * sqrt(size) - 1) < 1e-6
    cap = getattr(transform, "softcap", None)
    capped = f" {_capped('score', cap)}" if cap else ""
    bounded = f" {_BOUNDED}" if cap else ""
    latent = _latent(f) if f.has("rope") else None
    parts, product = "", "q·k"
    if latent is not None and latent.rope_dim:
        parts = (
            f" q·k is the sum of two products: of n = {int(latent.nope_dim)} numbers without a "
            f"position, and of the p = {int(latent.rope_dim)} that RoPE has turned."
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


def _capped(what: str, cap: float) -> str:
    return (
        f"A {what} s is capped: {cap:g} · tanh(s / {cap:g}) is nearly s where s is small, and "
        f"always between −{cap:g} and {cap:g}."
    )


_BOUNDED = "The cap keeps a few large numbers from deciding alone, in training above all."


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
    others = f.layers_with("window") < int(f.layers)
    return StopText(
        "Window",
        f"{where.capitalize()} a query sees the last {int(size or 0):,} tokens only, its own "
        "included.",
        "Older keys are forgotten, so the cache of these layers stops growing"
        + (
            "; the others carry what is farther away."
            if others
            else "; what is farther away comes in steps, a window with each layer."
        ),
        f"0 ≤ i − j < {int(size or 0):,}",
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
    return StopText(
        "Mask and softmax" if causal else "Softmax",
        (
            "Keys after the query's own are masked; softmax makes the other scores shares that sum "
            "to 1."
            if causal
            else "Softmax makes the scores shares that sum to 1."
        ),
        (
            "A token must not see what it has to predict; and so all tokens of a text are computed "
            "at once, each as if it were the last."
            if causal
            else "Every token may read every other one: the model does not write, it reads."
        ),
        "a_j = exp(score_j) / Σ exp(score_i),  i ≤ own position"
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
        f"The output matrix mixes all heads to d = {int(f.study.width):,} numbers{added}.",
        "It is a matrix of one token's heads: the length of the text is not in its size."
        if parallel
        else "Adding keeps what was there: a layer writes a correction, and gradients reach the "
        "first layer undiminished.",
        f"{'' if parallel else 'x ← x + '}{f.formulas('attention_out').linear('o', 'y')}",
    )


def _mixer_in(f: TourFacts) -> StopText:
    names = format_list(f.names("mixer_in", "linear"))
    n = f.layers_with("mixer_in")
    where = (
        f"{f.in_layers(n).capitalize()} a recurrence takes the place of attention"
        if n < int(f.layers)
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
        ",  ".join(f"{x} = W_{x} x" for x in f.names("mixer_in", "linear")[:4]),
    )


def _conv(f: TourFacts) -> StopText:
    first = f.first("conv", "conv")
    says = "a causal convolution" if first is None else first.step.description
    return StopText(
        "Convolution",
        f"The token and those just before it are mixed: {says}.",
        "A state is a summary of the past; the nearest tokens are read exactly."
        if f.has("state")
        else "Neighbours make words and phrases, and a few weights for each channel suffice.",
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
        f"{int(f.study.width):,} numbers, and added to the stream.",
        "The stream is the same for all kinds of layers, so they can follow each other in any "
        "order.",
        "x ← x + W_out (y · act(W_z x))" if names else "x ← x + W_out y",
    )


_PARALLEL = StopText(
    "Two branches at once",
    "Attention and the FFN read the same x, and both results are added together.",
    "The FFN does not wait for attention: both can be computed at the same time.",
    "x ← x + attention(norm(x)) + FFN(norm(x))",
)


def _moe(f: TourFacts) -> MoE | None:
    return f.study.moe


def _router(f: TourFacts) -> StopText:
    moe = _moe(f)
    first = f.first("router", "choice")
    experts = 0 if moe is None else int(moe.experts.n)
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
    moe = _moe(f)
    k, n = (0, 0) if moe is None else (int(moe.top_k), int(moe.experts.n))
    return StopText(
        "Chosen experts",
        f"Each expert is an FFN of its own. A token passes k = {k} of {n:,}, and their results are "
        "added, each times its weight.",
        f"All experts are counted and kept in memory, but a token is computed by {k} of {n:,}.",
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
    to = "" if width is None else f" F = {int(width):,} numbers"
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
    width = int(f.study.width)
    product = f.formulas("down").linear("down", "a")
    if f.has("next_layer"):
        return StopText(
            "down",
            f"down brings them back to d = {width:,} numbers.",
            "The stream has one width everywhere, so that every layer can add to it.",
            product,
        )
    n = int(f.layers)
    again = f" {n:,} times, each with weights of its own" if n > 1 else ""
    return StopText(
        "down and ⊕, then the next layer",
        f"down brings them back to d = {width:,} numbers, ⊕ adds them to the stream, and the next "
        f"layer begins:{again}.".replace(":.", "."),
        _MANY_LAYERS,
        f"x ← x + {product},  L = {n:,} times",
    )


_MANY_LAYERS = (
    "In one layer a token reads the others once; in the next, others read what it has gathered."
)


def _next_layer(f: TourFacts) -> StopText:
    n = int(f.layers)
    return StopText(
        "⊕, and the next layer",
        "The result is added to the stream, and the next layer begins"
        + (f": {n:,} times, each with weights of its own." if n > 1 else "."),
        _MANY_LAYERS,
        f"x ← x + branch(x),  L = {n:,} times",
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
            f"What leaves the last layer is the result, d = {int(tree.width):,} numbers for each "
            "token.",
            "The model has no head: others use its numbers.",
            "y = norm(x)" if tree.norm is not None else "y = x",
        )
    normed = "After a last norm the head" if tree.norm is not None else "The head"
    tied = " Its matrix is the embedding again: it adds 0." if tree.head.weight.tied else ""
    cap, factor = f.study.tree.softcap, f.attribute("logits", "factor", "multiply")
    scaled = f" It is multiplied by {factor:.4g}." if isinstance(factor, float) else ""
    capped = f" {_capped('logit', cap)}" if cap else ""
    steps = f.placed["logits"]
    own = [x for x in steps if "." not in x.step.name or x.step.name.startswith("head.")]
    formula = StopFormulas(own, {"norm": "norm(x)"}).of("linear", "scale", "softcap")
    return StopText(
        "Logits",
        f"{normed} gives each of the V = {int(tree.vocab):,} tokens of the vocabulary a logit."
        f"{scaled}{capped}{tied}",
        "A logit is the product of x with the token's row: the more x points its way, the likelier "
        f"it comes next.{f' {_BOUNDED}' if cap else ''}",
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


def _cache(f: TourFacts) -> StopText:
    size = f.study.cache(1).value
    names = " and ".join(f.names("cache")).replace("latents", "latent vectors")
    each = f": {written(size)} bytes for each token in bf16" if int(size) else ""
    return StopText(
        "KV cache",
        f"The {names} of all tokens so far are kept{each}.",
        "The next pass then computes one token only; but it reads every weight that it uses, which "
        "is why decoding is limited by memory bandwidth.",
        "cache ← [cache, new]",
    )


def _apart(f: TourFacts) -> StopText:
    return StopText(
        "What text does not pass",
        f"The model also has {format_list(f.apart)}, which tokens of text do not pass.",
        "They are in its file and in its count.",
        "",
    )


STOP_TEXTS: Mapping[str, StopText | Callable[[TourFacts], StopText]] = {
    "token": _token,
    "encoder": _ENCODER,
    "embedding": _embedding,
    "positions": _positions,
    "per_layer": _per_layer,
    "norm": _norm,
    "mixer_in": _mixer_in,
    "conv": _conv,
    "state": _state,
    "mixer_out": _mixer_out,
    "compress": _compress,
    "expand": _expand,
    "qkv": _qkv,
    "biases": _biases,
    "qk_norm": _qk_norm,
    "rope": _rope,
    "no_positions": _no_positions,
    "indexer": _indexer,
    "scores": _scores,
    "alibi": _ALIBI,
    "window": _window,
    "softmax": _softmax,
    "sinks": _SINKS,
    "mix": _mix,
    "attention_gate": _ATTENTION_GATE,
    "attention_out": _attention_out,
    "parallel": _PARALLEL,
    "gate_up": _gate_up,
    "down": _down,
    "router": _router,
    "experts": _experts,
    "shared": _shared,
    "post_norm": _post_norm,
    OTHER: _more,
    "next_layer": _next_layer,
    "logits": _logits,
    "next_token": _NEXT_TOKEN,
    "cache": _cache,
    "apart": _apart,
}
"""Stops in the order of the tour, with their words or the function that writes them."""
