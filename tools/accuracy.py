"""Write docs/concepts/accuracy.md: published figures next to llamath's; with --check, fail if it
is out of date."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import llamath
from accuracy_tables import Rows, figures, grid, table, wrap
from llamath.analysis.graph.flop_count import train_flops
from llamath.analysis.graph.operations.saved_tensors import Kernels
from llamath.analysis.graph.recorder import record
from llamath.analysis.size.plan import microbatch_work as plan_work
from llamath.analysis.size.plan import network as plan_wires
from llamath.analysis.size.plan import step_time as plan_time
from llamath.analysis.size.training.optimizers import OPTIMIZERS
from llamath.analysis.size.training.pipeline_schedule import stage_activations, total_bytes
from llamath.analysis.size.training.saved_activations import SavedActivations
from llamath.analysis.size.training.zero_states import PersistentState, persistent_lines
from llamath.analysis.storage.parallel_layout import WeightShard, pipeline_stages
from llamath.hardware.kernel_rates import benchmark_sources
from llamath.questions.layout import Layout
from prediction_tables import FOLDER
from published_engines import ENGINE_SECTIONS
from published_runs import (
    DATA,
    Found,
    Throughput,
    classic,
    deepseek,
    korthikanti,
    llama3,
    megatron,
    palm,
    rank,
    throughput,
)
from published_runs import RUNS as PUBLISHED
from published_runs import recipes as recipes_of_memory

PAGE = Path(__file__).parents[1] / "docs" / "concepts" / "accuracy.md"

HEAD = """# How accurate the numbers are

Written by `tools/accuracy.py`, which runs llamath; the published figures are in
`published_runs.json` and `training_runs.json` of `tests/truth`, each with its source. Sizes of
files, counts and what engines print are in [numbers we predicted](numbers-we-predicted.md).

Counts of weights, bytes, caches and FLOPs follow from the config without an estimate. In the next
section each figure is the published one, to its printed digits: the script fails where they differ.
Published figures that differ are in [numbers we predicted](numbers-we-predicted.md). Activations
are exact for the named implementation. Times are predictions, with the errors listed here.
"""
PREDICTED = """## Predicted: training runs

`llamath plan` predicts the time of a training step from the model, the layout, the data sheet of
the GPUs, and benchmarks of kernels that others published (`src/llamath/hardware/kernels.json`): the
share of the peak that attention reaches by head dimension, sequence length, mask and pass, that
large matrix products reach, and the share of the memory's bandwidth. Three constants are left:

{constants}

No figure of a training run sets a constant. What a table does not print (interleaving, and for
Megatron the microbatch) is the fastest choice that fits.

### Benchmarks of kernels

{benchmarks}

### Errors by source

