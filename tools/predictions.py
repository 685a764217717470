"""llamath's predictions of published facts: one function for each kind of row of conformance/."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import llamath
from llamath.analysis.size.memory.cache_bytes import kv_cache_size
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.analysis.size.serving.engine_layouts import check_engine_layout
from llamath.analysis.size.serving.engine_report import (
    EngineSettings,
    plan_engine,
    state_element_bytes,
)
from llamath.analysis.size.serving.paged_cache import (
    PagedCache,
    layer_caches,
    page_layers,
    sparse_rows,
)
from llamath.analysis.size.serving.rank_shapes import EngineLayout
from llamath.analysis.size.training.lora_adapters import build_adapters, module_names
from llamath.analysis.storage.choose_storage import gguf_naming, model_format, weight_storage
from llamath.analysis.storage.quantized_tensors import (
    mtp_bytes,
    mtp_quantized_tensors,
    quantized_tensors,
)
from llamath.analysis.storage.weight_bytes import WeightStorage
from llamath.checkpoint.quantization.weight_format import declared_weight_format
from llamath.engines import Engine, find_engine
from llamath.hardware import find_device
from llamath.model import FamilyModel, with_family

GIB, MIB = 2**30, 2**20
HALF = 0.0051  # of the last digit of a printed GiB, which may have been rounded twice
TOKENIZER = 20 * 10**6
"""The most bytes of the keys of a GGUF file: gpt-oss's tokenizer has 13 MB."""
Row = Mapping[str, Any]
Values = dict[str, Any]


def load(row: Row) -> FamilyModel:
    """Return a row's model, with the keys of its config that are changed."""
    return with_family(llamath.load(row["model"], changes=row["given"].get("changes", {})))


def calculator(row: Row) -> MemoryCalculator:
    """Return the sizes of a row's model."""
    given = row["given"]
    return MemoryCalculator(
        load(row),
        MemoryRequest(
            dtype=given.get("dtype", ""),
            kv_dtype=given.get("kv_dtype", ""),
            context=given.get("length", 8192),
        ),
    )


def pages(row: Row) -> PagedCache:
    """Return the pages of a row's cache."""
    engine, sizes, given = find_engine(row["engine"]), calculator(row), row["given"]
    caches = layer_caches(
        sizes.decode,
        given.get("tp", 1),
        sizes.kv_dtype,
        state_element_bytes(engine, sizes),
        sparse=sparse_rows(engine, "h200"),
    )
    assert not isinstance(caches, str)
    paged = page_layers(
        sizes.tree,
        caches,
        engine,
        in_flight=in_flight(engine, given.get("batched_tokens", 8192)),
        stages=[[(0, int(sizes.tree.layers.n))]],
    )
    assert isinstance(paged, PagedCache)
    return paged


def in_flight(engine: Engine, batched: int) -> int:
    """Return the tokens of the batches that an engine schedules at once."""
    return int(batched * engine.figure("batches_in_flight", 1))


def cache_at_startup(row: Row) -> Values:
    """Convert the printed memory, tokens or blocks into the other units of the log."""
    given, printed, paged = row["given"], row["printed"], pages(row)
    if "blocks" in given:
        return {"tokens": given["blocks"] * paged.groups[0].block_tokens}
    if "gib" in printed:
        per_token = paged.block_bytes[0] / paged.groups[0].block_tokens
        return {"gib": given["tokens"] * per_token / GIB}
    if "available_gib" not in given and "tokens" in given:
        block, groups = min(x.block_tokens for x in paged.groups), len(paged.groups)
        blocks = given["tokens"] // block * groups
        of_request = paged.blocks_of_request(given["length"])
        return {"concurrency": [n / of_request for n in (blocks, blocks + groups - 1)]}
    length = given.get("length", printed.get("tokens"))
    low, high = (
        paged.capacity(int((given["available_gib"] + x) * GIB), length) for x in (-HALF, HALF)
    )
    return {
        "needs_gib": low.needed / GIB,
        "longest": [low.longest, high.longest],
        "tokens": [low.tokens, high.tokens],
        "concurrency": [low.concurrency, high.concurrency],
    }


