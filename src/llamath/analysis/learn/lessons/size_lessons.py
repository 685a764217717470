"""The lessons about Meta's arguments, causes, caches, FLOPs, bytes, experts and design."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ....checkpoint.meta_args import ModelArgs, config_to_args
from ....core.expr import Expr
from ....core.parameter_count import Section, WeightRow
from ....loading import load_family
from ....utils.errors import ConfigError
from ....utils.number_format import short_count
from ..account import Account, Product, of_factors
from ..exercise import Exercise
from ..lesson import Asker, Lesson, instead
from ..study import ModelStudy, iter_kinds, kind_with
from .weight_lessons import active_account


def _any(_study: ModelStudy) -> str:
    return ""


def _args(study: ModelStudy) -> ModelArgs | None:
    if study.model.family.name != "llama":
        return None
    try:
        return config_to_args(study.model.config)
    except ConfigError:
        return None


def _needs_args(study: ModelStudy) -> str:
    return "" if _args(study) else "Meta's ModelArgs cannot describe it"


def _needs_cache(study: ModelStudy) -> str:
    has_rows = any(x.rows for x in study.caches)
    return "" if has_rows else "it has no KV cache that grows, or its forward pass is not known"


def _needs_flops(study: ModelStudy) -> str:
    return "" if study.flops else "its forward pass is not known"


def _needs_experts(study: ModelStudy) -> str:
    has_experts = study.moe is not None and kind_with(study, _is_of_experts) is not None
    return "" if has_experts else "it has no experts"


def _is_of_experts(row: WeightRow) -> bool:
    return row.group == "experts" and int(row.copies) > 1


def _needs_one_kind(study: ModelStudy) -> str:
    kinds = list(iter_kinds(study))
    return "" if len(kinds) == 1 else "its layers are not all alike"


def _args_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker = Asker("modelargs", study)
    args = _args(study)
    assert args is not None
    H, d = args.n_heads, args.dim
    yield asker.ask(
        "head_dim",
        f"ModelArgs has dim = {d:,} and n_heads = {H}, and no head size. How wide is a head?",
        d // H,
        unit="numbers",
        kind="shape",
        hint="model.py: head_dim = dim // n_heads",
    )
    yield asker.ask(
        "n_kv_heads",
        f"n_kv_heads defaults to None. How many heads of keys and values does a model "
        f"with n_heads = {H} and n_kv_heads = None have?",
        H,
        unit="heads",
        kind="shape",
        hint="model.py: n_heads if n_kv_heads is None else n_kv_heads",
        mistakes=(
            instead("none at all", 0, "None does not mean none: it means as many as n_heads"),
            instead("one", 1, "None does not mean one: it means as many as n_heads"),
            instead(
                "the model's own",
                args.n_kv_heads if args.n_kv_heads != H else None,
                f"{args.n_kv_heads} is what {study.name} sets; the question leaves it None",
            ),
        ),
    )
    T, B = args.max_seq_len, args.max_batch_size
    cache = study.cache(T, B)
    yield asker.ask(
        "cache",
        f"model.py allocates its cache for max_batch_size = {B} sequences of max_seq_len = {T:,} "
        "tokens, in 16 bits. How many bytes is that?",
        cache,
        unit="bytes",
        kind="cache",
        given={"T": T, "B": B},
        hint="keys and values · layers · K·h · tokens · sequences · 2 bytes",
    )
    yield asker.ask(
        "weights",
        f"max_seq_len is {T:,}. It is doubled. How many parameters are added?",
        0,
        unit="parameters",
        kind="shape",
        hint="which matrix has a row or a column for each position?",
        why="The context is in no weight: the same matrices are applied at every position.",
        mistakes=(
            instead("a table of positions", T * d, "rotary positions are computed, not stored"),
        ),
    )


def _args_text(study: ModelStudy) -> Iterator[str]:
    args = _args(study)
    assert args is not None
    shown = {x: getattr(args, x) for x in ("dim", "n_layers", "n_heads", "n_kv_heads")}
    shown |= {x: getattr(args, x) for x in ("vocab_size", "multiple_of", "ffn_dim_multiplier")}
    words = ", ".join(f"{name}={value}" for name, value in shown.items())
    yield (
        "Meta's model.py describes a Llama by one record, ModelArgs; params.json holds its values."
    )
    yield f"{study.name}: ModelArgs({words})."
    yield (
        "Three things are not in it: the width of the MLP (a rule gives it), the size of a head "
        "(dim / n_heads), and the vocabulary (−1 until the tokenizer is known)."
    )
    yield "max_batch_size and max_seq_len size the cache, and no weight."


def _context_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker = Asker("context", study)
    C, d = study.context, study.width
    total = study.weights()
    learned = study.tree.positions is not None
    if not learned and study.tree.context:
        yield asker.ask(
            "double",
            f"{study.name} reads up to C = {C:,} tokens. A copy of it reads twice as many, with "
            "equal matrices. How many parameters does the copy have?",
            total,
            hint="which weight has a side of length C?",
            why="None has: every matrix is applied to each position alone.",
            mistakes=(
                instead(
                    "twice as many",
                    2 * int(total.value),
                    "the context is in no weight: nothing doubles",
                    kind="weights",
                ),
            ),
            given={"C": C},
        )
    q = [x for x in study.layer_weights().products if x.path == "attn.q.weight"]
    if q and study.heads is not None and study.head_dim is not None:
        yield asker.ask(
            "all positions",
            "The matrix q is applied to 2,048 tokens at once. How many weights take part?",
            Account(products=tuple(q)),
            hint="the same matrix for each token",
        )
        yield asker.ask(
            "concatenated",
            f"The {int(study.heads)} heads give {int(study.head_dim)} numbers each for a "
            "token. How "
            "many numbers does o read?",
            Account(products=(of_factors("o", heads=study.heads, out=study.head_dim),)),
            unit="numbers",
            kind="shape",
            hint="they are put one behind the other",
            mistakes=(
                instead(
                    "heads times width",
                    int(study.heads) * int(d),
                    "a head does not have the whole width: it has a share of it",
                ),
            ),
        )
    matmuls = study.weights(lambda s, row: s.name == "layers" and row.weight.role == "matmul")
    yield asker.ask(
        "blocks",
        "So how many parameters do the matrices of all layers have together?",
        matmuls,
        hint="attention and MLP of a layer, times the layers",
        why="The answer on StackExchange counts these: 6,476,005,376 for LLaMA 7B."
        if int(matmuls.value) == 6_476_005_376
        else "",
    )


def _context_text(_study: ModelStudy) -> Iterator[str]:
    yield (
        "Somebody multiplied heads × width × context × width and got 205 billion for a model of 7 "
        "billion. What was wrong?"
    )
    yield (
        "Every matrix is applied to each position alone, the same for all. Positions meet only in "
        "attention, in scores q·k, which are computed and have no weights. The heads share the "
        "width: their results are put one behind the other."
    )


def _other(study: ModelStudy) -> ModelStudy:
    slug = "llama-3-8b" if study.name == "Llama 2 7B" else "llama-2-7b"
    return ModelStudy.of(load_family(slug))


def _marked(account: Account) -> Account:
    """Return the account of the old model, whose letters are written with a prime."""

    def primed(x: Product) -> Product:
        names = {y for _, e in x.factors for y in e.letters}
        values = {
            y: Expr(f"{y}′", e.letters[y]) for _, e in x.factors for y in names if y in e.letters
        }
        return x.with_letters(values)

    return account.each(primed)


def _minus(new: Account, old: Account) -> Account:
    gone = _marked(old).products
    return Account(products=(*new.products, *(x.with_factor("sign", -1) for x in gone)))


def _in_groups(names: tuple[str, ...]) -> Callable[[Section, WeightRow], bool]:
    return lambda _section, row: row.group in names


def _difference_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker, old = Asker("difference", study), _other(study)
    given = {f"{x}′": n for x, n in old.letters.items()}
    groups = {
        "vocabulary": (("embedding", "head"), "embedding and head"),
        "attention": (("attention",), "attention, all layers together"),
        "mlp": (("mlp", "experts", "router"), "the MLP (experts included), all layers together"),
        "norms": (("norm",), "the norms"),
    }
    for name, (chosen, words) in groups.items():
        yield asker.ask(
            name,
            f"{old.name} → {study.name}: how many parameters are added by {words}? "
            "(Negative if some are lost.)",
            _minus(
                study.weights(_in_groups(chosen)),
                old.weights(_in_groups(chosen)),
            ),
            kind="difference",
            hint="count both, and subtract the old from the new",
            why="k and v shrank; “From 7B to 8B” leaves that out."
            if name == "attention" and study.name == "Llama 3 8B"
            else "",
            core=name != "norms",
            given=given,
        )
    yield asker.ask(
        "all",
        f"{old.name} → {study.name}: how many parameters are added in all?",
        _minus(study.weights(), old.weights()),
        kind="difference",
        hint="the sum of the causes, or the difference of the totals",
        given=given,
    )


def _difference_text(study: ModelStudy) -> Iterator[str]:
    old = _other(study)
    yield (
        f"Why has {study.name} another number of parameters than {old.name}? Not “because it is "
        "larger”: each group of weights has its own reason, and some may shrink."
    )
    pairs = (
        ("V, the vocabulary", old.tree.vocab, study.tree.vocab),
        ("d, the width", old.width, study.width),
        ("F, the width of the MLP", old.mlp_width, study.mlp_width),
        ("K, the heads of keys and values", old.kv_heads, study.kv_heads),
        ("L, the layers", len(old.tree.layers), len(study.tree.layers)),
    )
    for name, a, b in pairs:
        if a is not None and b is not None:
            yield f"{name}: {int(a):,} → {int(b):,}"


def _contexts(study: ModelStudy) -> list[int]:
    own = study.context
    return sorted({n for n in (2048, 8192, 32768, 131072) if n <= own} | {min(own, 131072)})


def _tokens(n: int) -> str:
    return f"{n:,} tokens ({n // 1024}k)" if n % 1024 == 0 else f"{n:,} tokens"


def _kept_tokens(study: ModelStudy, n: int) -> str:
    """Return what layers keep of n tokens where it is not all of them, as a sentence that follows
    another one.
    """
    of = int(study.tree.layers.n)
    kept = [
        (int(x.layers), f"the last {tokens:,} tokens alone" if x.every == 1 else f"{tokens:,} rows")
        for x in study.caches
        if x.rows and (tokens := int(x.tokens(n))) < n
    ]
    if [layers for layers, _ in kept] == [of]:
        return f" Each layer keeps {kept[0][1]}."
    parts = ", ".join(f"{layers:,} keep {what}" for layers, what in kept)
    return f" Of its {of:,} layers {parts}." if kept else ""


def _cache_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker = Asker("cache", study)
    hint = "for each layer, keys and values of K heads of h numbers; 2 bytes each"
    if study.latent is not None and study.attention is None:
        hint = "for each layer, one latent vector and the rotary key; 2 bytes each"
    yield asker.ask(
        "token",
        "How many bytes does the KV cache need for one token in bf16 (2 bytes a number)?",
        study.cache(1),
        unit="bytes",
        kind="cache",
        hint=hint,
    )
    contexts = _contexts(study)
    for i, n in enumerate(contexts):
        yield asker.ask(
            f"context {n}",
            f"How many bytes is the cache of one sequence of {_tokens(n)} in bf16?"
            + _kept_tokens(study, n),
            study.cache(n),
            unit="bytes",
            kind="cache",
            given={"T": n},
            hint="the bytes of a token, times the tokens"
            + (", of a window at most its own" if study.window else ""),
            core=i == len(contexts) - 1,
        )
    n, B = contexts[0], 8
    yield asker.ask(
        "batch",
        f"How many bytes is the cache of {B} sequences of {_tokens(n)} at once, in bf16?"
        + _kept_tokens(study, n),
        study.cache(n, B),
        unit="bytes",
        kind="cache",
        given={"T": n, "B": B},
        hint="each sequence has a cache of its own",
    )
    yield asker.ask(
        "one byte",
        f"How many bytes is the cache of one sequence of {_tokens(n)} in fp8 (1 byte a number)?"
        + _kept_tokens(study, n),
        study.cache(n, 1, 1),
        unit="bytes",
        kind="cache",
        given={"T": n},
        hint="half of bf16",
        core=False,
    )
    K, H = study.kv_heads, study.heads
    if K is not None and H is not None and int(K) != int(H) and len(K.letters) == 1:
        n = contexts[-1]
        full = study.cache(n).each(lambda x: x.with_letters({K.symbol: H}))
        yield asker.ask(
            "multi-head",
            f"If each of the {int(H)} query heads had its own keys and values, how many bytes "
            f"would {_tokens(n)} need?{_kept_tokens(study, n)}",
            full,
            unit="bytes",
            kind="cache",
            given={"T": n},
            hint="H in the place of K",
            mistakes=(
                instead(
                    "the model as it is",
                    int(study.cache(n).value),
                    f"this is the cache of {study.name} as it is",
                    kind="cache",
                ),
            ),
        )


def _cache_text(study: ModelStudy) -> Iterator[str]:
    yield (
        "A token looks at the keys and values of all tokens up to itself. They do not change, so "
        "they are kept: the KV cache. It grows with each token of each sequence, and has no "
        "weights."
    )
    if study.attention is not None and study.kv_heads is not None:
        yield (
            f"A layer keeps K·h numbers as keys and as many as values for each token: "
            f"K = {int(study.kv_heads)} here."
        )
    yield "1k of tokens is 1,024 here; a GB is 10⁹ bytes, a GiB 2³⁰."


def _flops_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker = Asker("flops", study)
    groups = study.flops
    assert groups is not None
    accounts = {
        name: Account(products=(Product(name, "flops", (("flops", x),)),))
        for name, x in groups.items()
    }
    q = [x for x in study.layer_weights().products if x.path == "attn.q.weight"]
    if q:
        one = Account(products=tuple(x._replace(group="flops").with_factor("two", 2) for x in q))
        yield asker.ask(
            "matrix",
            "How many FLOPs does the matrix q of one layer take for one token? (A multiplication "
            "and an addition are two.)",
            one,
            unit="FLOPs",
            kind="flops",
            hint="two for each weight",
        )
    spoken = {
        "attention": "attention, all layers together,",
        "mlp": "the MLP, all layers together,",
        "experts": "the chosen experts, all layers together,",
        "head": "the output head",
    }
    for name, words in spoken.items():
        if name in accounts:
            yield asker.ask(
                name,
                f"How many FLOPs do the matrices of {words} take for one token?",
                accounts[name],
                unit="FLOPs",
                kind="flops",
                hint="two for each weight that the token meets",
                core=name == "head",
            )
    whole = Account(products=tuple(x for y in accounts.values() for x in y.products))
    yield asker.ask(
        "token",
        f"How many FLOPs do all matrices of {study.name} take for one token, without the scores of "
        "attention?",
        whole,
        unit="FLOPs",
        kind="flops",
        hint="two for each weight of a matrix; the embedding is looked up, norms are left out",
        mistakes=(
            instead(
                "2·N with the embedding",
                2 * int(study.model.text.parameters.active),
                "this is 2 · parameters: the embedding is looked up, and norms are no matrices",
                kind="flops",
            ),
        ),
    )


def _flops_text(_study: ModelStudy) -> Iterator[str]:
    yield (
        "A matrix of out × in weights makes out sums of in products: a multiplication and an "
        "addition for each weight, two FLOPs. So a token costs about two FLOPs for each weight "
        "that it meets."
    )
    yield "Training costs three times as much: the way back takes two products for each one."


def _bytes_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker = Asker("bytes", study)
    total = int(study.weights().value)
    N = Expr("N", total)
    given = {"N": total}
    for name, size, words, core in (
        ("bf16", 2, "bf16 (16 bits each)", True),
        ("fp32", 4, "fp32 (32 bits each)", False),
        ("int8", 1, "int8 (8 bits each), without scales", False),
    ):
        account = Account(products=(of_factors("N", weights=N, bytes=Expr.factor(size)),))
        yield asker.ask(
            name,
            f"{study.name} has N = {total:,} parameters. How many bytes are they in {words}?",
            account,
            unit="bytes",
            kind="bytes",
            hint="8 bits are a byte",
            core=core,
            given=given,
        )
    d = study.width
    F = study.mlp_width or d
    if int(d) % 32 == 0:
        blocks = Account(
            products=(
                Product(
                    "mlp.up.weight",
                    "mlp",
                    (
                        ("out", F),
                        ("blocks", Expr("b", int(d) // 32)),
                        ("bytes", Expr.factor(18)),
                    ),
                ),
            )
        )
        yield asker.ask(
            "q4_0",
            "Q4_0 stores 32 weights in a block of 18 bytes: 16 for the weights, 2 for a "
            "scale. A row "
            f"of d = {int(d):,} weights has b = {int(d) // 32:,} blocks. How many bytes does "
            f"a matrix of F = {int(F):,} rows take?",
            blocks,
            unit="bytes",
            kind="bytes",
            hint="rows · blocks of a row · 18",
            given={"b": int(d) // 32},
            why="4.5 bits for each weight, not 4.",
        )
    card = 24 * 2**30
    yield asker.ask(
        "fits",
        "A card has 24 GiB. How many parameters of 2 bytes fill it, without a cache?",
        card // 2,
        unit="parameters",
        kind="shape",
        hint="24 · 2³⁰ bytes, 2 for each",
        mistakes=(
            instead("GB for GiB", 12 * 10**9, "these are 24 GB of 10⁹ bytes; a GiB has 2³⁰"),
            instead("bytes for parameters", card, "these are the bytes; each parameter has two"),
            instead("4 bytes", card // 4, "this is fp32, 4 bytes for each"),
        ),
    )


def _bytes_text(_study: ModelStudy) -> Iterator[str]:
    yield (
        "A parameter is a number, and a number has bits: 32 in fp32, 16 in bf16 and fp16, 8 in fp8 "
        "and int8, about 4.5 in Q4. 8 bits are a byte."
    )
    yield (
        "Two units look alike: a GB is 10⁹ bytes, a GiB 2³⁰, 7% more. Cards have GiB, disks GB. "
        "Weights, cache and buffers must fit together."
    )


def _expert_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker = Asker("experts", study)
    moe, k = study.moe, study.top_k
    assert moe is not None and k is not None
    section = kind_with(study, _is_of_experts)
    layer = study.layer_weights(section=section)
    experts = Account(products=tuple(x for x in layer.products if x.group == "experts"))
    one = experts.each(
        lambda x: x._replace(factors=tuple(y for y in x.factors if y[0] != "copies"))
    )
    E = len(moe.experts)
    yield asker.ask(
        "one",
        "How many parameters does one expert have?",
        one,
        hint=f"{len(one.products)} matrices, like those of an MLP",
        mistakes=(
            instead(
                "all experts for one",
                int(experts.value),
                f"these are all {E} experts of a layer",
                kind="weights",
            ),
        ),
    )
    yield asker.ask(
        "layer",
        f"A layer has {E} experts. How many parameters do they have together?",
        experts,
        hint="one expert, times E",
    )
    router = Account(products=tuple(x for x in layer.products if x.path == "mlp.router.weight"))
    if router.products:
        yield asker.ask(
            "router",
            "The router gives each token a score for each expert. How many parameters does it "
            "have, in one layer?",
            router,
            hint="a matrix from d to E",
        )
    yield asker.ask(
        "total",
        f"How many parameters does {study.name} have in all?",
        study.weights(),
        hint="all experts are stored, used or not",
    )
    yield asker.ask(
        "active",
        f"A token passes through {int(k)} of {E} experts in each layer with experts. How many "
        "parameters does it use (the whole embedding counted)?",
        active_account(study),
        hint="the total, with k experts in the place of E",
    )


def _expert_text(study: ModelStudy) -> Iterator[str]:
    moe, k = study.moe, study.top_k
    assert moe is not None and k is not None
    yield (
        f"In a mixture of experts a layer has E = {len(moe.experts)} MLPs, and a router sends each "
        f"token to k = {int(k)} of them. All are stored, few are used: the total says how much "
        "memory it takes, the active parameters how long a token takes."
    )
    if moe.shared is not None:
        yield "A shared expert is used by every token, besides those chosen."


_TARGETS = (10**9, 8 * 10**9, 70 * 10**9, 405 * 10**9, 10**12, 10**13)


def _design_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker = Asker("design", study)
    layer, total = study.layer_weights(), study.weights()
    outside = study.weights(lambda s, _row: s.name != "layers")
    qkv = Account(products=tuple(x for x in layer.products if x.path in _QKV))
    if qkv.products:
        yield asker.ask(
            "qkv",
            "How many parameters do q, k and v of a layer have together?",
            qkv,
            hint="three matrices",
        )
    for name in ("attention", "mlp"):
        part = Account(products=tuple(x for x in layer.products if x.group == name))
        if part.products:
            yield asker.ask(
                name,
                "How many parameters does "
                f"{'the attention' if name == 'attention' else 'the MLP'} of a layer have?",
                part,
                hint="its matrices (and biases, if it has some)",
            )
    yield asker.ask(
        "layer", "How many parameters does one layer have?", layer, hint="all that repeats"
    )
    yield asker.ask(
        "outside",
        "How many parameters are outside of the layers?",
        outside,
        hint="embedding, head, positions, final norm",
    )
    yield asker.ask(
        "total",
        "How many parameters does the whole model have?",
        total,
        hint="layers · one layer + the rest",
    )
    each, rest = int(layer.value), int(outside.value)
    target = next((x for x in _TARGETS if x >= int(total.value)), _TARGETS[-1])
    layers = (2 * (target - rest) + each) // (2 * each)
    if layers > 0:
        name = short_count(target).replace(".00", "").replace(".0", "")
        yield asker.ask(
            "depth",
            f"You want {name} = {target:,} parameters and keep everything but the number of "
            "layers. "
            "How many layers come nearest?",
            layers,
            unit="layers",
            kind="shape",
            hint=f"({target:,} − what is outside) / one layer, rounded",
            mistakes=(
                instead(
                    "tables not subtracted",
                    (2 * target + each) // (2 * each),
                    "embedding and head are not subtracted before dividing",
                    bits=2,
                ),
                instead("the model's own", len(study.tree.layers), "this is what it has now"),
            ),
        )
    doubled = _doubled(study, layer)
    if doubled is not None:
        yield asker.ask(
            "twice as wide",
            "All widths double (d, F and the number of heads). How many parameters does "
            "a layer have then?",
            doubled,
            hint="a matrix has two sides, a norm one",
            given={x: n for x, n in doubled.value.letters.items() if x.endswith("′")},
            mistakes=(
                instead(
                    "twice",
                    2 * each,
                    "a matrix has two sides, and both double: four times as many",
                    kind="weights",
                ),
            ),
        )


_QKV = ("attn.q.weight", "attn.k.weight", "attn.v.weight")


def _doubled(study: ModelStudy, layer: Account) -> Account | None:
    doubled: dict[str, int] = {}
    for x in (study.width, study.heads, study.kv_heads, study.mlp_width):
        if x is None or len(x.letters) != 1:
            return None
        doubled[x.symbol] = Expr(f"{x.symbol}′", 2 * int(x))
    if study.moe is not None or study.latent is not None or study.recurrence is not None:
        return None
    return layer.each(lambda x: x.with_letters(doubled))


def _design_text(study: ModelStudy) -> Iterator[str]:
    yield (
        "Design is counting backwards: a target, and the dimensions that reach it. Layers add in "
        "equal steps, widths count twice in every matrix, tables grow with the vocabulary."
    )
    if study.name == "Classic 405B":
        yield (
            "“A hypothetical 405B” looks for a classic transformer: two MLP matrices of 4·d, every "
            "head with its own K and V, learned positions, a tied head. Llama 3.1 405B is "
            "126 layers "
            "of width 16,384 with 8 heads of keys and values instead."
        )


SIZE_LESSONS = (
    Lesson(
        name="modelargs",
        title="ModelArgs",
        model="llama-3-8b",
        lacks=_needs_args,
        explain=_args_text,
        exercises=_args_exercises,
    ),
    Lesson(
        name="context",
        title="Why not 205 billion",
        model="llama-1-7b",
        lacks=_any,
        explain=_context_text,
        exercises=_context_exercises,
    ),
    Lesson(
        name="difference",
        title="7B → 8B by causes",
        model="llama-3-8b",
        lacks=_any,
        explain=_difference_text,
        exercises=_difference_exercises,
    ),
    Lesson(
        name="cache",
        title="The KV cache",
        model="llama-3.1-70b",
        lacks=_needs_cache,
        explain=_cache_text,
        exercises=_cache_exercises,
    ),
    Lesson(
        name="flops",
        title="FLOPs of a token",
        model="llama-3-8b",
        lacks=_needs_flops,
        explain=_flops_text,
        exercises=_flops_exercises,
    ),
    Lesson(
        name="bytes",
        title="Bits, bytes and what fits",
        model="llama-3-8b",
        lacks=_any,
        explain=_bytes_text,
        exercises=_bytes_exercises,
    ),
    Lesson(
        name="experts",
        title="Experts and active parameters",
        model="mixtral-8x7b",
        lacks=_needs_experts,
        explain=_expert_text,
        exercises=_expert_exercises,
    ),
    Lesson(
        name="design",
        title="Designing 405B",
        model="classic-405b",
        lacks=_needs_one_kind,
        explain=_design_text,
        exercises=_design_exercises,
    ),
)
