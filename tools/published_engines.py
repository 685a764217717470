"""Rows of docs/concepts/accuracy.md about engines: what they print, refuse and reach, next to
llamath's figures."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import llamath
from accuracy_tables import Rows, equal, figures, table, wrap
from llamath.analysis.size.memory.gpu_shards import ShardedModel
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.analysis.size.serving.engine_layouts import check_engine_layout
from llamath.analysis.size.serving.engine_report import (
    EngineSettings,
    plan_engine,
    state_element_bytes,
)
from llamath.analysis.size.serving.llama_cpp_cache import llama_cpp_cache
from llamath.analysis.size.serving.paged_cache import (
    PagedCache,
    layer_caches,
    page_layers,
    sparse_rows,
)
from llamath.analysis.size.serving.rank_shapes import EngineLayout
from llamath.analysis.storage.choose_storage import gguf_naming, weight_storage
from llamath.checkpoint.quantization.format_names import parse_weight_format
from llamath.engines import Engine, find_engine
from llamath.hardware import find_device
from llamath.questions.layout import Layout
from published_runs import DATA

FACTS = json.loads((Path(__file__).parents[1] / "tests" / "truth" / "engines.json").read_text())
SERVED = DATA["serving_maximum"]
GIB, MIB = 2**30, 2**20


def calculator(row: dict[str, Any]) -> MemoryCalculator:
    """Return the sizes of a row's model."""
    model = (
        llamath.load(row["model"], changes=row["changes"])
        if row.get("changes")
        else llamath.load(row["model"])
    )
    return MemoryCalculator(
        model,
        MemoryRequest(
            dtype=row.get("dtype", ""),
            kv_dtype=row.get("kv_dtype", ""),
            context=row.get("length", 8192),
        ),
    )


def pages(engine: Engine, row: dict[str, Any], batched: int = 8192) -> PagedCache:
    """Return the pages of a row's model."""
    sizes = calculator(row)
    state_bytes, rows = state_element_bytes(engine, sizes), sparse_rows(engine, "h200")
    caches = layer_caches(sizes.decode, row.get("tp", 1), sizes.kv_dtype, state_bytes, sparse=rows)
    assert not isinstance(caches, str)
    in_flight = batched * engine.figure("batches_in_flight", 1)
    paged = page_layers(
        sizes.tree, caches, engine, in_flight=in_flight, stages=[[(0, int(sizes.tree.layers.n))]]
    )
    assert isinstance(paged, PagedCache)
    return paged


def where(url: str) -> str:
    """Return a source as a link with a short text."""
    if not url.startswith("https://"):
        return url
    address, _, rest = url.partition(", ")
    return f"[{'/'.join(address.split('/')[3:])}]({address})" + (f", {rest}" if rest else "")


def logs() -> Rows:
    """Start-up logs: what they print, and what llamath gives for the same memory."""
    for row in FACTS["logs"]:
        if "model" not in row or row.get("all_full"):
            continue
        engine = find_engine(row["engine"])
        paged = pages(engine, row)
        name = (
            f"{row['model']}"
            + (f", TP {row['tp']}" if row.get("tp") else "")
            + (f", {row['kv_dtype']}" if row.get("kv_dtype") else "")
        )
        bytes_of_token = paged.block_bytes[0] / paged.groups[0].block_tokens
        if "needs" in row:
            found = paged.capacity(int(row["available"] * GIB), row["length"])
            printed = (
                f"{row['length']:,} tokens need {row['needs']} GiB; in {row['available']} "
                f"GiB fit {row['estimate']:,}"
            )
            here = f"{found.needed / GIB:.2f} GiB; {found.longest:,}"
        elif "gib" in row:
            printed, here = (
                f"{row['tokens']:,} tokens in {row['gib']} GiB",
                f"{row['tokens'] * bytes_of_token / GIB:.2f} GiB",
            )
        elif "available" in row:
            printed = f"{row['available']:.2f} GiB are {row['tokens']:,} tokens"
            here = f"{row['tokens'] * bytes_of_token / GIB:.2f} GiB"
            if len(paged.groups) > 1:
                length = row.get("length", row["tokens"])
                here = f"{paged.capacity(int(row['available'] * GIB), length).tokens:,} tokens"
        elif "blocks" in row:
            printed, here = (
                f"{row['blocks']:,} blocks are {row['tokens']:,} tokens",
                f"{row['blocks'] * paged.groups[0].block_tokens:,}",
            )
        else:
            block, groups = min(x.block_tokens for x in paged.groups), len(paged.groups)
            blocks = range(
                row["tokens"] // block * groups, row["tokens"] // block * groups + groups
            )
            low, high = (
                n / paged.blocks_of_request(row["length"]) for n in (blocks[0], blocks[-1])
            )
            printed = f"{row['tokens']:,} tokens, {row['times']}x of {row['length']:,}"
            here = f"blocks of {block} tokens, {low:.2f}x to {high:.2f}x"
        yield name, engine.label, printed, here, where(row["url"])