Mean of predicted over published rates, mean error, and range of errors. "Fit" are the runs whose
predicted memory is at most that of the GPU. Each run, with its layout and what its table does not
say, is a row of `training_runs.jsonl` in the
[conformance set](https://github.com/llamath/llamath/tree/main/conformance).
"""
SAYS = {
    "wires": (
        plan_wires.LINK_EFFICIENCY,
        "of a link's data sheet, in a node and across: "
        "nccl-tests on eight A100, 230 to 250 of 300 GB/s",
    ),
    "overlap": (
        plan_time.DP_OVERLAP,
        "of the communication of data parallelism and ZeRO is "
        "overlapped, if there is computation: a guess",
    ),
    "passes": (
        plan_work.ACTIVATION_PASSES,
        "times the saved activations move through memory in a pass: one write and one read",
    ),
}
TAIL = """Latencies, stragglers, failures and data loading are not modeled, nor the launches of
kernels by the host: mixtures of many small experts with small microbatches wait for them (NVIDIA's
guide to Megatron-Bridge calls it the host-overhead wall), which the rows of Qwen3 30B show. Experts
receive equal shares of the tokens, their rows are padded to blocks of 128, and their communication
is not overlapped; a dispatcher that sends a token once to each node, such as DeepEP, sends less.
DeepSeek-V3's own training, in FP8 with overlapped all-to-all, is predicted at {predicted:.0f}
TFLOP/s per GPU where {printed:.0f} were reached ({source}). Stages with different numbers of layers
are modeled, documents of different lengths are not.

Ranked by predicted time alone, layouts with context parallelism inside a node come out ahead of
those that Llama 3 was trained with, because keys and values of eight heads are smaller than hidden
states. That is a prediction, too.
"""


def zero() -> Rows:
    """ZeRO's figure: 16 bytes a parameter, shared."""
    facts = DATA["zero"]
    cases = [(facts["ranks"], i, name, printed) for i, (name, printed) in enumerate(facts["GB"])]
    cases += [
        (int(n), i, f"ZeRO-{i}", x)
        for n, row in facts["table"].items()
        for i, x in enumerate(row, 1)
        if int(n) != facts["ranks"]
    ]
    for ranks, stage, name, printed in cases:
        n = facts["parameters"]
        piece = WeightShard("layers.{l}.mlp.up.weight", (n,), 1, "matmul", "mlp", False)
        kept = PersistentState(
            [piece],
            None,
            {piece.pattern: (2, 1)},
            gradient_bytes=2,
            master=True,
            optimizer=OPTIMIZERS["adamw"],
        )
        size = sum(
            x.bytes
            for lines in persistent_lines(kept, Layout(dp=ranks, zero=stage)).values()
            for x in lines
        )
        yield f"{ranks} ranks, {name}", f"{printed:g}", f"{size / 1e9:.3f}"


FORMULAS = {
    "none": ("s·b·h·(34 + 5·a·s/h)", Layout()),
    "tp": ("s·b·h·(10 + 24/t + 5·a·s/(h·t))", Layout(tp=8, sequence_parallel=False)),
    "tp+sp": ("s·b·h/t·(34 + 5·a·s/h)", Layout(tp=8)),
    "tp+selective": (
        "s·b·h·(10 + 24/t)",
        Layout(tp=8, sequence_parallel=False, recompute="selective"),
    ),
    "tp+sp+selective": ("34·s·b·h/t", Layout(tp=8, recompute="selective")),
    "full": ("2·s·b·h", Layout(recompute="full")),
}


def worth(name: str, letters: tuple[int, int, int, int, int]) -> float:
    """The formula's value."""
    s, b, h, a, t = letters
    scores = {"none": 5 * a * s / h, "tp": 5 * a * s / (h * t), "tp+sp": 5 * a * s / h / t}.get(
        name, 0.0
    )
    rest = {
        "none": 34,
        "tp": 10 + 24 / t,
        "tp+sp": 34 / t,
        "tp+selective": 10 + 24 / t,
        "tp+sp+selective": 34 / t,
        "full": 2,
    }[name]
    return s * b * h * (rest + scores)


def activations() -> Rows:
    """A layer's, as the difference of two layers and one: what stands around the layers, and the
    statistics of norms, are in none."""
    s = DATA["korthikanti"]["s"]
    for model, a, h, *_, b in DATA["korthikanti"]["configs"]["rows"]:
        for name, (text, plain) in FORMULAS.items():
            layout = plain.replace(microbatch=b, flash=False)
            kernels = Kernels(flash=False, dropout=True, context=s)
            sums = []
            for layers in (1, 2):
                tree = classic(a, h, layers).tree
                flow = stage_activations(
                    SavedActivations(tree, kernels), pipeline_stages(tree, layout)[0], layout
                )
                sums.append(
                    total_bytes(
                        [x for x in flow.kept if not x.saved.what.startswith("statistics")],
                        layout,
                        s,
                    )
                )
            yield (
                f"{model}, {text}",
                f"{worth(name, (s, b, h, a, layout.tp)) / 1e6:,.1f}",
                f"{(sums[1] - sums[0]) / 1e6:,.1f}",
            )


RECIPES = (
    (
        "fp8, FP8 tables, mxfp8",
        "transformers' FP8 layers on the meta device, random configs; DeepSeek-V3's headers",
        "names, dtypes, shapes; values",
    ),
    (
        "fp8 of every family",
        "the modules that transformers replaces, tiny configs",
        "weights in them; routers stay, as in published files",
    ),
    (
        "fp8 with FP4 experts (DeepSeek-V4)",
        "an audit of its files; its index",
        "numbers of matrices; size to four digits",
    ),
    (
        "fbgemm_fp8, BitNet, EETQ",
        "transformers' layers on the meta device",
        "names, shapes; values of BitNet",
    ),
    (
        "ModelOpt: FP8, NVFP4, W4A16, W4A8, MXFP4, MXFP8, INT8, AWQ, mixed precision, cache scales",
        "{modelopt} exports of ModelOpt 0.47",
        "every name, dtype and shape",
    ),
    (
        "compressed-tensors: packed, int, float, NVFP4, MXFP4, MXFP8, groups, targets, ignores, "
        "caches",
        "compressed-tensors, 40 random recipes",
        "every name, dtype and shape; values",
    ),
    (
        "AWQ: GEMM, GEMV, GEMV-fast",
        "AutoAWQ's rules; Qwen2.5-7B's headers",
        "shapes; values by its packing",
    ),
    (
        "GPTQ: 2, 3, 4, 8 bits, both versions, act-order",
        "four published files; AutoGPTQ's packing",
        "sizes; values",
    ),
    (
        "bitsandbytes: INT8, NF4, FP4, double quantization",
        "bitsandbytes 0.50, transformers' replacement; three indexes",
        "modules, shapes; values; sizes",
    ),
    (
        "mxfp4 (gpt-oss)",
        "transformers' experts on the meta device; both headers",
        "names, shapes; values; elements",
    ),
    ("MLX: 2 to 8 bits, MXFP4, MXFP8, NVFP4", "MLX 0.32", "shapes; values"),
    ("HQQ: 1, 2, 3, 4, 8 bits, both axes", "hqq 0.2.8", "every name, dtype and shape; values"),
    (
        "torchao: INT8, FP8 (static, dynamic), INT4 in tiles",
        "torchao 0.18",
        "every name, dtype and shape; values",
    ),
    ("GGUF: all types", "llama.cpp's table and rules, the gguf package", "types, sizes; values"),
    (
        "auto-round: 2, 3, 4, 8 bits, as GPTQ and AWQ, extra_config, MXFP4, MXFP8, NVFP4, static "
        "FP8",
        "{auto-round} exports of auto-round 0.16",
        "every name, dtype and shape",
    ),
    (
        "Quark: INT4, INT8, FP8, MXFP4, MXFP6, NVFP4, INT4 in FP8, other formats by layer, cache "
        "scales",
        "{Quark} exports of Quark 0.13",
        "every name, dtype and shape; values of INT4, INT4 in FP8 and MXFP6, bit by bit",
    ),
    ("marlin-24", "compressed-tensors 0.9.4, the last that has it", "dtypes and shapes; no values"),
    (
        "sparse-24-bitmask, sparse-bitmask (by its headers)",
        "compressed-tensors 0.9.4",
        "dtypes and shapes; values",
    ),
    (
        "AQLM",
        "aqlm 1.1.7, and the model cards of four Llama 2",
        "names, dtypes and shapes; values; sizes and elements as the cards round them",
    ),
    (
        "NVFP4 with AWQ",
        "an export of ModelOpt 0.47 (Llama) whose search of scales, which needs a GPU, was "
        "replaced; not stored as a fact",
        "names, dtypes and shapes but for the scales of down's inputs, which a note describes",
    ),
    (
        "Marlin, torchao's plain INT4",
        "descriptions of their layouts: they need a GPU",
        "not tested against files",
    ),
    (
        "VPTQ, SpQR, HIGGS, FP-Quant, quanto, SINQ, Gemma's own integers, FP8 tables in shards",
        "nothing: the tensors follow from values, from a GPU or from layouts that are described "
        "nowhere",
        "refused by name",
    ),
)
"""Quantization recipes, what they are compared with, and what is equal."""


def recipes() -> Rows:
    truth = PAGE.parents[2] / "tests" / "truth"
    others = (truth / "quantizer_exports.jsonl").read_text().splitlines()
    exports = {x: sum(f'"name": "{x}' in line for line in others) for x in ("auto-round", "Quark")}
    exports["modelopt"] = len((truth / "modelopt_exports.jsonl").read_text().splitlines())
    return ((name, oracle.format_map(exports), what) for name, oracle, what in RECIPES)


def operations() -> Rows:
    rows, gpt2 = DATA["flops"]["rows"], llamath.load("gpt2")
    step = train_flops(record(gpt2.tree, new_tokens=1024), masked=False)
    large = 6 * llamath.load("llama-3.1-405b").parameters.total * 156 * 10**11
    for (what, printed), here in zip(rows, (step.forward, step.model, large), strict=True):
        exact = isinstance(printed, int)
        yield (
            what,
            f"{printed:,}" if exact else str(printed),
            f"{here:,}" if exact else f"{here:.1e}".replace("+", ""),
        )


def training_memory() -> Rows:
    """Memory of recipes as published, beside the lines that an allocator sees; recipes that differ
    in tokens alone are one row."""
    rows: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for what, loss, printed, here in recipes_of_memory():
        match = re.fullmatch(r"(.*), ([\d,]+) tokens", what)
        name, tokens = match.groups() if match else (what, "")
        error = f"{100 * (here / printed - 1):+.1f}"
        rows.setdefault((name, loss), []).append((tokens, f"{printed:g}", f"{here:.1f}", error))
    for (name, loss), cases in rows.items():
        tokens, *figures_ = ("/".join(x) for x in zip(*cases, strict=True))
        yield (f"{name}, {tokens} tokens" if tokens else name), loss, *figures_


TESTS = {
    "activations": "activations saved for the backward pass: torch's `saved_tensors_hooks`, "
    "Korthikanti's formulas",
    "cache": "KV cache: the caches that transformers allocates, published bytes per token",
    "torch_flops": "FLOPs: torch's counter on transformers' models, forward, backward and "
    "decode, as integers",
    "lora": "LoRA: published counts of adapters, peft's names",
    "memory": "inference memory: what a forward pass of transformers holds",
    "parallel": "tensor parallelism: transformers' own plans",
    "storage": "quantized weights: llama.cpp's table and choice of types, published indexes",
    "quantized_tensors": "tensors of quantized checkpoints: ModelOpt, compressed-tensors, "
    "bitsandbytes, published headers",
    "recipes": "quantization recipes: transformers' quantizers, hqq, torchao, published files",
    "dequantizers": "values of packed weights: the quantizers' own dequantization",
    "ggml_values": "values and rounding bounds of GGUF's block types: llama.cpp's library, the "
    "gguf package",
    "same": "`same`: conversions of every tiny configuration, gguf's quantizers, peft's merges, "
    "planted faults",
    "same_packed": "`same` and packed weights: tensors that bitsandbytes wrote, GPTQ's algorithm",
    "gguf_loading": "GGUF files that llama.cpp would not load: the tensors that its source asks "
    "for",
    "weights_hash": "the hash of `same`: a second implementation of its definition",
    "divergence": "KL divergence: numpy, in llama.cpp's definitions",
    "explain_recipes": "`explain`: numbers that public programs and papers print",
    "loss_memory": "memory of chunked, summed and Liger's losses: the tensors that torch allocates",
    "training": "training memory: ZeRO's figure, what torch's optimizers allocate, peft, Llama "
    "3's layouts",
}
"""Test files that compare with other programs, and what they compare."""


def tests() -> Iterator[str]:
    """Yield the tests that compare with other programs."""
    for name, what in TESTS.items():
        (path,) = (PAGE.parents[2] / "tests").rglob(f"test_{name}.py")
        yield wrap(f"- {what} (`{path.relative_to(PAGE.parents[2] / 'tests')}`)", "  ")


def layout_text(x: Found | Throughput) -> str:
    """Return a run's layout: axes, the size of a microbatch × their number, interleaved runs."""
    at = x.plan.layout
    axes = " ".join(
        f"{name.upper()}{n}" for name in ("tp", "cp", "pp", "dp") if (n := getattr(at, name)) > 1
    )
    interleaved = f", {at.interleave} runs" if at.interleave > 1 else ""
    return f"{axes}, {at.microbatch}×{at.count}{interleaved}"


def run_row(x: Found | Throughput, table_: str, source: str, unit: str) -> dict[str, Any]:
    """Return a training run as a row of conformance/training_runs.jsonl."""
    printed, predicted = {unit: x.printed}, {unit: round(x.predicted, 1)}
    if isinstance(x, Throughput):
        predicted["memory_gib"] = round(x.plan.memory / 2**30, 1)
        if x.memory is not None:
            printed["memory_gib"] = x.memory
    return {
        "kind": "training run",
        "source": source,
        "model": x.name,
        "name": table_,
        "given": {"layout": layout_text(x)},
        "printed": printed,
        "llamath": llamath.__version__,
        "predicted": predicted,
        "difference_percent": {
            name: round(100 * (predicted[name] / y - 1), 2) for name, y in printed.items()
        },
        "misses": [name for name, y in printed.items() if round(predicted[name]) != round(y)],
    }


def run_lines(tables: Mapping[str, Sequence[Found | Throughput]]) -> str:
    """Return all training runs as JSON lines."""
    about = {name: (DATA[key], "tflops_of_a_gpu") for name, key, _ in RUNS}
    about |= {x["title"]: (x, "tokens_per_second_of_a_gpu") for x in PUBLISHED.values()}
    lines = []
    for name, rows in tables.items():
        facts, unit = about[name]
        source = f"{facts['source']}; {facts['note']}" if facts.get("note") else facts["source"]
        lines += [json.dumps(run_row(x, name, source, unit), ensure_ascii=False) for x in rows]
    return "".join(f"{x}\n" for x in lines)


def summary(tables: Mapping[str, Sequence[Found | Throughput]]) -> Iterator[str]:
    rows = []
    for name, predictions in tables.items():
        errors = [100 * x.error for x in predictions]
        mean, ratio = sum(map(abs, errors)) / len(errors), 1 + sum(errors) / len(errors) / 100
        fits = sum(x.plan.memory <= x.room for x in predictions)
        rows.append(
            (
                name,
                str(len(predictions)),
                f"{ratio:.2f}",
                f"{mean:.1f}",
                f"{min(errors):+.1f} … {max(errors):+.1f}",
                str(fits),
            )
        )
    yield from table(("table", "runs", "ratio", "error, %", "range, %", "fit"), rows)


SECTIONS: tuple[tuple[str, str, Callable[[], Iterable[str]]], ...] = (
    (
        "Training states of 7.5 billion parameters with Adam, GB",
        "zero",
        lambda: grid(zero(), "sharding"),
    ),
    (
        "Activations of one layer, MB",
        "korthikanti",
        lambda: grid(activations(), "formula"),
    ),
    ("FLOPs", "flops", lambda: figures(operations())),
)
RUNS = (
    ("Llama 3, table 4", "llama3", llama3),
    ("Megatron, table 1", "megatron", megatron),
    ("Korthikanti et al., table 5", "korthikanti", korthikanti),
    ("PaLM", "palm", palm),
)


_RECIPE_TEXT = (
    "Integers are compared exactly. Tests that need MLX, bitsandbytes, torchao or hqq skip "
    "without them (`pip install --group "
    "quantizers`); exports are stored as facts, written by `tools/modelopt_exports.py` and "
    "`tools/quantizer_exports.py`."
)


def page() -> tuple[str, str]:
    """Return the page, and the training runs as JSON lines."""
    lines = [HEAD, "## Exact: equal, or equal to the printed digits", ""]
    for title, key, body in SECTIONS:
        lines += [f"### {title}", "", wrap(f"{DATA[key]['source']}."), "", *body(), ""]
    lines += ["## Rates that engines reached", ""]
    for title, source, body in ENGINE_SECTIONS:
        lines += [f"### {title}", "", wrap(f"{source}."), "", *body(), ""]
    lines += ["## More comparisons", ""]
    lines += ["### Quantization recipes and what they are compared with", "", wrap(_RECIPE_TEXT)]
    lines += [""]
    lines += [wrap(f"- **{x}**, with {oracle}: {what}", "  ") for x, oracle, what in recipes()]
    lines += [""]
    lines += ["### By other programs", "", "Files of `tests` that compare with other programs:"]
    lines += ["", *tests(), ""]
    values = "\n".join(
        wrap(f"- {name} {value:g}: {what}", "  ") for name, (value, what) in SAYS.items()
    )
    measured: dict[str, list[str]] = {}
    for what, source in benchmark_sources():
        measured.setdefault(source, []).append(what)
    sources = "\n".join(
        wrap(f"- {', '.join(what)}: {source}", "  ") for source, what in measured.items()
    )
    lines += [PREDICTED.format(constants=values, benchmarks=sources)]
    tables = {name: list(predict()) for name, _, predict in RUNS}
    published = {x["title"]: list(throughput(key)) for key, x in PUBLISHED.items()}
    lines += [*summary(tables | published), ""]
    lines += [
        "Mean error of the rows of the first four tables, and range of errors, if a constant "
        "were a tenth",
        "lower or higher:",
        "",
        *table(("constant", "a tenth lower", "a tenth higher"), changed()),
        "",
    ]
    facts = DATA["training_memory"]
    lines += ["### Memory of fine-tuning recipes, GiB", ""]
    lines += [wrap(f"{facts['source']}; {facts['note']}."), ""]
    header = ("recipe", "loss", "published", "llamath", "error, %")
    lines += [*table(header, training_memory()), ""]
    lines += [
        "### Llama 3's layouts among those that `plan` ranks for their clusters",
        "",
        *table(("run", "rank"), _ranks()),
        "",
    ]
    beyond = deepseek()
    tail = TAIL.format(
        predicted=beyond.predicted, printed=beyond.printed, source=DATA["deepseek"]["source"]
    )
    lines += ["## What is not modeled", "", "\n\n".join(map(wrap, tail.split("\n\n"))), ""]
    return "\n".join(lines), run_lines(tables | published)


PLACES = {
    "wires": (plan_wires, "LINK_EFFICIENCY"),
    "overlap": (plan_time, "DP_OVERLAP"),
    "passes": (plan_work, "ACTIVATION_PASSES"),
}


def changed() -> Rows:
    """The errors of the first tables with one constant a tenth lower or higher."""
    for name, (module, constant) in PLACES.items():
        value, cells = getattr(module, constant), []
        for factor in (0.9, 1.1):
            setattr(module, constant, factor * value)
            errors = [100 * x.error for _, _, predict in RUNS for x in predict()]
            cells.append(
                f"{sum(map(abs, errors)) / len(errors):.1f}%; {min(errors):+.1f} … "
                f"{max(errors):+.1f}%"
            )
        setattr(module, constant, value)
        yield name, *cells


def _ranks() -> Rows:
    for row in DATA["llama3"]["rows"]:
        result = rank(row)
        yield (
            f"{row[0]:,} H100, {row[5]:,} tokens",
            f"{result} of 10" if result else ("not among the first ten"),
        )


def main() -> int:
    fresh = dict(zip((PAGE, FOLDER / "training_runs.jsonl"), page(), strict=True))
    stale = [x for x, text in fresh.items() if not x.exists() or x.read_text() != text]
    if "--check" not in sys.argv:
        for path in stale:
            path.write_text(fresh[path])
        return 0
    for path in stale:
        print(f"{path.name} is out of date; run python tools/accuracy.py", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
