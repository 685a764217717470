"""`gpus this`: the rates of this machine, the speed of a model on it, and the limits of that model
at those rates.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from ..analysis.check.checkpoint_weights import read_stored_weights
from ..analysis.size.fit.calibration import Calibration
from ..analysis.size.memory.gpu_shards import ShardedModel
from ..analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from ..analysis.size.memory.speed_limits import SpeedLimits, speed_limits
from ..generation.free_memory import free_host_bytes
from ..generation.generation import Generation, GenerationLimits
from ..generation.sampling_parameters import Sampling
from ..generation.session import LlamaBase
from ..model import FamilyModel
from ..questions.layout import Layout
from ..render.report import Report
from ..render.tables import Cell, Column, Part, Table
from ..utils.errors import LlamathError, safe
from ..utils.number_format import format_count
from .machine_rates import BEYOND_CACHES, MachineRates, measure_bandwidth, measure_rates

if TYPE_CHECKING:
    from .native_session import NativeLlama

_MOST_SHARE = 1.2
"""The largest share of the bandwidth that is told; bandwidths vary by some percent between
measurements."""
_LEAST_TOKENS = 8
"""Generated tokens whose speed says something."""
_PROMPT = 512
"""Tokens of the prompt where the context has room for them."""
_ROUNDS = 3
"""Times that the prompt is processed and continued."""


class MeasureReport(Report):
    """The rates of a machine, and a model's speed beside its limits."""

    model: FamilyModel
    machine: str
    engine: str
    threads: int
    path: str  # the instruction set of the kernels that measured the rates
    memory: int  # bytes
    bandwidth: int
    flops: dict[str, int]
    prompt: int  # tokens
    tokens: int  # generated
    decode: float  # tokens per second
    prefill: float
    limits: SpeedLimits

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=model.name",
            "source=model.source",
            "machine",
            "engine",
            "threads",
            "path",
            "memory",
            "bandwidth",
            "flops",
        ),
        *("prompt", "tokens", "decode", "prefill", "decode_limit=limits.decode.tokens_per_second"),
        *("prefill_limit=limits.prefill.tokens_per_second", "decode_share", "prefill_share"),
    )

    @property
    def decode_share(self) -> float:
        """The decode speed over its limit."""
        return self.decode / self.limits.decode.tokens_per_second

    @property
    def prefill_share(self) -> float:
        """The prefill speed over its limit."""
        assert self.limits.prefill is not None
        return self.prefill / self.limits.prefill.tokens_per_second

    @property
    def calibration(self) -> Calibration:
        """The contents of the file that `fit --on FILE` reads."""
        if self.decode_share > _MOST_SHARE:
            raise LlamathError(
                f"decode reached {self.decode_share:.0%} of the memory bandwidth: "
                f"{self.model.name} fits into the processor's caches",
                hint="a calibration needs a larger model",
            )
        return Calibration(
            machine=self.machine,
            engine=self.engine,
            threads=self.threads,
            model=self.model.name,
            memory=self.memory,
            bandwidth=self.bandwidth,
            flops=self.flops,
            decode_share=round(self.decode_share, 4),
            prefill_share=round(self.prefill_share, 4),
        )

    @property
    def summary(self) -> str:
        """The speed of the model."""
        return (
            f"{self.model.name} on {self.machine}: decode {self.decode:,.4g} tokens/s, "
            f"prefill {self.prefill:,.4g} tokens/s"
        )

    @property
    def headline(self) -> str:
        """The machine."""
        return f"{safe(self.machine)}, {format_count(self.threads, 'thread')}, {self.path}"

    def tables(self) -> Iterable[Part]:
        """The rates of the machine, and the speed of the model beside its limits."""
        rates = [
            (name, Cell(rate, text=f"{rate / 1e9:,.0f} GFLOP/s"))
            for name, rate in self.flops.items()
        ]
        bandwidth = Cell(self.bandwidth, text=f"{self.bandwidth / 1e9:,.1f} GB/s")
        yield Table(columns=_RATES, rows=(("memory bandwidth", bandwidth), *rates))
        limits = self.limits
        rows: list[tuple[Any, ...]] = [
            ("decode", self.decode, limits.decode.tokens_per_second, self.decode_share)
        ]
        if limits.prefill is not None:
            limit = limits.prefill.tokens_per_second
            rows.append(("prefill", self.prefill, limit, self.prefill_share))
        about = (
            "rates: medians of the engine's own products, of one token (bandwidth) and of 512; "
            "the limits are those of fit at these rates"
        )
        if self.decode_share > 1:
            about += (
                "; decode is faster than the memory where the model stays in the processor's caches"
            )
        yield Table(
            title=f"{self.model.name}, {self.engine} engine, "
            f"{self.prompt:,} + {self.tokens:,} tokens",
            columns=_SPEEDS,
            rows=tuple(rows),
            legend=about,
        )


