"""The lessons about what Llama does not have: latent attention, windows, recurrences."""

from __future__ import annotations

from collections.abc import Iterator

from ....core.expr import Expr
from ....core.parameter_count import WeightRow
from ..account import Account, of_factors
from ..diagnosis import term_name
from ..exercise import Exercise
from ..lesson import Asker, Lesson, instead, matrices
from ..study import ModelStudy, kind_with


def _needs_latent(study: ModelStudy) -> str:
    if study.latent is None or kind_with(study, _is_kv_down) is None:
        return "it has no latent attention"
    return "" if study.caches else "its forward pass is not known"


def _is_kv_down(row: WeightRow) -> bool:
    return row.pattern == "attn.kv_down.weight"


def _is_of_mixer(row: WeightRow) -> bool:
    return row.group == "mixer"


def _needs_window(study: ModelStudy) -> str:
    if study.window is None:
        return "none of its layers has a window"
    return "" if study.caches else "its forward pass is not known"


def _needs_recurrence(study: ModelStudy) -> str:
    if study.recurrence is None or kind_with(study, _is_of_mixer) is None:
        return "it has no recurrent layers"
    return "" if study.caches else "its forward pass is not known"


def _latent_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker, latent = Asker("latent", study), study.latent
    assert latent is not None
    section = kind_with(study, _is_kv_down)
    layer = study.layer_weights(section=section)
    down = Account(products=tuple(x for x in layer.products if x.path == "attn.kv_down.weight"))
    yield asker.ask(
        "kv_down",
        "How many parameters does the matrix kv_down of a layer have? It makes the latent vector "
        "and the rotary key.",
        down,
        hint="(r + p) outputs of d inputs",
    )
    attention = Account(
        products=tuple(x for x in layer.products if x.group == "attention" and x.role == "matmul")
    )
    yield asker.ask(
        "attention",
        "How many parameters do all matrices of the attention of a layer have: "
        f"{', '.join(map(term_name, attention.products))}?",
        attention,
        hint="down to a short vector, and up again to all heads",
    )
    rows = [x for x in study.caches if x.rows]
    yield asker.ask(
        "cached",
        "How many numbers does one layer cache for one token?",
        Account(products=(of_factors("latent", width=rows[0].rows[0]),)),
        unit="numbers",
        kind="shape",
        hint="the latent vector, and the rotary key that all heads share",
        mistakes=(
            instead(
                "rotary key forgotten",
                int(latent.kv_lora_rank),
                f"the rotary key of {int(latent.rope_dim)} numbers is missing",
            ),
            instead(
                "latent vectors expanded",
                int(latent.heads)
                * (int(latent.nope_dim) + int(latent.rope_dim) + int(latent.v_dim)),
                "these are the keys and values of all heads; only the latent vector is cached",
            ),
            instead(
                "K and V of it", 2 * int(rows[0].rows[0]), "it is cached once, for keys and values"
            ),
        ),
    )
    yield asker.ask(
        "token",
        f"How many bytes does {study.name} cache for one token in bf16, all layers together?",
        study.cache(1),
        unit="bytes",
        kind="cache",
        hint="2 bytes for each number, times the layers",
    )


def _latent_text(study: ModelStudy) -> Iterator[str]:
    latent = study.latent
    assert latent is not None
    yield (
        f"Latent attention caches one short vector of r = {int(latent.kv_lora_rank):,} numbers for "
        "each token, from which k_up and v_up make the keys and values of all "
        f"{int(latent.heads)} heads again."
    )
    yield (
        f"Positions do not survive this, so a part of the key, p = {int(latent.rope_dim)} numbers, "
        "is kept beside it and shared by all heads."
    )


