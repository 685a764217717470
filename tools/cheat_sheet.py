"""The tables of docs/cheat-sheet.md: the formulas of the library's own expressions, with their
values for one model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import llamath

DENSE, MIXTURE = "llama-3-8b", "mixtral-8x7b"
CONTEXT = "8k"


class Row(NamedTuple):
    """A quantity with its expression and its unit."""

    what: str
    value: Any  # Expr
    unit: str = ""


def answer(question: str, model: str = DENSE) -> Any:
    """Return the expression that answers a question of a lesson."""
    return llamath.lesson(question.partition("/")[0], model=model)[question].answer


def parameters() -> Iterable[Row]:
    """Yield the weights of a dense model."""
    return (
        Row("embedding; the head, if not tied", answer("embedding/embedding")),
        Row("q; o", answer("matrix/attn.q")),
        Row("k; v", answer("matrix/attn.k")),
        Row("attention of a layer", answer("attention/all")),
        Row("gate; up; down", answer("mlp/up")),
        Row("MLP of a layer", answer("mlp/all")),
        Row("norms of a layer", answer("norms/layer")),
        Row("a layer", answer("layer/one")),
        Row("all layers", answer("layer/times")),
        Row("the model", answer("total/total")),
    )


def experts() -> Iterable[Row]:
    """Yield the weights of a mixture of experts."""
    return (
        Row("an expert", answer("experts/one", MIXTURE)),
        Row("the router of a layer", answer("experts/router", MIXTURE)),
        Row("the experts of a layer", answer("experts/layer", MIXTURE)),
        Row("the model", answer("experts/total", MIXTURE)),
        Row("active: what a token uses", answer("experts/active", MIXTURE)),
    )


def inference() -> Iterable[Row]:
    """Yield the memory of a forward pass."""
    report = llamath.memory(DENSE, context=CONTEXT)
    lines = {x.what.partition(",")[0]: x.bytes for x in report.lines}
    return (
        Row("weights in 16 bits", answer("bytes/bf16"), "bytes"),
        Row("KV cache of a token", answer("cache/token"), "bytes"),
        Row("KV cache of 8,192 tokens", lines["cache"], "bytes"),
        Row("peak of activations, n = 2,048 tokens at once", lines["activations"], "bytes"),
        Row("logits of the last position, in fp32", lines["logits"], "bytes"),
    )


def training() -> Iterable[Row]:
    """Yield the memory that training takes for each parameter."""
    lines = llamath.training_memory(DENSE).largest_stage.lines
    wanted = ("weights", "gradients", "master weights", "optimizer states, AdamW")
    return [Row(x.what, x.bytes, "bytes") for x in lines if x.what in wanted]


def compute() -> Iterable[Row]:
    """Yield the FLOPs of a token and of a prompt."""
    report = llamath.flops(DENSE, context=CONTEXT)
    return (
        Row("a matrix (q), for a token", answer("flops/matrix"), "FLOPs"),
        Row("all matrices, for a token", answer("flops/token"), "FLOPs"),
        Row("scores and averages, for A pairs", report.forward.mixing["attention"], "FLOPs"),
        Row("forward pass over 8,192 tokens", report.forward.total, "FLOPs"),
        Row("training step on them", report.training.model, "FLOPs"),
    )


TABLES: dict[str, Callable[[], Iterable[Row]]] = {
    x.__name__: x for x in (parameters, experts, inference, training, compute)
}
SCALES = {
    "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")),
    "FLOPs": ((1e12, "T"), (1e9, "G"), (1e6, "M")),
}


def written(row: Row) -> str:
    """Return the value of a row, with a rounded one where the number is long."""
    number = int(row.value)
    for scale, name in SCALES.get(row.unit, ()):
        if number >= scale:
            return f"{number:,} ({number / scale:.4g} {name})"
    return f"{number:,}"


def table(name: str) -> str:
    """Return one of the tables in Markdown, or the letters; N stands for the model's total."""
    if name == "letters":
        letters = llamath.load(DENSE).count.formula.letters
        return "Llama 3 8B: " + ", ".join(f"{x} = {n:,}" for x, n in letters.items())
    total = str(int(answer("total/total")))
    lines = ["| what | formula | value |", "| --- | --- | ---: |"]
    for row in TABLES[name]():
        formula = getattr(row.value, "symbol", None) or str(row.value)
        lines.append(f"| {row.what} | {formula.replace(total, 'N')} | {written(row)} |")
    return "\n".join(lines)
