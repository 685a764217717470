"""`stop_exercises`: what the tour asks at each of its stops: what the idea of the stop says of a
number, the parameters that the stop adds, and the numbers, FLOPs and cached bytes of its steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ....core.attention_facts import AttentionWindow
from ....core.expr import (
    Alias,
    Expr,
    as_number,
    ceil_log2,
    choose_if_less,
    product,
    total,
    written_floor_div,
)
from ....utils.number_format import format_list
from ...graph.recorder import Graph, record
from ...graph.steps import Step
from ...graph.walkthrough import WalkthroughStage, reads_on, walkthrough
from ..account import Account, Product, of_factors
from ..diagnosis import term_name, wrong_accounts
from ..exercise import Exercise
from ..lesson import Asker, instead
from ..mistake import Mistake
from ..study import BF16_BYTES, ModelStudy
from .stop_places import adds_to_stream
from .tour import Stop, Tour

TOKENS = 1000
"""The tokens T of a question about scores and FLOPs."""
COUNT_SO_FAR = "count so far"
SO_FAR = "this is the count of all stops up to this one"
"""The mistake of the parameters up to a stop: its name, and what is said of it."""
_MOST_MISTAKES, _MOST_BITS = {"weights": 4}, 4
_SHAPES = {"scores"}
"""Stops with a further question: how many numbers a result has."""
_PRODUCTS = {"qkv", "compress", "mixer_in", "gate_up", "experts"}
"""The stops whose products with matrices are asked for in FLOPs; the others are alike."""
_CORE = {"embedding", "qkv", "compress", "expand", "mixer_in", "gate_up", "experts", "logits"}
"""The stops whose parameters the terminal asks for."""


def stop_exercises(tour: Tour) -> Mapping[str, Sequence[Exercise]]:
    """Return the exercises of each stop: those of its idea first."""
    asking = _Asking(tour)
    return {x.name: tuple(asking.exercises(x)) for x in tour.stops}


def named_mistakes(exercise: Exercise, most: int = 0) -> Sequence[tuple[Expr, Mistake]]:
    """Return the most likely whole numbers that mistakes make of an exercise, as expressions."""
    found: dict[int, tuple[Expr, Mistake]] = {}
    for mistake, wrong in sorted(wrong_accounts(exercise), key=lambda x: x[0].bits):
        is_likely = mistake.bits <= _MOST_BITS
        if is_likely and wrong.number.denominator == 1 and wrong.number > 0:
            found.setdefault(int(wrong.number), (_scaled(wrong), mistake))
    return list(found.values())[: most or _MOST_MISTAKES.get(exercise.kind, 3)]


def _scaled(wrong: Account) -> Expr:
    whole = wrong.value * wrong.scale.numerator
    of = wrong.scale.denominator
    return whole if of == 1 else written_floor_div(whole, of)


class _Reason(NamedTuple):
    """Why an answer is right, and what numbers below and above it were taken for."""

    why: str
    below: str
    above: str


_REASONS = {
    "token": _Reason(
        "with b bits there are 2ᵇ ids: one bit less is too few for V, and one more is not needed",
        "with so few bits two tokens would have one id",
        "fewer bits are enough for V ids",
    ),
    "embedding": _Reason(
        "each of the T tokens has a row of d numbers; the stream keeps this shape up to the head",
        "each of the T tokens has d numbers of its own",
        "the stream has d numbers for each of the T tokens, and no others",
    ),
    "norm": _Reason(
        "the root of that very mean is what x was divided by",
        "the mean of squares that are divided by their own mean is not smaller than 1",
        "the mean of squares that are divided by their own mean does not depend on x",
    ),
    "rope": _Reason(
        "two numbers turn together, by one angle",
        "every two of the numbers that turn make a pair",
        "a pair has two numbers, and there are only those of one head",
    ),
    "state": _Reason(
        "every head, or every channel, has a state of its own, whose size no text changes",
        "every head, or every channel, has a state of its own",
        "one layer is asked for, and its state does not grow with the text",
    ),
    "softmax": _Reason(
        "the first token reads its own key alone, and each further one reads one more",
        "a token reads its own key and every one before it that the layer still sees",
        "keys after a token's own are masked",
    ),
    "masked window": _Reason(
        "the first token reads its own key alone, and each further one reads one more until the "
        "window is full",
        "a token reads its own key and every one before it that the layer still sees",
        "keys after a token's own are masked, and those older than the window",
    ),
    "window": _Reason(
        "the keys that it reads end with its own",
        "keys that are older are masked",
        "it reads keys that are older",
    ),
    "router": _Reason(
        "each layer with experts has a router of its own, which keeps k of them",
        "every layer with experts has a router of its own, and a token passes all k that it keeps",
        "experts that a router does not keep are not computed",
    ),
    "next_layer": _Reason(
        "each branch of each layer adds its result once, and nothing else writes into the stream",
        "a layer has more than one branch, or the model more layers",
        "only branches add to the stream, each of them once",
    ),
    "next_token": _Reason(
        "nothing is drawn: the likeliest token always wins",
        "some token must follow",
        "without randomness only the likeliest token can win",
    ),
    "pairs": _Reason(
        "every query of every head has a score for each key",
        "a head, a query or a key is left out: each pair of tokens has a score in each head",
        "each pair of tokens has one score in each head, and no more",
    ),
    "shape": _Reason(
        "it is what the step leaves for one token, all heads together",
        "this leaves out a part of what one token has: all heads and channels count",
        "this is more than one token has: the other tokens have numbers of their own",
    ),
    "cache": _Reason(
        "each number that is kept takes two bytes, and every token has its own",
        "this leaves out some of what is kept, or counts one byte for each number",
        "this counts more than what one layer keeps of one token",
    ),
    "products": _Reason(
        "each weight is multiplied once and added once: two FLOPs",
        "a multiplication and an addition are two FLOPs, for every weight of the matrices",
        "one token meets each weight of these matrices once",
    ),
    "conv": _Reason(
        "each product is a multiplication and an addition: two FLOPs",
        "a multiplication and an addition are two FLOPs, in every channel and for every token that "
        "it mixes",
        "one token is asked for, in one layer",
    ),
    "flops": _Reason(
        "each product is a multiplication and an addition: two FLOPs",
        "a multiplication and an addition are two FLOPs, in every head and for every key it reads",
        "one token is asked for, and the keys that it reads in one layer",
    ),
}


class _Asking:
    """The passes that the questions of a tour are about."""

    def __init__(self, tour: Tour) -> None:
        self.tour, self.study = tour, ModelStudy.of(tour.model)
        self.asker = Asker("token", self.study)
        tree, tokens = self.study.tree, Expr("T", TOKENS)
        self.prompt = walkthrough(record(tree, batch=1, new_tokens=tokens, past_tokens=NONE)).stages
        self.first, self.next = (
            walkthrough(self._decode(x)).stages if reads_on(tree) else ()
            for x in (NONE, tokens - 1)
        )

    def _decode(self, past: Expr) -> Graph:
        return record(self.study.tree, batch=1, past_tokens=past, decode=True)

    def exercises(self, stop: Stop) -> Iterator[Exercise]:
        asked = [*self._idea(stop), *self._parameters(stop), *self._cache(stop)]
        yield from asked
        if not asked or stop.name in _SHAPES:
            yield from self._shape(stop)
        yield from self._flops(stop)

    def _steps(self, stop: Stop, stages: Iterable[WalkthroughStage]) -> Sequence[Step]:
        """Return the steps of a stop in the stage that shows it."""
        stage = next((x for x in stages if _shows(x, stop.place)), None)
        return () if stage is None else [x for x in stage.steps if x.name in stop.steps]

    def _parameters(self, stop: Stop) -> Iterator[Exercise]:
        if not stop.adds.value:
            return
        adds = self.study.weights(partial(self.tour.adds, stop.name))
        if adds.number != stop.adds.value:  # of a tower, which the text does not pass
            adds = _one(stop.adds.value)
        names = list(dict.fromkeys(map(term_name, adds.products)))
        times = ", times the layers that have them" if stop.place.isdigit() else ""
        yield self.asker.ask(
            stop.name,
            f"A token of {self.study.name} comes to the stop “{stop.title}”. How many parameters "
            "does this stop add to the count, in all layers together?",
            adds,
            hint=f"the weights of {format_list(names, 8)}{times}",
            why=f"Counted are the weights of {format_list(names, 8)}{times}.",
            mistakes=(
                instead(
                    COUNT_SO_FAR,
                    stop.so_far if stop.so_far > stop.adds.value else None,
                    SO_FAR,
                    kind="weights",
                ),
            ),
            core=stop.name in _CORE,
        )

    def _ask(
        self,
        stop: Stop,
        kind: str,
        text: str,
        account: Account,
        unit: str,
        reason: _Reason,
        mistakes: Sequence[tuple[str, Expr | int | None]] = (),
    ) -> Exercise:
        return self.asker.ask(
            f"{stop.name} {kind}",
            text,
            account,
            unit=unit,
            kind=kind,
            hint=stop.formula or stop.what,
            **reason._asdict(),
            mistakes=[instead(says, number, says, kind=kind) for says, number in mistakes],
            core=False,
            given={"T": TOKENS} if "T = " in text else {},
        )

    def _idea(self, stop: Stop) -> Iterator[Exercise]:
        steps = self._steps(stop, self.prompt)
        node = next((x.node for x in steps if x.node is not None), None)
        study, name = self.study, stop.name

        def ask(
            text: str,
            answer: Expr | int,
            unit: str,
            *mistakes: tuple[str, Expr | int | None],
            reason: str = name,
        ) -> Exercise:
            return self._ask(stop, "shape", text, _one(answer), unit, _REASONS[reason], mistakes)

        vocabulary = Expr.const(study.tree.vocab)
        if name == "token":
            bits = ceil_log2(vocabulary)
            less = as_number(bits) - 1
            yield ask(
                f"How many bits does an id need, so that each of the V = {vocabulary:,} tokens has "
                "one of its own?",
                bits,
                "bits",
                (f"2^{less} ids are fewer than V", bits - 1),
                ("this is the number of tokens; with b bits there are 2ᵇ ids", vocabulary),
            )
        elif name == "embedding":
            width = Expr.const(study.width)
            yield ask(
                f"How many numbers are in the stream after this stop, for T = {TOKENS:,} tokens?",
                width * Expr("T", TOKENS),
                "numbers",
                ("this is one token", width),
                ("this is the whole table; a token reads one of its rows", width * vocabulary),
            )
        elif name == "norm" and node is not None and node.op.name == "rms_norm":
            yield ask(
                "What is the mean of the squares of x after it is divided by its rms?",
                1,
                "",
                ("this is the sum of the squares; their mean is asked", study.width),
            )
        elif name == "rope" and node is not None and (rope := node.attributes.get("rope")):
            dim = Expr.const(rope.dim)
            yield ask(
                "How many pairs of numbers turn in one head of q?",
                dim.exact_div(2) if dim.letters else dim // 2,
                "pairs",
                ("these are the numbers; two of them turn together", dim),
            )
        elif name == "softmax" and (window := _window_of(steps)) is not None:
            unmasked, pairs = _unmasked_scores(window), TOKENS * TOKENS
            half = pairs // 2 if 2 * unmasked == pairs + TOKENS else None
            yield ask(
                f"A text has T = {TOKENS:,} tokens. How many scores of one head in this layer are "
                "not masked?",
                unmasked,
                "scores",
                ("a token reads its own key, too", unmasked - TOKENS),
                ("these are all pairs, the masked ones, too", pairs),
                ("this is half of all pairs; a token reads its own key, too", half),
                reason="softmax" if window.max_lookback is None else "masked window",
            )
        elif name == "state" and (states := [x.state for x in study.caches if x.state is not None]):
            yield ask(
                "How many numbers are in the state of one layer, for one sequence?",
                states[0],
                "numbers",
                ("a state does not grow with the tokens", states[0] * Expr("T", TOKENS)),
            )
        elif name == "window" and study.window is not None and study.window.max_lookback:
            at = 2 * (size := study.window.max_lookback)
            if study.tree.context is not None:  # the last position, where the context is shorter
                last = study.tree.context - 1
                at = choose_if_less(last, at, last, at)
            oldest = at - (at % size if study.window.chunk else size - 1)
            yield ask(
                "Positions begin at 0. Which is the oldest position that the token at position "
                f"{at:,} reads in a layer with {'chunks' if study.window.chunk else 'the window'}?",
                oldest,
                "",
                ("its own position is in the window, too", None if oldest == at else at - size),
                ("all older keys are masked here", 0),
            )
        elif name == "router" and study.moe is not None and study.top_k is not None:
            layers = _times(self.prompt, stop.steps)
            yield ask(
                "Through how many routed experts does a token pass, in all layers together?",
                study.top_k * layers,
                "experts",
                ("this is one layer", study.top_k if layers > 1 else None),
                ("all are stored, and a router chooses few", study.moe.experts.n * layers),
            )
        elif name == "next_layer" and (adds := _adds(self.prompt)):
            yield ask(
                "How many times is a result added to the stream, in all layers together?",
                adds,
                "times",
                ("this is the number of layers; a layer has several branches", study.tree.layers.n),
            )
        elif name == "next_token":
            yield ask(
                "At temperature 0, how many tokens can follow?",
                1,
                "tokens",
                (
                    "this is the whole vocabulary; temperature 0 takes the likeliest token",
                    vocabulary,
                ),
                ("the likeliest token is taken", 0),
            )

    def _shape(self, stop: Stop) -> Iterator[Exercise]:
        """Of scores, one number for each pair of tokens; of other results, those of a token."""
        of_numbers = (x for x in self._steps(stop, self.prompt) if _own(x.shape))
        step = next(of_numbers, None)
        if step is None:
            return
        name, heads = step.name.rpartition(".")[2], self.study.heads or 1
        is_of_pairs = sum("T" in x.letters for x in step.shape) > 1
        if is_of_pairs:
            sides = [x for x in step.shape if not _is_one(x)]
            answer = product(sides)
            text = (
                f"How many numbers does the step {name} give in one layer, for T = {TOKENS:,} "
                "tokens?"
            )
            tokens = Expr("T", TOKENS)
            mistakes: list[tuple[str, Expr | None]] = [
                ("this is one head, and each has its own", tokens * tokens),
                ("this is one query, and each of the T tokens has one", answer.exact_div(tokens)),
            ]
        else:
            answer = product(_own(step.shape))
            text = f"How many numbers does the step {name} give for each token?"
            table = answer * self.study.tree.vocab if step.kind == "lookup" else None
            mistakes = [
                ("this is the whole table; a token reads one of its rows", table),
                ("this is one head", answer.exact_div(heads)),
                ("these are T tokens", answer * Expr("T", TOKENS)),
            ]
        reason = _REASONS["pairs" if is_of_pairs else "shape"]
        yield self._ask(stop, "shape", text, _one(answer), "numbers", reason, mistakes)

    def _cache(self, stop: Stop) -> Iterator[Exercise]:
        later = {x.name: int(x.cached) for x in self._steps(stop, self.next)}
        # a state does not grow with the tokens
        kept = [x for x in self._steps(stop, self.first) if int(x.cached) < later.get(x.name, 0)]
        if kept:
            account = Account(
                products=tuple(
                    Product(
                        _cached_name(x),
                        "cache",
                        (("width", _of_one(x.cached)), ("bytes", Expr.factor(BF16_BYTES))),
                    )
                    for x in kept
                )
            )
            if not int(account.value):  # compressed: several tokens share one entry
                return
            text = "How many bytes does one layer cache for each token, in bf16?"
            K, H = self.study.kv_heads, self.study.heads
            cached = as_number(account.value)
            wide = None if K is None or H is None or K == H else cached // K * H
            says = f"keys and values of all query heads are kept here; there are {K} KV heads"
            every = as_number(self.study.cache(1).value)
            layers = every // cached
            together = f"this is the cache of {layers} layers together, as the stop shows it"
            yield self._ask(
                stop,
                "cache",
                text,
                account,
                "bytes",
                _REASONS["cache"],
                [(together, every if layers > 1 else None), (says, wide)],
            )

    def _flops(self, stop: Stop) -> Iterator[Exercise]:
        steps = [x for x in self._steps(stop, self.next) if int(x.flops)]
        is_product = all(x.kind == "linear" for x in steps)
        if not steps or stop.name == "state" or (is_product and stop.name not in _PRODUCTS):
            return
        names = format_list(dict.fromkeys(x.name.rpartition(".")[2] for x in steps))
        where = " in one layer" if stop.place.isdigit() else ""
        text = (
            f"How many FLOPs are spent on the products with {names} for a token{where}?"
            if is_product
            else f"How many FLOPs are spent on {names} for token T = {TOKENS:,}{where}?"
            + self._latents(stop)
        )
        account = Account(
            products=tuple(Product(x.name, "flops", (("flops", _of_one(x.flops)),)) for x in steps)
        )
        mistakes = [("these are T tokens", account.value * TOKENS)]
        reason = _REASONS["products" if is_product else "conv" if stop.name == "conv" else "flops"]
        yield self._ask(stop, "flops", text, account, "FLOPs", reason, mistakes)

    def _latents(self, stop: Stop) -> str:
        """Return what latent attention multiplies once a text is decoded token by token."""
        latent = self.study.latent
        if latent is None or stop.name not in ("scores", "mix"):
            return ""
        size = f"r = {latent.kv_lora_rank}"
        if stop.name == "scores" and latent.rope_dim:
            size += f" and p = {latent.rope_dim}"
        return f" Decoding meets the cached {size} numbers of each token in every head."


NONE = Expr.const(0)


def _of_one(x: Expr) -> Expr:
    """Return a number of one sequence, with the definitions of names such as A, its keys."""
    return total(
        product(
            (k, *(y.definition if isinstance(y, Alias) else Expr.of({(y,): 1}) for y in monomial))
        )
        for monomial, k in x.at(B=Expr.const(1)).terms.items()
    )


def _one(answer: Expr | int) -> Account:
    return Account(products=(of_factors("number", out=answer),))


def _shows(stage: WalkthroughStage, place: str) -> bool:
    if not place.isdigit():
        return stage.name == place
    n = int(place)
    return stage.name == "layers" and (
        stage.layer == n or any(a <= n <= b and (n - a) % c == 0 for a, b, c in stage.indices)
    )


def _own(shape: Iterable[Expr]) -> Sequence[Expr]:
    """Return the sides that are not of the tokens or the batch."""
    return [x for x in shape if not _is_one(x) and "T" not in x.letters]


def _is_one(x: Expr) -> bool:
    """Whether a side is left out of a product: not a dimension that happens to be 1."""
    return x == 1 and not x.letters


def _window_of(steps: Sequence[Step]) -> AttentionWindow | None:
    """Return the keys that each token of a text reads; None where it reads those after its own as
    well.
    """
    window: AttentionWindow | None = next(
        (x.node.attributes.get("window") for x in steps if x.kind == "softmax" and x.node), None
    )
    return None if window is None or not window.causal or window.after_prompt else window


def _unmasked_scores(window: AttentionWindow) -> int:
    """Return the query-key pairs of a text."""
    if window.chunk:
        return sum(i % window.chunk + 1 for i in range(TOKENS))
    size = window.size or TOKENS
    most = choose_if_less(size, TOKENS, size, TOKENS)
    return most * TOKENS - most * (most - 1) // 2


def _times(stages: Iterable[WalkthroughStage], names: Iterable[str]) -> int:
    """Return the number of layers that have one of some steps."""
    own = set(names)
    return sum(
        x.times for x in stages if x.name == "layers" and any(y.name in own for y in x.steps)
    )


def _adds(stages: Iterable[WalkthroughStage]) -> int:
    """Return how many steps of all layers add to the stream."""
    return sum(
        x.times * sum(adds_to_stream(y) for y in x.steps) for x in stages if x.name == "layers"
    )


def _cached_name(step: Step) -> str:
    leaf = step.name.rpartition(".")[2]
    return {"k": "keys", "v": "values"}.get(leaf[0], leaf)
