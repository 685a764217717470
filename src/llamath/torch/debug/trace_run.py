"""`trace`: the steps of a forward pass over a prompt and one more token, each checked against
the tensors of a running module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...analysis.graph.image_pass import ImagePass, Images, check_tokens, image_pass
from ...analysis.graph.operations import shape_operations
from ...analysis.graph.step_table import shown_stages, step_table
from ...analysis.graph.steps import Step
from ...analysis.graph.walkthrough import (
    Walkthrough,
    WalkthroughStage,
    attention_wiring,
    decode_graph,
    prompt_graph,
    reads_on,
    split_encoder,
    tower_stages,
    walkthrough,
)
from ...analysis.size.memory.inference_memory import MemoryRequest
from ...core.blocks import Attention, Layer
from ...core.blocks import Decoder as Tree
from ...core.extensions.encoder_decoder import ENCODER, EncoderDecoder
from ...core.latent_attention import IndexedAttention
from ...core.tree import Block, Stack, Weight, fold, sequence
from ...model import FamilyModel
from ...render.report import Report
from ...render.tables import Table
from ...utils.errors import LlamathError
from ...utils.record_type import Record
from ..memory_budget import MEMORY_DTYPES, check_memory, check_memory_for, dtype_name
from ..module import Decoder, TensorOptions, set_weight
from ..torch_generation import vocab_size
from .nan_check import explain_nonfinite, nonfinite_check
from .operation_log import LoggedOperation, OperationLog, Shape, match_operations


class _TracedStep(Record):
    """A step, and the shape of the tensor that was recorded for it."""

    json_fields: ClassVar[tuple[str, ...]] = ("*step", "tensor")

    step: Step
    tensor: Shape | None


class _TracedStage(Record):
    """A stage with its traced steps."""

    json_fields: ClassVar[tuple[str, ...]] = ("*stage", "steps")

    stage: WalkthroughStage
    steps: tuple[_TracedStep, ...]


class TracedPass(Record):
    """The steps of one pass, and the shapes of the tensors that were recorded for them."""

    json_fields: ClassVar[tuple[str, ...]] = ("*walk", "stages")

    walk: Walkthrough
    shapes: tuple[Mapping[str, Shape], ...]  # by step name, for each stage

    @property
    def stages(self) -> tuple[_TracedStage, ...]:
        """The stages with the recorded shape of each step."""
        pairs = zip(self.walk.stages, self.shapes, strict=True)
        return tuple(
            _TracedStage(
                stage=x,
                steps=tuple(_TracedStep(step=y, tensor=shapes.get(y.name)) for y in x.steps),
            )
            for x, shapes in pairs
        )

    @property
    def mismatches(self) -> list[str]:
        """Steps whose recorded shape differs from the predicted one; any is a bug."""
        pairs = [
            (x, shapes[x.name])
            for stage, shapes in zip(self.walk.stages, self.shapes, strict=True)
            for x in stage.steps
            if x.name in shapes
        ]
        return [
            f"{step.name} should have shape {_int_shape(step)}, found {shape}"
            for step, shape in pairs
            if _int_shape(step) != shape
        ]


class TracedImages(Record):
    """Images in the vision tower and its projector, before the prompt."""

    json_fields: ClassVar[tuple[str, ...]] = ("*images", "stages")

    images: ImagePass
    stages: tuple[WalkthroughStage, ...]


class _CacheSize(Record):
    """Contents of the cache after both passes."""

    json_fields: ClassVar[tuple[str, ...]] = ("tokens", "numbers=elements", "bytes=nbytes")

    tokens: int
    elements: int
    nbytes: int


class Trace(Report):
    """A forward pass over a prompt, and one over the token after it."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=model.name",
            "family=model.family.name",
            "source=model.source",
            "numbers=has_values",
            "dtype",
            "device",
            "tokens",
        ),
        *("prompt=first", "next=following", "cached=cache", "likely", "images", "notes"),
    )

    model: FamilyModel
    ids: tuple[int, ...]
    has_values: bool  # False on the meta device, where tensors have shapes only
    dtype: str
    device: str
    first: TracedPass
    following: TracedPass | None  # None for a model without a KV cache
    cache: _CacheSize
    # the most likely next tokens with their probabilities
    top_tokens: tuple[tuple[int, float], ...] = ()
    images: TracedImages | None = None  # whose tokens are part of the prompt
    # the text of each token, if there is a tokenizer
    texts: Mapping[int, str] = MappingProxyType({})
    layer: int | None = None  # the only layer that is shown
    shows_next: bool = False  # the pass over the next token is shown, not that over the prompt

    @property
    def walk(self) -> Walkthrough:
        """The steps of the pass that is shown."""
        return (self.following if self.shows_next and self.following else self.first).walk

    @property
    def summary(self) -> str:
        """The tokens and the FLOPs, and the most likely next token if there is a prompt."""
        from ...render.text.trace_text import trace_summary

        return trace_summary(self)

    @property
    def entries(self) -> list[Step]:
        """The steps of the pass that is shown."""
        return [step for stage in shown_stages(self.walk, self.layer) for step in stage.steps]

    def tables(self) -> Iterator[Table]:
        """The steps of the pass that is shown."""
        yield step_table(self.walk, self.layer)

    def terminal_text(self) -> str:
        """The steps with shapes and weights, the next token and the cache."""
        from ...render.text.trace_text import trace_text

        return trace_text(self)

    @property
    def tokens(self) -> list[dict[str, Any]]:
        """The tokens of the prompt."""
        return [{"id": x, "text": self.texts.get(x)} for x in self.ids]

    @property
    def likely(self) -> list[dict[str, Any]]:
        """The most likely next tokens."""
        return [
            {"id": x, "text": self.texts.get(x), "probability": share}
            for x, share in self.top_tokens
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """The model's notes, and remarks about attention and the context."""
        remarks = (
            [] if (wiring := attention_wiring(self.model.text.tree)) is None else [wiring.remark]
        )
        if self.following is None and self.cache.tokens:
            remarks.append("the prompt fills the context, so there is no next token")
        elif self.following is None:
            remarks.append(
                "attention is bidirectional, so nothing is cached and there is no "
                "token-by-token decoding"
            )
        return (*self.model.notes, *remarks)


def _int_shape(step: Step) -> Shape:
    """A step's shape as integers."""
    return tuple(map(int, step.shape))


def trace(
    model: FamilyModel,
    ids: Sequence[int],
    module: Decoder | None = None,
    layer: int | None = None,
    top: int = 5,
    images: Images | None = None,
) -> Trace:
    """Trace a pass over these ids and one over the next token; without a module on the meta device.

    On the meta device only one layer of each kind is built. The tokens of `images` are part of the
    ids.
    """
    tree, has_cache = model.text.tree, reads_on(model.text.tree)
    encoded = None if images is None else image_pass(model.tree, images)
    check_tokens(encoded, len(ids))
    _check_ids(tree, ids)
    traces_next = has_cache and len(ids) != tree.context
    walk = walkthrough(prompt_graph(tree, len(ids)), layer)
    shown = [x.layer for x in walk.layers if x.layer is not None]
    runnable, index_of = (
        (module, {i: i for i in shown}) if module is not None else _build_on_meta(tree, shown)
    )
    first = next(runnable.parameters())
    if module is not None:
        _check_memory(
            model, TensorOptions(first.dtype, first.device), len(ids), len(ids) + traces_next
        )
    # of the encoder; the decoder begins with one token
    prompt = None if not isinstance(tree, EncoderDecoder) else ids
    read = ids if prompt is None else [0]
    run = _TraceRun(runnable, index_of, len(read) + traces_next if has_cache else 0)
    first_pass = run.read(walk, read, prompt)
    top_tokens = (
        run.top_tokens(ids, top) if module is not None and runnable.head is not None else ()
    )
    next_pass = None
    if traces_next:
        next_pass = run.read(
            walkthrough(decode_graph(tree, len(ids)), layer),
            [top_tokens[0][0] if top_tokens else 0],
        )
    return Trace(
        model=model,
        ids=tuple(ids),
        has_values=module is not None,
        dtype=dtype_name(first.dtype),
        device=first.device.type,
        first=first_pass,
        following=next_pass,
        cache=run.cache_size(walk),
        top_tokens=top_tokens,
        images=None
        if encoded is None
        else TracedImages(
            images=encoded, stages=tuple(x for graph in encoded.graphs for x in tower_stages(graph))
        ),
    )


def _check_memory(model: FamilyModel, options: TensorOptions, tokens: int, context: int) -> None:
    """Raise an error if memory does not suffice for the cache, the activations and the logits of
    every token.
    """
    request = MemoryRequest(context=context, chunk=tokens, kv_dtype=MEMORY_DTYPES[options.dtype])
    logits = tokens * int(model.tree.vocab) * options.dtype.itemsize
    need = check_memory_for(model, request, options, loaded=True) + logits
    check_memory(need, f"activations and the logits of all {tokens:,} tokens", options.device)


def _check_ids(tree: Tree, ids: Sequence[int]) -> None:
    if not ids:
        raise LlamathError("the prompt is empty", hint="a forward pass needs at least one token")
    if tree.context is not None and len(ids) > tree.context:
        raise LlamathError(
            f"the prompt of {len(ids):,} tokens is longer than the context of "
            f"{int(tree.context):,}",
            hint="use a shorter prompt",
        )
    rows = int(tree.embed.weight.shape[0])
    if unknown := [x for x in ids if not 0 <= x < rows]:
        raise LlamathError(
            f"the prompt has token {unknown[0]:,}, but the model's embedding has {rows:,} rows",
            hint="the tokenizer seems to belong to another model",
        )


def _build_on_meta(tree: Tree, shown: Sequence[int]) -> tuple[Decoder, dict[int, int]]:
    """Build the layers shown on the meta device, with one of identical experts; return the
    module, and each layer's index in it.
    """
    blocks = {i: tree.layers[i] for i in shown}
    blocks |= {
        i: tree.layers[i] for block in list(blocks.values()) if (i := _kv_source(block)) is not None
    }
    blocks |= {
        i: tree.layers[i] for layer in list(blocks) for i in _selection_sources(tree.layers, layer)
    }
    index_of = {i: new for new, i in enumerate(sorted(blocks))}
    layers = [_without_ties(_renumber_kv_source(blocks[i], index_of)) for i in sorted(blocks)]
    shown_tree = tree.replace(layers=sequence(layers), mtp=None)
    module = Decoder(
        shown_tree, TensorOptions(torch.bfloat16, torch.device("meta"), one_expert=True)
    )
    for x in fold(shown_tree):  # those in layers have weights of their own
        if x.weight.tied and "{l}" not in x.pattern:
            set_weight(module, x.pattern, module.get_parameter(x.weight.tied))
    return module, index_of


def _selection_sources(layers: Stack, layer: int) -> Iterator[int]:
    """Yield the layer whose choice of keys a layer without an indexer uses: the nearest earlier
    one that has an indexer.
    """
    attn = _mixer(layers[layer])
    if not isinstance(attn, IndexedAttention) or attn.indexer is not None:
        return
    for i in range(layer - 1, -1, -1):
        earlier = _mixer(layers[i])
        if isinstance(earlier, IndexedAttention) and earlier.indexer is not None:
            yield i
            return


def _without_ties(block: Block) -> Block:
    """Return a layer whose shared blocks have weights of their own, as the layer that they are
    tied to may not be built.
    """
    if not any(x.weight.tied.startswith("layers.") for x in fold(block)):
        return block
    changes: dict[str, Weight | Block | Stack] = {}
    for name, child in block.children:
        if isinstance(child, Weight):
            changes[name] = child.replace(tied="")
        elif isinstance(child, Block):
            changes[name] = _without_ties(child)
        else:
            changes[name] = child.with_blocks(_without_ties)
    return block.replace(**changes)


def _kv_source(block: Block) -> int | None:
    """Return the layer whose keys and values a layer reads, if it computes none itself."""
    mixer = _mixer(block)
    return mixer.kv_layer if isinstance(mixer, Attention) else None


def _mixer(block: Block) -> Block:
    assert isinstance(block, Layer)
    return block.attn or block


def _renumber_kv_source(block: Block, index_of: Mapping[int, int]) -> Block:
    source = _kv_source(block)
    return (
        block
        if source is None
        else block.replace(attn=_mixer(block).replace(kv_layer=index_of[source]))
    )


def _step_shapes(stage: WalkthroughStage, log: Sequence[LoggedOperation]) -> dict[str, Shape]:
    """Return the shapes of a stage's steps by name, from the operations that were executed."""
    names: dict[int, list[str]] = {}
    for x in stage.steps:
        names.setdefault(id(x.node), []).append(x.name)
    pairs = match_operations(stage.nodes, log)
    return {
        name: shape
        for node, found in pairs
        for name, shape in zip(names.get(id(node), ()), found.shapes, strict=False)
    }


class _TraceRun:
    """Consecutive passes of a module whose tensors are recorded; `index_of` maps a model's
    layers to the module's.
    """

    def __init__(self, module: Decoder, index_of: Mapping[int, int], capacity: int) -> None:
        self.module, self.index_of = module, index_of
        nonfinite_check(module)
        self.cache = module.new_cache(capacity)
        self.logits: Tensor | None = None

    @torch.inference_mode()
    def read(
        self, walk: Walkthrough, ids: Sequence[int], prompt: Sequence[int] | None = None
    ) -> TracedPass:
        """Run one pass over tokens that follow those in the cache; in the first, an encoder
        reads the prompt.
        """
        rows = torch.tensor([list(ids)], device=next(self.module.parameters()).device)
        self.cache.reserve(len(ids), None)
        machine = OperationLog(rows, self.cache)
        machine.encoder_ids = (
            None if prompt is None else torch.tensor([list(prompt)], device=rows.device)
        )
        self.logits = self.module.compute(machine, rows)
        self.cache.length += len(ids)
        nonfinite_check(self.module).raise_if_bad()
        encoder, outside = split_encoder([x for x in machine.log if x.layer is None])
        middle = next(i for i, x in enumerate(outside) if x.op is shape_operations.layers)
        shapes = []
        for stage in walk.stages:
            if stage.layer is None:
                log = (
                    encoder
                    if stage.name == ENCODER
                    else outside[:middle]
                    if stage.name == "embedding"
                    else outside[middle:]
                )
            elif stage.name != "layers":
                log = [x for x in machine.log if x.in_encoder and x.layer == stage.layer]
            else:
                log = [
                    x
                    for x in machine.log
                    if not x.in_encoder and x.layer == self.index_of[stage.layer]
                ]
            shapes.append(_step_shapes(stage, log))
        if self.module.head is not None:
            shapes[-1]["probabilities"] = tuple(self.logits.to("meta").softmax(-1).shape)
        traced = TracedPass(walk=walk, shapes=tuple(shapes))
        assert not traced.mismatches, traced.mismatches
        return traced

    def top_tokens(self, ids: Sequence[int], top: int) -> tuple[tuple[int, float], ...]:
        """Return the most likely next tokens with their probabilities."""
        assert self.logits is not None
        last = self.logits[0, -1, : vocab_size(self.module)].float()
        if not bool(torch.isfinite(last).all()):
            raise explain_nonfinite(self.module, ids)
        probs = self.logits[0, -1].float().softmax(-1)[: len(last)]
        best = probs.topk(min(top, len(probs)))
        return tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))

    def cache_size(self, walk: Walkthrough) -> _CacheSize:
        """Return the cache's size for the whole model: each layer shown counts for all layers of
        its kind.
        """
        elements = nbytes = 0
        for stage in walk.layers:
            caches = (
                []
                if stage.layer is None
                else self.module.caches_of_layer(self.cache, self.index_of[stage.layer])
            )
            tensors = [x for cache in caches if cache is not None for x in cache.tensors]
            tensors += (
                ()
                if stage.layer is None
                else self.cache.encoded.get(self.index_of[stage.layer], ())
            )
            elements += stage.times * sum(x.numel() for x in tensors)
            nbytes += stage.times * sum(x.nbytes for x in tensors)
        return _CacheSize(tokens=self.cache.length, elements=elements, nbytes=nbytes)
