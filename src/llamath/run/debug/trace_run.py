"""`trace`: the steps of a prompt and of the token after it, each held against the tensors of a module that runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...analysis.graph import Operation
from ...analysis.graph.walkthrough import Walkthrough, following, prompt_pass, reads_on, walkthrough
from ...analysis.inference.inference_memory import MemoryRequest
from ...core.blocks import Decoder as Tree
from ...core.blocks import Layer
from ...core.errors import LlamathError
from ...core.record_type import Record
from ...core.tree import Block, sequence
from ...model import Model
from ..build_module import build
from ..generate import vocab_size
from ..layers import Decoder
from ..memory_budget import MEMORY_DTYPES, check_memory, check_memory_for, dtype_name
from ..module import TensorOptions
from .nan_check import explain_nonfinite, nonfinite_check
from .shape_recorder import Shape, ShapeRecorder


class TracedPass(Record):
    """One pass: its steps, and for those whose result is met as a tensor, that tensor's shape."""

    walk: Walkthrough
    shapes: tuple[Mapping[str, Shape], ...]  # for each stage, by the step's name

    @property
    def mismatches(self) -> list[str]:
        """Steps whose tensors have another shape than they say: none, unless there is a mistake here."""
        pairs = [
            (x, shapes[x.name])
            for stage, shapes in zip(self.walk.stages, self.shapes, strict=True)
            for x in stage.steps
            if x.name in shapes
        ]
        return [f"{step.name} should be {int_shape(step)}, is {found}" for step, found in pairs if int_shape(step) != found]


class CacheSize(NamedTuple):
    """What the cache holds after both passes."""

    tokens: int
    elements: int
    nbytes: int


class Trace(Record):
    """A prompt from end to end, and the one token after it."""

    ids: tuple[int, ...]
    has_values: bool  # whether there were any: else all is shape, on the meta device
    dtype: str
    device: str
    first: TracedPass
    following: TracedPass | None  # None where the model cannot read on
    cache: CacheSize
    top_tokens: tuple[tuple[int, float], ...] = ()  # the tokens that come next with their probabilities, the likeliest first


def int_shape(step: Operation) -> Shape:
    """A step's shape without its letters."""
    return tuple(map(int, step.shape))


def trace(model: Model, ids: Sequence[int], module: Decoder | None = None, layer: int | None = None, top: int = 5) -> Trace:
    """Run these ids and one token more; without a module on the meta device, where there are shapes and no numbers.

    On the meta device one layer of each kind is built: the others would say the same.
    """
    tree, cached = model.tree, reads_on(model.tree)
    _check_ids(tree, ids)
    goes_on = cached and len(ids) != tree.context
    walk = walkthrough(tree, prompt_pass(len(ids)), layer=layer)
    told = [x.layer for x in walk.layers if x.layer is not None]
    runs, at = (module, {i: i for i in told}) if module is not None else _build_on_meta(tree, told)
    first = next(runs.parameters())
    if module is not None:
        _check_memory(model, TensorOptions(first.dtype, first.device), len(ids), len(ids) + goes_on)
    run = TraceRun(runs, at, len(ids) + goes_on if cached else 0)
    seen = run.read(walk, ids)
    likely = run.top_tokens(ids, top) if module is not None and runs.head is not None else ()
    then = run.read(walkthrough(tree, following(len(ids)), layer=layer), [likely[0][0] if likely else 0]) if goes_on else None
    return Trace(
        ids=tuple(ids),
        has_values=module is not None,
        dtype=dtype_name(first.dtype),
        device=first.device.type,
        first=seen,
        following=then,
        cache=run.cache_size(walk),
        top_tokens=likely,
    )


def _check_memory(model: Model, place: TensorOptions, tokens: int, context: int) -> None:
    """Refuse what there is no memory for: the cache, activations, and the logits of every token."""
    asked = MemoryRequest(context=context, chunk=tokens, kv_dtype=MEMORY_DTYPES[place.dtype])
    logits = tokens * int(model.tree.vocab) * place.dtype.itemsize
    check_memory(
        check_memory_for(model, asked, place, loaded=True) + logits, f"a pass with the logits of all {tokens:,} tokens", place.device
    )


