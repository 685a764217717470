"""Write docs/concepts/accuracy.md: what others published beside what is counted or predicted here; with --check, fail where it is stale."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import fill

import llamath
from llamath.analysis.flops.flop_count import train_flops
from llamath.analysis.inference.cache_bytes import kv_cache_size
from llamath.analysis.inference.weight_bytes import GGUFNaming, weight_storage
from llamath.analysis.parallel_layout import Layout, WeightShard, pipeline_stages
from llamath.analysis.plan import microbatch_work as plan_work
from llamath.analysis.plan import network as plan_wires
from llamath.analysis.plan import step_time as plan_time
from llamath.analysis.plan.training_run import prediction_constants
from llamath.analysis.training.lora_adapters import build_adapters
from llamath.analysis.training.optimizers import OPTIMIZERS
from llamath.analysis.training.pipeline_schedule import stage_activations, total_bytes
from llamath.analysis.training.saved_activations import Kernels
from llamath.analysis.training.zero_states import PersistentState, persistent_lines
from llamath.checkpoint.quantization.schemes import parse_weight_format
from llamath.core.forward_pass import ForwardPass
from published_runs import DATA, Found, classic, deepseek, korthikanti, llama3, megatron, palm, rank

PAGE = Path(__file__).parents[1] / "docs" / "concepts" / "accuracy.md"
Rows = Iterable[Sequence[str]]

HEAD = """# How accurate the numbers are

Written by `tools/accuracy.py`, which runs the program; the published figures are in `tests/truth/published_runs.json`, each with its
source.

Counts of weights, bytes, caches and FLOPs are exact: where a publication prints an integer, it is the same integer, and where it
prints digits, the same digits. Activations are exact for the implementation that is named. Times are predicted, and wrong by as
much as stands here.
"""
PREDICTED = """## Predicted: training runs

`llamath plan` knows of a run its model, its layout and the data sheet of its GPUs, and predicts the time of a step. Five constants
are the same for every row:

{constants}

Products and attention were set by hand, to two digits, from the three rows of Llama 3's table; the links are what nccl-tests
reaches on eight A100, 230 to 250 of 300 GB/s; the overlap is a guess. Nothing was set from the other tables, nor for a single row.
What a table does not print (interleaving, and for Megatron the microbatch) is what is fastest among what fits. Rates are TFLOP/s of
one GPU, counted as the publication counts; memory is that of the fullest GPU, beside what it has.
"""
SAYS = {
    "matmul": "of the dense peak in a large matrix product, whose operands also pass through memory once",
    "attention": "of the dense peak in attention's products",
    "wires": "of a link's data sheet, inside a node and across",
    "overlap": "of what data parallelism and ZeRO share is hidden behind work, where there is as much work",
    "passes": "times what is kept for the backward pass moves through memory, beside the operands of products",
}
TAIL = """No latency of any message, no straggler, no failure, no reading of data; experts get equal shares of the tokens, and what
they send is waited for; products are in the type of the weights. So DeepSeek-V3's own run, in FP8 with all-to-all hidden behind
work, is outside of this model: {predicted:.0f} TFLOP/s a GPU are predicted where {printed:.0f} were reached ({source}). Stages with
unequal layers are known, documents of unequal length are not.

Ranked by predicted time alone, layouts that cut sequences inside a node in place of matrices come out ahead of those that Llama 3
was trained with: keys and values of eight heads are less to share than hidden states. That they would be is a prediction, too.
"""


def table(header: Sequence[str], rows: Rows) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'|'.join(' --- ' for _ in header)}|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def caches() -> Rows:
    for slug, dtype, printed in DATA["kv_bytes"]["rows"]:
        tree = llamath.load(slug).tree
        here = kv_cache_size(tree, 2, 1, dtype).bytes - kv_cache_size(tree, 1, 1, dtype).bytes
        yield slug, f"{printed:,}", f"{here:,}"


def zero() -> Rows:
    """ZeRO's figure: 16 bytes a parameter, shared."""
    facts = DATA["zero"]
    cases = [(facts["ranks"], i, name, printed) for i, (name, printed) in enumerate(facts["GB"])]
    cases += [(int(n), i, f"ZeRO-{i}", x) for n, row in facts["table"].items() for i, x in enumerate(row, 1) if int(n) != facts["ranks"]]
    for ranks, stage, name, printed in cases:
        n = facts["parameters"]
        piece = WeightShard("layers.{l}.mlp.up.weight", (n,), 1, "matmul", "mlp", False)
        kept = PersistentState([piece], None, {piece.pattern: (2, 1)}, gradient_bytes=2, master=True, optimizer=OPTIMIZERS["adamw"])
        size = sum(x.bytes for lines in persistent_lines(kept, Layout(dp=ranks, zero=stage)).values() for x in lines)
        yield f"{ranks} ranks, {name}", f"{printed:g} GB", f"{size / 1e9:.3f} GB"


