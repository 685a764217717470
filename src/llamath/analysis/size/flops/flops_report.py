"""The FLOPs of prefill, decode and training, product by product, with conventions, intensity and
MFU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from ....core.blocks import Decoder
from ....core.expr import Expr, total
from ....core.extensions.encoder_decoder import ENCODER, EncoderDecoder, TextEncoder
from ....core.parameter_count import layer_ranges
from ....core.tree import LETTERS, Stack, fold
from ....questions.pass_questions import FlopsQuestion
from ....render.report import Report
from ....render.tables import Part
from ....utils.errors import LlamathError
from ....utils.number_format import format_count, format_flops, format_ranges
from ....utils.record_type import Record
from ...graph.flop_conventions import Convention, conventions
from ...graph.flop_count import (
    Flops,
    OperationFlops,
    Recompute,
    TrainingFlops,
    forward_flops,
    list_flops,
    train_flops,
)
from ...graph.image_pass import ImagePass, Images, check_tokens, image_pass, mask_notes
from ...graph.recorder import Graph, Region, record, record_prefill
from ...storage.weight_bytes import WeightStorage
from ..default_context import default_context
from ..memory.cache_bytes import KVCacheSize, cache_specs, sum_cache_specs
from ..memory.inference_memory import MAX_TOKENS, MemoryCalculator, MemoryRequest
from .flops_tables import attention_text, flops_tables

if TYPE_CHECKING:
    from ....model import FamilyModel


class _Intensity(Record):
    """The FLOPs and bytes of one group in one pass."""

    json_fields: ClassVar[tuple[str, ...]] = ("flops", "weights", "cache", "ratio")

    group: str
    flops: int
    weights: int  # bytes of matrices read
    cache: int  # bytes of keys, values and states read or written

    @property
    def bytes(self) -> int:
        """Weights and cache."""
        return self.weights + self.cache

    @property
    def ratio(self) -> float:
        """FLOPs per byte."""
        return self.flops / self.bytes if self.bytes else 0.0


def _arithmetic_intensity(
    flops: Flops, weights: Mapping[str, int], cached: KVCacheSize
) -> tuple[_Intensity, ...]:
    """Return the intensity of each group of a pass, and of all groups as `total`."""
    states = sum(x.fixed for x in cached.parts)
    cache_bytes = {"attention": cached.bytes - states, "mixer": states}
    groups = list(dict.fromkeys((*flops.weights, *flops.mixing)))
    parts = [
        _Intensity(
            group=x, flops=flops.of(x), weights=weights.get(x, 0), cache=cache_bytes.get(x, 0)
        )
        for x in groups
    ]
    overall = _Intensity(
        group="total",
        flops=sum(x.flops for x in parts),
        weights=sum(x.weights for x in parts),
        cache=sum(x.cache for x in parts),
    )
    return (*parts, overall)


def _weight_bytes_read(graph: Graph, storage: WeightStorage, tokens: int) -> dict[str, int]:
    """Return the bytes of the matrices that a number of tokens use, by group; lookup tables are
    left out, a tied head is included.
    """
    tree, used = graph.tree, None
    left_out = Counter(
        (f"{x.path}.{LETTERS[0]}.{y.pattern}", int(x.times * y.copies))
        for x in graph.layers
        if x.block.reads_only_images
        for y in fold(x.block, 1)
        if not any(z.weights for z in x.nodes)
    )
    if isinstance(tree, EncoderDecoder) or any(x.block.reads_only_images for x in graph.layers):
        # of which a pass uses only a part
        used = {use.path for _, node in graph.nodes() for use in node.weights}
        used |= {x.weight.tied for x in fold(tree) if x.weight.tied and x.pattern in used}
    bytes_by_group: dict[str, int] = {}
    tied = {
        x.weight.tied: x.group for x in fold(tree) if x.weight.tied and x.weight.role == "matmul"
    }
    for x in storage.weights:
        group = x.leaf.group if x.leaf.weight.role == "matmul" else tied.get(x.leaf.pattern)
        if left_out[key := (x.leaf.pattern, int(x.leaf.copies))]:
            left_out[key] -= 1
        elif group is not None and (used is None or x.leaf.pattern in used):
            bytes_by_group[group] = (
                bytes_by_group.get(group, 0)
                + x.bytes
                * round(expected_copies(int(x.leaf.copies), int(x.leaf.active), tokens) * 2**20)
                // 2**20
            )
    return bytes_by_group


def expected_copies(copies: int, active: int, tokens: int) -> float:
    """Return the expected number of distinct copies (experts) that a number of tokens use."""
    return copies * (1.0 - (1.0 - active / copies) ** tokens) if active < copies else float(copies)


class FlopsRequest(Record):
    """The options of a FLOPs count: `batch` sequences of `context` tokens."""

    context: int | None = None  # None: the model's own
    batch: int = FlopsQuestion.batch
    masked: bool = True  # attention counts only the pairs admitted by the mask
    # latent attention decodes with decompressed keys and values instead of in the latent space
    unpacked: bool = False
    recompute: Recompute = FlopsQuestion.recompute
    flash: bool = False  # a fused attention kernel, which recomputes scores in its backward pass
    dtype: str = FlopsQuestion.dtype  # of the weights, for the intensity
    kv_dtype: str = FlopsQuestion.kv_dtype  # of the cache, for the intensity
    images: Images | None = None  # of each sequence, whose tokens are part of its context


class FlopsRow(Record):
    """One product in all layers of a kind."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "section",
            "layers",
            "product=what",
            "group",
            "mixing",
            "times",
            "formula",
            "forward",
            "decode",
            "train",
        ),
    )

    section: str  # `layers`, or another field of the decoder
    indices: tuple[tuple[int, int, int], ...] = ()  # of the layers
    times: Expr = Expr.const(1)  # the number of layers
    what: str
    group: str
    mixing: bool
    forward_each: Expr
    decode_each: Expr
    without_gradient: bool = False  # there is no backward pass

    @property
    def formula(self) -> str:
        """The FLOPs of the forward pass in one layer, as a formula."""
        return self.forward_each.symbol

    @property
    def layers(self) -> str:
        """The layers as ranges, `0–31`."""
        return format_ranges(self.indices)

    @property
    def forward(self) -> Expr:
        """The FLOPs of the forward pass, in all of the layers."""
        return self.times * self.forward_each

    @property
    def decode(self) -> Expr:
        """The FLOPs of decoding the last token, in all of the layers."""
        return self.times * self.decode_each

    @property
    def train(self) -> Expr:
        """The FLOPs of forward and backward pass."""
        return self.forward if self.without_gradient else 3 * self.forward