def memory_at_startup(row: Row) -> Values:
    """Weights, and the interval of the memory for the cache."""
    given = row["given"]
    device = find_device(given["on"]).replace(memory=int(given["device_gib"] * GIB))
    found = plan_engine(
        calculator(row),
        row["engine"],
        device,
        given["tp"],
        EngineSettings(layout=EngineLayout(given["tp"]), fraction=given["fraction"]),
    ).memory
    assert found is not None
    return {
        "weights_gib": found.weights / GIB,
        "available_gib": [x / GIB for x in found.available],
    }


def layout(row: Row) -> Values:
    """Whether an engine starts, and what it says if not."""
    given = row["given"]
    asked = EngineLayout(
        given["tp"], given.get("pp", 1), given.get("dp", 1), given.get("ep", False)
    )
    broken = check_engine_layout(find_engine(row["engine"]), calculator(row), asked).broken
    said = row["printed"].get("says")
    words = [x.says for x in broken]
    return {
        "starts": not broken,
        "says": said if said in words else next(iter(words), "nothing"),
    }


def planner(row: Row) -> Values:
    """Blocks, tokens and requests at once in the given memory."""
    given, paged = row["given"], pages(row)
    found = paged.capacity(given["available_bytes"], given["length"])
    (block_bytes,) = paged.block_bytes
    return {
        "groups": len(paged.groups),
        "block_bytes": block_bytes,
        "blocks": found.blocks,
        "tokens": found.tokens,
        "concurrency": found.concurrency,
    }


def buffers(row: Row) -> Values:
    """MiB of weights on CPU and GPU, and of the cache."""
    given = row["given"]
    report = llamath.place(
        row["model"],
        on=given["on"],
        ram="64GiB",
        dtype=given["dtype"],
        context=given.get("context", 8192),
    )
    gpu, ram = report.devices
    return {
        "cpu_mib": (ram.dense + ram.experts) / MIB,
        "gpu_mib": (gpu.dense + gpu.experts) / MIB,
        "kv_mib": gpu.cache / MIB,
    }


def cache(row: Row) -> Values:
    """Bytes of the cache of one sequence, or of the last of its tokens."""
    given, tree = row["given"], load(row).text.tree
    tokens = given["tokens"]
    sizes = [int(kv_cache_size(tree, n, 1, given["kv_dtype"]).bytes) for n in (tokens, tokens + 1)]
    size = sizes[1] - sizes[0] if tokens == 1 else sizes[0]
    return {"bytes": size, "gib": size / GIB}


def storage(row: Row) -> WeightStorage:
    """Return how a row's model is stored."""
    given, model = row["given"], load(row)
    if given.get("part") == "text" or "tokenizer" in given:
        model = model.text
    return weight_storage(
        model.tree,
        model_format(model, given["dtype"]),
        gguf_naming(model),
        given.get("imatrix"),
        model.family.schemes.get("hf"),
    )


def gguf_types(row: Row) -> Values:
    """Bits of a weight, and GiB."""
    kept = storage(row)
    return {"bits_per_weight": float(kept.bits), "gib": kept.bytes / GIB}


def gguf_file(row: Row) -> Values:
    """GiB of the text model's tensors with layers for multi-token prediction, and of its keys."""
    model = load(row).text
    packer = model_format(model, row["given"]["dtype"])
    size = int(storage(row).bytes) + (mtp_bytes(model, packer) or 0)
    keys = TOKENIZER if row["given"]["tokenizer"] else 0
    return {"gib": [size / GIB, (size + keys) / GIB] if keys else size / GIB}


def checkpoint(row: Row) -> Values:
    """Bytes of all tensors."""
    return {"bytes": int(storage(row).bytes)}


