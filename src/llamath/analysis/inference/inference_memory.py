"""`memory`: what inference needs, line by line: weights, cache, activations, logits, and an estimate of what comes on top.

Each line is bytes with the formula that they come from; those that depend on an implementation are marked as not exact and say whose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ...checkpoint.formats.dtypes import DTYPES, find_dtype
from ...checkpoint.quantization.sizes import packer
from ...core.errors import LlamathError
from ...core.expr import Dim
from ...core.record_type import Record
from ..memory_line import MemoryLine, overhead_line
from .cache_bytes import CachePart, KVCacheSize, conv_state_bytes, kv_cache_size, parse_kv_dtype
from .peak_activations import PeakActivations, peak_activations
from .weight_bytes import GGUFNaming, WeightStorage, weight_storage

if TYPE_CHECKING:
    from ...model import Model

PREFILL_CHUNK = 2048
"""How many tokens of prompts are read at once, unless it is said: what llama.cpp (n_batch) and vLLM (max_num_batched_tokens) begin with."""
DEFAULT_CONTEXT = 4096
"""The context of a model that does not say its own."""
AS_STORED = "as stored"
"""The dtype of a report whose weights are a file's own bytes."""
MAX_TOKENS = 2**32
"""No context, batch or chunk is as large as this: what is, was mistyped."""


class MemoryRequest(Record):
    """What is asked: everything is optional."""

    dtype: str = ""  # or a scheme of quantisation; empty: what the configuration says, else bf16
    kv_dtype: str = ""  # of the cache; empty: that of the activations
    context: int | None = None  # tokens of each sequence; None: the model's own
    batch: int = 1
    chunk: int = PREFILL_CHUNK  # tokens read at once in prefill, all sequences together
    imatrix: bool | None = None  # of GGUF's file types: whether with an importance matrix; None: where it must be


class MemoryReport(Record):
    """What it comes to, in bytes."""

    dtype: str
    kv_dtype: str
    context: int
    batch: int
    chunk: int  # tokens that prefill reads at once
    lines: tuple[MemoryLine, ...]
    weights: int
    cache: KVCacheSize
    prefill: int  # activations
    decode: int
    logits: int
    overhead: int
    letters: Mapping[str, int]  # of the formulas
    storage: WeightStorage | None = None  # None: the weights are those of a file

    @property
    def kv_cache(self) -> int:
        """Everything that is remembered, states included."""
        return self.cache.bytes

    @property
    def activations(self) -> int:
        """Of the pass that needs more."""
        return max(self.prefill, self.decode)

    @property
    def total(self) -> int:
        """The sum of the lines."""
        return sum(x.bytes for x in self.lines)


