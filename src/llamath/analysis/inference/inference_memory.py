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
from ..memory_line import Line
from .cache_bytes import Cache, Part, cache, kv_dtype, plain
from .peak_activations import Peak, peak
from .weight_bytes import GGUF, Storage, stored

if TYPE_CHECKING:
    from ...model import Model

CHUNK = 2048
"""How many tokens of prompts are read at once, unless it is said: what llama.cpp (n_batch) and vLLM (max_num_batched_tokens) begin with."""
CONTEXT = 4096
"""The context of a model that does not say its own."""
FIXED, PART = 512 * 2**20, 50
"""The estimate of the overhead: so many bytes for the device's context and its libraries, and one part in so many of what is no weight."""
STORED = "as stored"
"""The dtype of a report whose weights are a file's own bytes."""
MOST = 2**32
"""No context, batch or chunk is as large as this: what is, was mistyped."""


class MemoryRequest(Record):
    """What is asked: everything is optional."""

    dtype: str = ""  # or a scheme of quantisation; empty: what the configuration says, else bf16
    kv_dtype: str = ""  # of the cache; empty: that of the activations
    context: int | None = None  # tokens of each sequence; None: the model's own
    batch: int = 1
    chunk: int = CHUNK  # tokens read at once in prefill, all sequences together
    imatrix: bool | None = None  # of GGUF's file types: whether with an importance matrix; None: where it must be


class MemoryReport(Record):
    """What it comes to, in bytes."""

    dtype: str
    kv_dtype: str
    context: int
    batch: int
    chunk: int  # tokens that prefill reads at once
    lines: tuple[Line, ...]
    weights: int
    cache: Cache
    prefill: int  # activations
    decode: int
    logits: int
    overhead: int
    letters: Mapping[str, int]  # of the formulas
    storage: Storage | None = None  # None: the weights are those of a file

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


