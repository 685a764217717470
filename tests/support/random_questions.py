"""Random questions of size, the same for every door: which model, where, in which dtypes, with how many tokens."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

MODELS = (
    *("gpt2", "llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b", "llama-1-30b", "qwen3-8b", "phi-4"),
    *("gemma-3-27b", "gpt-oss-20b", "mixtral-8x7b", "deepseek-v3", "qwen3-next-80b-a3b"),
    *("falcon-mamba-7b", "granite-4.0-h-small", "llama-4-scout", "minimax-m2"),
)
GPUS = ("rtx-3060-12gb", "rtx-4090", "t4", "l4", "a100-40gb", "h100", "h200", "b200", "mi300x")
MACHINES = ("4090+3060-12gb", "mem=24GiB bw=1TB/s bf16=300TF")
NUMBERS = (1, 1, 1, 2, 3, 4, 5, 8, 16)
DTYPES = ("", "", "bf16", "fp8", "awq", "q4_k_m", "bnb-nf4")
KV_DTYPES = ("", "", "fp8", "q8_0")
CONTEXTS = (None, None, 1, 700, 4096, "8k", 20_000, "64k", "max", 2_000_000)
BATCHES = (None, None, 1, 2, 7, 64)
OPTIMIZERS = ("adamw", "adamw8bit", "sgd", "adafactor")
ENGINES = ("vllm", "sglang", "llama.cpp", "transformers")

Question = tuple[str, str, dict[str, Any]]
"""The function of `llamath`, the model, and the arguments; those with the default are left out."""


def given(**values: Any) -> dict[str, Any]:
    """Return the arguments that are not left to their defaults."""
    return {name: x for name, x in values.items() if x not in (None, "")}


def sequences(rng: random.Random) -> dict[str, Any]:
    """Return random dtypes, tokens and sequences."""
    return given(
        dtype=rng.choice(DTYPES),
        kv_dtype=rng.choice(KV_DTYPES),
        context=rng.choice(CONTEXTS),
        batch=rng.choice(BATCHES),
    )


def machine(rng: random.Random) -> str:
    """Return random GPUs."""
    number = rng.choice(NUMBERS)
    one = rng.choice(GPUS)
    return rng.choice(MACHINES) if rng.random() < 0.1 else f"{number}x{one}"


def training(rng: random.Random) -> dict[str, Any]:
    """Return a random training step."""
    tp, dp = rng.choice((1, 1, 2)), rng.choice((1, 4, 8))
    settings = [f"optimizer={rng.choice(OPTIMIZERS)}", f"recompute={rng.choice(('none', 'full'))}"]
    return given(
        context=rng.choice((None, 512, "4k")),
        batch=rng.choice((None, 1, 3)),
        layout=rng.choice((None, f"tp={tp},dp={dp},zero={rng.choice((0, 1, 3))}")),
        training=rng.choice(("optimizer=adamw", ",".join(settings))),
        lora=rng.choice((None, None, "r=16,targets=attention")),
        on=rng.choice((None, rng.choice(GPUS))),
    )


def without(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the arguments without those that a question does not have."""
    return {name: x for name, x in values.items() if name not in names}


def random_question(rng: random.Random) -> Question:
    """Return one random question."""
    common, on = sequences(rng), machine(rng)
    asked: dict[str, dict[str, Any]] = {
        "facts": {},
        "code": {},
        "memory": common | given(on=rng.choice((None, rng.choice(GPUS)))),
        "training_memory": training(rng),
        "fit": common | {"on": on},
        "compare_machines": common | {"on": [machine(rng), f"2x{rng.choice(GPUS)}"]},
        "rank_gpus": common,
        "fit_engine": without(common, "kv_dtype") | {"on": on, "engine": rng.choice(ENGINES)},
        "compare_engines": without(common, "kv_dtype")
        | {"on": on, "engine": ["vllm@0.26.0", rng.choice(ENGINES)]},
        "quants": without(common, "dtype") | given(on=rng.choice((None, on))),
        "place": common | {"on": on, "ram": rng.choice(("32GiB", "512GiB"))},
        "cost": without(common, "batch") | {"on": on, "price": "2/h"},
        "flops": common,
        "plan": given(
            on=f"{rng.choice((8, 16))}x{rng.choice(GPUS)}", context=rng.choice((None, 2048)), top=3
        ),
        "plan_serving": without(common, "batch") | {"on": on, "top": 3},
    }
    name = rng.choice(list(asked))
    return name, rng.choice(MODELS), asked[name]


def random_questions(seed: int, number: int) -> Iterator[Question]:
    """Yield random questions, the same for each seed."""
    rng = random.Random(seed)
    for _ in range(number):
        yield random_question(rng)


COMMANDS = {
    **dict.fromkeys(("memory", "training_memory"), "memory"),
    **dict.fromkeys(("fit", "compare_machines", "rank_gpus", "place", "cost"), "fit"),
    **dict.fromkeys(("fit_engine", "compare_engines"), "fit"),
    **dict.fromkeys(("plan", "plan_serving"), "plan"),
}
"""The command that asks a question, if it is not called like the function."""


def tool_arguments(question: Question) -> tuple[str, dict[str, Any]]:
    """Return the tool that answers a question, and its arguments: those of an agent and of the JSON API."""
    name, model, values = question
    found: dict[str, Any] = {"model": model} | values
    if name == "plan_serving":
        found["serve"] = True
    if name == "compare_machines":
        found["on"] = ",".join(values["on"])
    if name == "compare_engines":
        found["engine"] = ",".join(values["engine"])
    return COMMANDS.get(name, name), found


def command_words(question: Question) -> Sequence[str]:
    """Return the question as it is typed."""
    name, values = tool_arguments(question)
    words = [name, values.pop("model")]
    for key, value in values.items():
        words += [f"--{key.replace('_', '-')}", *([] if value is True else [str(value)])]
    return [*words, "--json"]
