"""`memory`: the memory that inference needs: weights, KV cache, activations, logits, and an
estimate of the overhead, with formulas.

Lines that depend on the implementation are marked as not exact, and their formulas name the
implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from ....checkpoint.formats.dtypes import DTYPES
from ....checkpoint.quantization.weight_format import PLAIN_FORMATS, WeightFormat
from ....core.blocks import Decoder
from ....core.expr import Expr, maximum, minimum, product, total
from ....core.extensions.encoder_decoder import ENCODER, EncoderDecoder
from ....core.tree import fold
from ....families.deepseek_shared import MTP_KEYS
from ....questions.memory_questions import PREFILL_CHUNK, MemoryQuestion
from ....render.report import Report
from ....render.tables import Part
from ....utils.errors import LlamathError, UnknownQuantization, safe
from ....utils.number_format import format_bytes, format_count
from ....utils.record_type import Record
from ...graph.liveness import most_elements, peak_of_layers
from ...graph.node import FLOAT32
from ...graph.recorder import Graph, record, record_prefill
from ...storage.choose_storage import (
    gguf_naming,
    model_format,
    published_recipe,
    weight_storage,
)
from ...storage.memory_line import (
    MemoryLine,
    letters_of,
    lines_table,
    mtp_line,
    overhead_bytes,
    overhead_line,
)
from ...storage.weight_bytes import StoredWeights, WeightStorage
from ..default_context import default_context
from .cache_bytes import CacheSpec, KVCacheSize, cache_specs, sum_cache_specs
from .memory_tables import memory_tables

if TYPE_CHECKING:
    from ....model import FamilyModel
    from ...graph.image_pass import ImagePass, Images


class _PeakActivations(Record):
    """The peak number of live elements per token, and the branch where the peak occurs."""

    width: Expr
    branch: str


def peak_activations(tree: Decoder, decode: bool = False) -> _PeakActivations:
    """Return the peak over all layers, of an encoder over its own unless the pass is a `decode`;
    elements of a wider dtype than the model's count once.
    """
    graph = record(tree, activation_bytes=FLOAT32)
    if isinstance(tree, EncoderDecoder):
        own = tuple(x for x in graph.layers if x.path.startswith(ENCODER) != decode)
        graph = graph.replace(regions=(graph.regions[0], *own))
    peak = peak_of_layers(graph)
    if peak is None:
        return _PeakActivations(width=Expr.const(tree.width), branch="embed")
    inside = peak.node.path.removeprefix(f"{ENCODER}.").split(".")[2:3]
    return _PeakActivations(width=peak.elements, branch="".join(inside))


_RECIPE_DTYPES = ("fp8", "awq", "gptq", "nvfp4")
"""Dtypes in which publishers leave different modules unquantized."""
AS_STORED = "as stored"
"""The dtype of a report whose weights are those of a checkpoint."""
LOGIT_BYTES = 4
"""Logits are in float32."""
MAX_TOKENS = 2**32
"""Contexts, batches and chunks are smaller than this."""


class MemoryRequest(Record):
    """The settings of a memory report; all are optional."""

    # of the weights, or a quantization scheme; empty: the config's, else bf16
    dtype: str = MemoryQuestion.dtype
    kv_dtype: str = MemoryQuestion.kv_dtype  # of the cache; empty: that of the activations
    context: int | None = None  # tokens of each sequence; None: the default
    batch: int = MemoryQuestion.batch
    chunk: int = PREFILL_CHUNK  # tokens of one prefill pass, all sequences together
    images: Images | None = None  # of each sequence, whose tokens are part of its context
    # GGUF types chosen with an importance matrix; None: where the type needs one
    imatrix: bool | None = None


class _ContextMemory(Record):
    """The memory at one context, in bytes."""

    dtype: str
    kv_dtype: str
    context: int
    batch: int
    chunk: int  # tokens of one prefill pass
    lines: tuple[MemoryLine, ...]
    weights: int
    cache: KVCacheSize
    prefill: int  # activations of a prefill pass
    decode: int  # activations of a decode pass
    logits: int
    overhead: int
    letters: Mapping[str, int]  # of the formulas
    storage: WeightStorage | None = None  # None: the weights are those of a checkpoint

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "dtype",
            "kv_dtype",
            "context",
            "batch",
            "weights",
            "kv_cache",
            "activations",
            "logits",
            "overhead",
            "total",
        ),
        *(
            "prefill",
            "decode",
            "kv_per_token=cache.kv_per_token",
            "kv_per_later_token=cache.kv_per_later_token",
            "state=cache.state",
        ),
    )

    @property
    def kv_cache(self) -> int:
        """The KV cache, recurrent states included."""
        return self.cache.bytes

    @property
    def activations(self) -> int:
        """The activations of the pass that needs more."""
        return max(self.prefill, self.decode)

    @property
    def total(self) -> int:
        """The sum of the lines."""
        return sum(x.bytes for x in self.lines)


class MemoryLimit(Record):
    """The largest context and batch within a memory limit: None stands for unlimited, 0 for
    none.
    """

    within: int  # bytes
    max_context: int | None
    max_batch: int | None
    fits: bool  # whether the request does


class MemoryReport(_ContextMemory, Report):
    """The memory at the longest of the requested contexts, the totals at all of them, and the
    largest context and batch within a limit.
    """

    model: FamilyModel
    contexts: tuple[_ContextMemory, ...]
    limit: MemoryLimit | None = None
    not_loaded: tuple[MemoryLine, ...] = ()  # in the files, and not in the total
    notes: tuple[str, ...] = ()
    # those of the notes that tell how the files differ from the model
    checkpoint_notes: tuple[str, ...] = ()

    json_fields: ClassVar[tuple[str, ...]] = (
        *("model=model.name", "family=model.family.name", "source=model.source"),
        *(*_ContextMemory.json_fields, "lines", "letters", "not_loaded", "contexts", "*limit"),
        "notes",
    )

    @property
    def summary(self) -> str:
        """The total, and whether it fits."""
        dtype = self.dtype if self.dtype == AS_STORED else f"in {self.dtype}"
        sequences = (
            f"{format_count(self.batch, 'sequence')} of {format_count(self.context, 'token')}"
        )
        verdict = (
            (
                f", {'fits' if self.limit.fits else 'does not fit'} in "
                f"{format_bytes(self.limit.within)}"
            )
            if self.limit
            else ""
        )
        return f"{self.model.name} {dtype}, {sequences}: {format_bytes(self.total)}{verdict}"

    @property
    def headline(self) -> str:
        """The total."""
        return self.replace(limit=None).summary

    @property
    def setting(self) -> str:
        """The family, the source and the cache."""
        family, source = self.model.family.name, self.model.source
        return f"{family} family, from {source}; cache in {self.kv_dtype}"

    def tables(self) -> Iterable[Part]:
        """The lines with their formulas, the passes, all contexts, and what fits."""
        return memory_tables(self)

    def __bool__(self) -> bool:
        return self.limit is None or self.limit.fits


class WeightsReport(Report):
    """The weights of a checkpoint of an unsupported family; the rest of its memory is unknown."""

    name: str
    lines: tuple[MemoryLine, ...]
    reason: str = ""  # why there is no family
    claim: str = ""  # whose tensors they are, if they are not those of files

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=name",
            "weights",
            "kv_cache=unknown",
            "kv_per_token=unknown",
            "activations=unknown",
            "logits=unknown",
        ),
        *("overhead=unknown", "total=unknown", "lines", "notes", "counted_by"),
    )

    @property
    def counted_by(self) -> str | None:
        """Whose tensors they are; None if they are those of files."""
        return self.claim or None

    @property
    def weights(self) -> int:
        """The bytes of the weights."""
        return sum(x.bytes for x in self.lines)

    @property
    def unknown(self) -> None:
        """Memory terms that need a known family."""
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        """The reason why the rest is unknown."""
        return (self.reason,) if self.reason else ()

    @property
    def stated_notes(self) -> tuple[str, ...]:
        """What is unknown, and why."""
        note = "the memory of cache and activations is unknown"
        return (f"{self.reason}; {note}" if self.reason else note,)

    def tables(self) -> Iterable[Part]:
        """The lines of the weights."""
        yield lines_table(self.lines)

    @property
    def summary(self) -> str:
        """The bytes of the weights."""
        return f"{self.name}: {format_bytes(self.weights)} of weights" + (
            f", {self.claim}" if self.claim else ""
        )


class MemoryCalculator:
    """The memory of one model with one request, at any number of contexts and batch sizes.

    `stored` are the weights of the model's checkpoint, if their stored bytes are counted instead of
    those of a dtype.
    """

    def __init__(
        self,
        model: FamilyModel,
        request: MemoryRequest,
        stored: StoredWeights | None = None,
        checkpoint_notes: Sequence[str] = (),
    ) -> None:
        _check_request(request)
        self.tree, self.request = model.tree, request
        self.packer = _format_of_weights(model, request.dtype, stored)
        self.kv_dtype = request.kv_dtype or {"F32": "fp32", "F16": "fp16"}.get(
            self.packer.compute_dtype, "bf16"
        )
        self.model, self.stored, self._checkpoint_notes = model, stored, tuple(checkpoint_notes)
        if (
            self.has_encoder
            and (self.packer.is_packed or self.packer.gguf_file_type or self.packer.recipe)
            and stored is None
        ):
            message = (
                f"{self.packer.name} packs some matrices, and which ones is not known for "
                "a model with an encoder"
            )
            raise LlamathError(message, hint="a plain dtype: bf16, fp16, fp32")

    @property
    def is_main(self) -> bool:
        """Whether layers for multi-token prediction were left out of the model."""
        return self.model.part_name == "main"

    @property
    def has_encoder(self) -> bool:
        """Whether an encoder reads the prompt."""
        return isinstance(self.tree, EncoderDecoder)

    @cached_property
    def storage(self) -> WeightStorage | None:
        """The weights in the requested dtype; None if they are those of a checkpoint."""
        if self.stored is not None:
            return None
        return weight_storage(
            self.tree,
            self.packer,
            gguf_naming(self.model),
            self.request.imatrix,
            self.model.family.schemes.get("hf"),
        )

    @cached_property
    def weights(self) -> tuple[MemoryLine, ...]:
        """One line for each dtype that weights are in."""
        return self.stored.lines if self.stored is not None else tuple(self.storage.lines())  # type: ignore[union-attr]

    def element_bytes_of(self, pattern: str) -> Fraction:
        """Return the bytes of one element of a stored weight, scales included, on average over the
        layers; of an unknown one, on average over all weights.
        """
        found = None if self.storage is None else self.storage.element_bytes.get(pattern)
        return self._mean_bytes if found is None else found

    @cached_property
    def _mean_bytes(self) -> Fraction:
        elements = sum(int(x.weight.parameters) * int(x.copies) for x in fold(self.tree))
        return Fraction(sum(x.bytes for x in self.weights), elements or 1)

    @cached_property
    def prefill_flops(self) -> Expr:
        """The FLOPs of a prefill with logits of the last token, in B, T and P."""
        from ...graph.flop_count import forward_flops

        return forward_flops(record_prefill(self.tree)).total

    @cached_property
    def decode_flops(self) -> Expr:
        """The FLOPs of a decode step, in B and P."""
        from ...graph.flop_count import forward_flops

        return forward_flops(self.decode).total

    @cached_property
    def decode(self) -> Graph:
        """The graph of a decode step."""
        return record(self.tree, decode=True)

    @cached_property
    def cache_specs(self) -> tuple[CacheSpec, ...]:
        """What the layers cache."""
        return cache_specs(self.decode)

    @cached_property
    def peak(self) -> _PeakActivations:
        """The peak activations of one token of a prompt."""
        return peak_activations(self.tree)

    @cached_property
    def most_elements(self) -> int:
        """The elements of the peak as a number, wherever other dimensions have it."""
        return most_elements(record(self.tree, activation_bytes=FLOAT32))

    @cached_property
    def decode_peak(self) -> _PeakActivations:
        """The peak activations of one token of a decode pass."""
        return peak_activations(self.tree, decode=True) if self.has_encoder else self.peak

    @property
    def context(self) -> int:
        """The requested context, or the default."""
        return self.request.context or default_context(self.tree)

    @property
    def checkpoint_notes(self) -> tuple[str, ...]:
        """The notes of the checkpoint that the weights or the config are from."""
        return self.stored.notes if self.stored else self._checkpoint_notes

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """The model's notes, those of the checkpoint, and those on a quantization recipe."""
        return self._notes(self._mtp_notes())

    def _notes(self, mtp: Iterable[str]) -> tuple[str, ...]:
        recipe: list[str] = []
        if self.packer.recipe is not None and self.storage is not None:
            from ...storage.recipe_storage import describe_recipe

            recipe = describe_recipe(self.storage)
        if self.packer.recipe is not None and (cache := self.packer.recipe.kv_cache):
            recipe.append(
                f"the recipe declares a KV cache in {safe(cache, 20)}; --kv-dtype sets "
                "the one that is counted here"
            )
        notes = (
            *self.model.notes,
            *self._recipe_notes(),
            *recipe,
            *mtp,
            *self._fused_qkv_notes(),
            *self.checkpoint_notes,
        )
        return tuple(dict.fromkeys(notes))

    def _recipe_notes(self) -> Iterator[str]:
        """Yield whose recipe a preset's quantized dtype is, and where files of another have fewer
        bytes.
        """
        dtype, packer = self.request.dtype, self.packer
        is_mxfp4 = packer.recipe is not None and packer.recipe.method == "mxfp4"
        if is_mxfp4 and self.stored is None and self.model.family.gguf is not None:
            yield (
                "GGUF files of mxfp4_moe keep the other matrices in Q8_0 and have fewer bytes, so "
                "their bound of decode is higher"
            )
        if self.model.preset is None or dtype not in _RECIPE_DTYPES:
            return
        if published := published_recipe(self.model, dtype):
            yield f"{dtype} is the recipe of {published['id']}: {published['source']}"
        elif packer.matrix is not None:
            yield (
                f"{dtype} is the quantizer's default, {packer.matrix.title}: no recipe of the "
                "publisher is known here"
            )

    def _fused_qkv_notes(self) -> Iterator[str]:
        """Yield a note on the types of matrices of q, k and v, which llama.cpp chose in another
        way in published files.
        """
        naming = gguf_naming(self.model)
        if self.stored is not None or not self.packer.gguf_file_type or naming is None:
            return
        from ....checkpoint.quantization.gguf_file_types import NEEDS_IMATRIX
        from ...storage.gguf_mixture import fused_qkv_difference

        measured = (
            self.packer.gguf_file_type in NEEDS_IMATRIX
            if self.request.imatrix is None
            else self.request.imatrix
        )
        if more := fused_qkv_difference(self.model.text.tree, self.packer, naming, measured):
            change = f"{abs(more):,} bytes {'more' if more > 0 else 'less'}"
            yield (
                "matrices of q, k and v have one type, as in older files; llama-quantize of "
                f"2026 gives them those of v: {change}"
            )

    @cached_property
    def not_loaded(self) -> tuple[MemoryLine, ...]:
        """The line of layers for multi-token prediction that the files have and inference without
        them does not load.
        """
        if self.stored is not None:
            return self.stored.not_loaded
        layers = self._mtp_layers_in_files
        if not layers:
            return ()
        from ...storage.quantized_tensors import mtp_bytes

        size, least = (mtp_bytes(self.model, self.packer, copies) for copies in (True, False))
        if size is None:
            return ()
        note = (
            f"{least:,} without copies of the embedding and the head, which not all files have"
            if least != size
            else ""
        )
        is_gguf = bool(self.packer.gguf_file_type)
        return (mtp_line(size, layers, note, is_gguf=is_gguf),)

    @property
    def _mtp_layers_in_files(self) -> int:
        names = self.model.family.gguf
        is_named = not self.packer.gguf_file_type or (names is not None and names.names_mtp)
        return int(self.tree.mtp.n) if self.tree.mtp is not None and is_named else 0

    def _mtp_notes(self) -> Iterator[str]:
        """Yield a note on layers for multi-token prediction, whose weights are not counted."""
        if self.stored is not None:
            return
        if layers := self._mtp_layers_in_files:
            in_files = "".join(f", {int(x.bytes):,} bytes in the files" for x in self.not_loaded)
            yield (
                f"not counted: {format_count(layers, 'layer')} for multi-token prediction{in_files}"
            )
        elif (
            self.tree.mtp is None
            and not self.is_main
            and (n := _declared_mtp_layers(self.model.config.data))
        ):
            yield (
                f"not counted: {format_count(n, 'layer')} for multi-token prediction, whose "
                "tensors are not known for this family"
            )

    @cached_property
    def element_bytes(self) -> int:
        """The bytes of an element of the activations."""
        return DTYPES[self.packer.compute_dtype].bytes

    def image_pass(self, batch: int) -> ImagePass | None:
        """Return the pass of the images of all sequences; None without images."""
        if self.request.images is None:
            return None
        from ...graph.image_pass import image_pass

        return image_pass(self.tree, self.request.images, batch)

    def prefill_activations(self, tokens: int, batch: int) -> Expr:
        """Return the bytes of the activations of a prefill, or of its images in the vision tower
        if those need more.
        """
        images, text = self.image_pass(batch), self.activations(tokens)
        # the decoder reads one token of each sequence, beside the states of the prompt
        if self.has_encoder:
            text = maximum(
                text,
                total(
                    (
                        product((tokens, self.tree.width, Expr.factor(self.element_bytes))),
                        self._of_decoder(batch),
                    )
                ),
            )
        return (
            text if images is None else maximum(text, images.activation_bytes(self.element_bytes))
        )

    def activations(self, tokens: int) -> Expr:
        """Return the bytes of the activations of a pass over this many tokens of all sequences
        together.
        """
        return product((tokens, self.peak.width.in_brackets(), Expr.factor(self.element_bytes)))

    def _of_decoder(self, tokens: int) -> Expr:
        """Return the bytes of the activations of a decode pass over this number of tokens, one
        of each sequence.
        """
        return product(
            (tokens, self.decode_peak.width.in_brackets(), Expr.factor(self.element_bytes))
        )

    def _chunk(self, context: int, batch: int) -> Expr:
        """Return the tokens of one prefill pass; an encoder reads whole prompts."""
        whole = product((batch, context))
        return whole if self.has_encoder else prefill_chunk(context, batch, self.request.chunk)

    @cached_property
    def _dynamic_bytes(self) -> Expr:
        """The bytes of everything but the weights, in T and B."""
        return self._dynamic_at(1, 1)

    def _dynamic_at(self, tokens: int, sequences: int) -> Expr:
        context, batch = Expr.variable("T", tokens), Expr.variable("B", sequences)
        cache = sum_cache_specs(self.cache_specs, context, batch, self.kv_dtype).bytes
        activations = self.prefill_activations(self._chunk(context, batch), batch)
        used = total((cache, activations, logits_bytes(batch, self.tree)))
        return used + overhead_bytes(used)

    def total_bytes(self, context: int, batch: int) -> int:
        """Return the memory of `batch` sequences of `context` tokens; `at` returns its parts."""
        weights = sum(x.bytes for x in self.weights)
        return weights + self._dynamic_bytes.evaluate(T=context, B=batch)

    def at(self, context: int, batch: int) -> _ContextMemory:
        """Return the memory of `batch` sequences of `context` tokens."""
        tokens, sequences = Expr.variable("T", context), Expr.variable("B", batch)
        cache = sum_cache_specs(self.cache_specs, tokens, sequences, self.kv_dtype)
        chunk = self._chunk(tokens, sequences)
        activations, logits = (
            self.prefill_activations(chunk.alias("n"), sequences),
            logits_bytes(sequences, self.tree),
        )
        images = self.image_pass(sequences)
        if images is not None:
            from ...graph.image_pass import check_tokens

            check_tokens(images, context)
        peak = (
            f"for n tokens: the peak, in {self.peak.branch}, of a forward pass with flash attention"
        )
        if images is not None:
            peak += (
                f"; or that of all images at once in the vision tower: {images.summary} of "
                "the context"
            )
        dynamic = [
            *_cache_lines(cache),
            MemoryLine(what="activations", bytes=activations, note=peak, exact=False),
            MemoryLine(what="logits", bytes=logits, note="of the last position, in fp32"),
        ]
        overhead = overhead_line(
            {"cache": cache.bytes, "activations": activations, "logits": logits}
        )
        return _ContextMemory(
            dtype=self.packer.name if self.stored is None else AS_STORED,
            kv_dtype=self.kv_dtype,
            context=context,
            batch=batch,
            chunk=chunk,
            lines=(*self.weights, *dynamic, overhead),
            weights=int(sum(x.bytes for x in self.weights)),
            cache=cache,
            prefill=activations,
            decode=self._of_decoder(sequences),
            logits=logits,
            overhead=overhead.bytes,
            letters=letters_of(dynamic),
            storage=self.storage,
        )

    def max_context(self, limit: int) -> int | None:
        """Return the longest context that fits in `limit` bytes with the requested batch; 0 if
        none does, None if any does.
        """
        return largest_fitting(lambda n: self.total_bytes(n, self.request.batch) <= limit)

    def max_batch(self, limit: int) -> int | None:
        """Return the largest batch that fits in `limit` bytes with the requested context; 0 if
        none does, None if any does.
        """
        return largest_fitting(lambda n: self.total_bytes(self.context, n) <= limit)

    def report(self, contexts: Sequence[int] = (), within: int | None = None) -> MemoryReport:
        """Return the report of the longest of the contexts, or of the requested one; `within` is
        a limit in bytes.
        """
        reports = tuple(self.at(n, self.request.batch) for n in contexts or [self.context])
        longest = max(reports, key=lambda x: x.context)
        limit = None
        if within is not None:
            limit = MemoryLimit(
                within=within,
                fits=longest.total <= within,
                max_context=self.max_context(within),
                max_batch=self.max_batch(within),
            )
        fields = {name: getattr(longest, name) for name in longest.fields}
        return MemoryReport(
            **fields,
            model=self.model,
            contexts=reports,
            limit=limit,
            not_loaded=self.not_loaded,
            notes=self._notes(() if self.not_loaded else self._mtp_notes()),
            checkpoint_notes=self.checkpoint_notes,
        )