FORMULAS = {
    "none": ("s·b·h·(34 + 5·a·s/h)", Layout()),
    "tp": ("s·b·h·(10 + 24/t + 5·a·s/(h·t))", Layout(tp=8, sequence_parallel=False)),
    "tp+sp": ("s·b·h/t·(34 + 5·a·s/h)", Layout(tp=8)),
    "tp+selective": ("s·b·h·(10 + 24/t)", Layout(tp=8, sequence_parallel=False, recompute="selective")),
    "tp+sp+selective": ("34·s·b·h/t", Layout(tp=8, recompute="selective")),
    "full": ("2·s·b·h", Layout(recompute="full")),
}


def worth(name: str, letters: tuple[int, int, int, int, int]) -> float:
    """The formula's value."""
    s, b, h, a, t = letters
    scores = {"none": 5 * a * s / h, "tp": 5 * a * s / (h * t), "tp+sp": 5 * a * s / h / t}.get(name, 0.0)
    rest = {"none": 34, "tp": 10 + 24 / t, "tp+sp": 34 / t, "tp+selective": 10 + 24 / t, "tp+sp+selective": 34 / t, "full": 2}[name]
    return s * b * h * (rest + scores)


def activations() -> Rows:
    """A layer's, as the difference of two layers and one: what stands around the layers, and the statistics of norms, are in none."""
    s = DATA["korthikanti"]["s"]
    for model, a, h, *_, b in DATA["korthikanti"]["configs"]["rows"]:
        for name, (text, plain) in FORMULAS.items():
            layout = plain.replace(microbatch=b, flash=False)
            kernels = Kernels(flash=False, dropout=True, context=s)
            sums = []
            for layers in (1, 2):
                tree = classic(a, h, layers).tree
                flow = stage_activations(tree, pipeline_stages(tree, layout)[0], layout, kernels)
                sums.append(total_bytes([x for x in flow.kept if not x.saved.what.startswith("statistics")], layout, s))
            yield f"{model}, {text}", f"{worth(name, (s, b, h, a, layout.tp)) / 1e6:,.1f} MB", f"{(sums[1] - sums[0]) / 1e6:,.1f} MB"


def bits() -> Rows:
    model = llamath.load("llama-3.1-8b")
    names = model.family.gguf
    assert names is not None
    for name, printed, gib in DATA["gguf"]["rows"]:
        kept = weight_storage(
            model.tree, parse_weight_format("gguf-f16" if name == "F16" else name), GGUFNaming(names, model.family.gguf_arch), None
        )
        yield name, f"{printed:.4f}", f"{kept.bits:.4f}", f"{gib:.2f}", f"{kept.bytes / 2**30:.2f}"


def indexes() -> Rows:
    for name, slug, dtype, printed in DATA["indexes"]["rows"]:
        yield f"{name}: {slug}, {dtype}", f"{printed:,}", f"{weight_storage(llamath.load(slug).tree, parse_weight_format(dtype)).bytes:,}"


def adapters() -> Rows:
    for slug, rank_, targets, printed, percent in DATA["lora"]["rows"]:
        model = llamath.load(slug)
        n = build_adapters(model.tree, rank_, tuple(targets.split(",")), model.family.hf).parameters
        share = f", {100 * n / (model.parameters.total + n):.4f} %" if percent else ""
        yield f"{slug}, r = {rank_}, {targets}", f"{printed:,}" + (f", {percent} %" if percent else ""), f"{n:,}{share}"


def operations() -> Rows:
    rows, gpt2 = DATA["flops"]["rows"], llamath.load("gpt2")
    step = train_flops(gpt2.tree, ForwardPass.prefill(1024, masked=False))
    large = 6 * llamath.load("llama-3.1-405b").parameters.total * 156 * 10**11
    for (what, printed), here in zip(rows, (step.forward, step.model, large), strict=True):
        exact = isinstance(printed, int)
        yield what, f"{printed:,}" if exact else str(printed), f"{here:,}" if exact else f"{here:.1e}".replace("+", "")


HELD = ("activations", "cache", "flops_torch", "lora", "memory", "parallel", "storage", "training")


def tests() -> Iterator[str]:
    """The first sentence of tests that compare with other programs."""
    for name in HELD:
        path = PAGE.parents[2] / "tests" / f"test_{name}.py"
        said = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].split())
        yield f"- `tests/{path.name}`: {said}"