def memory() -> Rows:
    """Weights, and the memory for the cache, of start-up logs."""
    for group in FACTS["memory"]:
        for model, dtype, tp, fraction, weights, kv, *_ in group["rows"]:
            device = find_device("h100").replace(memory=int(group["device_gib"] * GIB))
            if device.memory < 40 * GIB:
                device = find_device("rtx-5090")
            sizes = calculator({"model": model, "dtype": dtype, "length": 16000})
            found = plan_engine(
                sizes,
                group["engine"],
                device,
                tp,
                EngineSettings(layout=EngineLayout(tp), fraction=fraction),
            ).memory
            assert found is not None
            low, high = (x / GIB for x in found.available)
            name = (
                f"{model}{f' {dtype}' if dtype else ''}, TP {tp}, {fraction:g} of "
                f"{group['device_gib']} GiB"
            )
            yield (
                name,
                f"{weights:.2f}",
                f"{found.weights / GIB:.2f}",
                f"{kv:.2f}",
                (f"{low:.2f} to {high:.2f}"),
                where(group["url"]),
            )


def refusals() -> Iterator[str]:
    """Yield the words of engines that refused a layout, and threads with what they said."""
    words: dict[str, str] = {}
    rows = []
    for row in FACTS["threads"]:
        engine = find_engine(row["engine"])
        layout = EngineLayout(row["tp"], row.get("pp", 1), row.get("dp", 1), row.get("ep", False))
        found = check_engine_layout(engine, calculator(row), layout)
        said = row["says"] or "starts"
        assert said in [x.says for x in found.broken] or (said == "starts" and not found.broken)
        if row["says"]:
            # one letter for a sentence, whatever its first number
            number = re.search(r"\b\d+\b", said)
            general = re.sub(r"\b\d+\b", "N", said, count=1)
            letter = words.setdefault(general, "ABCDEFGHIJ"[len(words)])
            said = letter + (f" ({number[0]})" if number else "")
        rows.append(f"- {row['asked']}, {engine.label}: {said}, {where(row['url'])}")
    yield from (wrap(f"- {letter}: {x}", "  ") for x, letter in words.items())
    yield from ("", "Asked, and answered with a letter and its N:", "")
    yield from (wrap(x, "  ") for x in rows)


def planner() -> Rows:
    """Models with vLLM's own planner's numbers."""
    for row in FACTS["planner"]["rows"]:
        found = pages(find_engine("vllm"), row, row["batched_tokens"]).capacity(
            row["available"], row["length"]
        )
        name = (
            f"{row['model']}, TP {row['tp']}, {row['kv_dtype']}, {row['available'] / GIB:.2f} "
            f"GiB, {row['length']:,} tokens"
        )
        printed = f"{row['blocks']:,} blocks, {row['tokens']:,} tokens, {row['concurrency']:.4f}x"
        yield (
            name,
            printed,
            (f"{found.blocks:,} blocks, {found.tokens:,} tokens, {found.concurrency:.4f}x"),
        )