class _ConventionCount(Record):
    """The FLOPs of a training step as one convention counts them."""

    title: str
    formula: str
    per_token: int
    train: int
    ratio: float  # to the exact count
    hardware: bool
    source: str
    says: str


class ConventionMFU(Record):
    """The model FLOP/s of one GPU and the MFU as one convention counts them."""

    flops_per_second: int | float
    mfu: float


class MFU(Record):
    """The model FLOPs utilization of a training run at a measured speed, by convention."""

    gpus: int
    gpu: str
    precision: str  # of the peak
    peak: int
    tokens_per_second: int | float
    by: Mapping[str, ConventionMFU]


class FlopsReport(Report):
    """The FLOPs of prefill, decode and a training step, by product and by convention."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=model.name",
            "name=model.name",
            "context=request.context",
            "batch=request.batch",
            "attention",
            "forward=forward.total",
        ),
        *(
            "train=training.model",
            "per_token=forward_per_token",
            "conventions=convention_counts",
            "full_attention",
        ),
        *(
            "prefill=prefill.total",
            "decode=decode.total",
            "latent",
            "decode_otherwise=decode_otherwise.total",
            "training",
            "groups",
        ),
        *(
            "formula=forward.total.symbol",
            "letters",
            "products",
            "intensity",
            "notes",
            "mfu",
            "images",
        ),
    )

    model: FamilyModel
    request: FlopsRequest  # with its context
    forward: Flops  # all tokens, the head on every position
    prefill: Flops  # all tokens, the head on the last
    decode: Flops  # one token for each sequence, the last of the context
    decode_otherwise: Flops  # decode with the other form of latent attention
    full: Flops  # `forward` with attention over all pairs
    training: TrainingFlops
    products: tuple[FlopsRow, ...]
    conventions: tuple[Convention, ...]
    prefill_intensity: tuple[_Intensity, ...]
    # with absorbed latent attention, which reads the latent cache
    decode_intensity: tuple[_Intensity, ...]
    dtypes: tuple[str, str]  # of weights and cache
    # through the vision tower and the projector, before the prefill
    images: ImagePass | None = None
    mfu: MFU | None = None  # if the speed of a training run is given

    @property
    def attention(self) -> str:
        """Return whether attention counts the pairs of the causal mask, or all."""
        return "causal" if self.request.masked else "full"

    @property
    def latent(self) -> str:
        """The form of latent attention in decode: `absorbed` or `unpacked`."""
        return "unpacked" if self.request.unpacked else "absorbed"

    @property
    def forward_per_token(self) -> int | float:
        """The forward pass per token, an int if it is whole."""
        return plain_number(self.per_token)

    @property
    def convention_counts(self) -> Mapping[str, _ConventionCount]:
        """The training step by each convention."""
        return {
            x.name: _ConventionCount(
                title=x.title,
                formula=x.train.symbol,
                per_token=int(x.train),
                train=int(x.train) * self.tokens,
                ratio=float(x.ratio(self.exact_per_token)),
                hardware=x.hardware,
                source=x.source,
                says=x.says,
            )
            for x in self.conventions
        }

    @property
    def full_attention(self) -> Mapping[str, int]:
        """The forward pass and the training step with attention over all pairs."""
        return {"forward": self.full.total, "train": 3 * self.full.total}

    @property
    def groups(self) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
        """FLOPs by pass and group."""
        return {
            "forward": self.forward.by_group,
            "prefill": self.prefill.by_group,
            "decode": self.decode.by_group,
        }

    @property
    def intensity(self) -> Mapping[str, Mapping[str, _Intensity]]:
        """FLOPs per byte by pass and group."""
        return {
            "prefill": {x.group: x for x in self.prefill_intensity},
            "decode": {x.group: x for x in self.decode_intensity},
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """The model's notes, and the limits of the count."""
        return tuple(_notes(self.model, self))

    @property
    def summary(self) -> str:
        """The MFU of a training run, or the FLOPs of each pass."""
        if self.mfu is not None:
            rate = (
                f"{self.mfu.tokens_per_second:,.0f} tokens/s on "
                f"{format_count(self.mfu.gpus, 'GPU')}"
            )
            return (
                f"{self.model.name}, {self.request.context:,} tokens: MFU "
                f"{self.mfu.by['exact'].mfu:.2%} at {rate}"
            )
        passes = (
            ("forward", self.forward.total),
            ("decode", self.decode.total),
            ("training", self.training.model),
        )
        totals = ", ".join(f"{name} {format_flops(n)}" for name, n in passes)
        images = (
            f"; {self.images.images} {format_flops(self.images.flops.total)}" if self.images else ""
        )
        return (
            f"{self.model.name}, {format_count(self.request.batch, 'sequence')} of "
            f"{self.request.context:,} tokens: {totals}{images}"
        )

    @property
    def headline(self) -> str:
        """The FLOPs of the forward pass and of training."""
        batch, tokens = self.request.batch, format_count(self.request.context or 0, "token")
        over = tokens if batch == 1 else f"{batch:,} sequences of {tokens}"
        return (
            f"{self.model.name}: {format_flops(self.forward.total)} forward over {over}, "
            f"{format_flops(self.training.model)} to train on them"
        )

    @property
    def setting(self) -> str:
        """The source, and what is counted of attention and images."""
        lines = [f"{self.model.family.name} family, from {self.model.source}", attention_text(self)]
        if self.images is not None:
            lines.append(f"with {self.images.summary} of the context")
        return "\n".join(lines)

    @property
    def entries(self) -> Sequence[FlopsRow]:
        """The products."""
        return self.products

    def tables(self) -> Iterable[Part]:
        """The products, the passes, the conventions, FLOPs per byte, and the MFU."""
        return flops_tables(self)

    @property
    def tokens(self) -> int:
        """The tokens of a forward pass."""
        return (self.request.context or 0) * self.request.batch

    @property
    def letters(self) -> Mapping[str, int]:
        """The values of the letters in the formulas."""
        return self.forward.total.atoms

    @property
    def per_token(self) -> Fraction:
        """The FLOPs of the forward pass per token."""
        return Fraction(self.forward.total, self.tokens)

    @property
    def exact_per_token(self) -> Fraction:
        """The model FLOPs of training per token, which the conventions are compared with."""
        return Fraction(self.training.model, self.tokens)