def _window_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker, window = Asker("windows", study), study.window
    assert window is not None
    n = int(window.max_lookback or 0)
    specs = [x for x in study.caches if x.rows]
    with_window = sum(int(x.layers) for x in specs if x.window)
    every = sum(int(x.layers) for x in specs)
    yield asker.ask(
        "layers",
        f"Of {every} layers that cache, {every - with_window} see everything. How many have a "
        "window?",
        with_window,
        unit="layers",
        kind="shape",
        hint="all but those",
    )
    for tokens in sorted({min(n, study.context), min(4 * n, study.context), study.context}):
        yield asker.ask(
            f"context {tokens}",
            f"How many bytes does {study.name} cache for one sequence of {tokens:,} tokens in "
            "bf16? "
            f"Its window is {n:,} tokens.",
            study.cache(tokens),
            unit="bytes",
            kind="cache",
            given={"T": tokens},
            hint="layers with a window keep its tokens, the others all",
            core=tokens == study.context,
        )
    big = max(int(x.factor("tokens") or 0) for x in study.cache(study.context).products)
    later = study.cache(big).without(lambda x: x.role == "window")
    later = later.each(lambda x: x.with_factor("tokens", 1))
    if later.products and with_window:
        yield asker.ask(
            "later",
            "All windows are full. How many bytes does one more token add?",
            later,
            unit="bytes",
            kind="cache",
            hint="a layer with a full window forgets a token for each new one",
            mistakes=(
                instead(
                    "all layers grow",
                    int(study.cache(1).value),
                    "layers with a full window do not grow",
                    kind="cache",
                ),
            ),
        )


def _window_text(study: ModelStudy) -> Iterator[str]:
    window = study.window
    assert window is not None
    n = int(window.max_lookback or 0)
    yield (
        f"In some layers a token looks back {n:,} tokens only. They need no older keys and values, "
        "so their cache stops growing; other layers carry what is farther away."
    )
    yield "A window changes no weight: the matrices are the same."


def _recurrent_exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker = Asker("recurrence", study)
    section = kind_with(study, _is_of_mixer)
    layer = study.layer_weights(section=section)
    mixer = Account(products=tuple(x for x in layer.products if x.group == "mixer"))
    states = [x for x in study.caches if x.state is not None]
    for x in matrices(mixer)[:3]:
        yield asker.ask(
            term_name(x),
            f"How many parameters does the matrix {term_name(x)} of a recurrent layer have?",
            Account(products=(x,)),
            hint="rows × columns",
        )
    yield asker.ask(
        "mixer",
        "How many parameters does the whole recurrent mixer of a layer have, vectors included?",
        mixer,
        hint=", ".join(term_name(x) for x in mixer.products),
        core=False,
    )
    if states and states[0].state is not None:
        state = states[0].state
        yield asker.ask(
            "state",
            "How many numbers are in the state of one recurrent layer, for one sequence?",
            Account(products=(of_factors("state", state=state),)),
            unit="numbers",
            kind="shape",
            hint="it does not depend on the number of tokens",
        )
        yield asker.ask(
            "bytes",
            f"{int(states[0].layers)} recurrent layers have a state each, in fp32. How many bytes "
            "is that for one sequence?",
            Account(
                products=(
                    of_factors(
                        "state",
                        layers=Expr.const(states[0].layers),
                        state=state.in_brackets(),
                        bytes=4,
                    ),
                )
            ),
            unit="bytes",
            kind="cache",
            hint="4 bytes for each number",
            mistakes=(
                instead(
                    "16 bits for 32",
                    int(state) * int(states[0].layers) * 2,
                    "the state is kept in fp32, 4 bytes for each number",
                    kind="cache",
                ),
            ),
        )


def _recurrent_text(study: ModelStudy) -> Iterator[str]:
    recurrence = study.recurrence
    assert recurrence is not None
    name = recurrence.short_name or type(recurrence).__name__
    yield (
        f"A recurrent layer ({name}) carries a state from token to token instead of looking back: "
        "each token changes it and reads from it. The state has a fixed size, however long "
        "the text."
    )
    yield "A short convolution before it mixes the last few tokens."


SPECIAL_LESSONS = (
    Lesson(
        name="latent",
        title="Latent attention",
        model="deepseek-v3",
        lacks=_needs_latent,
        explain=_latent_text,
        exercises=_latent_exercises,
    ),
    Lesson(
        name="windows",
        title="Windows",
        model="gemma-3-12b",
        lacks=_needs_window,
        explain=_window_text,
        exercises=_window_exercises,
    ),
    Lesson(
        name="recurrence",
        title="Recurrences",
        model="qwen3-next-80b-a3b",
        lacks=_needs_recurrence,
        explain=_recurrent_text,
        exercises=_recurrent_exercises,
    ),
)