def memory(
    model: FamilyModel,
    request: MemoryRequest | None = None,
    stored: StoredWeights | None = None,
    *,
    contexts: Sequence[int] = (),
    within: int | None = None,
    checkpoint_notes: Sequence[str] = (),
) -> MemoryReport:
    """Return the memory that inference with a model needs.

    `stored` are the weights of its checkpoint, if their stored bytes are counted. Several
    `contexts` give a table; `within` is a limit in bytes; `checkpoint_notes` tell how the
    checkpoint differs from the model.
    """
    request = request or MemoryRequest()
    return MemoryCalculator(
        model,
        request.replace(context=max(contexts, default=request.context)),
        stored,
        checkpoint_notes,
    ).report(contexts, within)


def prefill_chunk(context: int, batch: int, chunk: int) -> Expr:
    """Return the tokens of one prefill pass over `batch` prompts of `context` tokens, of which
    each has at least one.
    """
    return minimum(product((batch, context)), maximum(chunk, batch))


def logits_bytes(batch: int, tree: Decoder) -> Expr:
    """Return the bytes of the logits of each sequence's last token, in float32."""
    return product((batch, tree.vocab, Expr.factor(LOGIT_BYTES)))


def largest_fitting(fits: Callable[[int], bool], most: int = MAX_TOKENS) -> int | None:
    """Return the largest number that fits, given that all smaller ones do; 0 if 1 does not fit,
    None if `most` does.
    """
    if not fits(1):
        return 0
    low, high = 1, 2
    while fits(high):
        if high >= most:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def declared_dtype(model: FamilyModel) -> str:
    """Return the name of the dtype or quantization recipe that the config declares; bf16 if it
    declares none.
    """
    return model.weight_format.name