_RATES = (Column("", key="of this machine"), Column("", "right", "measured"))
_SPEEDS = (
    Column("", key="pass"),
    Column("tokens/s", "rate", "tokens_per_second"),
    Column("limit", "rate"),
    Column("share", "percent"),
)


def measure(
    llama: LlamaBase, prompt: int | None = None, tokens: int = 32, threads: int | None = None
) -> MeasureReport:
    """Measure this machine and a model on it, with a prompt of random tokens; the median of several
    rounds.

    Without a length, the prompt has 512 tokens, or as many as the model's context has room for.
    """
    if llama.model is None:
        raise LlamathError("a model without a config cannot be measured")
    room = llama.context or 2**31
    if prompt is None:
        prompt = max(min(_PROMPT, room - tokens), 1)
    if prompt < 1 or tokens < 2 or prompt + tokens > room:
        raise LlamathError(
            f"{prompt:,} + {tokens:,} tokens do not fit the model's context of {room:,}",
            hint="fewer tokens, or a model with a longer context",
        )
    rates = measure_rates(threads)
    prefill, decode = _speeds(llama, prompt, tokens)
    return MeasureReport(
        model=llama.model,
        machine=processor_name(),
        engine=llama.engine,
        threads=rates.threads,
        path=rates.path,
        memory=_memory(),
        bandwidth=rates.bandwidth,
        flops=rates.flops,
        prompt=prompt,
        tokens=tokens,
        decode=decode,
        prefill=prefill,
        limits=_limits(llama.model, rates, prompt + tokens // 2),
    )


def describe_bandwidth(llama: NativeLlama, generation: Generation) -> str:
    """Say which share of the memory's bandwidth decoding took; nothing where a processor's caches
    may hold the weights, or of few tokens.
    """
    assert llama.model is not None
    tokens, dtype = generation.num_tokens, llama.converted_to
    if len(generation.rows) > 1 or tokens < _LEAST_TOKENS:
        return ""
    context = generation.rows[0].prompt_length + tokens // 2
    request = MemoryRequest(context=context, dtype=dtype)
    try:
        stored = None if dtype else read_stored_weights(llama.model)
        shards = ShardedModel(MemoryCalculator(llama.model, request, stored), Layout())
        read = shards.weight_reads(1)[0] + shards.kv_cache(0, context, 1)
    except LlamathError:  # the text is written; what cannot be computed of its speed is not said
        return ""
    free = free_host_bytes()
    if read < BEYOND_CACHES or (free is not None and free < 2 * BEYOND_CACHES):
        return ""
    reached, most = read * generation.tokens_per_second, measure_bandwidth(llama.native.threads)
    if reached > most * _MOST_SHARE:
        return ""  # other programs have the memory now
    return f"{reached / most:.0%} of the bandwidth of memory, {most / 1e9:,.1f} GB/s"


def _speeds(llama: LlamaBase, prompt: int, tokens: int) -> tuple[float, float]:
    """Return tokens per second of prefill and decode."""
    vocab = llama.tokenizer.vocab_size if hasattr(llama.tokenizer, "vocab_size") else 256
    ids = [7 * i % max(min(vocab, 256), 1) for i in range(prompt)]
    prefill: list[float] = []
    decode: list[float] = []
    for _ in range(_ROUNDS):
        limits = GenerationLimits(max_tokens=tokens, context=prompt + tokens, stop_ids=frozenset())
        generation = llama.start_generation([ids], Sampling(temperature=0.0), limits, 0)
        times = [perf_counter(), *(perf_counter() for _ in generation)]
        prefill.append(prompt / (times[1] - times[0]))
        decode += [1 / (b - a) for a, b in pairwise(times[1:])]
    return median(prefill), median(decode)


def _limits(model: FamilyModel, rates: MachineRates, context: int) -> SpeedLimits:
    """Return the limits of the model at the measured rates."""
    calculator = MemoryCalculator(model, MemoryRequest(context=context), read_stored_weights(model))
    device = Calibration(
        machine="", engine="", threads=rates.threads, model="", memory=2**62,
        bandwidth=rates.bandwidth, flops=rates.flops,
        decode_share=1.0, prefill_share=1.0,
    ).device  # fmt: skip
    return speed_limits(ShardedModel(calculator, Layout()), device, context, 1)


def processor_name() -> str:
    """Return the name of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = [
                line.partition(":")[2].strip() for line in file if line.startswith("model name")
            ]
    except OSError:
        names = []
    return (names[0] if names else platform.processor() or platform.machine())[:100]


def _memory() -> int:
    """Return the bytes of memory of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        raise LlamathError("the memory of this machine is unknown") from None