def _check_ids(tree: Tree, ids: Sequence[int]) -> None:
    if not ids:
        raise LlamathError("the prompt is empty", hint="a pass needs at least one token")
    if tree.context is not None and len(ids) > tree.context:
        raise LlamathError(
            f"the prompt of {len(ids):,} tokens is longer than the context of {int(tree.context):,}", hint="a shorter prompt"
        )
    rows = int(tree.embed.weight.shape[0])
    if strange := [x for x in ids if not 0 <= x < rows]:
        raise LlamathError(
            f"the prompt has token {strange[0]:,}, and the model's embedding has {rows:,} rows",
            hint="the tokenizer seems to be another model's",
        )


def _build_on_meta(tree: Tree, told: Sequence[int]) -> tuple[Decoder, dict[int, int]]:
    """A module without numbers of the layers that are told alone, and where they stand in it."""
    blocks = {i: tree.layers[i] for i in told}
    blocks |= {i: tree.layers[i] for block in list(blocks.values()) if (i := _kv_source(block)) is not None}
    at = {i: new for new, i in enumerate(sorted(blocks))}
    kept = [_renumber_kv_source(blocks[i], at) for i in sorted(blocks)]
    return build(tree.replace(layers=sequence(kept)), torch.bfloat16, "meta"), at


def _kv_source(block: Block) -> int | None:
    """The layer whose keys and values a layer reads, if it has none of its own."""
    found: int | None = getattr(_mixer(block), "kv_layer", None)
    return found


def _mixer(block: Block) -> Block:
    assert isinstance(block, Layer)
    return block.attn or block


def _renumber_kv_source(block: Block, at: Mapping[int, int]) -> Block:
    giver = _kv_source(block)
    return block if giver is None else block.replace(attn=_mixer(block).replace(kv_layer=at[giver]))


class TraceRun:
    """A module being watched: `read` some tokens after those before."""

    def __init__(self, module: Decoder, at: Mapping[int, int], room: int) -> None:
        self.module, self.at = module, at
        nonfinite_check(module)
        self.recorder = ShapeRecorder(module, at.values())
        self.cache = self.recorder.new_cache(room)
        self.logits: Tensor | None = None

    @torch.inference_mode()
    def read(self, walk: Walkthrough, ids: Sequence[int]) -> TracedPass:
        """One pass."""
        where = next(self.module.parameters()).device
        rows = torch.tensor([list(ids)], device=where)
        with self.recorder:
            self.logits = self.module(rows, self.cache)
        nonfinite_check(self.module).raise_if_bad()
        self.recorder.record_states(self.cache)
        if self.module.head is not None:
            self.recorder.shapes["probabilities"] = tuple(self.logits.to("meta").softmax(-1).shape)
        found = self.recorder.shapes
        shapes = [{x.name: found[at] for x in stage.steps if (at := self._place(x, stage.layer)) in found} for stage in walk.stages]
        seen = TracedPass(walk=walk, shapes=tuple(shapes))
        assert not seen.mismatches, seen.mismatches
        return seen

    def _place(self, step: Operation, layer: int | None) -> str:
        prefix = "" if layer is None else f"layers.{self.at[layer]}"
        path = step.hook_point.strip(">")
        full = f"{prefix}.{path}".strip(".")
        return f">{full}" if step.hook_point.startswith(">") and path else f"{full}>" if step.hook_point.endswith(">") else full

    def top_tokens(self, ids: Sequence[int], top: int) -> tuple[tuple[int, float], ...]:
        """The tokens that come next."""
        assert self.logits is not None
        last = self.logits[0, -1, : vocab_size(self.module)].float()
        if not bool(torch.isfinite(last).all()):
            raise explain_nonfinite(self.module, ids)
        shares = self.logits[0, -1].float().softmax(-1)[: len(last)]
        found = shares.topk(min(top, len(shares)))
        return tuple(zip(found.indices.tolist(), found.values.tolist(), strict=True))

    def cache_size(self, walk: Walkthrough) -> CacheSize:
        """What the memories of the layers told hold, each as often as there are layers of its kind."""
        numbers = size = 0
        for stage in walk.layers:
            memory = None if stage.layer is None else self.cache.layers[self.at[stage.layer]]
            if memory is not None:
                numbers += stage.times * sum(x.numel() for x in memory.tensors)
                size += stage.times * sum(x.nbytes for x in memory.tensors)
        return CacheSize(self.cache.length, numbers, size)