def _declared_mtp_layers(config: Mapping[str, object]) -> int:
    """Return the number of layers for multi-token prediction that a config declares."""
    counts = (n for key in MTP_KEYS if type(n := config.get(key)) is int and 0 < n < 1000)
    return next(counts, 0)


def _format_of_weights(
    model: FamilyModel, dtype: str, stored: StoredWeights | None
) -> WeightFormat:
    """Return the format that is asked for; where the weights are those of files, an unknown
    recipe in the config does not matter.
    """
    try:
        return model_format(model, dtype)
    except UnknownQuantization:
        if stored is None:
            raise
        return PLAIN_FORMATS["bf16"]


def _check_request(request: MemoryRequest) -> None:
    for name, n in (
        ("context", request.context),
        ("batch", request.batch),
        ("chunk", request.chunk),
    ):
        if n is not None and not 1 <= n < MAX_TOKENS:
            raise LlamathError(f"{name} should be from 1 to {MAX_TOKENS - 1:,}, not {n:,}")


def _cache_lines(cache: KVCacheSize) -> Iterator[MemoryLine]:
    for x in cache.parts:
        if x.growing:
            yield MemoryLine(what=f"cache, {x.spec.kind}", bytes=x.growing)
        if x.fixed:
            yield MemoryLine(what="state" if x.growing else f"cache, {x.spec.kind}", bytes=x.fixed)