def runs(found: Iterable[Found]) -> Rows:
    for x in found:
        at = x.plan.layout
        axes = " × ".join(f"{name.upper()} {n}" for name in ("tp", "cp", "pp", "dp") if (n := getattr(at, name)) > 1)
        way = f"{axes}; {at.microbatch} × {at.count}" + (f"; {at.interleave} runs" if at.interleave > 1 else "")
        memory = f"{x.plan.memory / 2**30:.1f} of {x.room / 2**30:.1f}"
        yield x.name, way, memory, f"{x.printed:.0f}", f"{x.predicted:.0f}", f"{100 * x.error:+.1f} %"


def summary(tables: dict[str, list[Found]]) -> Iterator[str]:
    rows = []
    for name, found in tables.items():
        errors = [100 * x.error for x in found]
        mean = sum(map(abs, errors)) / len(errors)
        fits = sum(x.plan.memory <= x.room for x in found)
        rows.append((name, str(len(found)), f"{mean:.1f} %", f"{min(errors):+.1f} … {max(errors):+.1f} %", f"{fits} of {len(found)}"))
    yield from table(("table", "rows", "mean error", "errors from … to", "fit their memory"), rows)


SECTIONS = (
    ("Keys and values of a token, bytes", "kv_bytes", ("model", "printed", "here"), caches),
    ("Training states of 7.5 billion parameters with Adam", "zero", ("what", "printed", "here"), zero),
    ("Activations of one layer", "korthikanti", ("model and formula", "formula gives", "here"), activations),
    ("Bits per weight, and GiB", "gguf", ("type", "printed", "here", "GiB printed", "GiB here"), bits),
    ("Bytes of checkpoints", "indexes", ("index: model", "printed", "here"), indexes),
    ("Adapters", "lora", ("what", "printed", "here"), adapters),
    ("FLOPs", "flops", ("what", "printed", "here"), operations),
)
RUNS = (
    ("Llama 3, table 4", "llama3", llama3),
    ("Megatron, table 1", "megatron", megatron),
    ("Korthikanti et al., table 5", "korthikanti", korthikanti),
    ("PaLM", "palm", palm),
)


def page() -> str:
    lines = [HEAD, "## Counted: equal, or equal to the printed digits", ""]
    for title, key, header, rows in SECTIONS:
        lines += [f"### {title}", "", f"{DATA[key]['source']}.", "", *table(header, rows()), ""]
    lines += ["### By other programs", "", "torch, transformers, peft, bitsandbytes and others are asked by the tests:", "", *tests(), ""]
    values = "\n".join(f"- {name} {value:g}: {SAYS[name]}" for name, value in prediction_constants().items())
    lines += [PREDICTED.format(constants=values)]
    tables = {name: list(found()) for name, _, found in RUNS}
    lines += [*summary(tables), "", "The mean error of all rows, and the errors from … to, were a constant off by a tenth:", ""]
    lines += [*table(("constant", "a tenth lower", "a tenth higher"), changed()), ""]
    for name, key, _ in RUNS:
        note = f"; {DATA[key]['note']}" if "note" in DATA[key] else ""
        lines += [f"### {name}", "", f"{DATA[key]['source']}{note}.", ""]
        lines += [*table(("run", "layout", "GiB", "printed", "predicted", "error"), runs(tables[name])), ""]
    lines += ["### Llama 3's layouts among those that `plan` ranks for their clusters", "", *table(("run", "rank"), _ranks()), ""]
    beyond = deepseek()
    tail = TAIL.format(predicted=beyond.predicted, printed=beyond.printed, source=DATA["deepseek"]["source"])
    lines += ["## What the prediction leaves out", "", "\n\n".join(fill(x, 140) for x in tail.split("\n\n")), ""]
    return "\n".join(lines)


PLACES = {"matmul": plan_work, "attention": plan_work, "wires": plan_wires, "overlap": plan_time, "passes": plan_work}


def changed() -> Rows:
    """The errors of all rows with one constant a tenth lower or higher."""
    for name, value in prediction_constants().items():
        cells = []
        for factor in (0.9, 1.1):
            setattr(PLACES[name], name.upper(), factor * value)
            errors = [100 * x.error for _, _, found in RUNS for x in found()]
            cells.append(f"{sum(map(abs, errors)) / len(errors):.1f} %; {min(errors):+.1f} … {max(errors):+.1f} %")
        setattr(PLACES[name], name.upper(), value)
        yield name, *cells


def _ranks() -> Rows:
    for row in DATA["llama3"]["rows"]:
        found = rank(row)
        yield f"{row[0]:,} H100, {row[5]:,} tokens", f"{found} of 10" if found else "not among the first ten"


def main() -> int:
    fresh = page()
    if PAGE.exists() and PAGE.read_text() == fresh:
        return 0
    if "--check" in sys.argv:
        print(f"stale: {PAGE.name}; python tools/accuracy.py writes it", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