class Sizes:
    """A model under one request, so that many contexts and batches cost one look at its weights."""

    def __init__(self, model: Model, request: MemoryRequest, held: Sequence[Line] | None = None) -> None:
        _checked(request)
        self.tree, self.request = model.tree, request
        self.packer = packer(request.dtype or declared(model))
        self.kv = request.kv_dtype or {"F32": "fp32", "F16": "fp16"}.get(self.packer.compute, "bf16")
        self.beside = plain(kv_dtype(self.kv)) if kv_dtype(self.kv).bytes == 4 else DTYPES[self.packer.compute].bytes
        self._model, self._held = model, held

    @cached_property
    def storage(self) -> Storage | None:
        """The weights under the scheme; None where a file's own bytes are meant."""
        if self._held is not None:
            return None
        names = self._model.family.gguf
        gguf = GGUF(names, self._model.family.gguf_arch) if names is not None else None
        return stored(self.tree, self.packer, gguf, self.request.imatrix)

    @property
    def doubt(self) -> str:
        """What the configuration says of its weights that is not known here, where nothing else says what they are in."""
        return "" if self.request.dtype or self._held is not None else unread(self._model)

    @cached_property
    def weights(self) -> tuple[Line, ...]:
        """The lines of the weights, one for each way in which they are kept."""
        return tuple(self._held) if self._held is not None else tuple(_weights(self.storage))  # type: ignore[arg-type]

    @cached_property
    def peak(self) -> Peak:
        """The widest branch."""
        return peak(self.tree)

    @property
    def context(self) -> int:
        """The context that is asked for, or the model's own."""
        return self.request.context or self.tree.context or CONTEXT

    def at(self, context: int, batch: int) -> MemoryReport:
        """The report for so many sequences of so many tokens."""
        weights = sum(x.bytes for x in self.weights)
        kept, size = cache(self.tree, context, batch, self.kv), DTYPES[self.packer.compute].bytes
        read, each = min(batch * context, max(self.request.chunk, batch)), int(self.peak.width) * size
        logits = 4 * batch * int(self.tree.vocab)
        passing = Line(what="activations", bytes=read * each, formula=_activations(self.peak, read, size), exact=False)
        last = Line(what="logits", bytes=logits, formula=f"B·V·4 = {batch:,}·{int(self.tree.vocab):,}·4, of the last position, in fp32")
        moving = [*_kept(kept, self.kv), passing, last]
        overhead = _overhead(sum(x.bytes for x in moving))
        return MemoryReport(
            dtype=self.packer.name if self._held is None else STORED,
            kv_dtype=self.kv,
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
        return largest(lambda n: self.at(n, self.request.batch).total <= budget)

    def max_batch(self, budget: int) -> int | None:
        """The most sequences of the context that is asked for; 0 if not even one fits."""
        return largest(lambda n: self.at(self.context, n).total <= budget)


def memory(model: Model, request: MemoryRequest | None = None, held: Sequence[Line] | None = None) -> MemoryReport:
    """What a model needs; `held` are the weights' lines where they are a file's own bytes."""
    sizes = Sizes(model, request or MemoryRequest(), held)
    return sizes.at(sizes.context, sizes.request.batch)


def largest(fits: Callable[[int], bool], most: int = MOST) -> int | None:
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


def declared(model: Model) -> str:
    """The dtype or scheme that the configuration itself names; bf16 where it names none that is known here."""
    said = model.config.data.get("quantization_config")
    if isinstance(said, dict) and (found := _scheme(said)):
        return found
    word = str(model.config.data.get("dtype") or model.config.data.get("torch_dtype") or "")
    dtype = find_dtype(word)
    return dtype.short_name if dtype is not None and dtype.name in ("F32", "F16") else "bf16"


def unread(model: Model) -> str:
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
        if n is not None and not 1 <= n < MOST:
            raise LlamathError(f"a {name} of {n:,} is none", hint=f"--{name} should be from 1 to {MOST - 1:,}")


def _weights(storage: Storage) -> Iterator[Line]:
    packed = storage.packer.codec if storage.packer.bytes is not None else ""
    for x in storage.sums():
        if x.codec == packed:
            formula = f"Σ {storage.packer.formula} over {x.tensors:,} matrices of {x.elements:,} weights"
        else:
            formula = f"{x.elements:,} · {_each(x.codec)}"
        yield Line(what=f"weights, {x.codec}", bytes=x.bytes, formula=formula)


def _each(codec: str) -> str:
    dtype = DTYPES[codec]
    return str(dtype.bytes) if dtype.block == 1 else f"{dtype.bytes}/{dtype.block}"


def _kept(kept: Cache, dtype: str) -> Iterator[Line]:
    for x in kept.parts:
        if x.growing:
            yield Line(what=f"cache, {x.what.kind}", bytes=x.growing, formula=_growing(x, kept, dtype))
        if x.fixed:
            yield Line(what=f"cache, {x.what.kind}" if not x.growing else "state", bytes=x.fixed, formula=_fixed(x, kept, dtype))


def _growing(x: Part, kept: Cache, dtype: str) -> str:
    layers, rows, tokens = Dim.const(x.what.layers), x.what.rows, x.what.tokens(kept.context)
    times, same = len(rows) if len(set(rows)) == 1 else 1, rows[0] if len(set(rows)) == 1 else None
    letters = _bracketed(same.symbol if same is not None else " + ".join(row.symbol for row in rows))
    numbers = _bracketed(same.numbers if same is not None else " + ".join(row.numbers for row in rows))
    span = "T" if x.what.span is None else f"min(T, {int(x.what.span):,})"
    head = f"{times}·" if times > 1 else ""
    each = _each(kv_dtype(dtype).name)
    return f"{head}{_letter(layers)}·{letters}·{span}·B·{each} = {head}{int(layers)}·{numbers}·{tokens:,}·{kept.batch:,}·{each}"


def _fixed(x: Part, kept: Cache, dtype: str) -> str:
    layers = Dim.const(x.what.layers)
    parts = [(n, size) for n, size in ((x.what.state, 4), (x.what.taps, plain(kv_dtype(dtype)))) if n]
    letters = " + ".join(f"{_bracketed(n.symbol)}·{size}" for n, size in parts)
    numbers = " + ".join(f"{_bracketed(n.numbers)}·{size}" for n, size in parts)
    return f"{_letter(layers)}·B·({letters}) = {int(layers)}·{kept.batch:,}·({numbers})"


def _bracketed(text: str) -> str:
    return f"({text})" if " " in text else text


def _letters(kept: Cache, widest: Peak) -> dict[str, int]:
    """The letters of the formulas, with their values."""
    written = [x for part in kept.parts for x in (*part.what.rows, part.what.state, part.what.taps) if x is not None]
    layers = [Dim.const(part.what.layers) for part in kept.parts]
    return {letter: n for x in (*layers, *written, widest.width) for letter, n in x.atoms.items()}


def _letter(layers: Dim) -> str:
    return layers.symbol if len(layers.atoms) == 1 and "+" not in layers.symbol else str(int(layers))


def _activations(widest: Peak, tokens: int, size: int) -> str:
    said = f"n·({widest.width.symbol})·{size} = {tokens:,}·({widest.width.numbers})·{size}"
    return f"{said}, of n tokens at once: the peak, in {widest.branch}, of a plain pass with flash attention"


def _overhead(moving: int) -> Line:
    said = "an estimate: the device's context, libraries' workspaces, the allocator's gaps"
    formula = f"{FIXED // 2**20} MiB + {100 // PART} % of what is no weight, {said}"
    return Line(what="overhead", bytes=FIXED + moving // PART, formula=formula, exact=False)