class MemoryCalculator:
    """A model under one request, so that many contexts and batches cost one look at its weights."""

    def __init__(self, model: Model, request: MemoryRequest, held: Sequence[MemoryLine] | None = None) -> None:
        _checked(request)
        self.tree, self.request = model.tree, request
        self.packer = packer(request.dtype or declared_dtype(model))
        self.kv_dtype = request.kv_dtype or {"F32": "fp32", "F16": "fp16"}.get(self.packer.compute, "bf16")
        self.conv_state_bytes = (
            conv_state_bytes(parse_kv_dtype(self.kv_dtype))
            if parse_kv_dtype(self.kv_dtype).bytes == 4
            else DTYPES[self.packer.compute].bytes
        )
        self._model, self._held = model, held

    @cached_property
    def storage(self) -> WeightStorage | None:
        """The weights under the scheme; None where a file's own bytes are meant."""
        if self._held is not None:
            return None
        names = self._model.family.gguf
        gguf = GGUFNaming(names, self._model.family.gguf_arch) if names is not None else None
        return weight_storage(self.tree, self.packer, gguf, self.request.imatrix)

    @property
    def unknown_quantization(self) -> str:
        """What the configuration says of its weights that is not known here, where nothing else says what they are in."""
        return "" if self.request.dtype or self._held is not None else unknown_quantization(self._model)

    @cached_property
    def weights(self) -> tuple[MemoryLine, ...]:
        """The lines of the weights, one for each way in which they are kept."""
        return tuple(self._held) if self._held is not None else tuple(_weights(self.storage))  # type: ignore[arg-type]

    @cached_property
    def peak(self) -> PeakActivations:
        """The widest branch."""
        return peak_activations(self.tree)

    @property
    def context(self) -> int:
        """The context that is asked for, or the model's own."""
        return self.request.context or self.tree.context or DEFAULT_CONTEXT

    def at(self, context: int, batch: int) -> MemoryReport:
        """The report for so many sequences of so many tokens."""
        weights = sum(x.bytes for x in self.weights)
        kept, size = kv_cache_size(self.tree, context, batch, self.kv_dtype), DTYPES[self.packer.compute].bytes
        read, each = min(batch * context, max(self.request.chunk, batch)), int(self.peak.width) * size
        logits = 4 * batch * int(self.tree.vocab)
        passing = MemoryLine(what="activations", bytes=read * each, formula=_activations(self.peak, read, size), exact=False)
        last = MemoryLine(
            what="logits", bytes=logits, formula=f"B·V·4 = {batch:,}·{int(self.tree.vocab):,}·4, of the last position, in fp32"
        )
        moving = [*_kept(kept, self.kv_dtype), passing, last]
        overhead = overhead_line(sum(x.bytes for x in moving), "everything but the weights")
        return MemoryReport(
            dtype=self.packer.name if self._held is None else AS_STORED,
            kv_dtype=self.kv_dtype,
            context=context,
            batch=batch,
            chunk=read,
            lines=(*self.weights, *moving, overhead),
            weights=weights,
            cache=kept,
            prefill=read * each,
            decode=batch * each,
            logits=logits,
            overhead=overhead.bytes,
            letters=_letters(kept, self.peak) | {"V": int(self.tree.vocab)},
            storage=self.storage,
        )

    def max_context(self, budget: int) -> int | None:
        """The longest context that fits, with the batch that is asked for; 0 if none does, None if any does."""
        return largest_fitting(lambda n: self.at(n, self.request.batch).total <= budget)

    def max_batch(self, budget: int) -> int | None:
        """The most sequences of the context that is asked for; 0 if not even one fits."""
        return largest_fitting(lambda n: self.at(self.context, n).total <= budget)


def memory(model: Model, request: MemoryRequest | None = None, held: Sequence[MemoryLine] | None = None) -> MemoryReport:
    """What a model needs; `held` are the weights' lines where they are a file's own bytes."""
    sizes = MemoryCalculator(model, request or MemoryRequest(), held)
    return sizes.at(sizes.context, sizes.request.batch)


def largest_fitting(fits: Callable[[int], bool], most: int = MAX_TOKENS) -> int | None:
    """The largest number that fits, where a smaller one fits whenever a larger one does; 0 if 1 does not, None if `most` does."""
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


def declared_dtype(model: Model) -> str:
    """The dtype or scheme that the configuration itself names; bf16 where it names none that is known here."""
    said = model.config.data.get("quantization_config")
    if isinstance(said, dict) and (found := _scheme(said)):
        return found
    word = str(model.config.data.get("dtype") or model.config.data.get("torch_dtype") or "")
    dtype = find_dtype(word)
    return dtype.short_name if dtype is not None and dtype.name in ("F32", "F16") else "bf16"


def unknown_quantization(model: Model) -> str:
    """The configuration's own word for how its weights are quantised, where that is nothing known here."""
    said = model.config.data.get("quantization_config")
    if not isinstance(said, dict) or _scheme(said):
        return ""
    return str(said.get("quant_method") or "a way without a name")


def _scheme(said: dict[str, object]) -> str:
    method, bits, group = str(said.get("quant_method", "")), said.get("bits"), said.get("group_size")
    if method in ("awq", "gptq") and type(bits) is int and type(group) is int and group > 0:
        try:
            return packer(f"{method}-{bits}bit-g{group}").name
        except LlamathError:
            return ""
    if method == "bitsandbytes":
        double = "-dq" if said.get("bnb_4bit_use_double_quant") else ""
        return f"bnb-nf4{double}" if said.get("load_in_4bit") else "bnb-int8"
    return method if method == "mxfp4" or (method == "fp8" and said.get("weight_block_size") == [128, 128]) else ""


