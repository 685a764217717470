"""`speed_limits`: upper bounds on the speed of decode and prefill: bytes over bandwidth or FLOPs
over peak FLOP/s, whichever takes longer (the roofline of Williams et al. 2009,
doi:10.1145/1498765.1498785).

They are bounds, not predictions: every byte is read once at the data sheet's bandwidth, every
matrix product runs at the dense peak, and communication, kernel launches, softmax, norms and
sampling take no time. They bound passes: with speculative decoding, a pass of decode can give
several tokens of a sequence, and tokens per second can exceed the bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import ClassVar, Literal, NamedTuple

from ....checkpoint.quantization.format_names import compute_rate
from ....core.expr import Expr, floor_div, maximum, product, total
from ....hardware import Device
from ....questions.layout import Layout
from ....utils.errors import Call, Name
from ....utils.record_type import Record
from ...graph.flop_count import forward_flops, list_flops
from ...graph.recorder import Graph, record_prefill
from ...storage.parallel_layout import stage_layers
from .gpu_shards import ShardedModel, WeightRead

Bound = Literal["memory", "compute"]
_ASSUMPTIONS = (
    "the data sheet's bandwidth and dense FLOP/s, every byte read once",
    "no time for communication, kernel launches, softmax, norms or sampling",
    "no speculative decoding: a pass gives one token of each sequence, where a draft model or "
    "multi-token prediction can give several",
)

_PCIE_5 = 64 * 10**9
"""Bytes per second in one direction of PCIe 5.0 x16, to a host, where the link between GPUs is
another."""


class SpeedLimit(Record):
    """The bound of one pass."""

    tokens: int  # generated (decode) or read (prefill), all sequences together
    bytes: int  # read by one GPU of each stage, summed over the stages
    flops: int  # of one GPU of each stage, summed over the stages
    seconds: float
    bound: Bound

    json_fields: ClassVar[tuple[str, ...]] = (
        "tokens_per_second",
        "seconds",
        "bytes",
        "flops",
        "intensity",
        "bound",
    )

    @property
    def tokens_per_second(self) -> float:
        """The bound in tokens per second."""
        return self.tokens / self.seconds

    @property
    def intensity(self) -> float:
        """FLOPs per byte read."""
        return self.flops / self.bytes


class _Roof(NamedTuple):
    """The bounds of a device: bytes per second, and FLOP/s in the dtype of the matrix products;
    None if no rate is published.
    """

    bandwidth: int
    peak: int | None
    dtype: str
    host: int = 0  # bytes per second from the memory of the host


class SpeedLimits(Record):
    """The bounds of one layout on one device."""

    roof: _Roof
    decode: SpeedLimit
    prefill: SpeedLimit | None  # None: the vendor publishes no FLOP/s
    assumptions: tuple[str, ...]

    json_fields: ClassVar[tuple[str, ...]] = (
        "decode",
        "prefill",
        "peak=roof.peak",
        "peak_dtype=roof.dtype",
        "assumptions",
    )


def find_roof(device: Device, scheme: str, compute: str) -> _Roof:
    """Return the roof of a device for weights in a scheme."""
    dtype = next((x for x in compute_dtypes(scheme, compute) if x in device.flops), "")
    return _Roof(device.bandwidth, device.flops.get(dtype), dtype, host_bandwidth(device))


def host_bandwidth(device: Device) -> int:
    """Return the bytes per second at which a GPU reads the memory of the host; 0 if the two
    share one memory.
    """
    if device.unified:
        return 0
    return device.link if "PCIe" in device.kind else _PCIE_5


def compute_dtypes(scheme: str, compute: str) -> tuple[str, ...]:
    """Return the dtypes of matrix products in a scheme, best first: its own if the device
    supports it, else that of the activations.
    """
    plain = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}[compute]
    return tuple(dict.fromkeys((compute_rate(scheme) or plain, plain, "bf16", "fp16", "fp32")))


def speed_limits(shards: ShardedModel, device: Device, context: int, batch: int) -> SpeedLimits:
    """Return the bounds of decode at a context with a batch, and of prefill of prompts of that
    length.
    """
    roof = find_roof(device, shards.calculator.packer.name, shards.calculator.packer.compute_dtype)
    assumptions = [*_ASSUMPTIONS, _peak_assumption(roof)]
    if shards.layout.pp > 1:
        assumptions.append(
            "decode: one batch in flight, so stages take turns; prefill: chunks "
            "keep all stages busy"
        )
    if shards.offload:
        assumptions.append(
            "weights on the host are those that a pass reads least of, copied to the GPU for each "
            f"pass at {roof.host / 1e9:,.0f} GB/s; where the CPU computes with them, as in "
            f"llama.cpp, the bound is that of {Call('place', Name('model'), ram='64GiB')}"
        )
    if any(x.num_experts for x in shards.leaves):
        assumptions.append(
            "routing is even and independent: a batch of B uses E·(1 − (1 − k/E)^B) of E experts"
        )
    return SpeedLimits(
        roof=roof,
        decode=decode_limit(shards, roof, context, batch),
        prefill=_prefill_limit(shards, roof, context, batch) if roof.peak else None,
        assumptions=tuple(assumptions),
    )


def mixed_speed_limits(
    shards: ShardedModel, gpus: Sequence[Device], context: int, batch: int
) -> SpeedLimits:
    """Return the bounds of a pipeline whose stages are different GPUs."""
    calculator, tokens = shards.calculator, batch * context
    packer = calculator.packer
    roofs = [find_roof(x, packer.name, packer.compute_dtype) for x in gpus]
    read = [
        int(total(x.of(batch) for x in reads)) + shards.kv_cache(i, context, batch)
        for i, reads in enumerate(shards.reads)
    ]
    flops = _stage_flops(shards, calculator.decode, B=batch, P=context - 1)
    reading = sum(n / x.bandwidth for n, x in zip(read, roofs, strict=True))
    working = sum(n / x.peak for n, x in zip(flops, roofs, strict=True) if x.peak)
    decode = _bound(batch, sum(read), sum(flops), (reading, working))
    prefill = None
    if all(x.peak for x in roofs):
        flops = _stage_flops(shards, record_prefill(calculator.tree), B=batch, T=context)
        read = [int(total(x.of(tokens) for x in reads)) for reads in shards.reads]
        stages = [
            _bound(tokens, n, work, (n / x.bandwidth, work / (x.peak or 1)))
            for n, work, x in zip(read, flops, roofs, strict=True)
        ]
        prefill = max(stages, key=lambda x: x.seconds)
    slow = min(roofs, key=lambda x: x.bandwidth)
    each = (
        "decode: one batch in flight, so stages take turns; prefill: chunks keep all stages busy, "
        "and the slowest decides"
    )
    return SpeedLimits(roof=slow, decode=decode, prefill=prefill, assumptions=(*_ASSUMPTIONS, each))


def _stage_flops(shards: ShardedModel, graph: Graph, **values: int) -> list[int]:
    """Return the FLOPs of each stage of a pass; what is outside the layers is on the last."""
    layers = {id(x.block): total(y.flops for y in list_flops(x)) for x in graph.layers}
    found = [
        total(
            product((n, layers[id(block)]))
            for block, n in stage_layers(shards.calculator.tree.layers, stage)
        ).evaluate(**values)
        for stage in shards.stages
    ]
    found[-1] += forward_flops(graph).total.evaluate(**values) - sum(found)
    return found


def _bound(tokens: int, read: int, flops: int, seconds: tuple[float, float]) -> SpeedLimit:
    reading, working = seconds
    bound: Bound = "memory" if reading >= working else "compute"
    return SpeedLimit(tokens=tokens, bytes=read, flops=flops, seconds=max(seconds), bound=bound)


class PassWork(NamedTuple):
    """The tokens of a pass, and the bytes and FLOPs of one GPU of each stage."""

    tokens: int
    bytes: Expr
    flops: Expr


def decode_work(
    reads: Iterable[Iterable[WeightRead]],
    caches: Iterable[int],
    flops: Expr,
    layout: Layout,
    batch: int,
) -> PassWork:
    """Return the work of decode: each stage reads the weights of the tokens and the whole cache,
    one stage after another.
    """
    read = total((*(x.of(batch) for stage in reads for x in stage), *caches))
    return PassWork(batch, read, floor_div(flops, layout.tp))


def prefill_work(
    reads: Iterable[Iterable[WeightRead]], flops: Expr, layout: Layout, tokens: int
) -> PassWork:
    """Return the work of prefill: all stages work at once, and the weights are read once."""
    read = reduce(maximum, (total(x.of(tokens) for x in stage) for stage in reads))
    return PassWork(tokens, read, floor_div(flops, product((layout.tp, layout.pp))))


def decode_limit(shards: ShardedModel, roof: _Roof, context: int, batch: int) -> SpeedLimit:
    """Return the bound of decode."""
    caches = [shards.kv_cache(i, context, batch) for i in range(len(shards.stages))]
    flops = Expr.const(shards.calculator.decode_flops.evaluate(B=batch, P=context - 1))
    return _limit(
        decode_work(shards.reads, caches, flops, shards.layout, batch),
        roof,
        shards.host_reads(batch),
    )


def _prefill_limit(shards: ShardedModel, roof: _Roof, context: int, batch: int) -> SpeedLimit:
    """Return the bound of prefill."""
    flops = Expr.const(shards.calculator.prefill_flops.evaluate(B=batch, T=context))
    work = prefill_work(shards.reads, flops, shards.layout, batch * context)
    return _limit(work, roof, shards.host_reads(batch * context) // shards.layout.pp)


def _limit(work: PassWork, roof: _Roof, from_host: int = 0) -> SpeedLimit:
    """Return the bound of a pass; the memory of the GPU and that of the host are read at the
    same time.
    """
    reading, working = (
        (work.bytes - from_host) / roof.bandwidth,
        work.flops / roof.peak if roof.peak else 0.0,
    )
    reading = max(reading, from_host / roof.host) if from_host else reading
    return _bound(work.tokens, work.bytes, work.flops, (reading, working))


def _peak_assumption(roof: _Roof) -> str:
    return (
        f"products at the {roof.dtype} rate, {roof.peak / 1e12:,.0f} TFLOP/s"
        if roof.peak
        else "no FLOP/s are known"
    )
