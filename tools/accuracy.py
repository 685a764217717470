"""Write docs/concepts/accuracy.md: published figures next to llamath's; with --check, fail if it
is out of date."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from textwrap import fill

import llamath
from llamath.analysis.flops.flop_count import train_flops
from llamath.analysis.graph.recorder import record
from llamath.analysis.graph.saved_rules import Kernels
from llamath.analysis.inference.cache_bytes import kv_cache_size
from llamath.analysis.inference.choose_storage import weight_storage
from llamath.analysis.inference.quantized_tensors import mtp_quantized_tensors, quantized_tensors
from llamath.analysis.inference.weight_bytes import GGUFNaming
from llamath.analysis.parallel_layout import Layout, WeightShard, pipeline_stages
from llamath.analysis.plan import microbatch_work as plan_work
from llamath.analysis.plan import network as plan_wires
from llamath.analysis.plan import step_time as plan_time
from llamath.analysis.training.lora_adapters import build_adapters
from llamath.analysis.training.optimizers import OPTIMIZERS
from llamath.analysis.training.pipeline_schedule import stage_activations, total_bytes
from llamath.analysis.training.saved_activations import SavedActivations
from llamath.analysis.training.zero_states import PersistentState, persistent_lines
from llamath.checkpoint.quantization.schemes import parse_weight_format
from llamath.checkpoint.quantization.weight_format import declared_weight_format
from llamath.hardware.kernel_rates import benchmark_sources
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
Rows = Iterable[Sequence[str]]

HEAD = """# How accurate the numbers are

Written by `tools/accuracy.py`, which runs llamath; the published figures are in
`tests/truth/published_runs.json` and `tests/truth/engines.json`, each with its source.

Counts of weights, bytes, caches and FLOPs are exact: where a publication prints an integer, llamath
gives the same integer, and where it prints digits, the same digits. Activations are exact for the
named implementation. Times are predictions, with the errors listed here.
"""
PREDICTED = """## Predicted: training runs

`llamath plan` predicts the time of a training step from the model, the layout, the data sheet of
the GPUs, and benchmarks of kernels that others published (`src/llamath/hardware/kernels.json`): the
share of the peak that attention reaches by head dimension, sequence length, mask and pass, that
large matrix products reach, and the share of the memory's bandwidth. Three constants are left:

{constants}

No figure of a training run sets a constant: until now, five were set from Llama 3's table, and the
column "before" has the errors of those. What a table does not print (interleaving, and for Megatron
the microbatch) is the fastest choice that fits.

### Benchmarks of kernels

{benchmarks}

### Errors by source

Mean of predicted over published rates, and mean error. "Before" counts the rows that could be
predicted then: none in FP8.
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
        yield f"{ranks} ranks, {name}", f"{printed:g} GB", f"{size / 1e9:.3f} GB"


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
                f"{worth(name, (s, b, h, a, layout.tp)) / 1e6:,.1f} MB",
                f"{(sums[1] - sums[0]) / 1e6:,.1f} MB",
            )


def bits() -> Rows:
    model = llamath.load("llama-3.1-8b")
    names = model.family.gguf
    assert names is not None
    for name, printed, gib in DATA["gguf"]["rows"]:
        kept = weight_storage(
            model.tree,
            parse_weight_format("gguf-f16" if name == "F16" else name),
            GGUFNaming(names, model.family.gguf_arch),
            None,
        )
        yield name, f"{printed:.4f}", f"{kept.bits:.4f}", f"{gib:.2f}", f"{kept.bytes / 2**30:.2f}"


def indexes() -> Rows:
    for name, slug, dtype, printed in DATA["indexes"]["rows"]:
        yield (
            f"{name}: {slug}, {dtype}",
            f"{printed:,}",
            f"{weight_storage(llamath.load(slug).tree, parse_weight_format(dtype)).bytes:,}",
        )