def _checked(request: MemoryRequest) -> None:
    asked = {"context": request.context, "batch": request.batch, "chunk": request.chunk}
    for name, n in asked.items():
        if n is not None and not 1 <= n < MAX_TOKENS:
            raise LlamathError(f"a {name} of {n:,} is none", hint=f"--{name} should be from 1 to {MAX_TOKENS - 1:,}")


def _weights(storage: WeightStorage) -> Iterator[MemoryLine]:
    packed = storage.packer.codec if storage.packer.bytes is not None else ""
    for x in storage.sums():
        if x.codec == packed:
            formula = f"Σ {storage.packer.formula} over {x.tensors:,} matrices of {x.elements:,} weights"
        else:
            formula = f"{x.elements:,} · {_each(x.codec)}"
        yield MemoryLine(what=f"weights, {x.codec}", bytes=x.bytes, formula=formula)


def _each(codec: str) -> str:
    dtype = DTYPES[codec]
    return str(dtype.bytes) if dtype.block == 1 else f"{dtype.bytes}/{dtype.block}"


def _kept(kept: KVCacheSize, dtype: str) -> Iterator[MemoryLine]:
    for x in kept.parts:
        if x.growing:
            yield MemoryLine(what=f"cache, {x.spec.kind}", bytes=x.growing, formula=_growing(x, kept, dtype))
        if x.fixed:
            yield MemoryLine(what=f"cache, {x.spec.kind}" if not x.growing else "state", bytes=x.fixed, formula=_fixed(x, kept, dtype))


def _growing(x: CachePart, kept: KVCacheSize, dtype: str) -> str:
    layers, rows, tokens = Dim.const(x.spec.layers), x.spec.rows, x.spec.tokens(kept.context)
    times, same = len(rows) if len(set(rows)) == 1 else 1, rows[0] if len(set(rows)) == 1 else None
    letters = _bracketed(same.symbol if same is not None else " + ".join(row.symbol for row in rows))
    numbers = _bracketed(same.numbers if same is not None else " + ".join(row.numbers for row in rows))
    span = "T" if x.spec.window is None else f"min(T, {int(x.spec.window):,})"
    head = f"{times}·" if times > 1 else ""
    each = _each(parse_kv_dtype(dtype).name)
    return f"{head}{_letter(layers)}·{letters}·{span}·B·{each} = {head}{int(layers)}·{numbers}·{tokens:,}·{kept.batch:,}·{each}"


def _fixed(x: CachePart, kept: KVCacheSize, dtype: str) -> str:
    layers = Dim.const(x.spec.layers)
    parts = [(n, size) for n, size in ((x.spec.state, 4), (x.spec.conv_state, conv_state_bytes(parse_kv_dtype(dtype)))) if n]
    letters = " + ".join(f"{_bracketed(n.symbol)}·{size}" for n, size in parts)
    numbers = " + ".join(f"{_bracketed(n.numbers)}·{size}" for n, size in parts)
    return f"{_letter(layers)}·B·({letters}) = {int(layers)}·{kept.batch:,}·({numbers})"


def _bracketed(text: str) -> str:
    return f"({text})" if " " in text else text


def _letters(kept: KVCacheSize, widest: PeakActivations) -> dict[str, int]:
    """The letters of the formulas, with their values."""
    written = [x for part in kept.parts for x in (*part.spec.rows, part.spec.state, part.spec.conv_state) if x is not None]
    layers = [Dim.const(part.spec.layers) for part in kept.parts]
    return {letter: n for x in (*layers, *written, widest.width) for letter, n in x.atoms.items()}


def _letter(layers: Dim) -> str:
    return layers.symbol if len(layers.atoms) == 1 and "+" not in layers.symbol else str(int(layers))


def _activations(widest: PeakActivations, tokens: int, size: int) -> str:
    said = f"n·({widest.width.symbol})·{size} = {tokens:,}·({widest.width.numbers})·{size}"
    return f"{said}, of n tokens at once: the peak, in {widest.branch}, of a plain pass with flash attention"
