"""Mistakes about parameters: of attention, the MLP, norms, tables, layers and experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...core.expr import Expr
from .account import Account, Product
from .mistake import Change, Mistake
from .study import Study

_WEIGHTS = ("weights", "difference", "bytes")
_HEADED = ("weights", "difference", "bytes", "cache")
_TABLES = ("embed.weight", "head.weight")
_FINAL_NORM = ("norm.weight", "norm.bias")


def _of(*names: str) -> Callable[[Product], bool]:
    """Choose weights by the last parts of their paths."""
    return lambda x: x.path.removesuffix(".weight") in names


def _ends(*names: str) -> Callable[[Product], bool]:
    return lambda x: x.path.removesuffix(".weight").rpartition(".")[2] in names


_Q, _K, _V, _O = (_of(f"attn.{x}") for x in "qkvo")
_KV = _of("attn.k", "attn.v")
_GATE, _UP, _DOWN = _ends("gate"), _ends("up"), _ends("down")
_EMBED, _HEAD = _of("embed"), _of("head")


def _is_norm(x: Product) -> bool:
    return x.group == "norm"


def _is_mlp(x: Product) -> bool:
    return x.group in ("mlp", "experts") and x.role != "bias"


def _drop(chosen: Callable[[Product], bool], least: int = 1) -> Change:
    """Forget some terms, `least` of them or more, but not all."""

    def change(_study: Study, account: Account) -> Account | None:
        left = account.without(chosen)
        dropped = len(account.products) - len(left.products)
        return left if left.products and dropped >= least else None

    return change


def _single_kv_head(study: Study, account: Account) -> Account | None:
    """Let one head of K and V serve all queries; where no queries count, it is one head for all."""
    found = _letters(kv_heads="1")(study, account)
    single = _letters(heads="1", kv_heads="1")(study, account)
    return None if found and single and found.number == single.number else found


def _norms_forgotten(study: Study, account: Account) -> Account | None:
    """Forget the norms, if there are others than the final one, which is a mistake of its own."""
    inside = any(_is_norm(x) and x.path not in _FINAL_NORM for x in account.products)
    return _drop(_is_norm)(study, account) if inside else None


def _letters(**names: str) -> Change:
    """Put one dimension of the model in the place of another: `kv_heads="heads"`."""

    def change(study: Study, account: Account) -> Account | None:
        values = {}
        is_other = False
        for name, other in names.items():
            old: Expr | None = getattr(study, name)
            new: Expr | None = Expr.const(int(other)) if other.isdigit() else getattr(study, other)
            if old is None or new is None or len(old.letters) != 1:
                return None
            values[old.symbol] = new
            is_other = is_other or old != new
        return account.each(lambda x: x.with_letters(values)) if is_other else None

    return change


def _factor(name: str, value: Callable[[Study, Expr], int | None]) -> Change:
    """Replace one factor wherever it is."""

    def change(study: Study, account: Account) -> Account | None:
        def replaced(x: Product) -> Product:
            old = x.factor(name)
            new = None if old is None else value(study, old)
            return x if new is None else x.with_factor(name, new)

        return account.each(replaced)

    return change


def _times(name: str, value: Callable[[Study], int | None]) -> Change:
    """Multiply everything by one more factor."""

    def change(study: Study, account: Account) -> Account | None:
        n = value(study)
        return None if n is None else account.each(lambda x: x.with_factor(name, n))

    return change


def _mlp_width(value: Callable[[Study], int | None]) -> Change:
    """Put another width in the place of the MLP's."""

    def change(study: Study, account: Account) -> Account | None:
        F, new = study.mlp_width, value(study)
        if F is None or new is None or new == F or len(F.letters) != 1:
            return None
        new = new if isinstance(new, Expr) else Expr.factor(new)  # no size of the model
        return account.each(lambda x: x.with_letters({F.symbol: new}) if _is_mlp(x) else x)

    return change


