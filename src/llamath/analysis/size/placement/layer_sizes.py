"""`layer_sizes`: the bytes of each layer as placement moves them: what every token uses, the
experts, and the KV cache.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from ....core.tree import TOWER_GROUPS, fold
from ....engines import Engine
from ....utils.errors import LlamathError
from ...graph.recorder import record
from ...storage.quantized_tensors import quantized_tensors
from ..memory.cache_bytes import cache_specs, kv_format
from ..memory.inference_memory import MemoryCalculator
from ..serving.llama_cpp_cache import cells_of
from ..serving.paged_cache import MAX_LAYERS, layer_caches

_EXPERT = re.compile(r"_exps\.|\.experts\.|switch_mlp|experts_|\.experts$")
_EMBEDDING = re.compile(
    r"(^|\.)(token_embd|embed_tokens|wte|word_embeddings|embed_in|embedding"
    r"|embeddings|tok_embeddings)\.weight$"
)
_HEAD = re.compile(
    r"(^|\.)(output|lm_head|embed_out|head)\.(weight|bias)$|(^|\.)(output_norm|norm|ln_f"
    r"|final_layernorm|final_layer_norm)\."
)
_GGUF_LAYER = re.compile(r"^blk\.(\d+)\.")


class LayerBytes(NamedTuple):
    """The bytes of one layer."""

    dense: int  # attention, norms, router, shared experts, dense MLP: read for every token
    experts: int
    cache: int  # of all sequences
    largest_expert_tensor: int = 0


class ModelBytes(NamedTuple):
    """The bytes of a model by place."""

    layers: tuple[LayerBytes, ...]
    embedding: int
    head: int  # with the last norm; a copy of the embedding if they share a matrix
    tied: bool
    rest: int  # towers and what has no layer
    experts: int  # of a layer
    used: int  # of them for one token
    # of modules in Hugging Face files: layer, experts, embedding, norm, head
    names: Mapping[str, str]

    @property
    def weights(self) -> int:
        """The bytes of all weights in the file."""
        return (
            self.embedding
            + self.rest
            + (0 if self.tied else self.head)
            + sum(x.dense + x.experts for x in self.layers)
        )


def layer_sizes(calculator: MemoryCalculator, engine: Engine) -> ModelBytes:
    """Return the bytes of a model's tensors by layer, from its file's header or from its dtype."""
    tree = calculator.tree
    count = int(tree.layers.n)
    if count > MAX_LAYERS:
        raise LlamathError(
            f"{count:,} layers are too many to place one by one", hint=f"at most {MAX_LAYERS:,}"
        )
    dense, experts, largest = [0] * count, [0] * count, [0] * count
    embedding = head = rest = 0
    layer_of = _layer_finder(calculator)
    for name, size in _tensors(calculator):
        match = _GGUF_LAYER.match(name)
        layer = int(match[1]) if match else layer_of(name)
        if 0 <= layer < count:
            if _EXPERT.search(name):
                experts[layer] += size
                largest[layer] = max(largest[layer], size)
            else:
                dense[layer] += size
        elif layer >= count:
            continue  # layers for multi-token prediction
        elif _EMBEDDING.search(name):
            embedding += size
        elif _HEAD.search(name):
            head += size
        else:
            rest += size
    tied = tree.head is None or bool(tree.head.weight.tied)
    kinds = {
        x.num_experts: (x.num_experts, int(x.active) * x.num_experts // int(x.copies))
        for x in fold(tree)
        if x.num_experts
    }
    number, used = kinds[max(kinds)] if kinds else (0, 0)
    caches = _layer_caches(calculator, engine)
    layers = tuple(LayerBytes(dense[i], experts[i], caches[i], largest[i]) for i in range(count))
    return ModelBytes(
        layers,
        embedding,
        head + (embedding if tied else 0),
        tied,
        rest,
        number,
        used,
        _module_names(calculator),
    )


def _tensors(calculator: MemoryCalculator) -> Iterator[tuple[str, int]]:
    model = calculator.model
    if calculator.stored is not None:
        yield from ((x.name, x.end - x.start) for x in calculator.stored.tensors)
        return
    yield from ((x.name, x.bytes) for x in quantized_tensors(model, calculator.packer))


def _layer_finder(calculator: MemoryCalculator) -> Callable[[str], int]:
    """Return a function that finds the layer of a tensor by its name, and −1 outside of the
    layers.
    """
    scheme = calculator.model.family.schemes.get("hf")
    start, _, rest = (
        ("", "", ".") if scheme is None else (scheme.prefix + scheme.layer).partition("{l}")
    )
    layers = r"(?:layers|h|blocks)\." if scheme is None else re.escape(start)
    pattern, first = (
        re.compile(rf"^(?:[\w.]*\.)?{layers}(\d+){re.escape(rest)}"),
        0 if scheme is None else scheme.first_layer,
    )
    return lambda name: int(match[1]) - first if (match := pattern.match(name)) else -1


def _layer_caches(calculator: MemoryCalculator, engine: Engine) -> list[int]:
    """Return the bytes of each layer's cache for all sequences, as llama.cpp allocates them."""
    stored, context, batch = (
        kv_format(calculator.kv_dtype),
        calculator.context,
        calculator.request.batch,
    )
    graph = record(calculator.tree, decode=True)
    states = layer_caches(graph, 1, "bf16", 4, 4)
    by_block: dict[int, int] = {}
    for region in graph.layers:
        size = 0
        for spec in cache_specs(graph, layers={id(region.block): 1}):
            rows = sum(-(-int(row) // stored.block) * stored.bytes for row in spec.rows)
            size += rows * cells_of(spec, context, batch, engine) // max(spec.every, 1)
            if not spec.rows:
                known = states.get(id(region.block)) if isinstance(states, dict) else None
                size += (
                    known.state_bytes
                    if known is not None
                    else (int(spec.state or 0) + int(spec.conv_state or 0)) * 4
                ) * batch
        by_block[id(region.block)] = size
    return [by_block.get(id(block), 0) for block in calculator.tree.layers]


def _module_names(calculator: MemoryCalculator) -> dict[str, str]:
    """Return the names of modules in Hugging Face files, `{l}` for the layer."""
    scheme = calculator.model.family.schemes.get("hf")
    if scheme is None:
        return {}
    names: dict[str, str] = {}
    inside: list[str] = []
    for x in fold(calculator.tree):
        if x.group in TOWER_GROUPS:
            continue
        stored = scheme.stored_name(x.pattern).removesuffix(".weight")
        if not x.pattern.startswith("layers."):
            names.setdefault(
                {"embedding": "embedding", "head": "head"}.get(x.group, "norm"), stored
            )
            continue
        layer, _, rest = stored.partition("{l}")
        names["layer"] = f"{layer}{{l}}"
        part = rest.strip(".")
        inside.append(part.partition(".experts")[0] + ".experts" if x.num_experts else part)
    names["parts"] = " ".join(dict.fromkeys(_shortest(inside)))
    return names


def _shortest(parts: Iterable[str]) -> Iterator[str]:
    """Yield the modules inside a layer: those beside experts one by one, the others by their
    first name.
    """
    found = list(parts)
    outer = {x.partition(".experts")[0] for x in found if x.endswith(".experts")}
    for x in found:
        first = x.partition(".")[0]
        yield (
            x
            if x.endswith(".experts")
            else ".".join(x.split(".")[:2])
            if first in outer and "." in x
            else first
        )
