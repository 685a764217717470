"""`ceilings`: how fast a layout could decode and read prompts at the very most: bytes over bandwidth or FLOPs over the peak, whichever
takes longer (the roofline of Williams et al. 2009, doi:10.1145/1498765.1498785).

They are bounds, no predictions: every byte is read once, at the peak bandwidth of the data sheet; every product runs at the dense peak;
nothing is spent on communication between GPUs, on launching kernels, on softmax, norms and sampling.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ...core.forward_pass import ForwardPass
from ...core.record_type import Record
from ...hardware import Device
from ..flops.flop_count import forward_flops
from .gpu_shards import Shards

Bound = Literal["memory", "compute"]
RATES = {"fp32": "fp32", "fp8": "fp8", "bnb-int8": "int8", "nvfp4": "fp4"}
"""Schemes whose products run in a type of their own; all others unpack to 16 bits."""
ASSUMED = (
    "the data sheet's bandwidth and dense FLOP/s, every byte read once",
    "nothing is spent on communication, kernel launches, softmax, norms or sampling",
)


class Speed(Record):
    """A pass on its roof."""

    tokens: int  # that it gives (decode) or reads (prefill), all sequences together
    bytes: int  # read by one GPU of each stage, summed over the stages
    flops: int  # of one GPU of each stage, summed over the stages
    seconds: float
    bound: Bound

    @property
    def rate(self) -> float:
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


class Ceilings(Record):
    """The ceilings of one layout on one device."""

    roof: Roof
    decode: Speed
    prefill: Speed | None  # None: the device's vendor publishes no rate of arithmetic
    assumptions: tuple[str, ...]


def roof(device: Device, scheme: str, compute: str) -> Roof:
    """The roof for weights kept in a scheme."""
    found = next((x for x in types(scheme, compute) if x in device.flops), "")
    return Roof(device.bandwidth, device.flops.get(found), found)


def types(scheme: str, compute: str) -> tuple[str, ...]:
    """What products of weights in a scheme run in, best first: its own type if the device multiplies in that, else that of activations."""
    plain = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}[compute]
    return tuple(dict.fromkeys((RATES.get(scheme, plain), plain, "bf16", "fp16", "fp32")))


def ceilings(shards: Shards, device: Device, context: int, batch: int) -> Ceilings:
    """Decode at a context with so many sequences, and prefill of prompts as long."""
    over = roof(device, shards.sizes.packer.name, shards.sizes.packer.compute)
    assumed = [*ASSUMED, _computed(over)]
    if shards.layout.pp > 1:
        assumed.append("decode: one batch in flight, so that stages take turns; prefill: chunks keep all stages busy")
    if any(x.num_experts for x in shards.leaves):
        assumed.append("experts are chosen evenly and independently: a batch of B touches E·(1 − (1 − k/E)^B) of E")
    return Ceilings(
        roof=over,
        decode=decode(shards, over, context, batch),
        prefill=prefill(shards, over, context, batch) if over.peak else None,
        assumptions=tuple(assumed),
    )


def decode(shards: Shards, over: Roof, context: int, batch: int) -> Speed:
    """One more token of each sequence: the weights that it meets, and the whole cache, stage after stage."""
    weights = sum(shards.streamed(batch))
    remembered = sum(shards.remembered(i, context, batch) for i in range(len(shards.stages)))
    work = forward_flops(shards.tree, ForwardPass.decode(context, absorbed=True), batch).total // shards.layout.tp
    return _speed(batch, weights + remembered, work, over)


def prefill(shards: Shards, over: Roof, context: int, batch: int) -> Speed:
    """Whole prompts, the stages at work side by side; the weights are read once."""
    layout = shards.layout
    work = forward_flops(shards.tree, ForwardPass.prefill(context, last=True), batch).total
    return _speed(batch * context, max(shards.streamed(batch * context)), work // (layout.tp * layout.pp), over)


def _speed(tokens: int, read: int, work: int, over: Roof) -> Speed:
    reading, working = read / over.bandwidth, work / over.peak if over.peak else 0.0
    bound: Bound = "memory" if reading >= working else "compute"
    return Speed(tokens=tokens, bytes=read, flops=work, seconds=max(reading, working), bound=bound)


def _computed(over: Roof) -> str:
    return f"products at the {over.dtype} rate, {over.peak / 1e12:,.0f} TFLOP/s" if over.peak else "no rate of arithmetic is published"