def _add_gate(_study: Study, account: Account) -> Account | None:
    ups = [x for x in account.products if _UP(x) and _is_mlp(x)]
    downs = any(_DOWN(x) and _is_mlp(x) for x in account.products)
    if not (ups and downs) or any(_GATE(x) and _is_mlp(x) for x in account.products):
        return None
    return account.plus(x._replace(path=x.path.replace("up", "gate")) for x in ups)


def _wide_heads(study: Study, account: Account) -> Account | None:
    h, d = study.head_dim, study.width
    if h is None or len(h.letters) != 1:
        return None
    chosen = _of("attn.q", "attn.k", "attn.v", "attn.o")
    return account.each(lambda x: x.with_letters({h.symbol: d}) if chosen(x) else x)


def _guessed_heads(study: Study, account: Account) -> Account | None:
    h, H = study.head_dim, study.heads
    if h is None or H is None or len(h.letters) != 1 or int(study.width) % int(H):
        return None
    guess = int(study.width) // int(H)
    if guess == h:
        return None
    return account.each(lambda x: x.with_letters({h.symbol: Expr.factor(guess)}))


def _all_layers(study: Study, account: Account) -> Account | None:
    L = Expr.const(study.tree.layers.n)
    if any(x.factor("layers") is not None for x in account.products):
        return None
    if any(x.path in (*_TABLES, "norm.weight") for x in account.products):
        return None
    return account.each(lambda x: x.with_factor("layers", L))


def _layers_of(account: Account) -> Mapping[str, Sequence[Product]]:
    """Return the products of each weight in the layers, one for each kind of layers; empty where
    one weight is in more layers than another, since no layer has all of them then.
    """
    found: dict[str, list[Product]] = {}
    for x in account.products:
        if x.factor("layers") is not None:
            found.setdefault(x.path, []).append(x)
    counts = {sum(int(x.factor("layers") or 0) for x in same) for same in found.values()}
    return found if len(counts) == 1 else {}


def _one_layer(*, of_all: bool) -> Change:
    """Count one layer, of the first kind, where all layers have the weights or where some have."""

    def change(study: Study, account: Account) -> Account | None:
        found = _layers_of(account)
        count = sum(map(_layer_count, next(iter(found.values()), ())))
        if not found or (count == study.tree.layers.n) is not of_all:
            return None
        first = {id(same[0]) for same in found.values()}
        return account.each(
            lambda x: (
                x
                if x.factor("layers") is None
                else x.with_factor("layers", 1)
                if id(x) in first
                else None
            )
        )

    return change


def _shift_layers(step: int) -> Change:
    """Count one layer more or less, of the kind that has most."""

    def change(_study: Study, account: Account) -> Account | None:
        found = _layers_of(account)
        most = {id(max(same, key=_layer_count)) for same in found.values()}
        if not found or any(_layer_count(x) + step < 1 for x in account.products if id(x) in most):
            return None
        return account.each(
            lambda x: x.with_factor("layers", _layer_count(x) + step) if id(x) in most else x
        )

    return change


def _layer_count(x: Product) -> int:
    return int(x.factor("layers") or 0)


def _untie(_study: Study, account: Account) -> Account | None:
    return account.each(lambda x: x._replace(tied=False))


def _norm_squares(_study: Study, account: Account) -> Account | None:
    def squared(x: Product) -> Product:
        out = x.factor("out")
        return x.with_factor("in", out) if _is_norm(x) and out is not None else x

    return account.each(squared)


def _norm_biases(_study: Study, account: Account) -> Account | None:
    if any(x.path.endswith("norm.bias") for x in account.products):
        return None
    return account.plus(
        x._replace(path="norm bias", role="bias")
        for x in account.products
        if _is_norm(x) and x.role == "scale"
    )


def _linear_biases(_study: Study, account: Account) -> Account | None:
    if any(x.role == "bias" and x.group in ("attention", "mlp") for x in account.products):
        return None
    found = [
        x._replace(
            path=f"{x.path} bias",
            factors=tuple(y for y in x.factors if y[0] != "in"),
            role="bias",
        )
        for x in account.products
        if x.role == "matmul" and x.group in ("attention", "mlp") and x.factor("in") is not None
    ]
    return account.plus(found) if found else None