def buffers() -> Rows:
    """Buffers that llama.cpp prints, in MiB."""
    for row in FACTS["buffers"]:
        report = llamath.place(
            row["model"],
            on=row["on"],
            ram="64GiB",
            dtype=row["dtype"],
            context=row.get("context", 8192),
        )
        gpu, ram = report.devices
        printed, here = (
            [f"CPU {row['cpu_mib']:.2f}"],
            [f"CPU {(ram.dense + ram.experts) / MIB:.2f}"],
        )
        if "gpu_mib" in row:
            printed.append(f"GPU {row['gpu_mib']:.2f}")
            here.append(f"GPU {(gpu.dense + gpu.experts) / MIB:.2f}")
        if "kv_mib" in row:
            printed.append(f"cache {row['kv_mib']:.2f}")
            here.append(f"cache {gpu.cache / MIB:.2f}")
        yield (
            f"{row['model']} {row['dtype'].upper()}",
            ", ".join(printed),
            ", ".join(here),
            where(row["url"]),
        )


def estimates() -> Rows:
    """Files and caches that gguf-parser estimates, in GiB."""
    facts = FACTS["gguf_parser"]
    for slug, dtype, gib, bits, *measured in facts["rows"]:
        model = llamath.load(slug)
        kept = weight_storage(
            model.tree,
            parse_weight_format(dtype),
            gguf_naming(model),
            bool(measured),
        )
        yield (
            f"{slug} {dtype.upper()}",
            f"{gib:.2f} GiB, {bits:.2f} bits",
            f"{kept.bytes / GIB:.2f} GiB, {kept.bits:.2f} bits",
        )
    engine = find_engine("llama.cpp")
    for slug, context, gib in facts["caches"]:
        sizes = calculator({"model": slug, "dtype": "q4_k_m", "length": context})
        cache = llama_cpp_cache(engine, sizes, ShardedModel(sizes, Layout())).bytes / GIB
        yield (
            f"{slug}, cache of {context:,} tokens",
            f"{gib:.2f} GiB with a compute buffer",
            f"{cache:.2f} GiB",
        )


def heads() -> Rows:
    """EAGLE heads, in billions of parameters."""
    for slug, billions in FACTS["heads"]["rows"]:
        yield slug, f"{billions:.2f} B", f"{llamath.pair(slug, 'eagle').parameters / 1e9:.3f} B"


def reached() -> Iterator[tuple[str, float, float, str]]:
    """Yield decode rates that were reached by one sequence, and the ceilings at 128 tokens of
    context."""
    for group in FACTS["throughput"]:
        for slug, dtype, rate in group["rows"]:
            found = llamath.place(slug, on=group["on"], ram="64GiB", dtype=dtype, context=128)
            yield (
                f"{slug} {dtype.upper()} on {group['device']}",
                rate,
                found.decode_ceiling,
                where(group["url"]),
            )


def rates() -> Iterator[str]:
    """Yield decode rates that were reached, and the ceilings, by their sources."""
    sources: dict[tuple[str, str], list[str]] = {}
    for name, rate, ceiling, source in reached():
        file, _, device = name.partition(" on ")
        figures_ = f"{file} {rate:,.1f} of {ceiling:,.1f} ({rate / ceiling:.2f})"
        sources.setdefault((device, source), []).append(figures_)
    for (device, source), cases in sources.items():
        yield wrap(f"- {device}, {source}: {'; '.join(cases)}", "  ")


class Served(NamedTuple):
    """A published throughput, and its bounds with requests of their mean and of their whole
    length.
    """

    name: str
    rate: int
    of_mean: float
    of_whole: float