def quantized() -> Rows:
    for name, preset, changes, published, states in DATA["quantized"]["rows"]:
        model = llamath.load(dict(llamath.load(preset).config.data) | changes)
        packer = declared_weight_format(model.config.data)
        counts = {"U8": states}
        for x in (*quantized_tensors(model, packer), *mtp_quantized_tensors(model, packer)):
            counts[x.dtype] = counts.get(x.dtype, 0) + prod(x.shape) * (
                2 if x.name.endswith("_blocks") else 1
            )
        yield (
            name,
            *(
                ", ".join(f"{dtype} {n[dtype]:,}" for dtype in sorted(published))
                for n in (published, counts)
            ),
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
        "AQLM, VPTQ, SpQR, HIGGS, FP-Quant, quanto, SINQ, Gemma's own integers, FP8 tables in "
        "shards",
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


def adapters() -> Rows:
    for slug, rank_, targets, printed, percent in DATA["lora"]["rows"]:
        model = llamath.load(slug)
        n = build_adapters(model.tree, rank_, tuple(targets.split(",")), model.family.hf).parameters
        share = f", {100 * n / (model.parameters.total + n):.4f} %" if percent else ""
        yield (
            f"{slug}, r = {rank_}, {targets}",
            f"{printed:,}" + (f", {percent} %" if percent else ""),
            f"{n:,}{share}",
        )


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
    """Memory of recipes as published, beside the lines that an allocator sees."""
    for what, loss, printed, here in recipes_of_memory():
        yield what, loss, f"{printed:g}", f"{here:.1f}", f"{100 * (here / printed - 1):+.1f} %"


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
    "weights_hash": "`hash`: a second implementation of its definition",
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
        yield fill(
            f"- {what} (`{path.relative_to(PAGE.parents[2])}`)",
            100,
            subsequent_indent="  ",
            break_on_hyphens=False,
        )


def runs(rows: Iterable[Found]) -> Rows:
    for x in rows:
        at = x.plan.layout
        axes = " × ".join(
            f"{name.upper()} {n}"
            for name in ("tp", "cp", "pp", "dp")
            if (n := getattr(at, name)) > 1
        )
        way = f"{axes}; {at.microbatch} × {at.count}" + (
            f"; {at.interleave} runs" if at.interleave > 1 else ""
        )
        memory = f"{x.plan.memory / 2**30:.1f} of {x.room / 2**30:.1f}"
        yield (
            x.name,
            way,
            memory,
            f"{x.printed:.0f}",
            f"{x.predicted:.0f}",
            f"{100 * x.error:+.1f} %",
        )


BEFORE = {
    "Llama 3, table 4": (3, 1.039, 0.061),
    "Megatron, table 1": (10, 0.985, 0.028),
    "Korthikanti et al., table 5": (8, 0.914, 0.087),
}
BEFORE |= {"PaLM": (1, 0.948, 0.052)}
"""The rows, mean ratio and mean error of the earlier predictions; those of Llama 3 had set the
constants."""


def summary(tables: Mapping[str, Sequence[Found | Throughput]]) -> Iterator[str]:
    rows = []
    for name, predictions in tables.items():
        errors = [100 * x.error for x in predictions]
        mean, ratio = sum(map(abs, errors)) / len(errors), 1 + sum(errors) / len(errors) / 100
        fits = sum(x.plan.memory <= x.room for x in predictions)
        old = BEFORE.get(name) or next(
            (x["before"] for x in PUBLISHED.values() if x["title"] == name), None
        )
        before = f"{old[1]:.2f}, {100 * old[2]:.1f} % of {old[0]}" if old else ""
        span = f"{min(errors):+.1f} … {max(errors):+.1f} %"
        rows.append(
            (
                name,
                str(len(predictions)),
                before,
                f"{ratio:.2f}, {mean:.1f} %",
                span,
                f"{fits} of {len(predictions)}",
            )
        )
    yield from table(
        ("table", "rows", "before", "now", "errors from … to", "fit their memory"), rows
    )


def rates(rows: Iterable[Throughput]) -> Rows:
    for x in rows:
        memory = f"{x.plan.memory / 2**30:.1f}" + ("" if x.memory is None else f" ({x.memory:g})")
        yield x.name, f"{x.printed:,.0f}", f"{x.predicted:,.0f}", f"{100 * x.error:+.1f} %", memory


SECTIONS = (
    ("Keys and values of a token, bytes", "kv_bytes", ("model", "published", "llamath"), caches),
    (
        "Training states of 7.5 billion parameters with Adam",
        "zero",
        ("what", "published", "llamath"),
        zero,
    ),
    (
        "Activations of one layer",
        "korthikanti",
        ("model and formula", "published formula", "llamath"),
        activations,
    ),
    (
        "Bits per weight, and GiB",
        "gguf",
        ("type", "published", "llamath", "GiB published", "GiB llamath"),
        bits,
    ),
    ("Bytes of checkpoints", "indexes", ("index: model", "published", "llamath"), indexes),
    (
        "Elements of quantized checkpoints",
        "quantized",
        ("repository", "published", "llamath"),
        quantized,
    ),
    ("Adapters", "lora", ("what", "published", "llamath"), adapters),
    ("FLOPs", "flops", ("what", "published", "llamath"), operations),
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


def page() -> str:
    lines = [HEAD, "## Exact: equal, or equal to the printed digits", ""]
    for title, key, header, rows in SECTIONS:
        lines += [
            f"### {title}",
            "",
            fill(f"{DATA[key]['source']}.", 100),
            "",
            *table(header, rows()),
            "",
        ]
    lines += ["## Engines: what they print, refuse and reach", ""]
    for title, source, header, engine_rows in ENGINE_SECTIONS:
        lines += [
            f"### {title}",
            "",
            fill(f"{source}.", 100, break_on_hyphens=False),
            "",
            *table(header, engine_rows()),
            "",
        ]
    lines += ["## More comparisons", ""]
    lines += [
        "### Quantization recipes and what they are compared with",
        "",
        fill(_RECIPE_TEXT, 100),
        "",
    ]
    lines += [*table(("recipe", "compared with", "equal"), recipes()), ""]
    lines += [
        "### By other programs",
        "",
        "Tests compare with torch, transformers, peft, bitsandbytes and others:",
        "",
        *tests(),
        "",
    ]
    values = "\n".join(
        fill(f"- {name} {value:g}: {what}", 100, subsequent_indent="  ")
        for name, (value, what) in SAYS.items()
    )
    sources = "\n".join(
        fill(f"- {what}: {source}", 100, subsequent_indent="  ", break_on_hyphens=False)
        for what, source in benchmark_sources()
    )
    lines += [PREDICTED.format(constants=values, benchmarks=sources)]
    tables = {name: list(predict()) for name, _, predict in RUNS}
    published = {x["title"]: list(throughput(key)) for key, x in PUBLISHED.items()}
    lines += [*summary(tables | published), ""]
    lines += [
        "Mean error of the rows of the first four tables, and range of errors, if a "
        "constant were a tenth",
        "lower or higher:",
        "",
    ]
    lines += [*table(("constant", "a tenth lower", "a tenth higher"), changed()), ""]
    facts = DATA["training_memory"]
    lines += [
        "### Memory of fine-tuning recipes, GiB",
        "",
        fill(f"{facts['source']}; {facts['note']}.", 100),
        "",
    ]
    lines += [*table(("recipe", "loss", "published", "llamath", "error"), training_memory()), ""]
    for name, key, _ in RUNS:
        note = f"; {DATA[key]['note']}" if "note" in DATA[key] else ""
        lines += [f"### {name}", "", fill(f"{DATA[key]['source']}{note}.", 100), ""]
        lines += [
            *table(("run", "layout", "GiB", "published", "predicted", "error"), runs(tables[name])),
            "",
        ]
    for x in PUBLISHED.values():
        lines += [
            f"### {x['title']}",
            "",
            fill(
                f"{x['source']}: {x['note']}. Tokens per second and GPU; GiB of a GPU, and as "
                "printed.",
                100,
            ),
            "",
        ]
        lines += [
            *table(("run", "published", "predicted", "error", "GiB"), rates(published[x["title"]])),
            "",
        ]
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
    lines += [
        "## What is not modeled",
        "",
        "\n\n".join(fill(x, 100) for x in tail.split("\n\n")),
        "",
    ]
    return "\n".join(lines)


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
                f"{sum(map(abs, errors)) / len(errors):.1f} %; {min(errors):+.1f} … "
                f"{max(errors):+.1f} %"
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
    fresh = page()
    if PAGE.exists() and PAGE.read_text() == fresh:
        return 0
    if "--check" in sys.argv:
        print(f"{PAGE.name} is out of date; run python tools/accuracy.py", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