def _learned_positions(study: Study, account: Account) -> Account | None:
    has_embedding = any(_EMBED(x) for x in account.products)
    if not has_embedding or study.tree.positions is not None or not study.tree.context:
        return None
    factors = (("out", Expr.const(study.context)), ("in", study.width))
    return account.plus([Product("positions", "embedding", factors, "lookup")])


def _rotary_buffers(study: Study, account: Account) -> Account | None:
    if study.attention is None or study.attention.rope is None or study.head_dim is None:
        return None
    layers = next((x.factor("layers") for x in account.products if _Q(x)), None)
    if layers is None:
        return None
    factors = (("layers", layers), ("out", Expr.const(int(study.head_dim) // 2)))
    return account.plus([Product("inv_freq", "attention", factors, "buffer")])


def _vocabulary(rows: int) -> Change:
    def change(study: Study, account: Account) -> Account | None:
        V, number = Expr.const(study.tree.vocab), Expr.factor(rows)
        if len(V.letters) != 1:
            return None
        return account.each(
            lambda x: x.with_letters({V.symbol: number}) if x.path in _TABLES else x
        )

    return change


def _experts(value: Callable[[Study], int | None]) -> Change:
    def change(study: Study, account: Account) -> Account | None:
        n = value(study)
        if n is None:
            return None

        def replaced(x: Product) -> Product:
            old = x.factor("copies")
            return x if x.group != "experts" or old is None else x.with_factor("copies", n)

        return account.each(replaced)

    return change


def _only_product(account: Account) -> Product | None:
    return account.products[0] if len(account.products) == 1 else None


def _sum_of_sides(_study: Study, account: Account) -> Account | None:
    x = _only_product(account)
    sides = [] if x is None else [y for name, y in x.factors if name in ("out", "in")]
    if x is None or len(sides) < 2 or len(x.factors) > 2:
        return None
    return Account(products=(x._replace(factors=(("out", sides[0] + sides[1]),)),))


def _square(side: str, other: str) -> Change:
    def change(_study: Study, account: Account) -> Account | None:
        x = _only_product(account)
        new = None if x is None else x.factor(other)
        if x is None or new is None or x.factor(side) is None:
            return None
        return Account(products=(x.with_factor(side, new),))

    return change


def _product_of_sizes(width: int) -> Change:
    def change(study: Study, account: Account) -> Account | None:
        is_most = 2 * account.number > study.weights().number  # all layers, or the whole
        if not is_most or study.heads is None:
            return None
        factors = (
            ("heads", study.heads),
            ("width", Expr.const(width)),
            ("context", Expr.const(2048)),
            ("d", study.width),
        )
        return Account(products=(Product("product of sizes", "", factors),))

    return change


WEIGHT_MISTAKES = (
    Mistake(
        name="no grouped heads",
        kinds=_HEADED,
        bits=1,
        change=_letters(kv_heads="heads"),
        sentence="all {H} heads have their own K and V here; {model} has {K}",
        made_in="meta-llama/llama#427, transformers#30381, “From 7B to 8B”",
    ),
    Mistake(
        name="a single K and V head",
        kinds=_HEADED,
        bits=4,
        change=_single_kv_head,
        sentence="one head of K and V serves all queries here (multi-query); {model} has {K}",
    ),
    Mistake(
        name="k and v forgotten",
        kinds=_WEIGHTS,
        bits=3,
        change=_drop(_KV),
        sentence="the matrices k and v are missing: attention has four matrices, q, k, v and o",
        made_in="“From 7B to 8B”",
    ),
    Mistake(
        name="v forgotten",
        kinds=_WEIGHTS,
        bits=4,
        change=_drop(_V),
        sentence="the matrix v is missing: keys and values have a matrix each",
    ),
    Mistake(
        name="o forgotten",
        kinds=_WEIGHTS,
        bits=3,
        change=_drop(_O),
        sentence="the matrix o is missing: a fourth matrix brings the heads back to the width {d}",
    ),
    Mistake(
        name="one head for all",
        kinds=_HEADED,
        bits=2,
        change=_letters(heads="1", kv_heads="1"),
        sentence="this is one head; {model} has {H} query heads and {K} of K and V",
    ),
    Mistake(
        name="all heads for one",
        kinds=("weights",),
        bits=3,
        change=_times("heads", lambda study: study.heads),
        sentence="this counts {H} heads once more: the matrices hold all heads already",
    ),
    Mistake(
        name="heads as wide as the model",
        kinds=_WEIGHTS,
        bits=3,
        change=_wide_heads,
        sentence="every head got a matrix of {d} × {d}: a head is only {h} wide, and all of them "
        "together make one matrix",
    ),
    Mistake(
        name="head size guessed",
        kinds=_HEADED,
        bits=2,
        change=_guessed_heads,
        sentence="a head of {model} is {h} wide, not {d} / {H} = {guess}",
    ),
    Mistake(
        name="two MLP matrices",
        kinds=_WEIGHTS,
        bits=2,
        change=_drop(lambda x: _GATE(x) and _is_mlp(x)),
        sentence="the gate is left out, as in an MLP without one; it is a matrix like up",
        made_in="“A hypothetical 405B”",
    ),
    Mistake(
        name="a gate that is not there",
        kinds=_WEIGHTS,
        bits=2,
        change=_add_gate,
        sentence="the MLP of {model} has no gate: two matrices, up and down",
    ),
    Mistake(
        name="an MLP of 4·d",
        kinds=_WEIGHTS,
        bits=2,
        change=_mlp_width(lambda study: 4 * study.width),
        sentence="the MLP is 4 · {d} = {four_d} wide here; that of {model} is {F}",
        made_in="“A hypothetical 405B”",
    ),
    Mistake(
        name="an MLP of 8/3·d",
        kinds=_WEIGHTS,
        bits=3,
        change=_mlp_width(lambda study: 8 * int(study.width) // 3),
        sentence="2/3 of 4·d is {third}, before it is rounded up: the width is {F}",
        made_in="engineermaxxing's workbook",
    ),
    Mistake(
        name="a square MLP",
        kinds=_WEIGHTS,
        bits=4,
        change=_mlp_width(lambda study: study.width),
        sentence="the matrices of the MLP are not square: they lead from {d} to {F} and back",
    ),
    Mistake(
        name="the old width 11,008",
        kinds=_WEIGHTS,
        bits=5,
        change=_mlp_width(lambda _study: 11008),
        sentence="11,008 is the width of the MLP of Llama 1 and 2 7B; that of {model} is {F}",
    ),
    Mistake(
        name="one layer for all",
        is_convention=True,
        kinds=(*_HEADED, "flops"),
        bits=2,
        change=_one_layer(of_all=True),
        sentence="this is one layer; {model} has {L}",
    ),
    Mistake(
        name="one layer of some",
        is_convention=True,
        kinds=(*_HEADED, "flops"),
        bits=2,
        change=_one_layer(of_all=False),
        sentence="this is one layer; several of the {L} layers of {model} have these weights",
    ),
    Mistake(
        name="all layers for one",
        is_convention=True,
        kinds=("weights", "cache"),
        bits=2,
        change=_all_layers,
        sentence="these are all {L} layers; the question is about one",
    ),
    Mistake(
        name="one layer too few",
        is_convention=True,
        kinds=_HEADED,
        bits=4,
        change=_shift_layers(-1),
        sentence="one layer is missing: the first one is layer 0, and counts like the others",
    ),
    Mistake(
        name="one layer too many",
        is_convention=True,
        kinds=_HEADED,
        bits=4,
        change=_shift_layers(1),
        sentence="this is one layer too many; embedding and head are no layers",
    ),
    Mistake(
        name="head forgotten",
        is_convention=True,
        kinds=_WEIGHTS,
        bits=1.5,
        change=_drop(lambda x: _HEAD(x) and not x.tied),
        sentence="the output head is missing: {V} × {d} numbers that are not tied to the embedding",
        made_in="accelerate estimate-memory, “Count the parameters in LLaMA v1” (LlamaModel has "
        "no head)",
    ),
    Mistake(
        name="tied head twice",
        is_convention=True,
        kinds=_WEIGHTS,
        bits=1,
        change=_untie,
        sentence="the head is tied: it is the embedding's matrix, and counts once",
        made_in="llama2.c#378",
    ),
    Mistake(
        name="embedding forgotten",
        is_convention=True,
        kinds=_WEIGHTS,
        bits=2,
        change=_drop(lambda x: _EMBED(x)),
        sentence="the embedding is missing: {V} rows of {d}",
    ),
    Mistake(
        name="both tables forgotten",
        is_convention=True,
        kinds=_WEIGHTS,
        bits=2.5,
        change=_drop(lambda x: x.path in _TABLES, least=2),
        sentence="embedding and head are missing: {V} × {d} each",
    ),
    Mistake(
        name="vocabulary of Llama 2",
        is_convention=True,
        kinds=_WEIGHTS,
        bits=4,
        change=_vocabulary(32000),
        sentence="32,000 is the vocabulary of Llama 1 and 2; that of {model} is {V}",
    ),
    Mistake(
        name="vocabulary of Llama 3",
        is_convention=True,
        kinds=_WEIGHTS,
        bits=4,
        change=_vocabulary(128256),
        sentence="128,256 is the vocabulary of Llama 3; that of {model} is {V}",
    ),
    Mistake(
        name="vocabulary of 128,000",
        is_convention=True,
        kinds=_WEIGHTS,
        bits=5,
        change=lambda study, account: (
            _vocabulary(128000)(study, account) if int(study.tree.vocab) == 128256 else None
        ),
        sentence="256 special tokens are missing: the table has 128,256 rows, not 128,000",
    ),
    Mistake(
        name="final norm forgotten",
        is_convention=True,
        kinds=_WEIGHTS,
        bits=2,
        change=_drop(lambda x: x.path in _FINAL_NORM),
        sentence="the norm after the last layer is missing: {d} numbers",
        made_in="“From 7B to 8B”",
    ),
    Mistake(
        name="norms forgotten",
        is_convention=True,
        kinds=_WEIGHTS,
        bits=2,
        change=_norms_forgotten,
        sentence="the norms are missing: they are small, but they have weights",
        made_in="“How can it be 7B and not 205B?”, “A hypothetical 405B”",
    ),
    Mistake(
        name="one norm in a layer",
        kinds=_WEIGHTS,
        bits=3,
        change=_drop(_of("mlp_norm")),
        sentence="a layer has a norm before attention and another one before the MLP",
    ),
    Mistake(
        name="norms as matrices",
        kinds=_WEIGHTS,
        bits=4,
        change=_norm_squares,
        sentence="a norm is no matrix: it scales each of the {d} numbers by one weight",
    ),
    Mistake(
        name="norms with biases",
        kinds=_WEIGHTS,
        bits=4,
        change=_norm_biases,
        sentence="these norms have no bias, as a LayerNorm has: one vector each, not two",
    ),
    Mistake(
        name="biases added",
        kinds=_WEIGHTS,
        bits=2.5,
        change=_linear_biases,
        sentence="the linear layers of {model} have no biases here: weights alone",
    ),
    Mistake(
        name="biases forgotten",
        is_convention=True,
        kinds=_WEIGHTS,
        bits=2.5,
        change=_drop(lambda x: x.role == "bias"),
        sentence="the biases are missing: {model} has some",
        made_in="“A hypothetical 405B”",
    ),
    Mistake(
        name="context in the weights",
        kinds=("weights",),
        bits=4,
        change=_times("context", lambda study: study.tree.context),
        sentence="the context of {C} tokens is in no weight: every position uses the same ones",
        made_in="“How can it be 7B and not 205B?”",
    ),
    Mistake(
        name="2,048 tokens in the weights",
        kinds=("weights",),
        bits=5,
        change=_times("context", lambda _study: 2048),
        sentence="a context of 2,048 tokens is in no weight: every position uses the same ones",
        made_in="“How can it be 7B and not 205B?”",
    ),
    Mistake(
        name="batch in the weights",
        kinds=("weights",),
        bits=5,
        change=_times("batch", lambda _study: 32),
        sentence="32 sequences of a batch share the same weights: the batch is in no count",
        made_in="“Decoding Llama 3”",
    ),
    Mistake(
        name="sizes multiplied, 766",
        kinds=("weights",),
        bits=3,
        change=_product_of_sizes(766),
        sentence="this is {H} heads × 766 × 2,048 tokens × {d}: a product of sizes, no count. The "
        "context is in no weight, the heads share the width, and 766 is nobody's width",
        made_in="ai.stackexchange 40592, “How can it be 7B and not 205B?”",
        alone=True,
    ),
    Mistake(
        name="sizes multiplied, 786",
        kinds=("weights",),
        bits=3,
        change=_product_of_sizes(786),
        sentence="this is {H} heads × 786 × 2,048 tokens × {d}: a product of sizes, no count. The "
        "context is in no weight, the heads share the width, and 786 is nobody's width",
        made_in="ai.stackexchange 40592, “How can it be 7B and not 205B?”",
        alone=True,
    ),
    Mistake(
        name="learned positions added",
        kinds=_WEIGHTS,
        bits=4,
        change=_learned_positions,
        sentence="{C} learned positions of {d} are counted here: {model} has no such table",
        made_in="“A hypothetical 405B”",
    ),
    Mistake(
        name="positions forgotten",
        is_convention=True,
        kinds=_WEIGHTS,
        bits=2.5,
        change=_drop(_of("positions")),
        sentence="the table of learned positions is missing",
    ),
    Mistake(
        name="rotary frequencies counted",
        kinds=_WEIGHTS,
        bits=4,
        change=_rotary_buffers,
        sentence="inv_freq is counted: rotary frequencies are computed, old files store them as "
        "buffers, and they are no parameters",
        made_in="“From 7B to 8B”",
    ),
    Mistake(
        name="one expert for all",
        kinds=_WEIGHTS,
        bits=2,
        change=_experts(lambda _study: 1),
        sentence="one expert is counted; a layer of {model} has {E}",
    ),
    Mistake(
        name="active for total",
        is_convention=True,
        kinds=_WEIGHTS,
        bits=1.5,
        change=_experts(lambda study: study.top_k),
        sentence="these are the {k} experts that a token uses; all {E} are stored",
    ),
    Mistake(
        name="total for active",
        kinds=_WEIGHTS,
        bits=1.5,
        change=_experts(lambda study: None if study.moe is None else len(study.moe.experts)),
        sentence="all {E} experts are counted; a token uses {k}",
    ),
    Mistake(
        name="router forgotten",
        kinds=_WEIGHTS,
        bits=3,
        change=_drop(lambda x: x.group == "router"),
        sentence="the router is missing: {E} rows of {d} in each layer with experts",
    ),
    Mistake(
        name="router's correction forgotten",
        is_convention=True,
        kinds=_WEIGHTS,
        bits=2,
        change=_drop(_of("mlp.correction")),
        sentence="the router's correction bias is missing: a buffer in classes, a tensor in files",
        made_in="transformers on DeepSeek-V3",
    ),
    Mistake(
        name="shared experts forgotten",
        kinds=_WEIGHTS,
        bits=3,
        change=_drop(lambda x: ".shared." in x.path),
        sentence="the shared expert is missing, which every token uses",
    ),
    Mistake(
        name="sides added",
        kinds=("weights",),
        bits=2,
        change=_sum_of_sides,
        sentence="rows and columns are added here; a matrix has rows × columns numbers",
    ),
    Mistake(
        name="a square of the inputs",
        kinds=("weights",),
        bits=4,
        change=_square("out", "in"),
        sentence="this matrix is not square: it has another number of outputs than of inputs",
    ),
    Mistake(
        name="a square of the outputs",
        kinds=("weights",),
        bits=4,
        change=_square("in", "out"),
        sentence="this matrix is not square: it has another number of inputs than of outputs",
    ),
)