def plain_number(value: Fraction) -> int | float:
    """Return a fraction as an int if it is whole, else as a float."""
    return int(value) if value.denominator == 1 else float(value)


def _notes(model: FamilyModel, report: FlopsReport) -> Iterator[str]:
    yield from model.notes
    max_context, context = model.tree.context, report.request.context or 0
    if max_context is not None and context > max_context:
        yield f"{context:,} tokens are beyond the model's context of {int(max_context):,}"
    if "mixer" in report.forward.mixing:
        yield "recurrent states are counted token by token; chunked kernels compute more"
    if report.images is not None:
        yield from mask_notes(model.tree, report.images)
    if model.tree.mtp is not None:
        yield "the layers of multi-token prediction (mtp) are not counted"
    if report.mfu is not None and all(x.mfu > 1 for x in report.mfu.by.values()):
        yield (
            "an MFU above 100% is impossible: the speed is that of more GPUs, of another model or "
            "another precision, or of inference"
        )


def count_model_flops(model: FamilyModel, request: FlopsRequest | None = None) -> FlopsReport:
    """Count the FLOPs of a model's passes."""
    request = request or FlopsRequest()
    tree, context, batch, masked = (
        model.text.tree,
        _check_request(request, model.tree),
        request.batch,
        request.masked,
    )
    sequences = Expr.variable("B", batch) if batch > 1 else Expr.const(1)
    images = None if request.images is None else image_pass(model.tree, request.images, sequences)
    check_tokens(images, context)
    prompt = record(tree, batch=sequences, new_tokens=context, past_tokens=Expr.const(0))
    last = record_prefill(tree, batch=sequences, tokens=context, past_tokens=Expr.const(0))
    absorbed = record(tree, batch=sequences, past_tokens=context - 1, decode=True)
    encoder = (absorbed.encoder_length, True) if isinstance(tree, EncoderDecoder) else None
    unpacked = record(
        tree, batch=sequences, new_tokens=Expr.const(1), past_tokens=context - 1, encoder=encoder
    )
    decode, other = (forward_flops(x, masked) for x in (absorbed, unpacked))
    sizes = MemoryCalculator(
        model,
        MemoryRequest(dtype=request.dtype, kv_dtype=request.kv_dtype, context=context, batch=batch),
    )
    if sizes.storage is None:
        raise LlamathError("the intensity needs the weights of a tree")
    prefill, specs = forward_flops(last, masked), cache_specs(prompt)
    cached = sum_cache_specs(specs, context, batch, sizes.kv_dtype)
    if isinstance(tree, EncoderDecoder):  # after the prompt, the decoder has read one token
        specs = tuple(x if x.of_encoder else x.replace(window=1) for x in specs)
    written = sum_cache_specs(specs, context, batch, sizes.kv_dtype)
    decode_intensity = _arithmetic_intensity(
        decode, _weight_bytes_read(absorbed, sizes.storage, batch), cached
    )
    return FlopsReport(
        model=model,
        request=request.replace(context=context),
        forward=forward_flops(prompt, masked),
        prefill=prefill,
        decode=other if request.unpacked else decode,
        decode_otherwise=decode if request.unpacked else other,
        full=forward_flops(prompt, masked=False),
        training=train_flops(prompt, masked, request.recompute, request.flash),
        products=tuple(_rows(prompt, unpacked if request.unpacked else absorbed, masked)),
        conventions=conventions(tree, context),
        prefill_intensity=_arithmetic_intensity(
            prefill, _weight_bytes_read(last, sizes.storage, context * batch), written
        ),
        decode_intensity=decode_intensity,
        dtypes=(sizes.packer.name, sizes.kv_dtype),
        images=images,
    )


