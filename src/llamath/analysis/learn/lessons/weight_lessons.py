"""The lessons about parameters: from one matrix to the total and its other names."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ....checkpoint.meta_args import config_to_args, ffn_width
from ....core.expr import Expr
from ....core.parameter_count import WeightRow
from ....utils.errors import ConfigError
from ..account import Account, of_factors
from ..diagnosis import term_name
from ..exercise import Exercise
from ..lesson import Asker, Lesson, file_name, instead, matrices, written
from ..study import ModelStudy, iter_kinds, kind_with

_ATTENTION = ("attn.q.weight", "attn.k.weight", "attn.v.weight", "attn.o.weight")


def _any(_study: ModelStudy) -> str:
    return ""


def _needs_heads(study: ModelStudy) -> str:
    if study.attention is None or study.layer is None:
        return "it has no attention with matrices q, k and v of its own"
    has = {x.pattern for x in study.layer.rows}
    missing = [x for x in _ATTENTION if x not in has]
    return "its attention has no separate matrices q, k, v and o" if missing else ""


def _needs_layers(study: ModelStudy) -> str:
    return "" if study.layer is not None else "it has no layers"


def _needs_mlp(study: ModelStudy) -> str:
    has_mlp = study.mlp is not None and kind_with(study, _is_up) is not None
    return "" if has_mlp else "its layers have no dense MLP"


def _is_up(row: WeightRow) -> bool:
    return row.pattern == "mlp.up.weight"


def _needs_norms(study: ModelStudy) -> str:
    has_norm = any(x.group == "norm" and x.role == "scale" for x in study.weights().products)
    return "" if has_norm else "its norms have no weights"


def _matrix_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker = Asker("matrix", study)
    asked: set[str] = set()
    for section in iter_kinds(study):
        account = study.layer_weights(section=section)
        for i, x in enumerate(matrices(account)):
            out, into = x.factor("out"), x.factor("in")
            name = x.path.removesuffix(".weight")
            if out is None or into is None or name in asked:
                continue
            asked.add(name)
            spoken = f"{term_name(x)} ({file_name(study, x.path)} in files)"
            one = Account(products=(x._replace(factors=(("out", out), ("in", into))),))
            expert = " of one expert" if x.factor("copies") else ""
            yield asker.ask(
                name,
                f"The matrix {spoken}{expert} makes {written(out)} numbers of {written(into)}. "
                "How many parameters does it have?",
                one,
                hint="one weight for each pair of an output and an input: rows × columns",
                core=i in (0, 1) or name.endswith("down"),
            )
            yield asker.ask(
                f"{name}/outputs",
                f"{spoken} has the shape [{int(out):,}, {int(into):,}], as PyTorch writes it: "
                "(out, in). How many outputs does it have?",
                int(out),
                unit="outputs",
                kind="shape",
                hint="y = W x, with W of shape [out, in]: the rows are the outputs",
                mistakes=(
                    instead(
                        "in and out swapped",
                        int(into) if int(into) != int(out) else None,
                        f"in and out are swapped: {term_name(x)} reads {int(into):,} numbers and "
                        f"writes {int(out):,}",
                    ),
                ),
                why="“From 7B to 8B” gives down_proj 14,336 outputs: they are its inputs."
                if name.endswith("down")
                else "",
                core=name.endswith("down"),
            )


def _matrix_text(study: ModelStudy) -> Iterator[str]:
    yield (
        "A model is a pile of matrices. A matrix W turns a list of numbers x into another list, "
        "y = W x: each output is a sum of all inputs, each times a weight of its own."
    )
    width = f"d = {int(study.width):,} numbers"
    yield f"Every token is a list of {width} on its way through {study.name}."
    yield "PyTorch stores W as [out, in]: a row for each output, a column for each input."


def _head_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker = Asker("head", study)
    H, h, d = study.heads, study.head_dim, study.width
    assert H is not None and h is not None
    guess = int(d) // int(H)
    yield asker.ask(
        "size",
        f"{study.name} is d = {int(d):,} wide and has H = {int(H)} heads. A head is "
        + (
            "as wide as its share of d. "
            if guess == int(h) and int(d) % int(H) == 0
            else f"not d / H = {int(d) / int(H):g} wide here: q makes H·h = {int(H * h):,} "
            "numbers. "
        )
        + "How many numbers does a query of one head have (h)?",
        int(h),
        unit="numbers",
        kind="shape",
        hint="d / H" if guess == int(h) else "the outputs of q, divided by the number of heads",
        mistakes=(
            instead(
                "head size guessed",
                guess if guess != int(h) else None,
                f"d / H is {guess}, but the config says head_dim {int(h)}: q does not have "
                "as many outputs as inputs",
            ),
            instead("d for h", int(d), "this is the width of the model; one head has a share"),
        ),
    )
    q = study.layer_weights(lambda path: path == "attn.q.weight")
    one = q.each(lambda x: x.with_factor("out", h))
    yield asker.ask(
        "parameters",
        f"How many weights make the query of one head: {written(h)} outputs of d = {int(d):,} "
        "inputs?",
        one,
        hint="h rows of the matrix q, each with d weights",
        mistakes=(
            instead(
                "all heads for one",
                int(q.value),
                f"these are all {int(H)} heads; the question is about one",
                kind="weights",
            ),
        ),
    )
    yield asker.ask(
        "together",
        f"The queries of all {int(H)} heads lie side by side. How many numbers are they for one "
        "token?",
        Account(products=(of_factors("attn.q.weight", heads=H, out=h),)),
        unit="numbers",
        kind="shape",
        hint="H heads of h numbers",
        mistakes=(instead("one head", int(h), "this is one head"),),
    )
    yield asker.ask(
        "scores",
        "One head compares 1,000 new tokens with each other, without a mask. How many scores "
        "q·k does it compute? (T = 1000)",
        Account(products=(of_factors("scores", queries=_T(1000), keys=_T(1000)),)),
        unit="scores",
        kind="shape",
        hint="each query meets each key",
        why="No weight is in it: scores are computed, and a longer context needs no parameter.",
        mistakes=(
            instead("a row of scores", 1000, "this is one query: there are 1,000 of them"),
            instead(
                "numbers for scores",
                1_000_000 * int(h),
                f"a score is one number: the {int(h)} products of q·k are added",
            ),
        ),
        given={"T": 1000},
    )


def _T(n: int) -> Expr:  # noqa: N802
    return Expr("T", n)


def _head_text(study: ModelStudy) -> Iterator[str]:
    H, h = study.heads, study.head_dim
    assert H is not None and h is not None
    yield (
        "Attention lets a token look at others. A query q asks, a key k answers, and the scores "
        "softmax(q·k / √h) say how much of each value v is taken: softmax(QKᵀ/√h)·V."
    )
    yield (
        f"It does so H = {int(H)} times side by side, in heads, each with queries of h numbers. "
        f"The results are put one behind the other again, H·h numbers, and o mixes them."
    )


def _is_one_of(*paths: str) -> Callable[[str], bool]:
    return lambda path: path in paths


def _attention_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker = Asker("attention", study)
    H, K, h = study.heads, study.kv_heads, study.head_dim
    assert H is not None and K is not None and h is not None
    yield asker.ask(
        "group",
        f"{study.name} has H = {int(H)} query heads and K = {int(K)} heads of keys and values. "
        "How many query heads share one head of keys and values?",
        int(H) // int(K),
        unit="heads",
        kind="shape",
        hint="H / K",
        mistakes=(
            instead("K for H/K", int(K), "these are the heads of K and V, not the size of a group"),
        ),
    )
    for name in ("k", "q"):
        account = study.layer_weights(_is_one_of(f"attn.{name}.weight"))
        outputs = "K·h" if name == "k" else "H·h"
        yield asker.ask(
            f"{name}_proj",
            f"How many parameters does the matrix {name} of one layer have?",
            account,
            hint=f"{outputs} outputs of d inputs",
            core=name == "k",
        )
    chosen = {
        "qkv": (_ATTENTION[:3], "q, k and v together"),
        "kv": (_ATTENTION[1:3], "k and v together"),
        "all": (_ATTENTION, "the four matrices q, k, v and o together"),
    }
    for name, (paths, words) in chosen.items():
        yield asker.ask(
            name,
            f"How many parameters do {words} have, in one layer?",
            study.layer_weights(_is_one_of(*paths)),
            hint="q and o have H·h × d each, k and v have K·h × d each",
            core=name != "kv",
        )
    if int(K) != int(H):
        four = study.layer_weights(lambda path: path in _ATTENTION)
        full = four.each(lambda x: x.with_letters({K.symbol: H}) if len(K.letters) == 1 else x)
        saved = Account(
            products=(
                *full.products,
                *(x.with_factor("sign", -1) for x in four.products),
            )
        )
        yield asker.ask(
            "saved",
            f"With H = {int(H)} heads of keys and values instead of K = {int(K)}, how many more "
            "parameters would a layer have?",
            saved,
            hint="(H − K)·h more outputs of k, and of v",
            mistakes=(
                instead(
                    "k alone",
                    int(saved.value) // 2,
                    "this is one of k and v; both grow",
                    kind="weights",
                ),
                instead(
                    "the whole attention",
                    int(full.value),
                    "this is all attention of such a layer, not the difference",
                    kind="weights",
                ),
            ),
        )


def _attention_text(study: ModelStudy) -> Iterator[str]:
    H, K = study.heads, study.kv_heads
    assert H is not None and K is not None
    yield (
        "Attention has four matrices: q, k and v make queries, keys and values, o mixes the heads."
    )
    if int(K) == int(H):
        yield f"Here each of the H = {int(H)} heads has keys and values of its own: multi-head."
    else:
        yield (
            f"Here H = {int(H)} query heads share K = {int(K)} heads of keys and values, in groups "
            f"of {int(H) // int(K)}: grouped-query attention. k and v have K·h outputs, q has H·h."
        )
        yield (
            "The reason is the cache of keys and values, which is H / K times smaller; the "
            "parameters saved are a by-product."
        )


def _mlp_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker = Asker("mlp", study)
    mlp, F, d = study.mlp, study.mlp_width, study.width
    assert mlp is not None and F is not None
    section = kind_with(study, _is_up)
    account = study.layer_weights(
        lambda path: path.startswith("mlp.") and path.count(".") == 2 and path.endswith(".weight"),
        section,
    )
    account = Account(products=tuple(x for x in account.products if x.group == "mlp"))
    up = account.without(lambda x: x.path != "mlp.up.weight")
    number = "three" if mlp.gate is not None else "two"
    yield asker.ask(
        "up",
        f"up leads from d = {int(d):,} to F = {int(F):,} numbers. "
        "How many parameters does it have?",
        up,
        hint="F rows of d weights",
    )
    yield asker.ask(
        "all",
        f"How many parameters do the {number} matrices of the MLP of one layer have?",
        account,
        hint=f"{number} matrices, each with F·d weights",
    )
    if study.model.family.name == "llama":
        yield from _width_exercises(asker, study)
    if study.attention is not None and not _needs_heads(study):
        attention = study.layer_weights(lambda path: path in _ATTENTION, section)
        if attention.products:
            difference = Account(
                products=(
                    *account.products,
                    *(x.with_factor("sign", -1) for x in attention.products),
                )
            )
            yield asker.ask(
                "more",
                "How many more parameters does the MLP of a layer have than its attention? "
                "(A negative number if it has fewer.)",
                difference,
                kind="difference",
                hint="the MLP's matrices, minus q, k, v and o",
                core=False,
            )


def _width_exercises(asker: Asker, study: ModelStudy) -> Iterator[Exercise]:
    try:
        args = config_to_args(study.model.config)
    except ConfigError:
        return
    d, m, factor = args.dim, args.multiple_of, args.ffn_dim_multiplier
    two_thirds = int(8 * d / 3)
    scaled = two_thirds if factor is None else int(factor * two_thirds)
    more = (
        "" if factor is None else f", times ffn_dim_multiplier = {factor:g}, cut to a whole number"
    )
    yield asker.ask(
        "width",
        f"Meta's rule for F: 2/3 of 4·d, cut to a whole number{more}, then rounded up to a "
        f"multiple of multiple_of = {m:,}. d is {d:,}. What is F?",
        ffn_width(d, m, factor),
        unit="numbers",
        kind="shape",
        hint=f"int(2·4·{d:,}/3) = {two_thirds:,}; {scaled:,} / {m:,} = {scaled / m:.3f}",
        why="2/3, because three matrices with a gate then cost as much as two of 4·d.",
        mistakes=(
            instead("4·d", 4 * d, "this is 4·d; a gated MLP takes 2/3 of it, and rounds up"),
            instead(
                "not rounded",
                scaled if scaled % m else None,
                f"this is not rounded up to a multiple of {m:,} yet",
            ),
            instead(
                "rounded down",
                scaled // m * m if scaled % m else None,
                "this is rounded down; Meta rounds up",
            ),
            instead(
                "multiplier forgotten",
                None if factor is None else ffn_width(d, m, None),
                f"ffn_dim_multiplier = {factor} is missing",
            ),
            instead(
                "neither scaled nor rounded",
                None if factor is None else two_thirds,
                f"this is 2/3 of 4·d alone; ffn_dim_multiplier = {factor} and rounding follow",
            ),
            instead(
                "the rule of Llama 2",
                ffn_width(d, 256, None) if (factor is not None or m != 256) else None,
                "this is multiple_of = 256 without a multiplier, as in Llama 1 and 2 7B",
                bits=0.5,
            ),
            instead(
                "multiple of 256",
                None if m == 256 else ffn_width(d, 256, factor),
                f"this is a multiple of 256; multiple_of is {m:,} here",
            ),
        ),
    )


def _mlp_text(study: ModelStudy) -> Iterator[str]:
    mlp, F = study.mlp, study.mlp_width
    assert mlp is not None and F is not None
    if mlp.gate is None:
        yield (
            f"The MLP works on each token alone: up makes F = {int(F):,} numbers of d, an "
            "activation is applied to each, down brings them back."
        )
    else:
        yield (
            "The MLP works on each token alone. gate and up make F numbers of d each; "
            f"act(gate x) · up x multiplies them, and down brings them back. F is {int(F):,} here."
        )
        yield (
            "A plain MLP has two matrices and is often 4·d wide. With the gate it has three, so "
            f"Llama takes 2/3 of that width{_width_rule(study, int(F))}"
        )


def _width_rule(study: ModelStudy, F: int) -> str:
    """Return how the width of the MLP follows from that of the model, as the end of a sentence."""
    try:
        config_to_args(study.model.config)
    except ConfigError:
        d = int(study.width)
        return f"; here it is {'4·d' if 4 * d == F else f'{F / d:.2f}·d'}."
    return " and rounds up: 11,008 and 14,336 come from this rule."


def _norm_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker = Asker("norms", study)
    section = study.layer
    assert section is not None
    layer = study.layer_weights(section=section)
    norms = Account(products=tuple(x for x in layer.products if x.group == "norm"))
    first = norms.products[:1]
    if first:
        yield asker.ask(
            "one",
            "How many weights does the norm before the attention of a layer have "
            f"({term_name(first[0])})?",
            Account(products=first),
            hint="one for each of the numbers that it scales",
        )
        yield asker.ask(
            "layer",
            "How many parameters do all norms of that layer have together?",
            norms,
            hint=f"{len(norms.products)} vectors: {', '.join(map(term_name, norms.products[:6]))}",
            why="“Count the parameters in LLaMA v1” calls 2·d 8.19 million; it is thousands."
            if int(norms.value) == 8192
            else "",
        )
    every = study.weights(lambda _s, row: row.group == "norm")
    yield asker.ask(
        "all",
        f"How many parameters do all norms of {study.name} have, the one after the last "
        "layer included?",
        every,
        hint="those of a layer, times the layers, and the last one",
        why="“From 7B to 8B” leaves the last one out, and so both of its totals are d too small."
        if study.model.family.name == "llama"
        else "",
    )


def _norm_text(_study: ModelStudy) -> Iterator[str]:
    yield (
        "A norm brings the numbers of a token to a common size: RMSNorm divides x by the root of "
        "the mean of its squares, and multiplies each number by a weight, x / rms(x) · w."
    )
    yield (
        "So a norm is a vector: as many weights as numbers. A LayerNorm also subtracts the "
        "mean and "
        "may add a bias, a second vector."
    )


def _layer_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker = Asker("layer", study)
    section = study.layer
    assert section is not None
    layer = study.layer_weights()
    parts = ", ".join(term_name(x) for x in layer.products if x.role == "matmul")
    kinds = list(iter_kinds(study))
    which = "a layer" if len(kinds) == 1 else f"one of the {int(section.times)} layers of this kind"
    yield asker.ask(
        "one",
        f"How many parameters does {which} of {study.name} have? Its matrices: {parts}.",
        layer,
        hint="attention, MLP and norms, each once",
    )
    every = study.weights(lambda s, _row: s is section)
    if int(section.times) > 1:
        of_kind = "" if len(kinds) == 1 else " of this kind"
        yield asker.ask(
            "times",
            f"There are {written(section.times)} layers{of_kind}. "
            "How many parameters do they have?",
            every,
            hint="one layer, times the layers",
        )
    if len(kinds) > 1:
        yield asker.ask(
            "all",
            "How many parameters do the layers of all kinds have together?",
            study.weights(lambda s, _row: s.name == "layers"),
            hint="sum over the kinds of layers",
        )
    matmuls = study.weights(lambda s, row: s.name == "layers" and row.weight.role == "matmul")
    yield asker.ask(
        "matrices",
        "How many parameters do the matrices of all layers have, without norms and biases?",
        matmuls,
        hint="leave out every vector",
        why="6,476,005,376 is the answer on StackExchange to “How can it be 7B?”."
        if int(matmuls.value) == 6_476_005_376
        else "",
    )


def _layer_text(study: ModelStudy) -> Iterator[str]:
    yield (
        "A layer is attention and an MLP, with a norm before each: x += attention(norm(x)), then "
        "x += mlp(norm(x)). The layers have equal shapes and weights of their own."
    )
    kinds = list(iter_kinds(study))
    if len(kinds) > 1:
        counts = " and ".join(str(int(x.times)) for x in kinds)
        yield f"{study.name} has {len(kinds)} kinds of layers: {counts} of them."


def _table_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker = Asker("embedding", study)
    head = study.tree.head
    V, d = Expr.const(study.tree.vocab), study.width
    embed = study.weights(lambda s, row: s.name == "embed" and row.weight.role == "lookup")
    yield asker.ask(
        "embedding",
        f"The vocabulary has {written(V)} tokens, each with a row of {written(d)} numbers. "
        "How many parameters does the embedding have?",
        embed,
        hint="V rows of d numbers",
    )
    if head is None:
        return
    heads = study.weights(lambda s, _row: s.name == "head")
    tied = bool(head.weight.tied)
    words = "is tied to the embedding: it is the same matrix" if tied else "is a matrix of its own"
    yield asker.ask(
        "head",
        f"The output head makes a logit for each of the V tokens. It {words}. How many parameters "
        "does the head add?",
        heads,
        hint="none, if it is the same matrix" if tied else "V rows of d weights",
    )
    both = study.weights(lambda s, _row: s.name in ("embed", "head"))
    yield asker.ask(
        "both",
        "How many parameters do embedding and head have together?",
        both,
        hint="a tied matrix counts once",
    )
    if not tied and int(heads.value):
        total = study.weights()
        yield asker.ask(
            "if tied",
            f"How many parameters would {study.name} have with a tied head?",
            total.without(lambda x: x.path == "head.weight"),
            hint="the total, without V·d of the head",
            core=False,
        )


def _table_text(_study: ModelStudy) -> Iterator[str]:
    yield (
        "The embedding is a table: a token's number picks a row, which is looked up, not "
        "multiplied. At the end the head multiplies: a score, or logit, for each token of the "
        "vocabulary."
    )
    yield (
        "Both tables are V × d. Some models use one matrix for both (tied), others have two. "
        "A tied "
        "matrix counts once."
    )


def _total_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker = Asker("total", study)
    total, p = study.weights(), study.model.text.parameters
    yield asker.ask(
        "total",
        f"How many parameters does {study.name} have in all?",
        total,
        hint="embedding + layers + final norm + head",
    )
    if int(p.without_head) != int(p.total):
        yield asker.ask(
            "without head",
            "A program loads the class without the head (LlamaModel, not LlamaForCausalLM). What "
            "does it count?",
            total.without(lambda x: x.group == "head"),
            hint="the total, minus the head",
        )
    yield asker.ask(
        "without embeddings",
        "Papers about scaling count without the embedding (the head stays). What do they count?",
        total.without(lambda x: x.group == "embedding"),
        hint="the total, minus the tables that are looked up",
    )
    yield asker.ask(
        "blocks",
        "How many parameters are there without embedding and head: the layers and the norms?",
        total.without(lambda x: x.group in ("embedding", "head")),
        hint="the total, minus embedding and head",
    )
    if int(p.tied_counted_twice) != int(p.total):
        yield asker.ask(
            "tied twice",
            "A program adds the sizes of all tensors of the state dict, which has the tied head, "
            "too. What does it print?",
            total.each(lambda x: x._replace(tied=False)),
            hint="the total, and V·d once more",
        )
    if p.has_sparse_layers:
        yield asker.ask(
            "active",
            "How many of them does one token use (active parameters, the whole embedding counted)?",
            active_account(study),
            hint="in each layer with experts, only the chosen ones",
        )


def active_account(study: ModelStudy) -> Account:
    """Return the parameters that one token uses."""
    k = study.top_k
    total = study.weights()
    if k is None:
        return total
    return total.each(
        lambda x: (
            x.with_factor("copies", k)
            if x.group == "experts" and x.factor("copies") is not None
            else x
        )
    )


def _total_text(_study: ModelStudy) -> Iterator[str]:
    yield (
        "“The number of parameters” has several meanings: with or without the head, the embedding, "
        "both; a tied matrix once or twice; of experts all, or those that a token uses."
    )
    yield (
        "A number is only right together with what it counts. llamath's total is every weight, "
        "once."
    )


WEIGHT_LESSONS = (
    Lesson(
        name="matrix",
        title="One matrix",
        model="llama-3-8b",
        lacks=_needs_layers,
        explain=_matrix_text,
        exercises=_matrix_exercises,
    ),
    Lesson(
        name="head",
        title="One head",
        model="llama-3-8b",
        lacks=_needs_heads,
        explain=_head_text,
        exercises=_head_exercises,
    ),
    Lesson(
        name="attention",
        title="Attention and grouped heads",
        model="llama-3-8b",
        lacks=_needs_heads,
        explain=_attention_text,
        exercises=_attention_exercises,
    ),
    Lesson(
        name="mlp",
        title="The MLP, and where 11,008 and 14,336 come from",
        model="llama-3-8b",
        lacks=_needs_mlp,
        explain=_mlp_text,
        exercises=_mlp_exercises,
    ),
    Lesson(
        name="norms",
        title="Norms",
        model="llama-3-8b",
        lacks=_needs_norms,
        explain=_norm_text,
        exercises=_norm_exercises,
    ),
    Lesson(
        name="layer",
        title="A layer, and 32 of them",
        model="llama-3-8b",
        lacks=_needs_layers,
        explain=_layer_text,
        exercises=_layer_exercises,
    ),
    Lesson(
        name="embedding",
        title="Embedding and head, tied or not",
        model="llama-3-8b",
        lacks=_any,
        explain=_table_text,
        exercises=_table_exercises,
    ),
    Lesson(
        name="total",
        title="The total, and its four other names",
        model="llama-3-8b",
        lacks=_any,
        explain=_total_text,
        exercises=_total_exercises,
    ),
)
