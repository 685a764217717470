"""`ceilings`: how fast a layout could decode and read prompts at the very most: bytes over bandwidth or FLOPs over the peak, whichever
takes longer (the roofline of Williams et al. 2009, doi:10.1145/1498765.1498785).

They are bounds, no predictions: every byte is read once, at the peak bandwidth of the data sheet; every product runs at the dense peak;
nothing is spent on communication between GPUs, on launching kernels, on softmax, norms and sampling.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

from ...checkpoint.quantization.schemes import COMPUTE_RATES
from ...core.forward_pass import ForwardPass
from ...core.record_type import Record
from ...hardware import Device
from ..flops.flop_count import forward_flops
from .gpu_shards import ShardedModel

Bound = Literal["memory", "compute"]
ASSUMPTIONS = (
    "the data sheet's bandwidth and dense FLOP/s, every byte read once",
    "nothing is spent on communication, kernel launches, softmax, norms or sampling",
)


class SpeedLimit(Record):
    """The bound of one pass."""

    tokens: int  # generated (decode) or read (prefill), all sequences together
    bytes: int  # read by one GPU of each stage, summed over the stages
    flops: int  # of one GPU of each stage, summed over the stages
    seconds: float
    bound: Bound

    json_fields: ClassVar[tuple[str, ...]] = ("tokens_per_second", "seconds", "bytes", "flops", "intensity", "bound")

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds

    @property
    def intensity(self) -> float:
        """FLOPs for each byte read."""
        return self.flops / self.bytes


class Roof(NamedTuple):
    """What bounds a device: bytes a second, and FLOP/s in the type that the products run in; None where no rate is published."""

    bandwidth: int
    peak: int | None
    dtype: str


class SpeedLimits(Record):
    """The ceilings of one layout on one device."""

    roof: Roof
    decode: SpeedLimit
    prefill: SpeedLimit | None  # None: the device's vendor publishes no rate of arithmetic
    assumptions: tuple[str, ...]

    json_fields: ClassVar[tuple[str, ...]] = ("decode", "prefill", "peak=roof.peak", "peak_dtype=roof.dtype", "assumptions")


def find_roof(device: Device, scheme: str, compute: str) -> Roof:
    """The roof for weights kept in a scheme."""
    found = next((x for x in compute_dtypes(scheme, compute) if x in device.flops), "")
    return Roof(device.bandwidth, device.flops.get(found), found)


def compute_dtypes(scheme: str, compute: str) -> tuple[str, ...]:
    """What products of weights in a scheme run in, best first: its own type if the device multiplies in that, else that of activations."""
    plain = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}[compute]
    return tuple(dict.fromkeys((COMPUTE_RATES.get(scheme, plain), plain, "bf16", "fp16", "fp32")))


def speed_limits(shards: ShardedModel, device: Device, context: int, batch: int) -> SpeedLimits:
    """Decode at a context with so many sequences, and prefill of prompts as long."""
    over = find_roof(device, shards.calculator.packer.name, shards.calculator.packer.compute_dtype)
    assumed = [*ASSUMPTIONS, _computed(over)]
    if shards.layout.pp > 1:
        assumed.append("decode: one batch in flight, so that stages take turns; prefill: chunks keep all stages busy")
    if any(x.num_experts for x in shards.leaves):
        assumed.append("experts are chosen evenly and independently: a batch of B touches E·(1 − (1 − k/E)^B) of E")
    return SpeedLimits(
        roof=over,
        decode=decode_limit(shards, over, context, batch),
        prefill=prefill_limit(shards, over, context, batch) if over.peak else None,
        assumptions=tuple(assumed),
    )


def decode_limit(shards: ShardedModel, over: Roof, context: int, batch: int) -> SpeedLimit:
    """One more token of each sequence: the weights that it meets, and the whole cache, stage after stage."""
    weights = sum(shards.weight_reads(batch))
    remembered = sum(shards.kv_cache(i, context, batch) for i in range(len(shards.stages)))
    work = forward_flops(shards.tree, ForwardPass.decode(context, absorbed=True), batch).total // shards.layout.tp
    return _speed(batch, weights + remembered, work, over)


def prefill_limit(shards: ShardedModel, over: Roof, context: int, batch: int) -> SpeedLimit:
    """Whole prompts, the stages at work side by side; the weights are read once."""
    layout = shards.layout
    work = forward_flops(shards.tree, ForwardPass.prefill(context, last=True), batch).total
    return _speed(batch * context, max(shards.weight_reads(batch * context)), work // (layout.tp * layout.pp), over)


def _speed(tokens: int, read: int, work: int, over: Roof) -> SpeedLimit:
    reading, working = read / over.bandwidth, work / over.peak if over.peak else 0.0
    bound: Bound = "memory" if reading >= working else "compute"
    return SpeedLimit(tokens=tokens, bytes=read, flops=work, seconds=max(reading, working), bound=bound)


def _computed(over: Roof) -> str:
    return f"products at the {over.dtype} rate, {over.peak / 1e12:,.0f} TFLOP/s" if over.peak else "no rate of arithmetic is published"