def served() -> Iterator[Served]:
    """Yield published throughputs of servers under full load, and what `plan --serve` gives."""
    for name, gpu, tp, dtype, cases in SERVED["rows"]:
        on = f"{tp}x{gpu}"
        for prompt, output, rate in cases:
            of_mean, of_whole = (
                max(
                    x.rate * tp
                    for x in llamath.plan_serving(
                        name, on=on, dtype=dtype, kv_dtype="fp8", context=tokens
                    ).plans
                )
                for tokens in (prompt + output // 2, prompt + output)
            )
            label = f"{name} {dtype} on {on}, {prompt} + {output}"
            yield Served(label, rate, of_mean, of_whole)


def throughputs() -> Iterator[str]:
    """Yield the shares of the bounds that servers reached."""
    found = list(served())
    shares = sorted(x.rate / x.of_mean for x in found)
    above = [f"{x.name} ({x.rate / x.of_whole:.2f})" for x in found if x.rate > x.of_whole]
    assert shares[-1] <= 1
    yield wrap(
        f"{len(found)} rates: from {shares[0]:.2f} to {shares[-1]:.2f} of the bound at the mean "
        f"length, median {statistics.median(shares):.2f}. {len(above)} are above the figure for "
        f"requests that have their whole length at each step, which is no bound for requests that "
        f"grow: {'; '.join(above)}."
    )


def files_and_caches() -> Iterator[str]:
    """Yield gguf-parser's estimates of files, which agree, and those of caches."""
    rows = list(estimates())
    files = [x for x in rows if "cache" not in x[0]]
    yield from figures(files)
    yield ""
    yield from table(("cache", "gguf-parser", "llamath"), rows[len(files) :])


def agreed_plans() -> list[str]:
    """Return the tokens of vLLM's planner; its blocks and requests at once are llamath's, too."""
    assert all(equal(theirs, ours) for _, theirs, ours in planner())
    rows = FACTS["planner"]["rows"]
    cases = (
        f"{x['model']} {x['available'] / GIB:.2f} GiB, "
        f"TP{x['tp']}, {x['kv_dtype']}: {x['tokens']:,}"
        for x in rows
    )
    return [wrap("; ".join(cases) + ".")]


ENGINE_SECTIONS: tuple[tuple[str, str, Callable[[], Iterable[str]]], ...] = (
    (
        "Start-up logs: tokens of a KV cache",
        "What engines print as they start, and what llamath gives from the printed memory or "
        "tokens",
        lambda: (
            wrap(f"- {name}, {engine}: {printed}; llamath: {here}; {source}", "  ")
            for name, engine, printed, here, source in logs()
        ),
    ),
    (
        "Start-up logs: memory of a GPU, GiB",
        "Weights, and the memory that vLLM leaves for the KV cache; its own memory is an "
        "interval in `src/llamath/engines/vllm.json`. "
        "vLLM pads MXFP4 experts, and two of the models have a vision tower that is not counted "
        "here",
        lambda: table(
            ("model, share of a GPU", "weights", "llamath", "for the cache", "llamath", "source"),
            memory(),
        ),
    ),
    (
        "Layouts that engines refuse",
        "Threads, and what the engine said, by letter; llamath, by the rules of that version, says "
        "the same of each",
        refusals,
    ),
    (
        "vLLM's own planner: tokens of a cache",
        f"{FACTS['planner']['source']}. Blocks and requests at once are equal, too",
        agreed_plans,
    ),
    (
        "llama.cpp's buffers, MiB",
        "`load_tensors` and `llama_kv_cache` of start-up logs",
        lambda: table(("file", "printed", "llamath", "source"), buffers()),
    ),
    ("gguf-parser's estimates", FACTS["gguf_parser"]["url"], files_and_caches),
    ("EAGLE heads", FACTS["heads"]["url"], lambda: figures(heads())),
    (
        "Decode rates that were reached, tokens/s",
        "One sequence; the ceiling is bytes over the data sheet's bandwidth at 128 tokens of "
        "context. None was passed",
        rates,
    ),
    (
        "Throughputs of servers under full load",
        f"{SERVED['source']}. The bound is that of `llamath plan --serve --kv-dtype "
        "fp8` with the mean length of a request as context: its prompt and half of its output",
        throughputs,
    ),
)