def _check_request(request: FlopsRequest, tree: Decoder) -> int:
    context = default_context(tree) if request.context is None else request.context
    for what, value in (("context", context), ("batch", request.batch)):
        if not 0 < value < MAX_TOKENS:
            raise LlamathError(
                f"a {what} of {value:,} is none", hint=f"from 1 to {MAX_TOKENS - 1:,}"
            )
    return context


def _rows(prompt: Graph, token: Graph, masked: bool) -> Iterator[FlopsRow]:
    """Yield the rows section by section, in the order of computation; layers with the same
    products share their rows.
    """
    outside = list(_pairs(prompt.regions[0], token.regions[0], masked))
    for name, child in prompt.tree.children:
        if name == "layers" and isinstance(child, Stack):
            yield from _layer_rows(name, child, prompt, token, masked)
        elif isinstance(child, TextEncoder):
            yield from _layer_rows(f"{name}.layers", child.layers, prompt, token, masked)
        else:
            yield from (
                _flops_row(name, x, y) for x, y in outside if x.path.partition(".")[0] == name
            )


def _layer_rows(
    name: str, stack: Stack, prompt: Graph, token: Graph, masked: bool
) -> Iterator[FlopsRow]:
    kinds: dict[tuple[tuple[str, str, int], ...], list[tuple[Region, Region]]] = {}
    own = [x for x in prompt.layers if x.path.startswith(ENCODER) == name.startswith(ENCODER)]
    decoded = [x for x in token.layers if not x.path.startswith(ENCODER)]
    if name.startswith(ENCODER):
        decoded = [Region(x.path, x.block, x.times) for x in own]
    for regions in zip(own, decoded, strict=True):
        key = tuple(
            (x.path, x.flops.symbol, int(x.flops))
            for region in regions
            for x in list_flops(region, masked)
        )
        kinds.setdefault(key, []).append(regions)
    for same in kinds.values():
        indices, times = (
            layer_ranges(stack, {id(x.block) for x, _ in same}),
            total(x.times for x, _ in same),
        )
        yield from (_flops_row(name, x, y, indices, times) for x, y in _pairs(*same[0], masked))


def _pairs(
    prompt: Region, token: Region, masked: bool
) -> Iterator[tuple[OperationFlops, OperationFlops]]:
    """Pair each operation in the prefill with the same operation in decode; an encoder has none
    there.
    """
    decode = {(x.path, x.mixing): x for x in list_flops(token, masked)}
    return (
        (x, decode.get((x.path, x.mixing), x._replace(flops=Expr.const(0))))
        for x in list_flops(prompt, masked)
    )


def _flops_row(
    section: str,
    prompt: OperationFlops,
    token: OperationFlops,
    indices: tuple[tuple[int, int, int], ...] = (),
    times: int = 1,
) -> FlopsRow:
    return FlopsRow(
        section=section,
        indices=indices,
        times=Expr.const(times),
        what=prompt.path.removeprefix(f"{section}.{LETTERS[0]}.").removesuffix(".weight"),
        group=prompt.group,
        mixing=prompt.mixing,
        forward_each=prompt.flops,
        decode_each=token.flops,
        without_gradient=prompt.without_gradient,
    )