def elements(row: Row) -> Values:
    """Elements by dtype of a quantized checkpoint, with layers for multi-token prediction."""
    config = dict(llamath.load(row["model"]).config.data) | row["given"]["changes"]
    model = with_family(llamath.load(config))
    packer = declared_weight_format(model.config.data)
    counts = {"U8": row["given"].get("bytes_of_states", 0)}
    tensors = [*quantized_tensors(model, packer), *mtp_quantized_tensors(model, packer)]
    for x in tensors:
        counts[x.dtype] = counts.get(x.dtype, 0) + prod(x.shape) * (
            2 if x.name.endswith("_blocks") else 1
        )
    counts = dict.fromkeys(row["printed"], 0) | counts
    return {**counts, "tensors": len(tensors), "bytes": sum(x.bytes for x in tensors)}


def active_parameters(row: Row) -> Values:
    """Active parameters as `counted` says: all, without the embedding, or without both ends."""
    return {"billions": getattr(load(row).parameters, row["given"]["counted"]) / 1e9}


def parameters(row: Row) -> Values:
    """All parameters, with stored buffers where they are counted."""
    counts = load(row).parameters
    return {
        "parameters": int(counts.total) - (0 if row["given"]["buffers"] else int(counts.buffers))
    }


def adapters(row: Row) -> Values:
    """Trainable parameters of LoRA."""
    given, model = row["given"], load(row)
    n = build_adapters(
        model.tree, given["rank"], tuple(given["targets"].split(",")), module_names(model)
    ).parameters
    return {"trainable": int(n), "percent": 100 * n / (model.parameters.total + n)}


def gguf_parser(row: Row) -> Values:
    """A file in GiB and bits of a weight, or a cache in GiB."""
    if tokens := row["given"].get("cache_of_tokens"):
        return {"cache_gib": kv_cache_size(load(row).text.tree, tokens, 1, "fp16").bytes / GIB}
    return gguf_types(row)


def eagle_head(row: Row) -> Values:
    """Parameters of a head for speculative decoding."""
    return {"billions": llamath.pair(row["model"], "eagle").parameters / 1e9}


KINDS: dict[str, Callable[[Row], Values]] = {
    "KV cache at start-up": cache_at_startup,
    "GPU memory at start-up": memory_at_startup,
    "layout": layout,
    "vLLM's own planner": planner,
    "llama.cpp's buffers": buffers,
    "KV cache": cache,
    "GGUF types": gguf_types,
    "GGUF file": gguf_file,
    "checkpoint": checkpoint,
    "elements by dtype": elements,
    "active parameters": active_parameters,
    "parameters": parameters,
    "LoRA parameters": adapters,
    "gguf-parser's estimate": gguf_parser,
    "EAGLE head": eagle_head,
}
FACTS = ("kind", "source", "engine", "model", "name", "given", "printed", "rounded_to", "note")


def nearest(predicted: Any, printed: Any) -> Any:
    """Return the point of an interval that is nearest to a printed figure."""
    if not isinstance(predicted, list):
        return predicted
    return min(max(printed, predicted[0]), predicted[1])


def is_equal(predicted: Any, printed: Any, step: float) -> bool:
    """Whether a figure is the printed one, or is rounded to it."""
    found = nearest(predicted, printed)
    if isinstance(printed, str | bool) or not step:
        return bool(found == printed)
    return bool(abs(found - printed) <= 0.51 * step)


def shorten(value: Any) -> Any:
    """Return floats with six digits after the point, and integers and words as they are."""
    if isinstance(value, list):
        return [shorten(x) for x in value]
    return round(float(value), 6) if isinstance(value, float) else value


def predict(row: Row) -> dict[str, Any]:
    """Return a row's facts with llamath's prediction, the difference in percent, and what is not
    equal to the printed digits.
    """
    found, printed, steps = KINDS[row["kind"]](row), row["printed"], row.get("rounded_to", {})
    values = {x: shorten(found[x]) for x in printed}
    numbers = {x: y for x, y in printed.items() if not isinstance(y, str | bool)}
    misses = [x for x, y in printed.items() if not is_equal(values[x], y, steps.get(x, 0))]
    return {
        **{x: row[x] for x in FACTS if x in row},
        "llamath": llamath.__version__,
        "predicted": values,
        "difference_percent": {
            x: round(100 * (float(nearest(values[x], y)) / y - 1), 4) for x, y in numbers.items()
        },
        "misses": misses,
        **({"reason": row["reason"]} if misses and "reason" in row else {}),
    }
